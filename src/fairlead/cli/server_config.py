"""The configuration file of ``fairlead serve``: its options by their long names, with _ for -.

Values of the command line count before variables (``FAIRLEAD_SERVE_`` and the name in capitals), these before
the file. The fields of the file are the options of the command: one that is added needs nothing here.
"""

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import typer

from fairlead.cli.config_files import naming_fields, read_config_file
from fairlead.errors import ConfigError
from fairlead.model.toml_lines import naming_lines

VARIABLES = "FAIRLEAD_SERVE_"  # what their names begin with
# Of one start alone, or of whoever starts the server
_NOT_IN_FILE = frozenset(("config", "help", "new_tokens", "inside_job", "ready_fd"))


class ServerConfig:
    """A configuration file, and the command line that it completes."""

    def __init__(self, path: Path, context: Any) -> None:
        """context: of the command; its options need not have been read yet."""
        self.path = path.absolute()
        self._context = context
        self._options = file_options(context)
        self._types = inspect.signature(context.command.callback).parameters

    def read(self) -> dict[str, Any]:
        """Parameter of the command -> its value in the file, of those that it gives. Raises ConfigError with
        the file, the line, the field and its value."""
        fields = [
            (
                name,
                _file_type(self._types[param.name].annotation) | msgspec.UnsetType,
                msgspec.UNSET,
            )
            for name, param in self._options.items()
        ]
        if self.path.exists() and not self.path.is_file():
            raise ConfigError(f"{self.path}: is no regular file; a reload reads it again")
        layout = msgspec.defstruct("ServerFile", fields, forbid_unknown_fields=True)
        found = msgspec.structs.asdict(read_config_file(self.path, layout))
        given = {name: value for name, value in found.items() if value is not msgspec.UNSET}
        return {
            self._options[name].name: self._checked(name, value) for name, value in given.items()
        }

    def _checked(self, name: str, value: Any) -> Any:
        try:
            self._options[name].process_value(self._context, value)
        except typer.BadParameter as problem:
            said = problem.message[:1].lower() + problem.message[1:].rstrip(".")
            got = "" if repr(value) in said else f", got {value!r}"
            with naming_lines(self.path):
                raise ConfigError(f"{self.path}: {name}: {said}{got}") from None
        return value

    def values(self) -> dict[str, Any]:
        """The values of all parameters that the file may give, as it is now."""
        file = self._context.default_map = self.read()
        return {
            param.name: self._context.params[param.name]
            if self._is_given_elsewhere(param.name)
            else param.process_value(
                self._context, file.get(param.name, param.get_default(self._context))
            )
            for param in self._options.values()
        }

    def naming_fields(self) -> AbstractContextManager[None]:
        """Errors of the block about an option whose value is the file's are said of its line there."""
        texts = {
            name: str(value)
            for name, option in self._options.items()
            if isinstance(value := self._context.params.get(option.name), str | Path)
        }
        return naming_fields(self.path, self._is_from_file, texts)

    def _is_from_file(self, name: str) -> bool:
        param = self._options.get(name)
        return param is not None and not self._is_given_elsewhere(param.name)

    def field_names(self, parameters: Mapping[str, Any]) -> list[str]:
        """Return the names that these parameters have in the file."""
        return [name for name, param in self._options.items() if param.name in parameters]

    def _is_given_elsewhere(self, parameter: str) -> bool:
        """Return whether the command line or a variable gives a parameter: the file's value does not count
        then."""
        source = self._context.get_parameter_source(parameter)
        return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def file_options(context: Any) -> dict[str, Any]:
    """Field of the file -> the option of the command that it stands for."""
    named = {
        str(max(param.opts, key=len)).removeprefix("--").replace("-", "_"): param
        for param in context.command.params
        if param.param_type_name == "option"
    }
    return {name: param for name, param in named.items() if name not in _NOT_IN_FILE}


def _file_type(annotation: Any) -> Any:
    """The type in the file of a parameter with this annotation: a path is a text there, and what an option
    parses itself may also be a number."""
    kind, *more = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    if any(getattr(one, "parser", None) is not None for one in more):
        return float | str
    if type(None) in get_args(kind):
        kind = next(one for one in get_args(kind) if one is not type(None))
    return str if kind is Path else kind


def _load(context: typer.Context, path: Path | None) -> Path | None:
    """Have variables, and the values of the file, stand in for what the command line leaves out."""
    for name, option in file_options(context).items():
        option.envvar = f"{VARIABLES}{name.upper()}"
    if path is not None:
        config = ServerConfig(path, context)
        context.default_map = config.read()
        context.obj = config
    return path


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_load,
        help="TOML file with any of these options, by their names with _ for -. `fairlead reload`, or "
        "SIGHUP, has it read again.",
    ),
]
