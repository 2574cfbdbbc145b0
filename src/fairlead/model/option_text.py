"""Options written as text: ``NAME=VALUE``, and several of these with commas between them."""

from collections.abc import Iterable

from fairlead.errors import ConfigError, InputError


def split_option(text: str) -> tuple[str, str | None]:
    """Return name and value of ``NAME=VALUE``; the value is None where there is no equals sign."""
    name, equals, value = text.partition("=")
    return name, value if equals else None


def parse_options(
    texts: str | Iterable[str],
    option: str,
    *,
    expected: str = "NAME=VALUE",
    flags: bool = False,
    error: type[InputError] = ConfigError,
) -> dict[str, str]:
    """Return values by name, in the order given, both stripped of surrounding space.

    texts: several ``NAME=VALUE``, as a list or with commas between them; option: what the messages name
    first; expected: what they say was expected; flags: a name alone is allowed too, and has the value "".
    Raises ``error`` where a text has another form, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts.split(",") if isinstance(texts, str) else texts:
        name, value = split_option(text)
        name = name.strip()
        if not name or (value is None and not flags):
            raise error(f"{option}: expected {expected}, got {text.strip()!r}")
        if name in found:
            raise error(f"{option}: {name} is given twice")
        found[name] = "" if value is None else value.strip()
    return found
