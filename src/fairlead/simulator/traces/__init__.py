"""Readers and generators of jobs; every reader gives a list of arrivals."""
