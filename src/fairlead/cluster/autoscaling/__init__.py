"""Nodes by demand: which to ask an engine for, which to give back, and the engines (Slurm, a command, this
machine) that start them."""
