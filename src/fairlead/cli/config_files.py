"""Configuration files of commands."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from fairlead.cluster.protocol.conversion_errors import describe_error
from fairlead.errors import ConfigError, InputError
from fairlead.model.toml import read_toml
from fairlead.model.toml_lines import naming_lines

_Fields = TypeVar("_Fields", bound=msgspec.Struct)
_OPTION = re.compile(
    r"(?:--)?([a-z0-9_-]+)(?: [^:]*)?: (.*)", re.DOTALL
)  # at the beginning of an error


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
def naming_fields(path: Path, is_from_file: Callable[[str], bool]) -> Iterator[None]:
    """Errors of the block about an option, ``--NAME: ...``, are said of its field and line in a configuration
    file. is_from_file: whether a field's value is the file's, and not the command line's."""
    try:
        yield
    except InputError as problem:
        found = _OPTION.fullmatch(str(problem))
        name = "" if found is None else found[1].replace("-", "_")
        if found is None or not is_from_file(name):
            raise
        with naming_lines(path):
            raise ConfigError(f"{path}: {name}: {found[2]}") from None
