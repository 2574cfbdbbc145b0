"""The number of the next F rounds that each job should run: Shockwave's planning problem without its
binaries.

    maximise   sum_j utility[j, s_j]  -  penalty * max_j remaining[j, s_j]
    such that  at_least_j <= s_j <= F,   sum_j scale_j s_j <= F * devices

Zheng et al., "Shockwave", NSDI 2023, section 6, has a binary variable per job and round. Rounds are
alike in this objective, so only the number s_j of a job's rounds matters, and the welfare is a concave
function of it. For a given bound M on what remains, the rest is a knapsack with concave values and
lower bounds, which ``knapsack.choose`` solves exactly. The search over M goes by price: with a price on a
device-round, every job is on its own, and one pass over all values that M may take bounds the objective
at each of them from above. The M with the highest bound is solved, the price at which it breaks gives
another bound, and so on until no bound is above the best answer. Nothing is assumed about how the
objective depends on M.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.policies.solve.knapsack import choose, exchange_range
from fairlead.policies.solve.planning_by_type import solve_types
from fairlead.policies.solve.planning_problem import (
    PlanningProblem,
    RoundCounts,
    check,
    infeasible,
    interpolate,
    objective_of,
)

__all__ = ["PlanningProblem", "RoundCounts", "interpolate", "objective_of", "solve_counts"]

_TOLERANCE = 1e-13  # a bound that is above the best answer by less, relative to the values, is met


def solve_counts(problem: PlanningProblem) -> RoundCounts:
    """The counts that maximise the objective.

    One accelerator type: exact for any sizes up to 89 devices, and for sizes up to 4,096 that divide one
    another; otherwise ``proven`` is False and the bound says how far from the best the answer may be.
    Capacity is that of all rounds together, so that ``pack_rounds`` may in contrived cases not place all.
    """
    check(problem)
    if len(problem.devices) > 1:
        return solve_types(problem)
    return _Search(problem).run() if len(problem.scale) else _nothing()


def _nothing() -> RoundCounts:
    return RoundCounts(
        counts=np.zeros((0, 1), np.int64), objective=0.0, bound=0.0, feasible=True, proven=True
    )


@dataclass(frozen=True, slots=True)
class _Raises:
    """Items that become lower bounds as M falls: a job needs an item's round as soon as M is below what
    remained before it."""

    items: Ints  # (raises,) job * rounds + round
    before: Floats  # (raises,) falling
    floor: float  # what M cannot be below


@dataclass(frozen=True, slots=True)
class _Knapsack:
    """Jobs by how many devices their rounds take, as ``knapsack.choose`` wants them."""

    sizes: Ints  # (classes,) devices
    class_of: Ints  # (jobs,)
    exchange: int  # of ``knapsack.exchange_range``

    @staticmethod
    def of(size: Ints) -> tuple["_Knapsack", bool]:
        """For jobs of these sizes, (jobs,); and whether its choice is proven to be the best."""
        sizes, class_of = np.unique(size, return_inverse=True)
        exchange, proven = exchange_range(sizes)
        return _Knapsack(sizes, class_of.reshape(-1).astype(np.int64), exchange), proven

    def choose(self, worth: Floats, job: Ints, capacity: int) -> Bools:
        """(items,) which items to take. worth, job: (items,), by falling worth per device."""
        return choose(worth, self.class_of[job], self.sizes, 0, capacity, self.exchange)


class _Search:
    """Over M, the most that may remain, from above: a smaller M raises lower bounds one by one."""

    def __init__(self, problem: PlanningProblem) -> None:
        self.problem = problem
        self.capacity = int(problem.rounds * problem.devices[0])
        self.most = np.where(problem.scale <= problem.devices[0], problem.rounds, 0)
        able = problem.scale[self.most > 0]
        size = np.where(self.most > 0, problem.scale, able.min(initial=problem.devices[0]))
        self.knapsack, self.proven = _Knapsack.of(size)
        self.step, self.value = self._values()
        self.order = self._items()
        self.raises = self._raises()
        self.best = -np.inf  # relative to running in each round; see _values
        self.relaxed = -np.inf
        self.counts = np.zeros(len(problem.scale), np.int64)

    def _values(self) -> tuple[Floats, Floats]:
        """Steps, made concave where they are so but for rounding, and values as losses against running in
        each round: jobs whose weights are astronomic would drown the others otherwise."""
        step = np.minimum.accumulate(np.maximum(np.diff(self.problem.utility, axis=1), 0.0), axis=1)
        value = np.zeros(self.problem.utility.shape)
        value[:, :-1] = -np.cumsum(step[:, ::-1], axis=1)[:, ::-1]
        return np.ascontiguousarray(step), value

    def _items(self) -> Ints:
        """Rounds that are worth something, by falling value per device."""
        worth = (self.step / self.problem.scale[:, None]).ravel()
        able = (worth > 0) & np.repeat(self.most > 0, self.problem.rounds)
        items = np.flatnonzero(able)
        return items[np.argsort(-worth[items], kind="stable")]

    def _raises(self) -> "_Raises":
        """By falling M, down to what nobody can go below."""
        remaining = np.minimum.accumulate(self.problem.remaining, axis=1)
        rows = np.arange(len(self.most))
        floor = float(remaining[rows, self.most].max())
        before = remaining[:, :-1].ravel()
        column = np.tile(np.arange(self.problem.rounds), len(rows))
        needed = column >= np.repeat(self.problem.at_least, self.problem.rounds)
        items = np.flatnonzero(needed & (before > floor))
        items = items[np.argsort(-before[items], kind="stable")]
        return _Raises(items=items, before=before[items], floor=floor)

    def run(self) -> RoundCounts:
        """The counts that maximise the objective, with a bound on it."""
        problem = self.problem
        at_least, scale = problem.at_least, problem.scale
        job = self.raises.items // problem.rounds
        free = self.capacity - int(scale @ at_least)
        if free < 0 or (at_least > self.most).any():
            return infeasible(len(scale), 1)
        limits = np.append(self.raises.before, self.raises.floor)  # each M that may be the best
        first = np.flatnonzero(np.diff(limits, prepend=np.inf) < 0)  # raises that it implies
        weight = np.concatenate(([0], np.cumsum(scale[job])))[first]
        first = first[weight <= free]
        limits = limits[first]
        bound = np.full(len(first), np.inf)
        while True:
            at = int(np.argmax(bound))
            if bound[at] <= self.best + self._slack():
                break
            self._solve(at, first, limits, bound, job)
        counts = self.counts[:, None]
        objective = objective_of(problem, self.counts.astype(np.float64))
        certified = objective + max(float(self.relaxed) - self.best, 0.0)
        return RoundCounts(
            counts=counts, objective=objective, bound=certified, feasible=True, proven=self.proven
        )

    def _slack(self) -> float:
        return _TOLERANCE * max(1.0, abs(self.best)) if np.isfinite(self.best) else 0.0

    def _solve(self, at: int, first: Ints, limits: Floats, bound: Floats, job: Ints) -> None:
        """The best counts for the M in place ``at``, and what they say about all others."""
        problem = self.problem
        scale, penalty = problem.scale, problem.penalty
        least = problem.at_least + np.bincount(job[: first[at]], minlength=len(scale))
        free = self.capacity - int(scale @ least)
        counts, relaxed, price = self._fill(least, free)
        rows = np.arange(len(scale))
        value = float(self.value[rows, counts].sum())
        bounded = value - penalty * float(problem.remaining[rows, counts].max())
        self.relaxed = max(self.relaxed, relaxed - penalty * limits[at])
        if bounded > self.best:
            self.best, self.counts = bounded, counts
        known = value if self.proven else relaxed  # a smaller M cannot have more
        bound[at:] = np.minimum(bound[at:], known - penalty * limits[at:])
        bound[at] = -np.inf
        np.minimum(bound, self._priced(price, first, limits), out=bound)

    def _fill(self, least: Ints, free: int) -> tuple[Ints, float, float]:
        """The best counts from ``least`` on where so much capacity is left, the value of the linear
        relaxation, and its price of a device-round (0 where there are enough for all)."""
        rounds, scale = self.problem.rounds, self.problem.scale
        jobs = len(scale)
        items = self.order[self.order % rounds >= least[self.order // rounds]]
        job = items // rounds
        worth = self.step.ravel()[items]
        taken = self.knapsack.choose(worth, job, free)
        counts = least + np.bincount(job[taken], minlength=jobs)
        weight = np.cumsum(scale[job])
        broke = int(np.searchsorted(weight, free, side="right"))
        greedy = least + np.bincount(job[:broke], minlength=jobs)
        relaxed, price = float(self.value[np.arange(jobs), greedy].sum()), 0.0
        if broke < len(items):
            price = float(worth[broke] / scale[job[broke]])
            relaxed += price * (free - (int(weight[broke - 1]) if broke else 0))
        return counts, relaxed, price

    def _priced(self, price: float, first: Ints, limits: Floats) -> Floats:
        """Bounds at all M where a device-round has this price: every job takes what pays, and M's rounds
        at a loss."""
        problem = self.problem
        cost = price * problem.scale
        pays = np.arange(problem.rounds) >= problem.at_least[:, None]
        pays &= (self.step > cost[:, None]) & (self.most > 0)[:, None]
        chosen = problem.at_least + pays.sum(axis=1)
        rows = np.arange(len(cost))
        free = float((self.value[rows, chosen] - cost * chosen).sum()) + price * self.capacity
        raised = self.raises.items
        loss = np.minimum(self.step.ravel()[raised] - cost[raised // problem.rounds], 0.0)
        lost = np.concatenate(([0.0], np.cumsum(loss)))[first]
        return free + lost - problem.penalty * limits
