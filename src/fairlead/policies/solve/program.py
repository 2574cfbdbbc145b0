"""Linear programmes over classes of jobs, alone and in pairs.

Jobs of one class are alike, so a programme speaks of classes: y_a is the time that all jobs of a class
together spend in a *configuration* a, which is a slot type for a job alone, or a slot type and a partner
class. Every programme here maximises a linear function of the shares subject to

    sum_{a of class c} y_a <= n_c                     time; a pair of two jobs of c counts twice
    sum_{a on type k} s_a y_a <= N_k                  devices
    t_c = sum_{a of class c} rate_a y_a / n_c         throughput of each job of c, bounded as asked
    rows_r                                            further linear functions of the shares
    y >= 0                                            and further columns z with entries in any row

n_c jobs, s devices of a job, N_k devices of accelerator type k. Permuting like jobs maps solutions to
solutions, so nothing is lost by giving the jobs of a class the same; see
``fairlead.policies.solve.job_classes``.

There are as many pairs as classes squared, and few are worth anything: pairs come in by column
generation. The optimum over the configurations at hand has prices for time, devices and throughput; a pair
that earns more than it costs at these prices is added, until there is none. The answer is then optimal over
all pairs. A pair of which one could as well take turns on the same slot is never offered.

Scaling: a column is the share of one job, a throughput row is over the class's fastest rate, a device
row over its capacity. Every row is then of order one, for ten jobs or a million.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Floats3, Ints1
from fairlead.model.snapshot import Snapshot
from fairlead.policies.solve.highs import (
    BASIC,
    INFINITY,
    LOWER,
    Basis,
    HighsModel,
    LinearProgram,
    Statuses,
    listed,
)
from fairlead.policies.solve.job_classes import JobClassSizes, group

_WORTH = 1e-9  # a pair is worth adding when it earns this much more than it costs, relative to the largest
_DOMINATED = 1e-9  # how far beyond taking turns a pair must get
_ROUNDS = 200  # of column generation; a handful is usual


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareProblem:
    """Jobs by class, what they can do, and what there is to share."""

    classes: JobClassSizes
    scale: Floats  # (classes,) devices of a job
    rate: Floats  # (classes, slots) steps/s of a job alone; 0 = cannot run there
    accelerator_of_slot: Ints  # (slots,)
    capacity: Floats  # (types,) devices
    job_type: Ints  # (classes,) row of colocated_rate
    colocated_rate: (
        Floats | None
    )  # (job types, job types, slots) steps/s of the first with the second; None = no pairs

    @staticmethod
    def of(
        snapshot: Snapshot,
        key: Ints | None = None,
        *,
        space_sharing: bool = False,
        rate: Floats | None = None,
    ) -> "ShareProblem":
        """The problem of a snapshot. key: (jobs,) jobs with the same key are interchangeable,
        None = ``job_class``; space_sharing: may jobs run in pairs? rate: (jobs, slots) in place of the
        snapshot's, 0 where it cannot run. Types without devices cannot be run on."""
        classes = group(snapshot.job_class if key is None else key)
        alone = (snapshot.solo_rate if rate is None else rate)[classes.first]
        return ShareProblem(
            classes=classes,
            scale=snapshot.job_scale[classes.first].astype(np.float64),
            rate=np.where((snapshot.capacity > 0)[snapshot.accelerator_of_slot], alone, 0.0),
            accelerator_of_slot=snapshot.accelerator_of_slot,
            capacity=snapshot.capacity,
            job_type=snapshot.job_type[classes.first],
            colocated_rate=snapshot.colocated_rate if space_sharing else None,
        )

    @property
    def best(self) -> Floats:
        """(classes,) fastest rate alone, 1 where a job can run nowhere."""
        best = self.rate.max(axis=1, initial=0.0)
        return np.where(best > 0, best, 1.0)

    @property
    def can_run(self) -> Bools:
        """(classes,) is there a slot type with a rate?"""
        return np.asarray((self.rate > 0).any(axis=1))


