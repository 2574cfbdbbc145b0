"""Contention of jobs: running time alone, the terms of rho by Shockwave's definitions, envy.

Source: Shockwave (NSDI'23) and its release; the definitions stand in
``fairlead.simulator.recording.metrics``.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.batch_size_rules import exclusive_run_times
from fairlead.model.job import Job
from fairlead.model.throughputs import Throughputs

# (slots,) seconds that a job with a profile runs alone; None: it runs at one rate.
ExclusiveTime: TypeAlias = Callable[[Job, Throughputs], Floats | None]


def profile_exclusive_s(job: Job, throughputs: Throughputs) -> Floats | None:
    """(slots,) the epochs of a job's profile, each at its batch size; None where it does not adapt."""
    adaptation = job.adaptation
    if adaptation is None or len(adaptation.schedule) < 2:
        return None
    return exclusive_run_times(adaptation, job.job_type, throughputs)


def exclusive_run_s(
    jobs: Sequence[Job], fastest: Floats, throughputs: Throughputs, rule: ExclusiveTime
) -> Floats:
    """(jobs,) seconds that each job takes alone on the fastest type, nan where it cannot run.

    rule: of jobs that adapt. fastest: (jobs,) steps/s at the first batch size.
    """
    total = np.array([job.total_steps for job in jobs], np.float64)
    alone_s: Floats = np.divide(total, fastest, out=np.full(len(jobs), np.nan), where=fastest > 0)
    for i, job in enumerate(jobs):
        on_each_s = rule(job, throughputs)
        if on_each_s is not None:
            least_s = float(on_each_s.min(initial=np.inf))
            alone_s[i] = least_s if least_s < np.inf else np.nan
    return alone_s


def contention(active: Sequence[int], first: Ints, end: Ints, devices: float) -> Floats:
    """(jobs,) mean number of jobs in the system over the rounds first .. end-1 of each job, per device,
    and at least 1; nan where there was no such round. active: (rounds,)."""
    before = np.append(0, np.cumsum(np.asarray(active, np.int64)))
    rounds = end - first
    jobs = np.divide(
        (before[end] - before[first]).astype(np.float64),
        rounds,
        out=np.full(len(first), np.nan),
        where=rounds > 0,
    )
    return np.asarray(np.maximum(jobs / devices, 1.0))


def envy(served: Floats) -> dict[str, float | None]:
    """Largest and mean |a_i - a_j| over pairs of jobs. served: (jobs,) a, the part of its rounds in which
    each job ran."""
    n = len(served)
    if n < 2:
        return {"max": None, "mean": None}
    ordered = np.sort(served)
    total = float(((2 * np.arange(n) - n + 1) * ordered).sum())  # of the differences of all pairs
    return {"max": float(ordered[-1] - ordered[0]), "mean": total / (n * (n - 1) / 2)}
