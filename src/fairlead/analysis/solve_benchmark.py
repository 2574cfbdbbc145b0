"""A benchmark of the solves of policies: problems of any size, and CPU times.

A problem has jobs of a table's job types, drawn at random, that ask for three times the devices there are.
The scale factors are as in Gavel's traces, a fifth of the jobs weighs more, and each job has been there
for a while. The measured columns of the table come first; further accelerator types are mixes of two
of them with noise.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.allocation import Allocation
from fairlead.model.allocation_checks import effective_throughput
from fairlead.model.arrays import Ints
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.plan import Policy
from fairlead.model.rates import inverse_rate, isolated_rate
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies.partition import part_of
from fairlead.simulator.traces.instances import fresh_snapshot

LOAD = 3.0  # devices asked for per device
MEASURED = 3  # accelerator types that are taken from the table
SCALE_FACTOR_MIX = {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}  # scale factors and how many jobs have them
HEAVY_FRACTION, HEAVY_WEIGHT = (
    0.2,
    1.5,
)  # part of the jobs that has another weight than 1, and that weight
SECONDS = (2.5, 3.0)  # log10 of the least and most minutes that a job takes where it is fastest
MAX_DONE = 0.3  # the most that a job has behind it, as a part of what is left
MIXED = 0.15  # sigma of a mixed type's rates around the mix
OWN_RATES_SIGMA = 0.1  # sigma of a job's own rates around those of its job type
RUNS, ENOUGH_S = 5, 10.0  # medians are of so many runs, of fewer where they take longer together
PAUSE_S = 60.0  # between two changes


@dataclass(frozen=True, slots=True)
class SolveTiming:
    """The times that one policy took."""

    policy: str
    jobs: int
    types: int
    distinct_rates: bool  # has every job rates of its own?
    cpu_s: float  # median of the runs; of a sequence, the sum of all solves
    runs_s: tuple[float, ...]
    gap: float | None  # the largest, None where the policy has no bound
    violation: float  # the largest


# --- problems ---------------------------------------------------------------------------------------


def problem(
    table: Throughputs, jobs: int, types: int, *, distinct_rates: bool = False, seed: int = 0
) -> Snapshot:
    """Jobs that have been submitted a while ago to a cluster on which nothing runs. own_rows: no two jobs
    have the same rates."""
    rng = np.random.default_rng(seed)
    table = with_types(table, types)
    job_type = _job_types(table, jobs, rng)
    heavy = rng.random(jobs) < HEAVY_FRACTION
    minutes = 10 ** rng.uniform(*SECONDS, jobs)
    scale = np.array([one.scale_factor for one in table.job_types])
    devices = max(8, round(float(scale[job_type].sum()) / LOAD / types))
    names = [slot.accelerator for slot in table.slots]
    cluster = Cluster.of(dict.fromkeys(names, devices), devices, dict.fromkeys(names, 1.0))
    table = table.columns(cluster.slots)
    steps = minutes * 60 * table.rate.max(axis=1)[job_type]
    weight = np.where(heavy, HEAVY_WEIGHT, 1.0)
    fresh = fresh_snapshot(cluster, table, job_type, job_type * 2 + heavy, weight, steps)
    if distinct_rates:
        fresh = _with_distinct_rates(fresh, rng)
    age_s = (
        rng.uniform(0, MAX_DONE, jobs) * steps * inverse_rate(isolated_rate(fresh, weighted=True))
    )
    return replace(fresh, age_s=age_s, isolated_s=age_s)


def with_types(table: Throughputs, types: int) -> Throughputs:
    """The table with so many columns: the accelerator types with the most job types, up to ``MEASURED``, then
    mixes of two of them. Jobs in pairs slow each other down on a mix as on its first type."""
    rng = np.random.default_rng(types)
    known = [i for i, s in enumerate(table.slots) if s.locality is Locality.CONSOLIDATED]
    if not known:
        raise ConfigError(f"{table.origin}: has no consolidated rates")
    runnable_types = (table.rate > 0).sum(axis=0)
    known = sorted(known, key=lambda i: -runnable_types[i])[: min(MEASURED, types)]
    slots = [table.slots[i] for i in known]
    rate, pair = [table.rate[:, i] for i in known], None
    if table.colocated_rate is not None:
        pair = [table.colocated_rate[:, :, i] for i in known]
    for number in range(len(known), types):
        a, b = rng.choice(len(known), 2)
        both = (rate[a] > 0) & (rate[b] > 0)
        part, noise = rng.uniform(-0.3, 1.3), rng.lognormal(0, MIXED, len(both))
        mixed = np.zeros(len(both))
        mixed[both] = rate[a][both] ** part * rate[b][both] ** (1 - part) * noise[both]
        if pair is not None:
            pair.append(pair[a] * (inverse_rate(rate[a]) * mixed)[:, None])
        rate.append(mixed)
        slots.append(SlotType(f"mix-{number:03}"))
    colocated_rate = None if pair is None else np.stack(pair, axis=2)
    return replace(
        table, slots=tuple(slots), rate=np.column_stack(rate), colocated_rate=colocated_rate
    )


def _job_types(table: Throughputs, jobs: int, rng: np.random.Generator) -> Ints:
    """(jobs,) rows of the table, of those that can run at all."""
    scale = np.array([one.scale_factor for one in table.job_types])
    able = (table.rate > 0).any(axis=1)
    rows = {
        s: np.flatnonzero(able & (scale == s))
        for s in SCALE_FACTOR_MIX
        if (able & (scale == s)).any()
    }
    if not rows:
        raise ConfigError(
            f"{table.origin}: no job type with {_either(SCALE_FACTOR_MIX)} devices can run"
        )
    part = np.array([SCALE_FACTOR_MIX[s] for s in rows])
    which = rng.choice(len(rows), jobs, p=part / part.sum())
    job_type = np.empty(jobs, np.int64)
    for number, candidates in enumerate(rows.values()):
        mine = which == number
        job_type[mine] = rng.choice(candidates, np.count_nonzero(mine))
    return job_type


def _with_distinct_rates(snapshot: Snapshot, rng: np.random.Generator) -> Snapshot:
    job_numbers = np.arange(len(snapshot.jobs))
    noise = np.exp(rng.normal(0, OWN_RATES_SIGMA, snapshot.rate.shape))
    return replace(
        snapshot,
        rate=snapshot.rate * noise,
        job_type=job_numbers,
        job_class=job_numbers,
        colocated_rate=None,
    )


def _either(numbers: dict[int, float]) -> str:
    return " or ".join(map(str, numbers))


# --- times ------------------------------------------------------------------------------------------


def timed(policy: Policy, snapshot: Snapshot, *, distinct_rates: bool = False) -> SolveTiming:
    """CPU time of solves without an earlier answer. The first one is not counted."""
    made = policy.allocate(snapshot)
    runs: list[float] = []
    while len(runs) < RUNS and sum(runs) < ENOUGH_S:
        begun = time.process_time()
        made = policy.allocate(snapshot)
        runs.append(time.process_time() - begun)
    return _timing(policy, snapshot, distinct_rates, statistics.median(runs), runs, [made])


def sequence(
    policy: Policy,
    table: Throughputs,
    jobs: int,
    types: int,
    changes: int,
    *,
    distinct_rates: bool = False,
    seed: int = 0,
) -> SolveTiming:
    """CPU time of all solves while jobs leave and come by turns, each with the answer before at hand."""
    everyone = problem(table, jobs + changes // 2, types, distinct_rates=distinct_rates, seed=seed)
    devices = everyone.capacity * (jobs / len(everyone.jobs))
    everyone = replace(everyone, capacity=np.maximum(8.0, np.round(devices)))
    runs: list[float] = []
    answers: list[Allocation] = []
    for snapshot in _changes(everyone, jobs, changes, answers):
        begun = time.process_time()
        answers.append(policy.allocate(snapshot))
        runs.append(time.process_time() - begun)
    return _timing(policy, snapshot, distinct_rates, sum(runs), runs, answers)


def _changes(
    everyone: Snapshot, jobs: int, changes: int, answers: list[Allocation]
) -> Iterator[Snapshot]:
    """The jobs that are there after each change. Between two of them they make the progress that the last
    of the answers allows; the one that is nearest to its end leaves, the next in line comes."""
    best = everyone.solo_rate.max(axis=1)
    steps, age_s, isolated_s = (
        array.copy() for array in (everyone.steps_left, everyone.age_s, everyone.isolated_s)
    )
    here, following = np.arange(jobs), jobs
    for change in range(changes):
        if change % 2 == 0:
            here = np.delete(here, np.argmin(steps[here] / best[here]))
        else:
            here, following = np.append(here, following), following + 1
        later = replace(everyone, steps_left=steps, age_s=age_s, isolated_s=isolated_s)
        previous = answers[-1] if answers else None
        now = replace(part_of(later, here, everyone.capacity), previous=previous)
        yield now
        got = effective_throughput(answers[-1], now)
        steps[here] = np.maximum(steps[here] - got * PAUSE_S, 1.0)
        isolated_s[here] += got * inverse_rate(isolated_rate(now, weighted=True)) * PAUSE_S
        age_s[here] += PAUSE_S


def _timing(
    policy: Policy,
    snapshot: Snapshot,
    distinct_rates: bool,
    cpu_s: float,
    runs: list[float],
    answers: list[Allocation],
) -> SolveTiming:
    gaps = [made.report.gap for made in answers if made.report.gap is not None]
    return SolveTiming(
        policy=policy.name,
        jobs=len(snapshot.jobs),
        types=len(snapshot.slots),
        distinct_rates=distinct_rates,
        cpu_s=cpu_s,
        runs_s=tuple(runs),
        gap=max(gaps, default=None),
        violation=max(made.report.violation for made in answers),
    )
