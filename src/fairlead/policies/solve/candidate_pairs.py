"""The pairs of jobs that earn more than they cost at given prices: columns for a program.

Pairs are of classes with equal scale factor. A pair whose members would do no worse to take turns alone on
the same slot is never offered.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Ints1
from fairlead.model.pair_rates import (
    PairTable,
    colocated_rate_of,
    largest_colocated_rate,
    pair_table,
)
from fairlead.policies.solve.configurations import Configurations, value_by_slot
from fairlead.policies.solve.share_problem import ShareProblem

_ROUNDING = 1e-9  # of the terms of a sum, more than it can be off
_DOMINANCE_TOLERANCE = 1e-9  # by how much a pair must do better than taking turns


def proven_time_price(problem: ShareProblem, value: Floats, time: Floats, cost: Floats) -> Floats:
    """(classes,) prices of a job's time, at least ``time``, at which no configuration earns more than it
    costs: what makes a bound of prices that a solver found to some tolerance.

    value: (classes,) or (classes, slots) per step/s of a job; cost: (slots,) per device.
    """
    value = value_by_slot(value, problem)
    solo_gain = value * problem.rate - problem.scale[:, None] * (cost * problem.slot_devices)
    solo_gain[problem.rate <= 0] = 0.0
    time = np.maximum(time, solo_gain.max(axis=1, initial=0.0))
    if problem.colocated_rate is None:
        return time
    return time + CandidatePairs.of(problem).excess(value, time, cost) / 2


@dataclass(frozen=True, slots=True)
class CandidatePairs:
    """The pairs that may be offered: classes in blocks of equal scale factor."""

    order: Ints  # (classes,) by scale factor
    block: Ints  # (blocks + 1,) where each scale factor begins in order
    problem: ShareProblem
    pairs: PairTable
    largest: Floats  # (classes, slots) at least the rate of each beside any other

    @staticmethod
    def of(problem: ShareProblem) -> "CandidatePairs":
        """The candidates of a problem that has rates of pairs."""
        assert problem.colocated_rate is not None
        order = np.argsort(problem.scale, kind="stable")
        ends = np.flatnonzero(np.diff(problem.scale[order])) + 1
        block = np.concatenate([[0], ends, [len(order)]]).astype(np.int64)
        largest = largest_colocated_rate(problem.colocated_rate)[problem.job_type]
        return CandidatePairs(order, block, problem, pair_table(problem.colocated_rate), largest)

    def excess(self, value: Floats, time: Floats, cost: Floats) -> float:
        """The most that any pair earns beyond what it costs, at these values (classes, slots) per step/s,
        prices per unit of a job's time, and costs (slots,) per device; 0 = none does."""
        first, slot, second = self._partners(value, time, cost, 0.0, np.ones_like(time))
        if not len(first):
            return 0.0
        configurations = self.configurations(first, second, slot)
        earns = (
            value[first, slot] * configurations.rate[:, 0]
            + value[second, slot] * configurations.rate[:, 1]
        )
        earns -= self.problem.scale[first] * cost[slot] + time[first] + time[second]
        return float(earns.max(initial=0.0))

    def _partners(
        self, value: Floats, time: Floats, cost: Floats, least: float, number: Floats
    ) -> tuple[Ints, Ints, Ints]:
        """(class, slot, best partner of the class there) of each class and slot where a pair earns more than
        ``least``; ``number``, (classes,), as in ``_best_partner``."""
        problem = self.problem
        classes = _PairClasses(
            order=self.order,
            block=self.block,
            class_size=problem.classes.count,
            scale=problem.scale,
            rate=problem.rate,
            job_type=problem.job_type,
            pairs=self.pairs,
            largest=self.largest,
        )
        prices = _PairPrices(value=value, time=time, cost=cost)
        partner = _best_partner(classes, prices, number, least)
        first, slot = np.nonzero(partner >= 0)
        return first, slot, partner[first, slot]

    def best(
        self, value: Floats, time: Floats, cost: Floats, least: float, have: Configurations
    ) -> Configurations | None:
        """For each class and slot the pair that earns most beyond ``least``; None = there is none."""
        number = self.problem.classes.count
        first, slot, second = self._partners(value, time, cost, least, number)
        if not len(first):
            return None
        low, high = np.minimum(first, second), np.maximum(first, second)
        classes, slots = len(number), len(cost)
        code = (low * classes + high) * slots + slot
        is_pair = have.second >= 0
        known = (have.first[is_pair] * classes + have.second[is_pair]) * slots + have.slot[is_pair]
        code = np.setdiff1d(code, known)
        if not len(code):
            return None
        return self.configurations(code // slots // classes, code // slots % classes, code % slots)

    def configurations(self, first: Ints, second: Ints, slot: Ints) -> Configurations:
        """Return the configurations of these pairs, with their rates. first <= second."""
        job_type = self.problem.job_type
        a, b = job_type[first], job_type[second]
        beside = self.problem.colocated_rate
        assert beside is not None
        rate = np.column_stack([beside[a, b, slot], beside[b, a, slot]])
        return Configurations(first, second, slot, rate)


class _PairClasses(NamedTuple):
    """Classes of jobs, in blocks of equal scale factor within which they may run in pairs."""

    order: Ints1  # (classes,) by scale factor
    block: Ints1  # (blocks + 1,) where each scale factor begins in order
    class_size: Floats1  # (classes,) jobs
    scale: Floats1  # (classes,) devices of a job
    rate: Floats2  # (classes, slots) steps/s alone
    job_type: Ints1  # (classes,) row of pairs
    pairs: PairTable
    largest: Floats2  # (classes, slots) no rate in a pair is above it


class _PairPrices(NamedTuple):
    """Gains and costs of pairs."""

    value: Floats2  # (classes, slots) per step/s
    time: Floats1  # (classes,) per unit of a job's time
    cost: Floats1  # (slots,) per device


@kernel("i8[:,::1](_PairClasses, _PairPrices, f8[::1], f8)")
def _best_partner(of: _PairClasses, prices: _PairPrices, number: Floats, least: float) -> Ints:
    """(classes, slots) the partner class, not before the class itself in order, with which as many pairs
    as ``number``, (classes,), allows earn most, and more than ``least``; -1 = none. Pairs that taking turns
    beats are left out."""
    order, block, scale, rate = of.order, of.block, of.scale, of.rate
    job_type, pairs = of.job_type, of.pairs
    value, time, cost = prices
    classes, slots = rate.shape
    out = np.full((classes, slots), -1, np.int64)
    # What a class brings to a pair at most: of most pairs that is too little, whatever their rates are.
    brings = np.maximum(value, 0.0) * of.largest - time.reshape(-1, 1)
    room = _ROUNDING * (np.abs(value) * of.largest + np.abs(time).reshape(-1, 1))
    for b in range(len(block) - 1):
        for i in range(block[b], block[b + 1]):
            c = order[i]
            for t in range(slots):
                if rate[c, t] <= 0:
                    continue
                most = 0.0
                devices = scale[c] * cost[t]
                enough = brings[c, t] - devices + room[c, t] + _ROUNDING * abs(devices)
                for j in range(i, block[b + 1]):
                    d = order[j]
                    bound = enough + brings[d, t] + room[d, t]
                    if bound <= 0 or bound * min(number[c], number[d]) <= most:
                        continue
                    if rate[d, t] <= 0 or (c == d and of.class_size[c] < 2):
                        continue
                    mine = colocated_rate_of(pairs, job_type[c], job_type[d], t)
                    yours = colocated_rate_of(pairs, job_type[d], job_type[c], t)
                    if mine / rate[c, t] + yours / rate[d, t] <= 1 + _DOMINANCE_TOLERANCE:
                        continue
                    earns = value[c, t] * mine + value[d, t] * yours
                    earns -= scale[c] * cost[t] + time[c] + time[d]
                    earns *= min(number[c], number[d])
                    if earns > least and earns > most:
                        most = earns
                        out[c, t] = d
    return out
