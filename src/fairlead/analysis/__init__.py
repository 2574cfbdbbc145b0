"""What is made of runs: reports, sweeps, reproductions, benchmarks of solves."""
