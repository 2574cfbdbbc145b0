"""Options of commands that are declared as fields of records."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any


def takes_records(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of each dataclass among its parameters as options, in the place of
    that parameter. Fields are declared as Typer declares options: ``name: Annotated[type, Option]``.
    """
    signature = inspect.signature(command)
    records = {
        one.name: one.annotation
        for one in signature.parameters.values()
        if inspect.isclass(one.annotation) and is_dataclass(one.annotation)
    }
    options = {name: inspect.signature(record).parameters for name, record in records.items()}
    parameters = [
        option
        for one in signature.parameters.values()
        for option in (options[one.name].values() if one.name in options else (one,))
    ]

    @functools.wraps(command)
    def run(*first: Any, **given: Any) -> None:
        made = {
            name: record(**{option: given.pop(option) for option in options[name]})
            for name, record in records.items()
        }
        command(*first, **given, **made)

    set_parameters(run, parameters)
    return run


def set_parameters(run: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Give the function a signature of these parameters, all by keyword."""
    by_keyword = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    run.__signature__ = inspect.Signature(by_keyword)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
