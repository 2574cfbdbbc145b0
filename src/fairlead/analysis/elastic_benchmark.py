"""A benchmark of the decisions on elastic jobs: rounds of any size, and CPU times.

Three accelerator types have servers of 4, 8 and 8 devices and a third of the devices each. The goodput of a
job grows with a power of its devices, drawn between 0.5 and 0.97, up to a most number of devices, drawn as
well; its speeds on the types are drawn around 1, 1.6 and 3.5. Half of the jobs run, on a random
configuration.
"""

import statistics
import time
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.policies.elastic.elastic_round import ElasticRound
from fairlead.policies.elastic.objectives import OBJECTIVES
from fairlead.policies.solve.multiple_choice import solve_multiple_choice

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


def time_elastic(policy: str, devices: int, jobs: int) -> ElasticTiming:
    """Return how long the decisions of a policy take, its program, answer and bound included."""
    runs_s, gaps = [], []
    for seed in range(RUNS + 1):
        given = elastic_round(devices, jobs, seed=seed)
        began_s = time.process_time()
        choice = solve_multiple_choice(OBJECTIVES[policy]().program(given))
        if seed:  # the first one may compile
            runs_s.append(time.process_time() - began_s)
            gaps.append(choice.gap)
    return ElasticTiming(
        policy=policy,
        devices=devices,
        jobs=jobs,
        configurations=len(given.devices),
        cpu_s=statistics.median(runs_s),
        runs_s=tuple(runs_s),
        gap=max(gaps),
    )
