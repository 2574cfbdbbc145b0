"""Arguments that a training script gives: one that makes no sense is refused where it was given."""

from __future__ import annotations

import operator
import os
from math import isnan
from typing import Any

from fairlead.errors import ConfigError


def whole_number(name: str, value: Any, least: int) -> int:
    """Return the argument ``name`` as an int; integers of NumPy and PyTorch are taken too. Raises
    ConfigError where it is none, or below ``least``."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:  # an array of several, too
        number = None
    if number is None or number < least:
        raise ConfigError(f"{name}: expected a whole number >= {least}, got {value!r}")
    return number


def seconds(name: str, value: Any) -> float:
    """Return the argument ``name`` as a float; infinity is one. Raises ConfigError where it is no number, or
    below 0."""
    try:
        is_number = hasattr(value, "__float__") and not isinstance(value, bool)
        number = float(value) if is_number else -1.0
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if isnan(number) or number < 0:
        raise ConfigError(f"{name}: expected seconds >= 0, got {value!r}")
    return number


def function(name: str, value: Any) -> None:
    """Raises ConfigError where the argument ``name`` cannot be called."""
    if not callable(value):
        raise ConfigError(f"{name}: expected a function of a path, got {value!r}")


def folder(name: str, value: Any) -> str:
    """Return the argument ``name`` as text, "" for None. Raises ConfigError where it is no path."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else value
    if path is not None and not isinstance(path, str):
        raise ConfigError(f"{name}: expected a path, got {value!r}")
    return path or ""