@dataclass(frozen=True, slots=True)
class Configurations:
    """Ways to run: on a slot type, alone or in a pair. Those of jobs alone come first."""

    first: Ints  # (configurations,) class
    second: Ints  # (configurations,) class of the partner, -1 = alone; may be the class itself
    slot: Ints  # (configurations,)
    rate: Floats  # (configurations, 2) steps/s of the member of first, and of the member of second

    @property
    def alone(self) -> int:
        """How many are of one job."""
        return int(np.count_nonzero(self.second < 0))

    def plus(self, other: "Configurations") -> "Configurations":
        """These, then others."""
        return Configurations(
            np.concatenate([self.first, other.first]),
            np.concatenate([self.second, other.second]),
            np.concatenate([self.slot, other.slot]),
            np.concatenate([self.rate, other.rate]),
        )


@dataclass(frozen=True, slots=True)
class LinearObjective:
    """A linear function of the shares: sum_a (value_c rate_a - cost_slot(a) s_a) y_a, over the members c
    of each configuration a; where value is by class, that is
    sum_c value_c n_c t_c - sum_a cost_slot(a) s_a y_a."""

    value: Floats  # (classes,), or (classes, slots) where it depends on the slot type, per step/s
    cost: Floats  # (slots,) per device


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtraColumns:
    """Further columns. An entry names its row by number (``Program.throughput_row`` and so on)."""

    cost: Floats  # (columns,)
    lower: Floats  # (columns,)
    upper: Floats  # (columns,)
    column: Ints  # (entries,)
    row: Ints  # (entries,)
    value: (
        Floats  # (entries,) in steps/s of a job, shares of a job's time, or fractions of a capacity
    )


NO_COLUMNS = ExtraColumns(
    cost=np.zeros(0),
    lower=np.zeros(0),
    upper=np.zeros(0),
    column=np.zeros(0, np.int64),
    row=np.zeros(0, np.int64),
    value=np.zeros(0),
)


@dataclass(frozen=True, slots=True)
class ConstraintRow:
    """A further row: lower <= measure + entries of the further columns <= upper."""

    measure: LinearObjective
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramSolution:
    """An optimum and its prices, in the units of the problem."""

    objective: float
    configurations: Configurations
    time: Floats  # (configurations,) y_a: time that the jobs of the class spend so, all together
    columns: Floats  # (columns,) the further columns
    throughput_price: Floats  # (classes,) gain of the objective per step/s asked less of one job
    time_price: Floats  # (classes,) gain per unit of time that one job had more
    device_price: Floats  # (types,) gain per device more
    row_price: Floats  # (rows,) gain per unit that the binding side of the row were moved out
    iterations: int
    packed_basis: Callable[[], tuple[bytes, ...]]
    warm: bool

    @property
    def basis(self) -> tuple[bytes, ...]:
        """Where another solve may start from: for ``Program.previous``."""
        return self.packed_basis()

    def per_job(self, problem: ShareProblem) -> Floats:
        """(classes, slots) share of each job of a class that it spends alone."""
        share = np.zeros(problem.rate.shape)
        n = self.configurations.alone
        share[self.configurations.first[:n], self.configurations.slot[:n]] = self.time[:n]
        return share / problem.classes.count[:, None]

    def largest_use(self, problem: ShareProblem) -> float:
        """The largest use of a class's time or of a type's devices, as a fraction of what there is."""
        configurations, count = self.configurations, problem.classes.count
        devices = problem.scale[configurations.first] * self.time
        types = len(problem.capacity)
        used = np.bincount(problem.accelerator_of_slot[configurations.slot], devices, types)
        pair = configurations.second >= 0
        time = np.bincount(configurations.first, self.time, len(count))
        time += np.bincount(configurations.second[pair], self.time[pair], len(count))
        spent = float((time / count).max(initial=0.0))
        return max(spent, float((used / np.maximum(problem.capacity, 1.0)).max()))


