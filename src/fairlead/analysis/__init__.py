"""Analyses of runs: reports, sweeps, reproductions, benchmarks of solves."""
