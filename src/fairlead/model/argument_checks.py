"""Check the types of arguments of the library's calls; the error names the argument and its value."""

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeAlias

from fairlead.errors import ConfigError, InputError

# A predicate of an argument, and the words for it in a message, such as "a number".
Check: TypeAlias = tuple[Callable[[Any], bool], str]


def is_number(value: object) -> bool:
    """Return whether a value is a number, of Python or of NumPy; False for True and False."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number by its type; False for True and False."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def instance_of(*types: type) -> Callable[[Any], bool]:
    """Return the predicate: whether a value is of one of these types."""
    return lambda value: isinstance(value, types)


def or_none(check: Check) -> Check:
    """Return the check that also accepts None."""
    holds, expected = check
    return lambda value: value is None or holds(value), f"{expected} or None"


def list_of(element_type: type, expected: str) -> Check:
    """Return the check that a value is a tuple or a list of values of one type."""

    def holds(value: object) -> bool:
        return isinstance(value, tuple | list) and all(
            isinstance(one, element_type) for one in value
        )

    return holds, expected


def mapping_to_numbers(holds: Callable[[Any], bool], expected: str) -> Check:
    """Return the check that a value maps keys of which ``holds`` is true to numbers."""

    def both(value: object) -> bool:
        return isinstance(value, Mapping) and all(
            holds(key) and is_number(one) for key, one in value.items()
        )

    return both, expected


def array_of(dimensions: int) -> Check:
    """Return the check that a value is an array of numbers with so many dimensions."""

    def holds(value: object) -> bool:
        import numpy as np  # a fifth of a second for a client, which has no arrays

        if not isinstance(value, np.ndarray):
            return False
        return value.ndim == dimensions and value.dtype.kind in "fiu"

    return holds, f"an array of numbers with {dimensions} dimensions"


NUMBER: Check = (is_number, "a number")
WHOLE_NUMBER: Check = (is_whole, "a whole number")
PATH: Check = (lambda value: isinstance(value, str | Path) and "\0" not in str(value), "a path")
TEXT: Check = (instance_of(str), "text")
BOOLEAN: Check = (instance_of(bool), "True or False")


def check_arguments(
    call: str,
    given: Mapping[str, Any],
    checks: Mapping[str, Check],
    error: type[InputError] = ConfigError,
) -> None:
    """Raise ``error`` with name and value of the first argument that fails its check."""
    for name, (holds, expected) in checks.items():
        if name in given and not holds(given[name]):
            raise error(f"{call}(): {name}: expected {expected}, got {brief_repr(given[name])}")


def check_fields(
    record: object, checks: Mapping[str, Check], error: type[InputError] = ConfigError
) -> None:
    """Raise ``error`` with name and value of the first field of a record that fails its check."""
    given = {name: getattr(record, name) for name in checks}
    check_arguments(type(record).__name__, given, checks, error)


def check_both_or_none(options: Mapping[str, object]) -> None:
    """Raise ConfigError where one of two options is given, and the other is None."""
    missing = [name for name, value in options.items() if value is None]
    given = [name for name, value in options.items() if value is not None]
    if missing and given:
        raise ConfigError(f"{given[0]}: is given without {missing[0]}; give both or none")


def brief_repr(value: object) -> str:
    """Return a value's repr for a message: one line of at most 60 characters."""
    text = " ".join(repr(value).split("\n"))
    return text if len(text) <= 60 else text[:57] + "..."
