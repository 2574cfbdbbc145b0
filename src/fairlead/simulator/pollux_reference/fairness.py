"""Finish-time fairness (Themis, NSDI'20): did a job end as early as on an equal part of the cluster?"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fairlead.simulator.pollux_reference.policies import ElasticPolicy
from fairlead.simulator.pollux_reference.simulation import ElasticRun, simulate_elastic
from fairlead.simulator.pollux_reference.workload import ElasticJob

_LESSONS = 3  # runs from which a policy learns what there is to be known of a job


def finish_time_fairness(
    run: ElasticRun,
    policy: Callable[[], ElasticPolicy],
    sizes: Sequence[int],
    interval_s: float,
    *,
    knows: bool = False,
) -> dict[str, float]:
    """Return rho of each job: its completion time over that which it would have alone, submitted at the
    same second, on 1/n of the cluster under the same policy, where n is the mean number of jobs that were
    there from its submission to its end. Above 1 the job is worse off than with an equal part.

    knows: has the policy of the job alone seen the whole job before? It has seen nothing else; the first job
    of an application in the run had to learn what that one knows.

    A part is rounded down to whole nodes, below one node to a power of two; for less than one device the
    time on one is longer in proportion.
    """
    moments = sorted(
        [(float(one.job.submitted_s), 1) for one in run.trainings]
        + [(one.ended_s or 0.0, -1) for one in run.trainings]
    )
    time_s = np.array([moment for moment, _ in moments])
    present = np.cumsum([change for _, change in moments])
    job_s = np.concatenate([[0.0], np.cumsum(present[:-1] * np.diff(time_s))])
    alone_s = dict[tuple[str, int, int], float]()
    found = {}
    jobs = {one.job.name: one.job for one in run.trainings}
    for name, jct_s in run.jct_s().items():
        job = jobs[name]
        begin_s, end_s = np.interp([job.submitted_s, job.submitted_s + jct_s], time_s, job_s)
        share = sum(sizes) / max((end_s - begin_s) / jct_s, 1.0)
        part = _part(share, sizes)
        key = job.application.name, sum(part), int(job.submitted_s % interval_s)
        if key not in alone_s:
            chosen = policy()
            for _ in range(_LESSONS if knows else 0):
                _alone_s(job, chosen, part, interval_s)
            alone_s[key] = _alone_s(job, chosen, part, interval_s)
        found[name] = jct_s / (alone_s[key] * max(1.0, 1.0 / share))
    return found


def _part(share: float, sizes: Sequence[int]) -> list[int]:
    """The nodes of a part of the cluster."""
    per_node = sizes[0]
    if share >= per_node:
        return [per_node] * int(share // per_node)
    return [1 << (max(int(share), 1).bit_length() - 1)]


def _alone_s(
    job: ElasticJob, policy: ElasticPolicy, sizes: Sequence[int], interval_s: float
) -> float:
    """The completion time of a job on a cluster of its own."""
    alone = replace(job, submitted_s=int(job.submitted_s % interval_s))
    return simulate_elastic([alone], policy, sizes, interval_s).jct_s()[job.name]
