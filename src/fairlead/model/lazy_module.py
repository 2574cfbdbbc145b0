"""Modules that are slow to import, imported at first use."""

from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module, which is imported when one of its attributes is read."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self.__name__), attribute)
        setattr(self, attribute, value)
        return value
