"""The table of jobs: one row per submitted job."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fairlead.model.arrays import Floats
from fairlead.model.commands import JobEnd
from fairlead.simulator.recording.adaptation_columns import adaptation_columns
from fairlead.simulator.recording.contention import ExclusiveTime, exclusive_run_s
from fairlead.simulator.recording.job_records import JobRecords

_TYPES: dict[str, Any] = {
    "job": pl.Int64,
    "family": pl.String,
    "scale_factor": pl.Int64,
    "weight": pl.Float64,
    "tenant": pl.String,
    "mode": pl.String,
    "batch_sizes": pl.String,
    "end": pl.String,
    "slo_s": pl.Float64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTableInputs:
    """The inputs of the table of jobs besides the records of jobs."""

    devices: float  # of the cluster
    exclusive_time: ExclusiveTime  # running time alone of jobs that adapt
    contention: Floats  # (jobs,) mean number of jobs in the system per device, and at least 1
    served_fraction: Floats  # (jobs,) fraction of the rounds in the system in which it ran


def job_table(records: JobRecords, inputs: JobTableInputs) -> pl.DataFrame:
    """Return the columns that docs/formats.md names; a missing number is null."""
    col, n, jobs = records.columns.arrays, records.columns.n, records.jobs
    names = {0: "unfinished"} | {int(end): end.name.lower() for end in JobEnd}
    end = col.end[:n]
    jct_s = np.where(end == JobEnd.COMPLETED, col.end_s[:n] - col.arrival_s[:n], np.nan)
    total = np.array([job.total_steps for job in jobs], np.float64)
    exclusive_run_s = _exclusive_run_s(records, inputs.exclusive_time)
    promised = records.targets.given
    table = pl.DataFrame(
        {
            "job": [int(job.id) for job in jobs],
            "family": [job.family for job in jobs],
            "scale_factor": [job.scale_factor for job in jobs],
            "weight": [job.weight for job in jobs],
            "tenant": [job.tenant for job in jobs],
            **adaptation_columns(jobs),
            "total_steps": total,
            "steps_done": _steps_done(records, total),
            "arrival_s": col.arrival_s[:n],
            "start_s": col.start_s[:n],
            "end_s": col.end_s[:n],
            "end": [names[int(e)] for e in end],
            "jct_s": jct_s,
            "run_s": col.run_s[:n],
            "target_run_s": col.target_run_s[:n] if promised else np.full(n, np.nan),
            "cost": col.cost[:n],
            "restarts": col.restarts[:n],
            "moves": col.moves[:n],
            "restart_lost_s": col.restart_lost_s[:n],
            **_rho(jct_s, col.isolated_s[:n], exclusive_run_s, inputs),
            "exclusive_run_s": exclusive_run_s,
            "served_fraction": inputs.served_fraction,
            "slo_s": [job.slo_s for job in jobs],
        },
        schema_overrides=_TYPES,
    )
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


def _rho(
    jct_s: Floats, isolated_s: Floats, exclusive_run_s: Floats, inputs: JobTableInputs
) -> dict[str, Floats]:
    """(jobs,) finish-time fairness by its three definitions. All arrays are (jobs,)."""
    n = len(jct_s)
    none = np.full(n, np.nan)
    return {
        "rho_isolated": np.divide(jct_s, isolated_s, out=none, where=isolated_s > 0),
        "rho_static": jct_s / (exclusive_run_s * max(1.0, n / inputs.devices)),
        "rho_themis": jct_s / (exclusive_run_s * inputs.contention),
    }


def _exclusive_run_s(records: JobRecords, rule: ExclusiveTime) -> Floats:
    """(jobs,) running time alone on the fastest type."""
    table = records.throughputs
    fastest = np.array(
        [
            table.rate[row].max(initial=0.0)
            for job in records.jobs
            if (row := table.row(job.job_type)) is not None
        ],
        np.float64,
    )
    return exclusive_run_s(records.jobs, fastest, table, rule)


def _steps_done(records: JobRecords, total: Floats) -> Floats:
    """(jobs,) steps done, counted like the total, at the first batch size: the same part of it."""
    col, n = records.columns.arrays, records.columns.n
    done, now = col.steps_done[:n], col.total_steps[:n]
    return np.where(now == total, done, done / now * total)
