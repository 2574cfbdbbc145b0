"""How many examples a property is tested with."""

from hypothesis import settings


def examples(number: int) -> settings:
    """Return settings for ``number`` examples, the same each time; as many as are asked for, and others
    each time, where the profile ``explore`` is loaded (``scripts/explore``)."""
    return settings(max_examples=number) if settings().derandomize else settings()
