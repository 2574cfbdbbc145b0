"""Fairlead: a scheduler for deep-learning clusters whose accelerators differ."""

__version__ = "0.1.0"
