"""The simulated cluster: a backend that needs no hardware."""
