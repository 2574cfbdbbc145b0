"""Traces played on a live cluster: their jobs are submitted at their times, followed, and recorded."""
