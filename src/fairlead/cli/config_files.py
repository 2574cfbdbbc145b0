"""Configuration files of commands."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from fairlead.cluster.protocol.conversion_errors import describe_error
from fairlead.errors import ConfigError, InputError
from fairlead.model.toml import read_toml
from fairlead.model.toml_lines import naming_lines

_Fields = TypeVar("_Fields", bound=msgspec.Struct)
# At the beginning of an error: the option, or what it gives with its value in quotes.
_OPTION = re.compile(
    r"(?P<mark>--)?(?P<name>[a-z0-9_-]+)(?:(?: (?P<value>[^:']*))?: | (?='))(?P<rest>.*)", re.DOTALL
)


def read_config_file(path: Path, fields: type[_Fields]) -> _Fields:
    """The content of a TOML file. Raises ConfigError with the file, the line and the field."""
    content = read_toml(path, ConfigError)
    try:
        return msgspec.convert(content, fields)
    except msgspec.ValidationError as problem:
        with naming_lines(path):
            said = describe_error(problem, content, fields)
            raise ConfigError(f"{path}: {said}") from None


@contextmanager
def naming_fields(
    path: Path, is_from_file: Callable[[str], bool], texts: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Errors of the block about an option, ``--NAME: ...``, are said of its field and line in a configuration
    file. is_from_file: whether a field's value is the file's, and not the command line's; texts: its fields
    that are texts, which an error may begin with: paths and the like."""
    try:
        yield
    except InputError as problem:
        said = str(problem)
        found = _OPTION.fullmatch(said)
        name = "" if found is None else found["name"].replace("-", "_")
        if found is not None and is_from_file(name):
            value = found["value"] if found["mark"] else None
            said = f"{value}: {found['rest']}" if value else found["rest"]
        else:
            begins = (one for one, text in (texts or {}).items() if said.startswith(f"{text}:"))
            name = next(filter(is_from_file, begins), "")
        if not name:
            raise
        with naming_lines(path):
            raise ConfigError(f"{path}: {name}: {said}") from None
