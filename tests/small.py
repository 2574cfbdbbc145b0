"""Small worlds that several tests share."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fairlead.analysis.simulate import simulate
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.mechanism.settings import DEFAULT, MechanismSettings
from fairlead.scheduler.setup import Setup, build
from fairlead.simulator.recording.metrics import Result
from tests.job_types import job_types

# steps/s by scale factor on a fast and a slow type
TABLE = Throughputs(
    (SlotType("fast"), SlotType("slow")),
    job_types(("net", 1), ("net", 2), ("net", 4)),
    np.array([[10.0, 5.0], [18.0, 9.0], [32.0, 16.0]]),
)


def job(number: int, time_s: float, steps: float, devices: int = 1, **more: Any) -> Arrival:
    """An arrival of the only family."""
    return Arrival(time_s, Job(JobId(number), "net", devices, steps, **more))


def run(arrivals: list[Arrival], fast: int = 1, slow: int = 0, **options: Any) -> Result:
    """Simulate LAS, unless told otherwise, on a cluster priced 3 and 1 $/h."""
    counts = {"fast": fast, "slow": slow}
    cluster = Cluster.of(counts, options.pop("per_server", 1), {"fast": 3.0, "slow": 1.0})
    policy = options.pop("policy", "las_aware")
    return simulate(arrivals, cluster, policy, throughputs=TABLE, **options)


def jct(result: Result) -> dict[int, float | None]:
    """JCT by job."""
    return dict(result.jobs.select("job", "jct_s").iter_rows())


def core(
    cluster: Cluster,
    table: Throughputs,
    policy: str,
    profile: MechanismSettings = DEFAULT,
    restart_costs: RestartCosts | None = None,
    overlap_solves: bool = False,
) -> Scheduler:
    """A fresh scheduler."""
    made = registry.make(policy, seed=0, profile=profile.name)
    setup = Setup(
        version="0",
        cluster=cluster,
        throughputs=table.on(cluster, profile.scattered),
        policy=policy,
        settings=profile,
        seed=0,
        restart_costs=restart_costs or RestartCosts(),
        overlap_solves=overlap_solves,
    )
    return build(setup, made)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """TimeoutError where the block takes longer: for calls that must not hang."""

    def end(_number: int, _frame: Any) -> None:
        raise TimeoutError(f"still at it after {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
