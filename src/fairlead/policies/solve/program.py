"""Linear programs over classes of jobs, alone and in pairs.

Jobs of one class are alike, so a program speaks of classes: y_a is the time that all jobs of a class
together spend in a *configuration* a, which is a slot type for a job alone, or a slot type and a partner
class. Every program here maximises a linear function of the shares subject to

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

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.policies.solve.candidate_pairs import CandidatePairs
from fairlead.policies.solve.carried_basis import CarriedBasis, decode_basis, encode_basis
from fairlead.policies.solve.configurations import (
    Configurations,
    LinearObjective,
    gain_per_time,
    solo_configurations,
    value_by_slot,
)
from fairlead.policies.solve.highs import INFINITY, HighsModel, LinearProgram
from fairlead.policies.solve.share_problem import ShareProblem

# A pair is added if it earns so much more than it costs, relative to the largest
_MIN_REDUCED_COST = 1e-9
_ROUNDS = 200  # of column generation; a handful is usual


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
    encoded_basis: Callable[[], tuple[bytes, ...]]
    warm: bool

    @property
    def basis(self) -> tuple[bytes, ...]:
        """Basis from which another solve may start, for ``Program.previous``."""
        return self.encoded_basis()

    def per_job(self, problem: ShareProblem) -> Floats:
        """(classes, slots) share of each job of a class that it spends alone."""
        share = np.zeros(problem.rate.shape)
        n = self.configurations.solo_count
        share[self.configurations.first[:n], self.configurations.slot[:n]] = self.time[:n]
        return share / problem.classes.count[:, None]

    def largest_use(self, problem: ShareProblem) -> float:
        """The largest use of a class's time or of a type's devices, as a fraction of what there is."""
        configurations, count = self.configurations, problem.classes.count
        devices = problem.scale[configurations.first] * self.time
        devices = devices * problem.slot_devices[configurations.slot]
        types = len(problem.capacity)
        used = np.bincount(problem.accelerator_of_slot[configurations.slot], devices, types)
        pair = configurations.second >= 0
        time = np.bincount(configurations.first, self.time, len(count))
        time += np.bincount(configurations.second[pair], self.time[pair], len(count))
        spent = float((time / count).max(initial=0.0))
        return max(spent, float((used / np.maximum(problem.capacity, 1.0)).max()))


@dataclass(kw_only=True, slots=True)
class Program:
    """One program inside the solver, to be maximised once or several times.

    throughput: whether there are throughput rows. With them, demand: (classes,) least steps/s of each job,
    -inf = none (an entry of a further column there lowers or raises what the job must get: t_c + entries >=
    demand).
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
    _pairs: CandidatePairs | None = field(init=False, default=None)
    _row_scale: Floats = field(init=False)
    _basis: CarriedBasis | None = field(init=False, default=None)

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
        """Hand the program to the solver, starting from ``previous`` where that fits."""
        problem = self.problem
        self._best = problem.best
        self._configurations = solo_configurations(problem)
        if problem.colocated_rate is not None:
            self._pairs = CandidatePairs.of(problem)
        self._basis = decode_basis(self.previous, problem, self._pairs)
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
        cost = gain_per_time(
            objective, self._configurations, self.problem, self.pair_penalty
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
            encoded_basis=partial(
                encode_basis,
                self._model.raw_basis(),
                self._configurations,
                self.problem,
                self.throughput,
                front,
            ),
            warm=self._warm,
        )

    def recount(self, count: Floats) -> None:
        """Set the numbers (classes,) of jobs in a program of single jobs; the next solve starts where the
        last ended."""
        classes = replace(self.problem.classes, count=count)
        self.problem = replace(self.problem, classes=classes)
        self._model.renew(self._program())
        self._warm = True

    def bound(self, column: int, lower: float, upper: float) -> None:
        """Change the bounds of a further column."""
        self._model.bound(column, lower, upper)

    # --- inside ---------------------------------------------------------------------------------

    def _column_size(self, configurations: Configurations) -> Floats:
        """(configurations,) jobs, or pairs, that a column of 1 keeps busy all the time."""
        count = self.problem.classes.count
        partner = np.where(configurations.second < 0, configurations.first, configurations.second)
        size = np.minimum(count[configurations.first], count[partner])
        return np.where(configurations.second == configurations.first, size / 2, size)

    def _program(self) -> LinearProgram:
        problem, further = self.problem, self.columns
        start, index, value = self._entries(self._configurations)
        front = np.bincount(further.column, minlength=len(further.cost))
        order = np.argsort(further.column, kind="stable")
        job_start = np.concatenate([[0], np.cumsum(front)])
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
            start=np.concatenate([job_start, job_start[-1] + start[1:]]).astype(np.int32),
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
        size = self._column_size(configurations)
        pair = configurations.second >= 0
        other = np.where(pair, configurations.second, 0)
        both = pair & (other != configurations.first)
        twin = pair & ~both
        part = size / count[configurations.first]
        part_other = size / count[other]
        accelerator = problem.accelerator_of_slot[configurations.slot]
        width = 2 * self.throughput + 3 + len(self.rows)
        row = np.full((len(size), width), -1, np.int64)
        value = np.zeros((len(size), width))
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
        devices = problem.scale[configurations.first] * size
        devices = devices * problem.slot_devices[configurations.slot]
        value[:, at + 2] = devices / np.maximum(problem.capacity, 1.0)[accelerator]
        for i, further in enumerate(self.rows):
            row[:, at + 3 + i] = self._fixed_rows + i
            gain = gain_per_time(further.measure, configurations, problem, 0.0) * size
            value[:, at + 3 + i] = gain / self._row_scale[i]
        there = (row >= 0) & (value != 0)
        start = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        return start, row[there], value[there]

    def _add(self, new: Configurations, objective: LinearObjective, largest: float) -> None:
        start, index, value = self._entries(new)
        cost = (
            gain_per_time(objective, new, self.problem, self.pair_penalty)
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
        value = value_by_slot(objective.value, problem)
        cost = objective.cost.copy()
        for i, further in enumerate(self.rows):
            price = dual[self._fixed_rows + i] / self._row_scale[i]
            value -= price * value_by_slot(further.measure.value, problem)
            cost -= price * further.measure.cost
        if self.throughput:
            value -= (dual[:n] / self._best / count)[:, None]
        time = dual[shift : shift + n] / count
        devices = dual[shift + n : self._fixed_rows] / np.maximum(problem.capacity, 1.0)
        cost = cost + devices[problem.accelerator_of_slot] + self.pair_penalty
        return self._pairs.best(
            value, time, cost, largest * _MIN_REDUCED_COST, self._configurations
        )


def _scale_of(row: ConstraintRow, configurations: Configurations, problem: ShareProblem) -> float:
    """The largest entry of a further row."""
    count = problem.classes.count[configurations.first]
    return (
        float(
            np.abs(gain_per_time(row.measure, configurations, problem, 0.0) * count).max(
                initial=0.0
            )
        )
        or 1.0
    )
