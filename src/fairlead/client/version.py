"""The version, of the training side and of the whole package alike."""

__version__ = "0.1.0"
