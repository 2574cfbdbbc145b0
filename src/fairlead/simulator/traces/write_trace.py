"""Writing a trace: our CSV, our Parquet, Gavel's 10 columns or Shockwave's 12, by the file's extension."""

import csv
from collections.abc import Callable
from pathlib import Path

import polars as pl

from fairlead.errors import TraceError
from fairlead.model.adaptation import Mode
from fairlead.model.batch_size_rules import SAMPLES_PER_EPOCH
from fairlead.model.job import Job
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces import fairlead_csv as own
from fairlead.simulator.traces.adaptation_text import described
from fairlead.simulator.traces.atomic_write import write_atomically
from fairlead.simulator.traces.trace import Trace


def write_trace(trace: Trace, path: str | Path, throughputs: Throughputs | None = None) -> None:
    """Write ``.csv``, ``.parquet`` or ``.trace``, whole or not at all.

    Our formats keep everything. ``.trace`` is Gavel's 10 columns, or Shockwave's 12 where a job adapts:
    whole steps, no tenants, no schedules, and line numbers as ids. Deadlines are multiples of a
    duration, which is the running time on the fastest accelerator type of the table (Shockwave: the
    stated one, where there is one), so that writing deadlines needs one.
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
    adapts = any(arrival.job.adaptation is not None for arrival in trace.arrivals)
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        for arrival in trace.arrivals:
            job = arrival.job
            nominal_s = _nominal_s(job, throughputs)
            duration_s = job.duration_s or nominal_s
            fields = (
                job.family,
                *("", "", ""),  # command, working directory, steps argument: not known
                0,  # needs no data directory
                max(1, int(job.total_steps)),
                job.scale_factor,
                *((_mode(trace, job),) if adapts else ()),
                job.weight,
                _slo_multiple(trace, job, duration_s if adapts else nominal_s),
                *((duration_s or 0.0,) if adapts else ()),
                arrival.time_s,
            )
            handle.write("\t".join(str(field) for field in fields) + "\n")


def _mode(trace: Trace, job: Job) -> str:
    """The mode as Shockwave writes it, which has no schedules and knows the data sets by model."""
    own = job.adaptation
    if own is None:
        return Mode.STATIC.value
    if own.mode is Mode.SCHEDULE or own.samples != SAMPLES_PER_EPOCH.get(job.job_type.family):
        raise TraceError(
            f"{trace.name}: job {job.id}: adaptation {described(own)} with {own.samples} samples per "
            "epoch cannot be written in Shockwave's format, only in .csv and .parquet"
        )
    return own.mode.value


def _nominal_s(job: Job, throughputs: Throughputs | None) -> float | None:
    """Running time on the fastest accelerator type, of the steps as they are written."""
    row = None if throughputs is None else throughputs.row(job.job_type)
    rate = 0.0 if throughputs is None or row is None else float(throughputs.fastest[row])
    return max(1, int(job.total_steps)) / rate if rate > 0 else None


def _slo_multiple(trace: Trace, job: Job, duration_s: float | None) -> float:
    """The deadline as Gavel writes it; -1 = none."""
    if job.slo_s is None:
        return -1.0
    if duration_s is None:
        raise TraceError(
            f"{trace.name}: job {job.id}: slo_s {job.slo_s} cannot be written as a multiple of a "
            f"duration without a rate for {job.family} at scale factor {job.scale_factor}"
        )
    return job.slo_s / duration_s
