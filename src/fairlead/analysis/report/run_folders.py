"""Folders of runs as ``fairlead simulate`` and ``compare`` write them."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from fairlead.errors import RunError

TABLES = ("jobs", "rounds", "placement_intervals")


def is_run(folder: Path) -> bool:
    """Return whether a run has been begun there."""
    return (folder / "run.json").is_file()


def runs_in(folder: Path) -> list[Path]:
    """The folder itself if it is a run's, else those in it that are: what ``compare`` wrote."""
    if is_run(folder):
        return [folder]
    inside = folder.iterdir() if folder.is_dir() else ()
    return sorted(filter(is_run, inside), key=_number)


def _number(folder: Path) -> tuple[int, str]:
    first = folder.name.partition("-")[0]
    return (int(first) if first.isdecimal() else 1 << 31), folder.name


def read_json_file(path: Path) -> dict[str, Any]:
    """The object in a JSON file; RunError where there is none."""
    try:
        record = json.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise RunError(f"{path}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise RunError(f"{path}: is not JSON: {problem}") from None
    except RecursionError:
        raise RunError(f"{path}: is nested too deeply") from None
    if not isinstance(record, dict):
        raise RunError(f"{path}: expected an object, got {type(record).__name__}")
    return record


def read_record(folder: Path) -> dict[str, Any]:
    """``run.json`` of a complete run; RunError where it is none."""
    path = folder / "run.json"
    if folder.is_file():
        raise RunError(f"{folder}: is a file, expected the folder of a run")
    if not path.is_file():
        raise RunError(f"{folder}: is not the folder of a run: there is no run.json")
    record = read_json_file(path)
    status = record.get("status")
    if status != "complete":
        raise RunError(f"{folder}: is not a complete run, its status is {status!r}")
    for name in ("config", "metrics"):
        if not isinstance(record.get(name), dict):
            raise RunError(f"{path}: field {name!r}: expected an object, got {record.get(name)!r}")
    return record


def read_table(folder: Path, name: str) -> pl.DataFrame:
    """One of the tables of a run: jobs, rounds or placement intervals."""
    path = folder / f"{name}.parquet"
    try:
        return pl.read_parquet(path)
    except OSError as problem:
        raise RunError(f"{path}: cannot be read: {problem.strerror or 'not found'}") from None
    except pl.exceptions.PolarsError as problem:
        raise RunError(f"{path}: is not a Parquet table: {problem}") from None
