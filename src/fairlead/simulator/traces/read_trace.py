"""Reading a trace: the format is recognised from the content, never from the name."""

from collections.abc import Sequence
from pathlib import Path

from fairlead.errors import TraceError
from fairlead.model.argument_checks import (
    PATH,
    TEXT,
    WHOLE_NUMBER,
    brief_repr,
    check_arguments,
    instance_of,
    or_none,
)
from fairlead.model.near_names import nearest_name
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces import duration_traces, elasticflow, fairlead_csv, gavel_traces
from fairlead.simulator.traces.reader import Format, ReadRequest
from fairlead.simulator.traces.source import MAX_LINE, Source, missing_column
from fairlead.simulator.traces.trace import Trace

FORMATS: tuple[Format, ...] = (
    *fairlead_csv.FORMATS,
    *elasticflow.FORMATS,  # before ITP, whose columns it has
    *duration_traces.FORMATS,
    *gavel_traces.FORMATS,
)
_TYPES = {
    "path": PATH,
    "throughputs": (instance_of(Throughputs), "Throughputs"),
    "seed": WHOLE_NUMBER,
    "vc": or_none(TEXT),
}
# Characters that a message takes to name formats, alone and with their columns
MAX_LISTED, MAX_LISTED_COLUMNS = 180, 640
# Of a format's columns, so many may be missing at most where it was probably meant
MAX_MISSING_COLUMNS = 0.5


def read_trace(
    path: str | Path, throughputs: Throughputs, *, seed: int = 0, vc: str | None = None
) -> Trace:
    """The jobs of a trace file of any known format, gzip or not.

    seed: for traces that name no model families (see ``duration_traces``). vc: read the rows of one
    virtual cluster only (Philly). Rows that say nothing usable are in ``skipped``; a row that is
    wrong raises TraceError with file, line, field and value.
    """
    given = {"path": path, "throughputs": throughputs, "seed": seed, "vc": vc}
    check_arguments("read_trace", given, _TYPES, TraceError)
    source = Source(path, TraceError)
    line, head = source.head()
    chosen = next((one for one in FORMATS if one.fits(head)), None)
    if chosen is None:
        raise _unknown(source, line, head)
    if vc is not None and not chosen.has_vc:
        raise source.fault(None, f"{chosen.name} traces have no virtual clusters, got vc={vc!r}")
    trace = chosen.read(source, ReadRequest(throughputs, seed, vc))
    if not trace.arrivals and not trace.skipped:
        raise source.fault(None, "the trace has no jobs")
    return trace


def _unknown(source: Source, line: int, head: bytes) -> Exception:
    """Return why no format fits. The nearest one is named where most of its columns are there, else all
    are."""
    if len(head) > MAX_LINE:
        return source.too_long(line)
    try:
        text = head.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        return source.fault(
            line, f"not a trace: binary data that starts with {brief_repr(head[:16])}"
        )
    names = {name.strip() for name in text.split(",")}
    missing = {one: [c for c in one.columns.split(",") if c not in names] for one in FORMATS}
    nearest = min(FORMATS, key=lambda one: _lacking(one, missing[one], names))
    if _lacking(nearest, missing[nearest], names) < MAX_MISSING_COLUMNS:
        lacks = missing_column(missing[nearest][0], sorted(names - set(nearest.columns.split(","))))
        return source.fault(
            line, f"{lacks}; a trace in the format {nearest.name} needs {nearest.columns}"
        )
    if "\t" in text:
        count = text.count("\t") + 1
        return source.fault(line, f"expected 7, 10 or 12 tab-separated columns, got {count}")
    header = "," in text  # else only names: what it lacks is not a column
    known = [f"{one.name} ({one.columns})" if header else one.name for one in FORMATS]
    listed = _listed(known, MAX_LISTED_COLUMNS if header else MAX_LISTED)
    return source.fault(
        line, f"not a trace: the first line is {brief_repr(text)}; known are {listed}"
    )


def _lacking(one: Format, missing: Sequence[str], names: set[str]) -> float:
    """The part of a format's columns that are missing; one that is misspelt counts half."""
    columns = one.columns.split(",")
    others = sorted(names - set(columns))
    misspelt = [name for name in missing if nearest_name(name, others) is not None]
    return (len(missing) - len(misspelt) / 2) / len(columns)


def _listed(known: list[str], most: int) -> str:
    """The first of them, as many as that many characters hold, and how many more there are."""
    some = known
    while len("; ".join(some)) > most:
        some = some[:-1]
    more = len(known) - len(some)
    return "; ".join([*some, f"{more} more"] if more else some)
