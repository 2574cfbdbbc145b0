"""Rates that were measured, into a throughput table that may exist already."""

import csv
import fcntl
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlead.errors import ThroughputError
from fairlead.simulator.traces.atomic_write import write_atomically
from fairlead.simulator.traces.throughput_tables import (
    COLOCATED,
    COLUMNS,
    read_throughputs,
)

KEY = COLUMNS[:4]  # family, scale factor, accelerator type, locality


def merge_rates(path: Path, rows: Iterable[dict[str, str]]) -> None:
    """Put rows (by the columns of docs/formats.md) into our CSV at ``path``; a row of the same job type, slot
    type and partner gives way, all else stays as it is, comments aside. Raises ThroughputError where the file
    is no table, or not our CSV."""
    with _exclusively(path):
        _merge(path, rows)


@contextmanager
def _exclusively(path: Path) -> Iterator[None]:
    """One process at a time: several may measure into one table at once."""
    try:
        handle = os.open(path.absolute().parent, os.O_RDONLY)
    except OSError as problem:
        raise ThroughputError(f"{path}: cannot be written ({problem.strerror})") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _merge(path: Path, rows: Iterable[dict[str, str]]) -> None:
    header, old = _existing(path)
    new = {_key(row): row for row in rows}
    unchanged = [row for row in old if _key(row) not in new]
    if COLOCATED not in header and any(row.get(COLOCATED) for row in new.values()):
        header = [*header, COLOCATED]
    text = io.StringIO()
    writer = csv.DictWriter(text, header, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows([*unchanged, *new.values()])
    with write_atomically(path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")


def _existing(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows of the file; those of an empty table where there is none."""
    if not path.exists():
        return list(COLUMNS), []
    read_throughputs(path)  # says what is wrong with it
    text = path.read_bytes()
    if text[:2] == b"\x1f\x8b" or text.decode("utf-8-sig").lstrip().startswith("{"):
        raise ThroughputError(f"{path}: rates can be put into a plain CSV only")
    lines = text.decode("utf-8-sig").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    reader = csv.DictReader(lines)
    reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    return list(reader.fieldnames), list(reader)


def _key(row: dict[str, str]) -> tuple[str, ...]:
    family, scale, accelerator, locality = (row[name].strip() for name in KEY)
    return family, str(int(float(scale))), accelerator, locality, (row.get(COLOCATED) or "").strip()
