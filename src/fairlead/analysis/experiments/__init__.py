"""Experiments: many simulations, kept and compared; the published results."""
