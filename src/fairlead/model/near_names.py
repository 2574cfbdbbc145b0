"""Names that somebody will have meant by another."""

import difflib
from collections.abc import Iterable

NEAR_MISS = (
    0.65  # similarity from which on a name is suggested for another: two of three letters swapped
)
MAX_NAME = 200  # characters: what is longer is no misspelt name


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The name most similar to the given one; None where none is similar enough to be meant by it."""
    if len(name) > MAX_NAME:
        return None
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=NEAR_MISS)
    return found[0] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a message, as "; did you mean 'las'?"; empty where no name is similar enough."""
    near = nearest_name(name, names)
    return "" if near is None else f"; did you mean {near!r}?"
