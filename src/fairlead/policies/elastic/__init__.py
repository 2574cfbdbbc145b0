"""Policies that decide how many devices each job has: one configuration (accelerator type, number of devices)
for each job, or none, for the most of an objective within the cluster."""
