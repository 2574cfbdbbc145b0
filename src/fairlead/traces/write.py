"""Writing a trace: our CSV, our Parquet, or Gavel's 10 columns, chosen by the file's extension."""

import csv
from collections.abc import Callable
from pathlib import Path

import polars as pl

from fairlead.errors import TraceError
from fairlead.model.job import Arrival
from fairlead.model.throughput import Throughputs
from fairlead.traces import own
from fairlead.traces.atomic import write_atomically
from fairlead.traces.trace import Trace


def write_trace(trace: Trace, path: str | Path, throughputs: Throughputs | None = None) -> None:
    """Write ``.csv``, ``.parquet`` or ``.trace`` (Gavel's 10 columns), whole or not at all.

    Our formats keep everything. Gavel's has whole steps, no tenants, and line numbers as ids; its
    deadlines are multiples of a duration, which is the running time on the fastest accelerator type
    of the table, so that writing deadlines needs one.
    """
    writers: dict[str, Callable[[Path], None]] = {
        ".csv": lambda target: _write_csv(trace, target),
        ".parquet": lambda target: _write_parquet(trace, target),
        ".trace": lambda target: _write_gavel(trace, target, throughputs),
    }
    suffix = Path(path).suffix
    if suffix not in writers:
        raise TraceError(
            f"{path}: expected a name that ends in {', '.join(writers)}, got {suffix!r}"
        )
    with write_atomically(path) as temporary:
        writers[suffix](temporary)


def _write_csv(trace: Trace, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as handle:
        rows = csv.writer(handle, lineterminator="\n")
        rows.writerow(own.COLUMNS)
        rows.writerows(own.cells(arrival) for arrival in trace.arrivals)


def _write_parquet(trace: Trace, path: Path) -> None:
    rows = [own.cells(arrival) for arrival in trace.arrivals]
    pl.DataFrame(rows, schema=own.SCHEMA, orient="row").write_parquet(path)


def _write_gavel(trace: Trace, path: Path, throughputs: Throughputs | None) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        for arrival in trace.arrivals:
            job = arrival.job
            fields = (
                job.family,
                *("", "", ""),  # command, working directory, steps argument: not known
                0,  # needs no data directory
                max(1, int(job.total_steps)),
                job.scale_factor,
                job.weight,
                _slo_multiple(trace, arrival, throughputs),
                arrival.time_s,
            )
            handle.write("\t".join(str(field) for field in fields) + "\n")


def _slo_multiple(trace: Trace, arrival: Arrival, throughputs: Throughputs | None) -> float:
    """The deadline as Gavel writes it; -1 = none."""
    job = arrival.job
    if job.slo_s is None:
        return -1.0
    row = None if throughputs is None else throughputs.row(job.family, job.scale_factor)
    rate = 0.0 if throughputs is None or row is None else float(throughputs.fastest[row])
    if rate <= 0:
        raise TraceError(
            f"{trace.name}: job {job.id}: slo_s {job.slo_s} cannot be written as a multiple of a "
            f"duration without a rate for {job.family} at scale factor {job.scale_factor}"
        )
    return job.slo_s * rate / max(1, int(job.total_steps))
