"""Configuration files of commands."""

from pathlib import Path
from typing import TypeVar

import msgspec

from fairlead.cluster.protocol.read_job_spec import describe_error
from fairlead.errors import ConfigError
from fairlead.model.toml import read_toml
from fairlead.model.toml_lines import naming_lines

_Fields = TypeVar("_Fields", bound=msgspec.Struct)


def read_config_file(path: Path, fields: type[_Fields]) -> _Fields:
    """The content of a TOML file. Raises ConfigError with the file, the line and the field."""
    content = read_toml(path, ConfigError)
    try:
        return msgspec.convert(content, fields)
    except msgspec.ValidationError as problem:
        with naming_lines(path):
            said = describe_error(problem, content, fields.__struct_fields__)
            raise ConfigError(f"{path}: {said}") from None
