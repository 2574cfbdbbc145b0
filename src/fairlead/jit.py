"""Compiled loops. numba compiles a kernel when its module is imported, for the types in its signature, and
keeps the machine code beside the module or in the user's cache; where neither can be written, it is
compiled anew in each process."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])
_njit: Any = numba.njit  # typed in some of its versions, not in others


def kernel(signature: str | list[str], inline: str = "never") -> Callable[[F], F]:
    """Compile a function for numba's signature(s). Results are those of plain Python: no fast-math."""

    def compile_(function: F) -> F:
        try:
            compiled: F = _njit(signature, cache=True, inline=inline)(function)
        except RuntimeError:  # nowhere to keep it
            compiled = _njit(signature, inline=inline)(function)
        return compiled

    return compile_
