"""The demonstration: a small live cluster with simulated devices and eight jobs (``fairlead up --demo``)."""
