"""Frozen data that every layer speaks: jobs, clusters, rates, snapshots, allocations, plans."""