@dataclass(kw_only=True, slots=True)
class Program:
    """One programme inside the solver, to be maximised once or several times.

    throughput: are there throughput rows? Then demand: (classes,) least steps/s of each job, -inf = none
    (an entry of a further column there lowers or raises what the job must get: t_c + entries >= demand).
    """

    problem: ShareProblem
    throughput: bool = False
    demand: Floats | None = None
    columns: ExtraColumns = NO_COLUMNS
    rows: Sequence[ConstraintRow] = ()
    pair_penalty: float = 0.0  # what a pair's time must earn beyond that of its jobs, per device
    previous: tuple[bytes, ...] = ()
    _model: HighsModel = field(init=False)
    _configurations: Configurations = field(init=False)
    _best: Floats = field(init=False)
    _warm: bool = field(init=False, default=False)
    _pairs: "_Pairs | None" = field(init=False, default=None)
    _row_scale: Floats = field(init=False)
    _basis: "_CarriedBasis | None" = field(init=False, default=None)

    # --- rows -----------------------------------------------------------------------------------

    def throughput_row(self, classes: Ints) -> Ints:
        """(classes,) rows t_c + entries >= demand_c, in steps/s of a job."""
        return np.asarray(classes)

    def time_row(self, classes: Ints) -> Ints:
        """(classes,) rows sum_a y_a / n_c + entries <= 1."""
        return np.asarray(classes) + len(self.problem.scale) * self.throughput

    def device_row(self, types: Ints) -> Ints:
        """(types,) rows sum_a s_a y_a / N_k + entries <= 1 (an entry of -1: that capacity more)."""
        return np.asarray(types) + len(self.problem.scale) * (1 + self.throughput)

    def further_row(self, row: int) -> int:
        """The number of one of ``rows``."""
        return self._fixed_rows + row

    @property
    def _fixed_rows(self) -> int:
        return len(self.problem.scale) * (1 + self.throughput) + len(self.problem.capacity)

    # --- solving --------------------------------------------------------------------------------

    def load(self) -> "Program":
        """Hand the programme to the solver, starting from ``previous`` where that fits."""
        problem = self.problem
        self._best = problem.best
        self._configurations = _alone(problem)
        if problem.colocated_rate is not None:
            self._pairs = _Pairs.of(problem)
        self._basis = _unpack(self.previous, problem, self._pairs)
        if self._basis is not None and self._pairs is not None:
            self._configurations = self._configurations.plus(self._basis.pairs)
        self._row_scale = np.array([_scale_of(r, self._configurations, problem) for r in self.rows])
        self._model = HighsModel(self._program())
        start = None
        if self._basis is not None:
            start = self._basis.basis(
                self._configurations, problem, self.throughput, len(self.columns.cost)
            )
            if start is not None and len(start.rows) != self._fixed_rows + len(self.rows):
                start = None
        self._warm = self._model.load(start)
        return self

    def maximise(
        self, objective: LinearObjective, columns: Floats | None = None
    ) -> ProgramSolution:
        """The largest objective, with these costs of the further columns (None = those they came with),
        from where the last one ended."""
        further = self.columns.cost if columns is None else columns
        cost = _gain(
            objective, self._configurations, self.problem, self._pair_penalty
        ) * self._column_size(self._configurations)
        largest = max(np.abs(cost).max(initial=0.0), np.abs(further).max(initial=0.0)) or 1.0
        front = len(further)
        found = self._model.maximise(np.concatenate([further, cost]) / largest)
        iterations = found.iterations
        for _ in range(_ROUNDS if self._pairs is not None else 0):
            new = self._price_columns(objective, found.dual * largest, largest)
            if new is None:
                break
            self._add(new, objective, largest)
            found = self._model.maximise()
            iterations += found.iterations
        n = len(self.problem.scale)
        dual = found.dual * largest
        count = self.problem.classes.count
        lowered = -dual[:n] / self._best / count if self.throughput else np.zeros(n)
        at = n * (1 + self.throughput)
        types = len(self.problem.capacity)
        return ProgramSolution(
            objective=found.objective * largest,
            configurations=self._configurations,
            time=np.maximum(found.value[front:], 0.0) * self._column_size(self._configurations),
            columns=found.value[:front],
            throughput_price=np.maximum(lowered, 0.0),
            time_price=np.maximum(dual[at - n : at], 0.0) / count,
            device_price=np.maximum(dual[at : at + types], 0.0)
            / np.maximum(self.problem.capacity, 1.0),
            row_price=dual[at + types :] / self._row_scale if len(self.rows) else np.zeros(0),
            iterations=iterations,
            packed_basis=partial(
                _pack,
                self._model.ended(),
                self._configurations,
                self.problem,
                self.throughput,
                front,
            ),
            warm=self._warm,
        )

    def recount(self, count: Floats) -> None:
        """The same programme of jobs alone for other numbers (classes,) of jobs, from where the last one
        ended."""
        classes = replace(self.problem.classes, count=count)
        self.problem = replace(self.problem, classes=classes)
        self._model.renew(self._program())
        self._warm = True

    def bound(self, column: int, lower: float, upper: float) -> None:
        """Change the bounds of a further column."""
        self._model.bound(column, lower, upper)

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _pair_penalty(self) -> float:
        return self.pair_penalty

    def _column_size(self, configurations: Configurations) -> Floats:
        """(configurations,) jobs, or pairs, that a column of 1 keeps busy all the time."""
        count = self.problem.classes.count
        partner = np.where(configurations.second < 0, configurations.first, configurations.second)
        unit = np.minimum(count[configurations.first], count[partner])
        return np.where(configurations.second == configurations.first, unit / 2, unit)

    def _program(self) -> LinearProgram:
        problem, further = self.problem, self.columns
        start, index, value = self._entries(self._configurations)
        front = np.bincount(further.column, minlength=len(further.cost))
        order = np.argsort(further.column, kind="stable")
        own_start = np.concatenate([[0], np.cumsum(front)])
        scaled = further.value / self._scale_of_rows()[further.row]
        n = len(problem.scale)
        lower = np.full(self._fixed_rows + len(self.rows), -INFINITY)
        upper = np.ones(len(lower))
        if self.throughput:
            asked = np.zeros(n) if self.demand is None else self.demand
            lower[:n], upper[:n] = asked / self._best, INFINITY
        for i, row in enumerate(self.rows):
            at = self._fixed_rows + i
            lower[at], upper[at] = row.lower / self._row_scale[i], row.upper / self._row_scale[i]
        columns = len(self._configurations.first)
        return LinearProgram(
            cost=np.zeros(len(further.cost) + columns),
            col_lower=np.concatenate([further.lower, np.zeros(columns)]),
            col_upper=np.concatenate([further.upper, np.full(columns, INFINITY)]),
            row_lower=lower,
            row_upper=upper,
            start=np.concatenate([own_start, own_start[-1] + start[1:]]).astype(np.int32),
            index=np.concatenate([further.row[order], index]).astype(np.int32),
            value=np.concatenate([scaled[order], value]),
        )

    def _scale_of_rows(self) -> Floats:
        """(rows,) what an entry in natural units is divided by."""
        scale = np.ones(self._fixed_rows + len(self.rows))
        if self.throughput:
            scale[: len(self._best)] = self._best
        scale[self._fixed_rows :] = self._row_scale
        return scale

    def _entries(self, configurations: Configurations) -> tuple[Ints, Ints, Floats]:
        """(start, row, value) of these configurations, by columns."""
        problem = self.problem
        count, n = problem.classes.count, len(problem.scale)
        unit = self._column_size(configurations)
        pair = configurations.second >= 0
        other = np.where(pair, configurations.second, 0)
        both = pair & (other != configurations.first)
        twin = pair & ~both
        part = unit / count[configurations.first]
        part_other = unit / count[other]
        accelerator = problem.accelerator_of_slot[configurations.slot]
        width = 2 * self.throughput + 3 + len(self.rows)
        row = np.full((len(unit), width), -1, np.int64)
        value = np.zeros((len(unit), width))
        at = 0
        if self.throughput:
            rate = configurations.rate[:, 0] + np.where(twin, configurations.rate[:, 1], 0.0)
            row[:, 0], value[:, 0] = (
                configurations.first,
                rate * part / self._best[configurations.first],
            )
            row[:, 1] = np.where(both, other, -1)
            value[:, 1] = configurations.rate[:, 1] * part_other / self._best[other]
            at = 2
        shift = n * self.throughput
        row[:, at], value[:, at] = configurations.first + shift, part * np.where(twin, 2.0, 1.0)
        row[:, at + 1], value[:, at + 1] = np.where(both, other + shift, -1), part_other
        row[:, at + 2] = accelerator + shift + n
        devices = problem.scale[configurations.first] * unit
        value[:, at + 2] = devices / np.maximum(problem.capacity, 1.0)[accelerator]
        for i, further in enumerate(self.rows):
            row[:, at + 3 + i] = self._fixed_rows + i
            gain = _gain(further.measure, configurations, problem, 0.0) * unit
            value[:, at + 3 + i] = gain / self._row_scale[i]
        there = (row >= 0) & (value != 0)
        start = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        return start, row[there], value[there]

    def _add(self, new: Configurations, objective: LinearObjective, largest: float) -> None:
        start, index, value = self._entries(new)
        cost = (
            _gain(objective, new, self.problem, self._pair_penalty)
            * self._column_size(new)
            / largest
        )
        self._model.add(cost, start.astype(np.int32), index.astype(np.int32), value)
        self._configurations = self._configurations.plus(new)

    def _price_columns(
        self, objective: LinearObjective, dual: Floats, largest: float
    ) -> Configurations | None:
        """Pairs that earn more than they cost, for each class and slot the best; None = there is none."""
        assert self._pairs is not None
        problem = self.problem
        n, count = len(problem.scale), problem.classes.count
        shift = n * self.throughput
        value = _by_slot(objective.value, problem)
        cost = objective.cost.copy()
        for i, further in enumerate(self.rows):
            price = dual[self._fixed_rows + i] / self._row_scale[i]
            value -= price * _by_slot(further.measure.value, problem)
            cost -= price * further.measure.cost
        if self.throughput:
            value -= (dual[:n] / self._best / count)[:, None]
        time = dual[shift : shift + n] / count
        devices = dual[shift + n : self._fixed_rows] / np.maximum(problem.capacity, 1.0)
        cost = cost + devices[problem.accelerator_of_slot] + self._pair_penalty
        return self._pairs.best(value, time, cost, largest * _WORTH, self._configurations)


