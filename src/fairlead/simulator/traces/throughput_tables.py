"""Throughput tables: Gavel's JSON, our CSV, the catalogue that ships with Fairlead."""

import ast
import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from fairlead.errors import ThroughputError
from fairlead.model.argument_checks import PATH, brief_repr, check_arguments
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Locality, SlotType
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.atomic_write import write_atomically
from fairlead.simulator.traces.elasticflow_rates import read_rates
from fairlead.simulator.traces.fields import at_least_zero, whole
from fairlead.simulator.traces.interference import builtin_interference
from fairlead.simulator.traces.source import (
    HeaderColumns,
    Source,
    csv_rows,
)

NEEDED = ("family", "scale_factor", "accelerator", "locality", "steps_per_s")
COLUMNS = (*NEEDED, "source")
COLOCATED = "beside"  # the column, if there is one, with the family that shares the devices
BUILTIN = "builtin"
GAVEL = "builtin:gavel"  # of the catalogue, what Gavel's release measured
SCATTERED_SUFFIX = "_unconsolidated"  # how Gavel marks the table of a scattered slot type
NOISE = 1.1  # what a measured rate beside another may be above the one alone
NO_PARTNER = "null"  # Gavel's key for the rate without a partner

GavelTable: TypeAlias = dict[str, dict[str, dict[str, float | list[float]]]]


def read_throughputs(path: str | Path) -> Throughputs:
    """A table from Gavel's JSON, our CSV or a folder of ElasticFlow's, recognised by content; ``"builtin"``
    is the catalogue, and ``"builtin:gavel"`` its families that Gavel's generator draws from."""
    check_arguments("read_throughputs", {"path": path}, {"path": PATH}, ThroughputError)
    if str(path) == BUILTIN:
        return builtin_throughputs()
    if str(path) == GAVEL:
        return builtin_throughputs(of="Gavel")
    if Path(path).is_dir():
        return read_rates(Path(path))
    source = Source(path, ThroughputError)
    _, head = source.head()
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return _read_gavel(source)
    return _read_csv(source, str(path))


def builtin_throughputs(of: str = "") -> Throughputs:
    """The embedded catalogue: measured rates with their source row by row (docs/formats.md), and rates
    of pairs from the interference model. of: only rows whose source begins so."""
    with as_file(files("fairlead.simulator.traces.data") / "catalogue.csv") as path:
        origin = f"the built-in catalogue{of and f' (rows of {of})'}"
        solo = _read_csv(Source(path, ThroughputError), origin, of)
    return replace(solo, colocated_rate=builtin_interference().colocated_rate(solo))


