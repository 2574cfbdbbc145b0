"""The numbers of a run, each with its definition."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.model.arrays import Floats
from fairlead.simulator.recording.contention import envy
from fairlead.simulator.recording.recorder import Recorder


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """A finished (or interrupted) simulation.

    config: what was run. jobs, rounds, placement_intervals: the tables behind the metrics. complete: False =
    interrupted before its end. skipped: rows of the trace that could not be used, and other notes, in words.
    partial: why averages are of fewer jobs than the trace has, in sentences; empty where they are not.

    metrics: what came out; None where there is nothing to measure. Completion times, queueing delays, rho,
    envy and deadlines are those of all jobs or, with ``measured_jobs``, of these; all else of the whole run.

    makespan_s: time of the last event. avg_jct_s, jct_percentiles_s, avg_jct_by_scale_s: of completed jobs,
    finish - arrival. avg_queueing_delay_s: first start - arrival.
    utilization, utilization_by_type: device-seconds in use over device-seconds that there were, from the
    first arrival on; gavel_utilization: Gavel's definition, in its profile (from time 0, idle gaps charged to
    the next round). spread_share: of the device-seconds in use, those of jobs on more servers than they need.
    cost: $ for devices in use, lost rounds included; Gavel's in its profile.
    rho: of completed jobs; isolated, JCT over the time that the same steps would have taken on an isolated
    1/n share, n taken at every solve (Gavel); static, JCT over running time alone on the fastest type x
    max(1, jobs / devices) (Shockwave), only over all jobs; themis, the same with the mean number of jobs in
    the system over the job's rounds. envy: |a_i - a_j| over pairs of jobs, a being the part of the rounds
    between a job's arrival and its end in which it ran (Shockwave).
    preemptions, moves, restarts: how many; moves_per_job_hour, restarts_per_job_hour: over the run time of
    all jobs. restart_lost_s, lost_share: run time that went into starting, and its share.
    slo_jobs: jobs with a deadline; slo_violations: those that ended later than arrival + SLO or were still
    there then.
    n_jobs, n_measured, n_completed, n_dropped, n_killed, n_cancelled, n_unfinished, n_rounds, n_solves:
    counts; n_forced: completed jobs that were ended with steps left, for they had run longer than the
    profile's ``overtime`` allows; n_refused: by the admission rule, if there is one.
    cpu_s: CPU time of the simulation. solve_s: wall-clock time of all solves; solve_gap, solve_violation: the
    largest gap between objective and bound, and the largest excess over a constraint, of an answer.
    journal_sha256: of the journal, if one was written.
    """

    config: dict[str, Any]
    metrics: dict[str, Any]
    jobs: pl.DataFrame
    rounds: pl.DataFrame
    placement_intervals: pl.DataFrame
    complete: bool = True
    skipped: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """One line: what was run, the numbers that matter most, and what they leave out."""
        metrics, jct_s = self.metrics, self.metrics.get("avg_jct_s")
        parts = [
            f"{self.config.get('policy')} on {self.config.get('trace')}",
            f"{metrics.get('n_completed', 0):,} of {metrics.get('n_jobs', 0):,} jobs completed",
            *([] if jct_s is None else [f"average JCT {jct_s:,.0f} s"]),
            *([] if self.complete else ["interrupted"]),
            *self.partial,
        ]
        return f"Result({'; '.join(parts)})"


def unfinished_note(jobs: pl.DataFrame, measured_jobs: tuple[int, int] | None) -> str | None:
    """A sentence where averages lack jobs that have not ended; None where they do not. measured_jobs: as of
    ``measure``."""
    expected, which, of = len(jobs), "jobs", jobs
    if measured_jobs is not None:
        first, stop = measured_jobs
        expected, which, of = stop - first, "measured jobs", jobs.slice(first, stop - first)
    left = expected - of.filter(pl.col("end") != "unfinished").height
    if not left:
        return None
    completed = of.filter(pl.col("end") == "completed").height
    return (
        f"{left:,} of {expected:,} {which} have not ended: averages are of the {completed:,} that were "
        "completed"
    )


def measure(
    recorder: Recorder, jobs: pl.DataFrame, measured_jobs: tuple[int, int] | None, gavel: bool
) -> dict[str, Any]:
    """Metrics of a run, as ``Result`` names them, over all jobs or, with ``measured_jobs`` (s, e), over jobs
    s .. e-1 by order of submission. gavel: with Gavel's utilization and cost."""
    measured = jobs
    if measured_jobs is not None:
        measured = jobs.slice(measured_jobs[0], measured_jobs[1] - measured_jobs[0])
    done = measured.filter(pl.col("end") == "completed")
    metrics: dict[str, Any] = {
        "makespan_s": recorder.now_s,
        **_times(measured, done),
        **_devices(recorder),
        "cost": float(np.sum(jobs["cost"].to_numpy())),
        "rho": {
            "isolated": _rho(done["rho_isolated"].drop_nulls().to_numpy()),
            "themis": _rho(done["rho_themis"].drop_nulls().to_numpy()),
        },
        "envy": envy(measured["served_fraction"].drop_nulls().to_numpy()),
        "preemptions": int(sum(recorder.rounds["preempted"])),
        **_starts(jobs),
        **_slo(measured, recorder.now_s),
        "n_jobs": len(jobs),
        "n_measured": len(measured),
        **_ends(jobs),
        "n_rounds": len(recorder.rounds),
        "n_solves": recorder.n_solves,
    }
    if measured_jobs is None:
        metrics["rho"]["static"] = _rho(done["rho_static"].drop_nulls().to_numpy())
    if gavel:
        whole_s = recorder.now_s * float(recorder.cluster.capacity.sum())
        metrics["gavel_utilization"] = _ratio(recorder.time.charged_s.sum(), whole_s)
    return metrics