def proven_time_price(problem: ShareProblem, value: Floats, time: Floats, cost: Floats) -> Floats:
    """(classes,) prices of a job's time, at least ``time``, at which no configuration earns more than it
    costs: what makes a bound of prices that a solver found to some tolerance.

    value: (classes,) or (classes, slots) per step/s of a job; cost: (slots,) per device.
    """
    value = _by_slot(value, problem)
    alone = value * problem.rate - problem.scale[:, None] * cost
    alone[problem.rate <= 0] = 0.0
    time = np.maximum(time, alone.max(axis=1, initial=0.0))
    if problem.colocated_rate is None:
        return time
    return time + _Pairs.of(problem).excess(value, time, cost) / 2


# --- pairs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The pairs that may be offered: classes in blocks of equal scale factor."""

    order: Ints  # (classes,) by scale factor
    block: Ints  # (blocks + 1,) where each scale factor begins in order
    problem: ShareProblem
    colocated_rate: Floats  # (job types, job types, slots), contiguous

    @staticmethod
    def of(problem: ShareProblem) -> "_Pairs":
        assert problem.colocated_rate is not None
        order = np.argsort(problem.scale, kind="stable")
        ends = np.flatnonzero(np.diff(problem.scale[order])) + 1
        block = np.concatenate([[0], ends, [len(order)]]).astype(np.int64)
        return _Pairs(order, block, problem, np.ascontiguousarray(problem.colocated_rate))

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
        """(class, slot, best partner of the class there) where a pair earns something."""
        problem = self.problem
        classes = _PairClasses(
            order=self.order,
            block=self.block,
            class_size=problem.classes.count,
            scale=problem.scale,
            rate=problem.rate,
            job_type=problem.job_type,
            colocated_rate=self.colocated_rate,
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
        held = have.second >= 0
        known = (have.first[held] * classes + have.second[held]) * slots + have.slot[held]
        code = np.setdiff1d(code, known)
        if not len(code):
            return None
        return self.configurations(code // slots // classes, code // slots % classes, code % slots)

    def configurations(self, first: Ints, second: Ints, slot: Ints) -> Configurations:
        """These pairs, with their rates. first <= second."""
        job_type = self.problem.job_type
        a, b = job_type[first], job_type[second]
        rate = np.column_stack([self.colocated_rate[a, b, slot], self.colocated_rate[b, a, slot]])
        return Configurations(first, second, slot, rate)


class _PairClasses(NamedTuple):
    """Classes of jobs, in blocks of equal scale factor within which they may run in pairs."""

    order: Ints1  # (classes,) by scale factor
    block: Ints1  # (blocks + 1,) where each scale factor begins in order
    class_size: Floats1  # (classes,) jobs
    scale: Floats1  # (classes,) devices of a job
    rate: Floats2  # (classes, slots) steps/s alone
    job_type: Ints1  # (classes,) row of colocated_rate
    colocated_rate: Floats3  # (job types, job types, slots) steps/s of the first


class _PairPrices(NamedTuple):
    """What a pair earns and costs."""

    value: Floats2  # (classes, slots) per step/s
    time: Floats1  # (classes,) per unit of a job's time
    cost: Floats1  # (slots,) per device


@kernel("i8[:,::1](_PairClasses, _PairPrices, f8[::1], f8)")
def _best_partner(of: _PairClasses, prices: _PairPrices, number: Floats, least: float) -> Ints:
    """(classes, slots) the partner class, not before the class itself in order, with which as many pairs
    as ``number``, (classes,), allows earn most, and more than ``least``; -1 = none. Pairs that taking turns
    beats are left out."""
    order, block, scale, rate = of.order, of.block, of.scale, of.rate
    job_type, colocated_rate = of.job_type, of.colocated_rate
    value, time, cost = prices
    classes, slots = rate.shape
    out = np.full((classes, slots), -1, np.int64)
    for b in range(len(block) - 1):
        for i in range(block[b], block[b + 1]):
            c = order[i]
            for t in range(slots):
                if rate[c, t] <= 0:
                    continue
                most = 0.0
                for j in range(i, block[b + 1]):
                    d = order[j]
                    if rate[d, t] <= 0 or (c == d and of.class_size[c] < 2):
                        continue
                    mine = colocated_rate[job_type[c], job_type[d], t]
                    yours = colocated_rate[job_type[d], job_type[c], t]
                    if mine / rate[c, t] + yours / rate[d, t] <= 1 + 1e-9:
                        continue
                    earns = value[c, t] * mine + value[d, t] * yours
                    earns -= scale[c] * cost[t] + time[c] + time[d]
                    earns *= min(number[c], number[d])
                    if earns > least and earns > most:
                        most = earns
                        out[c, t] = d
    return out


# --- configurations of jobs alone, objectives ----------------------------------------------------------


def _alone(problem: ShareProblem) -> Configurations:
    first, slot = np.nonzero(problem.rate > 0)
    rate = np.zeros((len(first), 2))
    rate[:, 0] = problem.rate[first, slot]
    return Configurations(first, np.full(len(first), -1), slot, rate)


def _by_slot(value: Floats, problem: ShareProblem) -> Floats:
    """(classes, slots) values per step/s; a copy."""
    per_slot = value if value.ndim == 2 else value[:, None]
    return np.broadcast_to(per_slot, problem.rate.shape).copy()


def _gain(
    measure: LinearObjective,
    configurations: Configurations,
    problem: ShareProblem,
    pair_penalty: float,
) -> Floats:
    """(configurations,) what a unit of time adds to a measure."""
    pair = configurations.second >= 0
    other = np.where(pair, configurations.second, 0)
    value = _by_slot(measure.value, problem)
    gain = value[configurations.first, configurations.slot] * configurations.rate[:, 0]
    gain += np.where(pair, value[other, configurations.slot] * configurations.rate[:, 1], 0.0)
    gain -= problem.scale[configurations.first] * (
        measure.cost[configurations.slot] + pair_penalty * pair
    )
    return np.asarray(gain)


def _scale_of(row: ConstraintRow, configurations: Configurations, problem: ShareProblem) -> float:
    """The largest entry of a further row."""
    count = problem.classes.count[configurations.first]
    return (
        float(np.abs(_gain(row.measure, configurations, problem, 0.0) * count).max(initial=0.0))
        or 1.0
    )


# --- bases that survive a change of classes -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CarriedBasis:
    """A basis of another set of classes, for those of today."""

    pairs: Configurations
    pair_status: Statuses
    status: Statuses  # (classes, slots + 2) of each class's configurations alone, throughput row, time row
    frame: Statuses  # of the further columns, then of the device rows and further rows

    def basis(
        self, configurations: Configurations, problem: ShareProblem, throughput: bool, front: int
    ) -> Basis | None:
        """For these configurations: those of jobs alone, then ``pairs``."""
        n = configurations.alone
        alone = self.status[configurations.first[:n], configurations.slot[:n]]
        slots = problem.rate.shape[1]
        if len(self.frame) < front:
            return None
        rows = [self.status[:, slots + 1], self.frame[front:]]
        if throughput:
            rows.insert(0, self.status[:, slots])
        return Basis(
            np.concatenate([self.frame[:front], alone, self.pair_status]), np.concatenate(rows)
        )


def _pack(
    ended: Any, configurations: Configurations, problem: ShareProblem, throughput: bool, front: int
) -> tuple[bytes, ...]:
    """(ids, statuses by class, statuses of the rest, pairs by id and slot, their statuses)."""
    basis = listed(ended)
    classes, slots = problem.rate.shape
    n = configurations.alone
    status = np.full((classes, slots + 2), LOWER)
    columns = basis.columns[front:]
    status[configurations.first[:n], configurations.slot[:n]] = columns[:n]
    if throughput:
        status[:, slots] = basis.rows[:classes]
    shift = classes * throughput
    status[:, slots + 1] = basis.rows[shift : shift + classes]
    frame = np.concatenate([basis.columns[:front], basis.rows[shift + classes :]])
    used = np.flatnonzero(columns[n:] == BASIC) + n
    ids = problem.classes.id
    pairs = np.column_stack(
        [
            ids[configurations.first[used]],
            ids[configurations.second[used]],
            configurations.slot[used],
        ]
    )
    return (
        ids.tobytes(),
        status.tobytes(),
        frame.tobytes(),
        pairs.astype(np.int64).tobytes(),
        columns[used].tobytes(),
    )


def packed_basis(ids: Ints, status: Statuses, frame: Statuses) -> tuple[bytes, ...]:
    """A basis made by hand, to be a programme's ``previous``. ids: (classes,) ascending; status: (classes,
    slots + 2) of each class's configurations alone, throughput row and time row; frame: of the further
    columns, the device rows and the further rows."""
    return ids.tobytes(), status.tobytes(), frame.tobytes(), b"", b""


def _unpack(
    packed: tuple[bytes, ...], problem: ShareProblem, pairs: _Pairs | None
) -> _CarriedBasis | None:
    """The basis for the classes of today; a class that is new runs where it is fastest. None where the
    packed basis is of another shape."""
    classes, slots = problem.rate.shape
    if len(packed) != 5 or len(packed[0]) % 8 or not len(packed[0]):
        return None
    old_id = np.frombuffer(packed[0], np.int64)
    if len(packed[1]) != len(old_id) * (slots + 2):
        return None
    old = np.frombuffer(packed[1], np.uint8).reshape(-1, slots + 2)
    status = np.full((classes, slots + 2), LOWER)
    status[np.arange(classes), problem.rate.argmax(axis=1)] = BASIC
    status[:, slots + 1] = BASIC
    at, known = _find_ids(old_id, problem.classes.id)
    status[known] = old[at[known]]
    kept = np.frombuffer(packed[3], np.int64).reshape(-1, 3)
    position, there = _find_ids(problem.classes.id, kept[:, :2])
    stay = there.all(axis=1) & (pairs is not None)
    low, high = position.min(axis=1, initial=classes), position.max(axis=1, initial=0)
    stay &= (low != high) | (problem.classes.count[np.minimum(low, classes - 1)] >= 2)
    none: Ints = np.zeros(0, np.int64)
    configurations = Configurations(none, none, none, np.zeros((0, 2)))
    runs = problem.rate > 0  # a type may have lost its devices since
    slot = kept[:, 2]
    stay &= runs[np.minimum(low, classes - 1), slot] & runs[np.minimum(high, classes - 1), slot]
    if pairs is not None and stay.any():
        configurations = pairs.configurations(low[stay], high[stay], kept[stay, 2])
    return _CarriedBasis(
        configurations,
        np.frombuffer(packed[4], np.uint8)[stay],
        status,
        np.frombuffer(packed[2], np.uint8),
    )


def _find_ids(ids: Ints, wanted: Ints) -> tuple[Ints, Bools]:
    """Where each wanted id stands in ascending ids, and whether it is there."""
    if not len(ids):
        return np.zeros(wanted.shape, np.int64), np.zeros(wanted.shape, np.bool_)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return at, np.asarray(ids[at] == wanted)