def write_throughputs_csv(table: Throughputs, path: str | Path) -> None:
    """Write the table as our CSV. Pairs of unequal scale factor have no place in it and are left out."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS if table.colocated_rate is None else (*COLUMNS, COLOCATED))
    more = [] if table.colocated_rate is None else [""]
    for one, rates in zip(table.job_types, table.rate.tolist(), strict=True):
        for slot, rate in zip(table.slots, rates, strict=True):
            rows.writerow([one.name, one.scale_factor, *_names(slot), rate, table.origin, *more])
    if table.colocated_rate is not None:
        for a, b, t in np.argwhere(table.colocated_rate > 0).tolist():
            one, partner = table.job_types[a], table.job_types[b]
            if one.scale_factor == partner.scale_factor:
                rate = float(table.colocated_rate[a, b, t])
                slot = table.slots[t]
                named = (
                    one.name,
                    one.scale_factor,
                    *_names(slot),
                    rate,
                    table.origin,
                    partner.name,
                )
                rows.writerow(named)
    with write_atomically(path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")


def _names(slot: SlotType) -> tuple[str, str]:
    return slot.accelerator, slot.locality.value


@dataclass(frozen=True, slots=True)
class _Entry:
    """One rate of the table."""

    job_type: JobType
    slot: SlotType
    rate: float  # steps/s
    partner: str = ""  # the family that shares the devices, at the same scale factor


def _table(
    entries: Iterable[_Entry], slots: Iterable[SlotType], origin: str
) -> tuple[dict[JobType, int], dict[SlotType, int], Throughputs]:
    """The entries as a matrix: job types in order of appearance, slot types in alphabetical order."""
    entries = list(entries)
    row: dict[JobType, int] = {}
    for entry in entries:
        row.setdefault(entry.job_type, len(row))
    order = sorted(set(slots), key=lambda s: (s.accelerator, s.locality.value))
    column = {slot: i for i, slot in enumerate(order)}
    rate = np.zeros((len(row), len(column)))
    for entry in entries:
        rate[row[entry.job_type], column[entry.slot]] = entry.rate
    return row, column, Throughputs(tuple(column), tuple(row), rate, origin=origin)


def _read_csv(source: Source, origin: str, of: str = "") -> Throughputs:
    """Our CSV; a rate that has no row is 0: cannot run there. of: only rows whose source begins so."""
    rows = csv_rows(source)
    line, header = next(rows)
    columns = HeaderColumns(source, line, header, NEEDED)
    entries: dict[tuple[JobType, SlotType, str], tuple[int, _Entry]] = {}
    for line, cells in rows:
        columns.check(line, cells)
        if of and not cells[columns.index["source"]].startswith(of):
            continue
        partner = cells[columns.index[COLOCATED]].strip() if COLOCATED in columns.index else ""
        entry = _csv_entry(source, line, [cells[columns.index[name]] for name in NEEDED], partner)
        key = entry.job_type, entry.slot, entry.partner
        if key in entries:
            raise source.fault(line, f"{_named(entry)}: the row appears twice")
        entries[key] = line, entry
    if not entries:
        raise source.fault(line, "the table has no rows")
    solo = [entry for _, entry in entries.values() if not entry.partner]
    row, column, table = _table(solo, (slot for _, slot, _ in entries), origin)
    pairs = [(line, entry) for line, entry in entries.values() if entry.partner]
    return (
        replace(table, colocated_rate=_csv_pairs(source, pairs, row, column, table.rate))
        if pairs
        else table
    )


def _csv_entry(source: Source, line: int, cells: list[str], partner: str) -> _Entry:
    family, scale_factor, accelerator, locality, rate = (cell.strip() for cell in cells)
    for name, value in (("family", family), ("accelerator", accelerator)):
        if not value:
            raise source.fault(line, f"{name}: must not be empty")
    if locality not in {one.value for one in Locality}:
        known = " or ".join(one.value for one in Locality)
        raise source.fault(line, f"locality: expected {known}, got {brief_repr(locality)}")
    scale = whole(source, line, "scale_factor", scale_factor, least=1)
    return _Entry(
        JobType.parse(family, scale),
        SlotType(accelerator, Locality(locality)),
        at_least_zero(source, line, "steps_per_s", rate),
        partner,
    )


def _csv_pairs(
    source: Source,
    pairs: list[tuple[int, _Entry]],
    row: dict[JobType, int],
    column: dict[SlotType, int],
    rate: Floats,
) -> Floats:
    """(job_types, job_types, slots) from rows that name who shares the devices."""
    pair = np.zeros((len(row), len(row), len(column)))
    for line, entry in pairs:
        partner = JobType.parse(entry.partner, entry.job_type.scale_factor)
        for one in (entry.job_type, partner):
            if one not in row:
                raise source.fault(
                    line,
                    f"beside: {one.name} at scale factor {one.scale_factor} has no row of its own",
                )
        slot = column[entry.slot]
        solo = float(rate[row[entry.job_type], slot])
        if entry.rate > solo * NOISE:
            raise source.fault(
                line,
                f"steps_per_s: {_named(entry)} must not be above the rate alone, {solo:g}, but for noise, "
                f"got {entry.rate:g}",
            )
        pair[row[entry.job_type], row[partner], column[entry.slot]] = entry.rate
    return pair


def _named(entry: _Entry) -> str:
    one = entry.job_type
    named = f"{one.name} at scale factor {one.scale_factor} on {entry.slot.accelerator}"
    return f"{named} beside {entry.partner}" if entry.partner else named


def _read_gavel(source: Source) -> Throughputs:
    """Gavel's JSON: accelerator type -> job type -> {"null": rate alone, other job type: [rates of both]}."""
    data = source.document()
    try:
        table = msgspec.json.decode(data, type=GavelTable)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise source.json_fault(problem, data) from None
    job_type = {
        text: _gavel_job_type(source, text)
        for by_job_type in table.values()
        for text in by_job_type
    }
    if not job_type:
        raise source.fault(None, "the table has no rows")
    entries = [
        _Entry(job_type[text], _gavel_slot(column), _gavel_solo(source, column, text, partners))
        for column, by_job_type in table.items()
        for text, partners in by_job_type.items()
    ]
    row, slot, rates = _table(entries, (_gavel_slot(column) for column in table), str(source.path))
    pair = np.zeros((len(row), len(row), len(slot)))
    for column, by_job_type in table.items():
        for text, partners in by_job_type.items():
            colocated = pair[row[job_type[text]], :, slot[_gavel_slot(column)]]
            _gavel_partners(
                source=source,
                column=column,
                text=text,
                partners=partners,
                job_type=job_type,
                row=row,
                colocated=colocated,
            )
    return Throughputs(
        rates.slots, rates.job_types, rates.rate, pair if pair.any() else None, origin=rates.origin
    )


def _gavel_slot(column: str) -> SlotType:
    if column.endswith(SCATTERED_SUFFIX):
        return SlotType(column.removesuffix(SCATTERED_SUFFIX), Locality.SCATTERED)
    return SlotType(column)


def _gavel_job_type(source: Source, text: str) -> JobType:
    """``"('LM (batch size 5)', 2)"``, or in the oldest files the family alone, which means 1 device."""
    if not text.startswith("("):
        return JobType.parse(text, 1)
    try:
        family, scale = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        family, scale = None, None
    if not isinstance(family, str) or not isinstance(scale, int) or scale < 1:
        raise source.fault(None, f"key {brief_repr(text)}: expected ('family', scale factor)")
    return JobType.parse(family, scale)


def _gavel_solo(
    source: Source, column: str, text: str, partners: dict[str, float | list[float]]
) -> float:
    rate = partners.get(NO_PARTNER, 0.0)
    if not isinstance(rate, float | int) or not 0 <= rate < float("inf"):
        raise source.fault(
            None, f"{column}, {text}: the rate must be a number >= 0, got {brief_repr(rate)}"
        )
    return float(rate)


def _gavel_partners(
    source: Source,
    column: str,
    text: str,
    partners: dict[str, float | list[float]],
    job_type: dict[str, JobType],
    row: dict[JobType, int],
    colocated: Floats,  # (job_types,) where the rates with each other job type go
) -> None:
    for other, rates in partners.items():
        if other == NO_PARTNER:
            continue
        index = row.get(job_type.get(other) or _gavel_job_type(source, other))
        if index is None:
            raise source.fault(None, f"{column}, {text}: partner {brief_repr(other)} has no row")
        if not isinstance(rates, list) or len(rates) != 2 or not 0 <= min(rates) <= max(rates):
            raise source.fault(
                None, f"{column}, {text}, {other}: expected two rates >= 0, got {brief_repr(rates)}"
            )
        colocated[index] = rates[0]
