"""A benchmark of the decisions on elastic jobs: rounds of any size, and CPU times.

Three accelerator types have servers of 4, 8 and 8 devices and a third of the devices each. The goodput of a
job grows with a power of its devices, drawn between 0.5 and 0.97, up to a most number of devices, drawn as
well; its speeds on the types are drawn around 1, 1.6 and 3.5. Half of the jobs run, on a random
configuration. Policies of shares are asked for those of jobs that have just been submitted, with 1e3 to 1e5
steps to do.
"""

import statistics
import time
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.model.cluster import Cluster
from fairlead.model.job_type import JobType
from fairlead.model.plan import Policy, optional_traits
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.policies.elastic.elastic_round import ElasticRound
from fairlead.policies.elastic.objectives import OBJECTIVES
from fairlead.policies.solve.multiple_choice import solve_multiple_choice
from fairlead.simulator.traces.instances import fresh_snapshot

PER_SERVER = (4, 8, 8)
SPEED, SPEED_SIGMA = (1.0, 1.6, 3.5), 0.25
MOST_DEVICES = 64  # of a job
RUNS = 5


@dataclass(frozen=True, slots=True)
class ElasticTiming:
    """The times of one objective."""

    policy: str
    devices: int
    jobs: int
    configurations: int  # of a job at most
    cpu_s: float  # median of the runs
    runs_s: tuple[float, ...]
    gap: float  # the largest


def elastic_round(devices: int, jobs: int, *, seed: int = 0) -> ElasticRound:
    """Return a round of random jobs on so many devices."""
    rng = np.random.default_rng(seed)
    capacity = np.full(3, devices // 3) + (np.arange(3) < devices % 3)
    counts, accelerator = _configurations(capacity)
    speed = np.array(SPEED) * rng.lognormal(0, SPEED_SIGMA, (jobs, 3))
    goodput = speed[:, accelerator] * counts ** rng.uniform(0.5, 0.97, (jobs, 1))
    goodput[counts > rng.integers(1, MOST_DEVICES + 1, (jobs, 1))] = 0.0
    runs = rng.random(jobs) < 0.5
    held = (goodput * rng.random(goodput.shape)).argmax(axis=1)
    return ElasticRound(
        goodput=goodput,
        devices=counts,
        accelerator=accelerator,
        capacity=capacity,
        present=np.where(runs, held, -1),
        starts=np.where(runs, rng.integers(1, 5, jobs), 0),
        age_s=rng.uniform(60, 20_000, jobs),
        remaining_s=rng.lognormal(8, 1.5, jobs),
        restart_s=np.full(jobs, 30.0),
    )


def _configurations(capacity: Ints) -> tuple[Ints, Ints]:
    """Numbers of devices and their types: powers of two in a server, then whole servers, ever fewer of
    them."""
    found = []
    for k, per_server in enumerate(PER_SERVER):
        counts = [1 << bit for bit in range(per_server.bit_length())]
        servers = 2
        while servers * per_server <= min(MOST_DEVICES, capacity[k]):
            counts.append(servers * per_server)
            servers += 1 if servers < 8 else 4
        found += [(count, k) for count in counts if count <= capacity[k]]
    columns = np.array(found, np.int64).reshape(-1, 2).T.copy()
    return columns[0], columns[1]


def policies_of_shares() -> list[str]:
    """Return the names of those that decide numbers of devices, and need no argument."""
    bare = [one.name for one in registry.BUILT_IN if not one.argument or one.argument[0] == "["]
    return [name for name in bare if optional_traits(_made(name)).elastic]


def elastic_snapshot(devices: int, jobs: int, kinds: int, *, seed: int = 0) -> Snapshot:
    """Return a problem of random jobs, of so many kinds, whose slot types are their configurations."""
    drawn = elastic_round(devices, kinds, seed=seed)
    kind = np.sort(np.arange(jobs) % kinds)
    cluster = Cluster.of(dict(zip("abc", drawn.capacity.tolist(), strict=True)))
    table = Throughputs(
        cluster.slots,
        tuple(JobType(f"kind {i}", 1) for i in range(kinds)),
        np.ones((kinds, len(cluster.slots))),
    )
    steps = np.random.default_rng(seed).uniform(1e3, 1e5, jobs)
    fresh = fresh_snapshot(cluster, table, kind, kind, np.ones(jobs), steps)
    none = np.zeros((jobs, len(drawn.devices)))
    return replace(
        fresh,
        slots=tuple(cluster.slots[k] for k in drawn.accelerator.tolist()),
        accelerator_of_slot=drawn.accelerator,
        configuration_devices=drawn.devices.astype(np.float64),
        job_type_rate=drawn.goodput,
        rate=drawn.goodput[kind][:, :, None],
        received_s=none,
        deficit_s=none,
        share=none,
        allocated_s=np.zeros(len(drawn.devices)),
    )


def time_elastic(policy: str, devices: int, jobs: int, kinds: int | None = None) -> ElasticTiming:
    """Return how long the decisions of a policy take, its program, answer and bound included. kinds: of jobs
    with the same goodputs, None = each has its own."""
    runs_s, gaps = [], []
    kinds = jobs if kinds is None else min(kinds, jobs)
    for seed in range(RUNS + 1):
        cpu_s, gap = (
            _round_timed(policy, devices, jobs, kinds, seed)
            if policy in OBJECTIVES
            else _shares_timed(policy, devices, jobs, kinds, seed)
        )
        if seed:  # the first one may compile
            runs_s.append(cpu_s)
            gaps.append(gap)
    return ElasticTiming(
        policy=policy,
        devices=devices,
        jobs=jobs,
        configurations=len(elastic_round(devices, 1).devices),
        cpu_s=statistics.median(runs_s),
        runs_s=tuple(runs_s),
        gap=max(gaps),
    )


def _round_timed(
    policy: str, devices: int, jobs: int, kinds: int, seed: int
) -> tuple[float, float]:
    """CPU seconds of a decision, and its gap."""
    given = elastic_round(devices, jobs, seed=seed)
    if kinds < jobs:
        given = replace(given, goodput=given.goodput[np.arange(jobs) % kinds])
    began_s = time.process_time()
    choice = solve_multiple_choice(OBJECTIVES[policy]().program(given))
    return time.process_time() - began_s, choice.gap


def _shares_timed(
    policy: str, devices: int, jobs: int, kinds: int, seed: int
) -> tuple[float, float]:
    """CPU seconds of a solve, and its gap."""
    snapshot = elastic_snapshot(devices, jobs, kinds, seed=seed)
    made = _made(policy)
    assert isinstance(made, Policy)
    began_s = time.process_time()
    report = made.allocate(snapshot).report
    return time.process_time() - began_s, report.gap or 0.0


def _made(policy: str) -> object:
    return registry.make(policy, seed=0, profile="default")