def _times(measured: pl.DataFrame, done: pl.DataFrame) -> dict[str, Any]:
    """JCT and queueing delay. done: the measured jobs that have completed."""
    jct = done["jct_s"].to_numpy()
    waited = (measured["start_s"] - measured["arrival_s"]).drop_nulls()
    return {
        "avg_jct_s": _mean(jct),
        "jct_percentiles_s": {f"p{p}": _percentile(jct, p) for p in (50, 90, 99)},
        "avg_jct_by_scale_s": _mean_by(done["scale_factor"].to_numpy(), jct),
        "avg_queueing_delay_s": _mean(waited.to_numpy()),
    }


def _devices(recorder: Recorder) -> dict[str, Any]:
    """Return the fraction of the device-seconds that was in use."""
    time, names = recorder.time, recorder.cluster.accelerators
    return {
        "utilization": _ratio(time.busy_s.sum(), time.capacity_s.sum()),
        "spread_share": _ratio(time.spread_s.sum(), time.busy_s.sum()),
        "utilization_by_type": {
            name: _ratio(time.busy_s[t], time.capacity_s[t]) for t, name in enumerate(names)
        },
    }


def _starts(jobs: pl.DataFrame) -> dict[str, Any]:
    """Moves and restarts, and what went into them."""
    run_s = float(jobs["run_s"].sum())
    return {
        "moves": int(jobs["moves"].sum()),
        "moves_per_job_hour": _ratio(jobs["moves"].sum(), run_s / 3600),
        "restarts": int(jobs["restarts"].sum()),
        "restarts_per_job_hour": _ratio(jobs["restarts"].sum(), run_s / 3600),
        "restart_lost_s": float(jobs["restart_lost_s"].sum()),
        "lost_share": _ratio(jobs["restart_lost_s"].sum(), run_s),
    }


def _ends(jobs: pl.DataFrame) -> dict[str, int]:
    """Return how many jobs ended in which way."""
    counts = jobs["end"].value_counts()
    ended = dict(zip(counts["end"].to_list(), counts["count"].to_list(), strict=True))
    forced = (pl.col("end") == "completed") & (
        pl.col("steps_done") < pl.col("total_steps") * (1 - 1e-9)
    )
    return {
        **{
            f"n_{end}": ended.get(end, 0) for end in ("completed", "dropped", "killed", "cancelled")
        },
        "n_forced": jobs.filter(forced).height,
        "n_unfinished": ended.get("unfinished", 0),
    }


def _slo(jobs: pl.DataFrame, now_s: float) -> dict[str, int]:
    with_deadline = jobs.filter(pl.col("slo_s").is_not_null())
    took = with_deadline["end_s"].fill_null(now_s) - with_deadline["arrival_s"]
    return {
        "slo_jobs": len(with_deadline),
        "slo_violations": int((took > with_deadline["slo_s"]).sum()),
    }


def _rho(rho: Any) -> dict[str, float | None]:
    return {
        "mean": _mean(rho),
        "p50": _percentile(rho, 50),
        "max": float(rho.max()) if len(rho) else None,
        **{
            f"unfair_{name}": float((rho > limit * (1 + 1e-9)).mean()) if len(rho) else None
            for name, limit in (("1", 1.0), ("1_05", 1.05), ("1_1", 1.1))
        },
    }


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _mean_by(key: NDArray[Any], values: Floats) -> dict[str, float]:
    """Mean of the values of each key, by key. Added up in the order of the values, as the threads of a
    data frame would not do."""
    return {str(one): float(np.mean(values[key == one])) for one in np.unique(key)}


def _percentile(values: Any, p: float) -> float | None:
    return float(np.percentile(values, p)) if len(values) else None


def _ratio(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole > 0 else None
