"""Observers' records of a run, and the metrics made of them."""
