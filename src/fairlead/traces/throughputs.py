"""Throughput tables: Gavel's JSON, our CSV, the catalogue that ships with Fairlead."""

import ast
import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from fairlead.errors import ThroughputError
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Locality, SlotType
from fairlead.model.throughput import Kind, Throughputs
from fairlead.traces.atomic import write_atomically
from fairlead.traces.fields import at_least_zero, whole
from fairlead.traces.lines import Columns, Source, csv_rows, shown

COLUMNS = ("family", "scale_factor", "accelerator", "locality", "steps_per_s", "source")
BUILTIN = "builtin"
SPREAD_SUFFIX = "_unconsolidated"  # how Gavel marks the table of a spread slot type
ALONE = "null"  # Gavel's key for the rate without a partner

GavelTable: TypeAlias = dict[str, dict[str, dict[str, float | list[float]]]]


def read_throughputs(path: str | Path) -> Throughputs:
    """A table from Gavel's JSON or our CSV, recognised by content; ``"builtin"`` is the catalogue."""
    if str(path) == BUILTIN:
        return builtin_throughputs()
    source = Source(path, ThroughputError)
    _, head = source.head()
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return _read_gavel(source)
    return _read_csv(source, str(path))


def builtin_throughputs() -> Throughputs:
    """The embedded catalogue: measured rates with their source row by row (docs/formats.md)."""
    with as_file(files("fairlead.data") / "catalogue.csv") as path:
        return _read_csv(Source(path, ThroughputError), "the built-in catalogue")


def write_throughputs_csv(table: Throughputs, path: str | Path) -> None:
    """Write the rates of jobs alone as our CSV; pairs have no place in it and are left out."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for (family, scale), rates in zip(table.kinds, table.rate.tolist(), strict=True):
        for slot, rate in zip(table.slots, rates, strict=True):
            rows.writerow(
                [family, scale, slot.accelerator, slot.locality.value, rate, table.origin]
            )
    with write_atomically(path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One rate of the table."""

    kind: Kind
    slot: SlotType
    rate: float  # steps/s


def _table(
    entries: Iterable[_Entry], slots: Iterable[SlotType], origin: str
) -> tuple[dict[Kind, int], dict[SlotType, int], Throughputs]:
    """The entries as a matrix: kinds in order of appearance, slot types in alphabetical order."""
    entries = list(entries)
    row: dict[Kind, int] = {}
    for entry in entries:
        row.setdefault(entry.kind, len(row))
    order = sorted(set(slots), key=lambda s: (s.accelerator, s.locality.value))
    column = {slot: i for i, slot in enumerate(order)}
    rate = np.zeros((len(row), len(column)))
    for entry in entries:
        rate[row[entry.kind], column[entry.slot]] = entry.rate
    return row, column, Throughputs(tuple(column), tuple(row), rate, origin=origin)


def _read_csv(source: Source, origin: str) -> Throughputs:
    """Our CSV; a rate that has no row is 0: cannot run there."""
    rows = csv_rows(source)
    line, header = next(rows)
    columns = Columns(source, line, header, COLUMNS[:5])
    entries: dict[tuple[Kind, SlotType], _Entry] = {}
    for line, row in rows:
        columns.check(line, row)
        entry = _csv_entry(source, line, [row[columns.index[name]] for name in COLUMNS[:5]])
        if (entry.kind, entry.slot) in entries:
            raise source.fault(line, f"{_named(entry)}: the row appears twice")
        entries[entry.kind, entry.slot] = entry
    if not entries:
        raise source.fault(line, "the table has no rows")
    _, _, table = _table(entries.values(), (slot for _, slot in entries), origin)
    return table


def _csv_entry(source: Source, line: int, cells: list[str]) -> _Entry:
    family, scale, accelerator, locality, rate = (cell.strip() for cell in cells)
    for name, value in (("family", family), ("accelerator", accelerator)):
        if not value:
            raise source.fault(line, f"{name}: must not be empty")
    if locality not in {one.value for one in Locality}:
        known = " or ".join(one.value for one in Locality)
        raise source.fault(line, f"locality: expected {known}, got {shown(locality)}")
    return _Entry(
        (family, whole(source, line, "scale_factor", scale, least=1)),
        SlotType(accelerator, Locality(locality)),
        at_least_zero(source, line, "steps_per_s", rate),
    )


def _named(entry: _Entry) -> str:
    family, scale = entry.kind
    return f"{family} at scale factor {scale} on {entry.slot.accelerator}"


def _read_gavel(source: Source) -> Throughputs:
    """Gavel's JSON: accelerator type -> kind -> {"null": rate alone, other kind: [rates of both]}."""
    data = source.document()
    try:
        table = msgspec.json.decode(data, type=GavelTable)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise source.json_fault(problem, data) from None
    kind = {text: _gavel_kind(source, text) for by_kind in table.values() for text in by_kind}
    if not kind:
        raise source.fault(None, "the table has no rows")
    entries = [
        _Entry(kind[text], _gavel_slot(column), _gavel_alone(source, column, text, partners))
        for column, by_kind in table.items()
        for text, partners in by_kind.items()
    ]
    row, slot, rates = _table(entries, (_gavel_slot(column) for column in table), str(source.path))
    pair = np.zeros((len(row), len(row), len(slot)))
    for column, by_kind in table.items():
        for text, partners in by_kind.items():
            beside = pair[row[kind[text]], :, slot[_gavel_slot(column)]]
            _gavel_partners(source, column, text, partners, kind, row, beside)
    return Throughputs(
        rates.slots, rates.kinds, rates.rate, pair if pair.any() else None, origin=rates.origin
    )


def _gavel_slot(column: str) -> SlotType:
    if column.endswith(SPREAD_SUFFIX):
        return SlotType(column.removesuffix(SPREAD_SUFFIX), Locality.SPREAD)
    return SlotType(column)


def _gavel_kind(source: Source, text: str) -> Kind:
    """``"('LM (batch size 5)', 2)"``, or in the oldest files the family alone, which means 1 device."""
    if not text.startswith("("):
        return text, 1
    try:
        family, scale = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        family, scale = None, None
    if not isinstance(family, str) or not isinstance(scale, int) or scale < 1:
        raise source.fault(None, f"key {shown(text)}: expected ('family', scale factor)")
    return family, scale


def _gavel_alone(
    source: Source, column: str, text: str, partners: dict[str, float | list[float]]
) -> float:
    rate = partners.get(ALONE, 0.0)
    if not isinstance(rate, float | int) or not 0 <= rate < float("inf"):
        raise source.fault(
            None, f"{column}, {text}: the rate must be a number >= 0, got {shown(rate)}"
        )
    return float(rate)


def _gavel_partners(
    source: Source,
    column: str,
    text: str,
    partners: dict[str, float | list[float]],
    kind: dict[str, Kind],
    row: dict[Kind, int],
    beside: Floats,  # (kinds,) where the rates beside each other kind go
) -> None:
    for other, rates in partners.items():
        if other == ALONE:
            continue
        index = row.get(kind.get(other) or _gavel_kind(source, other))
        if index is None:
            raise source.fault(None, f"{column}, {text}: partner {shown(other)} has no row")
        if not isinstance(rates, list) or len(rates) != 2 or not 0 <= min(rates) <= max(rates):
            raise source.fault(
                None, f"{column}, {text}, {other}: expected two rates >= 0, got {shown(rates)}"
            )
        beside[index] = rates[0]
