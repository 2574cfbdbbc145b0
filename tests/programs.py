"""Programs by name: the optimum of each, and the objective that an allocation really has."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.allocation_checks import devices_used
from fairlead.model.arrays import Floats
from fairlead.model.snapshot import Snapshot
from tests import oracle

LATER = 3e-7  # shortfall above the least that a policy may leave
Value: TypeAlias = Callable[[Snapshot, Allocation], float]  # the objective of an allocation


def throughput(snapshot: Snapshot, allocation: Allocation) -> Floats:
    """(jobs,) steps/s of each job, alone and in pairs"""
    at = {job: i for i, job in enumerate(snapshot.jobs.tolist())}
    total = np.zeros(len(at))
    for unit, share in zip(allocation.job_groups.tolist(), allocation.share, strict=True):
        members = [at[job] for job in unit if job >= 0]
        if len(members) == 1:
            total[members[0]] += snapshot.solo_rate[members[0]] @ share
        elif share.any():
            assert snapshot.colocated_rate is not None
            for i, other in (members, members[::-1]):
                total[i] += (
                    snapshot.colocated_rate[snapshot.job_type[i], snapshot.job_type[other]] @ share
                )
    return total


def busy(snapshot: Snapshot, allocation: Allocation) -> Floats:
    """(jobs,) steps/s of each job for those who think that it has its mean rate everywhere"""
    return np.asarray(oracle.proportional(snapshot) * allocation.share.sum(axis=1))


def levels_of_time(snapshot: Snapshot, allocation: Allocation) -> Floats:
    """(jobs,) s_i / w_i sum_j x_ij"""
    return np.asarray(snapshot.job_scale / snapshot.weight * allocation.share.sum(axis=1))


def normalised(snapshot: Snapshot, allocation: Allocation) -> Floats:
    """(jobs,) t_i / p_i"""
    return throughput(snapshot, allocation) * oracle.inverse(oracle.proportional(snapshot))


def levels(snapshot: Snapshot, allocation: Allocation) -> Floats:
    """(jobs,) s_i / (w_i p_i) t_i"""
    return snapshot.job_scale / snapshot.weight * normalised(snapshot, allocation)


def lowest(snapshot: Snapshot, level: Floats) -> float:
    """The lowest level of those who can run."""
    can = oracle.proportional(snapshot) > 0
    return float(level[can].min()) if can.any() else 0.0


def last(snapshot: Snapshot, steps_per_s: Floats) -> float:
    say = (snapshot.steps_left > 0) & (oracle.proportional(snapshot) > 0)
    return float((snapshot.steps_left[say] / steps_per_s[say]).max(initial=0.0))


def rho(snapshot: Snapshot, steps_per_s: Floats) -> float:
    say = (snapshot.steps_left > 0) & (oracle.proportional(snapshot) > 0)
    steps, part = snapshot.steps_left[say], oracle.by_weight(snapshot)
    finish = snapshot.age_s[say] + steps / steps_per_s[say]
    isolated = snapshot.isolated_s[say] + steps / oracle.isolated_rate(snapshot, part)[say]
    return float((finish / isolated).max(initial=0.0))


def per_cost(snapshot: Snapshot, allocation: Allocation) -> float:
    c = oracle.price(snapshot)
    colocated_rate = None if snapshot.colocated_rate is None else snapshot.colocated_rate / c
    priced = replace(snapshot, rate=snapshot.rate / c[:, None], colocated_rate=colocated_rate)
    return float(throughput(priced, allocation).sum())


def ratio(snapshot: Snapshot, allocation: Allocation) -> float:
    worth = oracle.work_worth(snapshot)
    if not worth.any():
        return 0.0
    spent = devices_used(allocation, snapshot) @ snapshot.price
    return float(worth @ throughput(snapshot, allocation) / spent)


def in_time(value: Value, packed: bool = False) -> Value:
    """The same of an allocation with the least shortfall; nan of others."""

    def checked(snapshot: Snapshot, allocation: Allocation) -> float:
        need = oracle.needs(snapshot)
        met = throughput(snapshot, allocation) * oracle.inverse(need)
        late = ((need > 0) - met).clip(0.0).sum()
        in_time = late <= oracle.least_shortfall(snapshot, packed) + 1e-6
        return value(snapshot, allocation) if in_time else float("nan")

    return checked


def bargain(snapshot: Snapshot, allocation: Allocation) -> float:
    can = oracle.proportional(snapshot) > 0
    level, weight = normalised(snapshot, allocation)[can], snapshot.weight[can]
    return float(np.exp(weight @ np.log(level) / weight.sum())) if len(weight) else 0.0


@dataclass(frozen=True)
class Program:
    """What a policy is compared with."""

    optimum: Callable[[Snapshot], float]
    value: Value | None  # None: the allocation is only a part of the optimum
    priced: bool = False  # does it need prices above 0?
    loose: Callable[[Snapshot], float] | None = None  # optimum if a first goal is all but reached


# Name in the registry -> its program. A new policy is a new line.
PROGRAMS: dict[str, Program] = {
    "water_filling": Program(oracle.las, lambda s, a: float(levels_of_time(s, a).min())),
    "water_filling_aware": Program(oracle.las_aware, lambda s, a: lowest(s, levels(s, a))),
    "water_filling_packed": Program(oracle.las_packed, lambda s, a: lowest(s, levels(s, a))),
    "las": Program(oracle.las, lambda s, a: float(levels_of_time(s, a).min())),
    "las_aware": Program(oracle.las_aware, lambda s, a: lowest(s, levels(s, a))),
    "las_packed": Program(oracle.las_packed, lambda s, a: lowest(s, levels(s, a))),
    "makespan": Program(oracle.makespan, lambda s, a: last(s, busy(s, a))),
    "makespan_aware": Program(oracle.makespan_aware, lambda s, a: last(s, throughput(s, a))),
    "makespan_packed": Program(oracle.makespan_packed, lambda s, a: last(s, throughput(s, a))),
    "finish_time": Program(oracle.finish_time, lambda s, a: rho(s, busy(s, a))),
    "finish_time_aware": Program(oracle.finish_time_aware, lambda s, a: rho(s, throughput(s, a))),
    "finish_time_packed": Program(oracle.finish_time_packed, lambda s, a: rho(s, throughput(s, a))),
    "total_throughput": Program(
        oracle.total_throughput, lambda s, a: float(throughput(s, a).sum())
    ),
    "total_throughput_packed": Program(
        oracle.total_throughput_packed, lambda s, a: float(throughput(s, a).sum())
    ),
    "total_throughput_normalised": Program(
        oracle.total_throughput_normalised,
        lambda s, a: float(throughput(s, a) @ oracle.inverse(oracle.fastest(s))),
    ),
    "throughput_per_cost": Program(oracle.throughput_per_cost, per_cost, priced=True),
    "throughput_per_cost_slo": Program(
        oracle.throughput_per_cost_slo,
        in_time(per_cost),
        priced=True,
        loose=lambda s: oracle.throughput_per_cost_slo(s, slack=LATER),
    ),
    "throughput_per_cost_packed_slo": Program(
        oracle.throughput_per_cost_packed_slo,
        in_time(per_cost, packed=True),
        priced=True,
        loose=lambda s: oracle.throughput_per_cost_packed_slo(s, slack=LATER),
    ),
    "min_cost": Program(oracle.min_cost, ratio, priced=True),
    "min_cost_slo": Program(
        oracle.min_cost_slo,
        in_time(ratio),
        priced=True,
        loose=lambda s: oracle.min_cost_slo(s, slack=LATER),
    ),
    "nash": Program(oracle.nash, bargain),
    "strategy_proof": Program(oracle.nash, None),  # each job keeps a part of the optimum
}

# Name in the registry -> what each job gets, where that is unique: the optimum, and that of an allocation.
JobsGet: TypeAlias = tuple[Callable[[Snapshot], Floats], Callable[[Snapshot, Allocation], Floats]]
UNIQUE: dict[str, JobsGet] = {
    "water_filling": (oracle.water_filling, levels_of_time),
    "water_filling_aware": (oracle.water_filling_aware, levels),
    "water_filling_packed": (oracle.water_filling_packed, levels),
    "strategy_proof": (oracle.partial_allocation, normalised),
}
