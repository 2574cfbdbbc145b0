"""Water filling: heights that are lexicographically as fair as can be, with a proof for each level.

A row of like jobs has a *height*, what a job of it gets per device and normalised; it needs a rate in
proportion. Everything rises together, each row at the pace that the tree gives it
(``fairlead.policies.solve.progressive_filling``); what cannot rise any more stops, and the rest goes on,
until nothing rises.

Heights can be had if a linear programme says so, and its prices tell why not: a *cut*

    cost(height) <= budget         for all heights that can be had, with cost growing in every height

Raising a level therefore starts from above, where everything would be full: the cut that forbids it also
says how high the level can be at most, and so on down (Newton's method) to a level that can be had, in a
few programmes however many rows become full on the way. There the last cut is tight, and stays so: a row can
rise only as far as that costs nothing, and those for which any rise costs something stop. That is Gavel's
search for bottlenecks without its MILP, and without a threshold on how much a rise must be.

The certificate: by the cut that stopped them, rows can together have at most a part
(budget - cost) / sum(marginal cost * height) more than they have, if no other row falls.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from fairlead.errors import SolveError
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Ints1
from fairlead.policies.solve import breakpoints as breakpoint_weights
from fairlead.policies.solve.breakpoints import JobClasses
from fairlead.policies.solve.highs import BASIC, LOWER
from fairlead.policies.solve.interior_point import MaxMinClasses, max_min
from fairlead.policies.solve.job_classes import JobClassSizes
from fairlead.policies.solve.program import (
    ExtraColumns,
    LinearObjective,
    Program,
    ProgramSolution,
    ShareProblem,
    packed_basis,
    proven_time_price,
)
from fairlead.policies.solve.progressive_filling import EntityTree, FillTree

REQUIREMENT_TOLERANCE = 1e-11  # part of a capacity that heights may exceed it by
FULL_TOLERANCE = 1e-10  # a row this near to its largest height has it, relatively
STEPS = 200  # of Newton's method for one level; a handful is usual
ROUNDING_TOLERANCE = (
    1e-9  # where no row rises by more than this, relative to its largest height, none does
)
TINY_SHARE = 1e-8  # heights below this part of the largest are not measured: 0.3 s of a year
MIN_RISE = 1e-6  # levels are proven relative to at least this part of the budget
TOLERANCE = 1e-9  # part of the heights that the second phase may give up
SIMPLEX_LIMIT = (
    512  # job types and breakpoints from which on a start from scratch is made from a sample ...
)
CERTIFY_EVERY = 8  # ... of every so many rows
_SLACK = 1e-13  # rounding in a cost, relative to the budget


class Cut(Protocol):
    """A bound on the heights of all rows, from prices."""

    @property
    def budget(self) -> float:
        """What there is to spend, > 0."""

    @property
    def price(self) -> Floats:
        """(types,) of a device."""

    def cost(self, height: Floats) -> float:
        """What heights cost."""

    def slack_at_price(self, height: Floats) -> tuple[Floats, Floats]:
        """(rows,) the largest height that costs no more than this, and what one height beyond that costs,
        for each job of the row; inf where there is none."""


class FeasibilityOracle(Protocol):
    """Tells whether heights can be had."""

    def query(self, height: Floats) -> tuple[float, Cut]:
        """By which part of the capacities heights exceed them (<= 0: they can be had), and a cut."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of like jobs, what they can reach and in which order they rise."""

    tree: EntityTree
    count: Floats  # (rows,) jobs
    cap: Floats  # (rows,) the largest height, 0 = cannot run


@dataclass(frozen=True, slots=True)
class Filled:
    """The heights, and how far from proven the worst level is."""

    height: Floats  # (rows,)
    gap: float  # largest relative rise that no cut excludes
    cuts: tuple[Cut, ...]  # those that stopped something


def fill(rows: Rows, oracle: FeasibilityOracle, known: Sequence[Cut] = ()) -> Filled:
    """Raise everything until nothing can rise. known: cuts to begin with. At the end the oracle has
    last been asked about the heights that are returned, if any row can run."""
    height, cap = np.zeros_like(rows.cap), rows.cap.copy()
    stopped_by = np.full(len(cap), -1)  # position of a cut, -1 = its own largest height
    cuts, binding = list(known), list[Cut]()
    rising: Bools = height < cap * (1 - FULL_TOLERANCE)
    while rising.any():
        room = np.where(rising, cap - height, 0.0) * rows.count
        higher, cut = _raise(rows, rows.tree.with_room(room), height, cap, cuts, oracle)
        if (higher - height > ROUNDING_TOLERANCE * rows.cap).any() or cut is None:
            height = higher
        before, rising = rising, height < cap * (1 - FULL_TOLERANCE)
        if cut is None:
            continue
        most = cut.slack_at_price(height)[0]
        stops = rising & (most < cap * (1 - FULL_TOLERANCE))
        if stops.any():
            cap[stops] = most[stops]
            stopped_by[stops] = len(binding)
            binding.append(cut)
            rising = height < cap * (1 - FULL_TOLERANCE)
        elif (rising == before).all():
            return Filled(height, np.inf, tuple(binding))  # without a proof
    rise = [_rise(rows, cut, height, stopped_by == i) for i, cut in enumerate(binding)]
    return Filled(height, max(rise, default=0.0), tuple(binding))


def _raise(
    rows: Rows,
    tree: FillTree,
    base: Floats,
    cap: Floats,
    cuts: list[Cut],
    oracle: FeasibilityOracle,
) -> tuple[Floats, Cut | None]:
    """The heights at the highest level that can be had, and the cut that forbids more (None: all full).
    New cuts are added to ``cuts``."""

    def heights(level: float) -> Floats:
        return np.minimum(base + tree.fill(level) / rows.count, cap)

    level, binding = tree.full, None
    for cut in cuts:
        lower = _highest(cut, heights, level)
        if lower < level:
            level, binding = lower, cut
    for _ in range(STEPS):
        height = heights(level)
        excess, cut = oracle.query(height)
        if excess <= REQUIREMENT_TOLERANCE:
            return height, binding
        lower = _highest(cut, heights, level)
        if not lower < level * (
            1 - FULL_TOLERANCE
        ):  # nor do the prices tell it from what can be had
            return height, binding
        cuts.append(cut)
        level, binding = lower, cut
    raise SolveError(f"a level was not met after {STEPS} steps of Newton's method")


def _highest(cut: Cut, heights: Callable[[float], Floats], level: float) -> float:
    """The highest level, up to this one, that a cut allows."""
    limit = max(cut.budget, cut.cost(heights(0.0))) * (1 + _SLACK)

    def over(at: float) -> float:
        return cut.cost(heights(at)) / limit - 1.0

    if over(level) <= 0.0:
        return level
    from scipy.optimize import brentq  # a second of CPU time to import

    return float(brentq(over, 0.0, level, xtol=1e-15 * level, rtol=1e-15))


def _rise(rows: Rows, cut: Cut, height: Floats, stopped: Bools) -> float:
    """By which part the rows that a cut stopped could rise together, were it all that holds them down."""
    marginal = cut.slack_at_price(height)[1][stopped]
    here = float(marginal @ (rows.count * height)[stopped])
    return abs(cut.budget - cut.cost(height)) / max(here, MIN_RISE * cut.budget)


# --- any number of jobs of a few job types, alone -----------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class FillJobs:
    """What the jobs of the rows are, and what there is to share."""

    job_types: JobClasses
    job_type: Ints  # (rows,) row of job types
    count: Floats  # (rows,)
    unit: Floats  # (rows,) steps/s of a job at height 1
    accelerator_of_slot: Ints  # (slots,)
    capacity: Floats  # (types,) devices
    agnostic: bool = False  # is every rate taken for 1?

    def need(self, height: Floats) -> Floats:
        """(rows,) steps/s of a job at a height."""
        return np.minimum(height * self.unit, self.job_types.best[self.job_type])


@dataclass(frozen=True, slots=True)
class PriceCut:
    """sum of what every job pays at given prices, each as cheaply as it can, <= price of all devices."""

    jobs: FillJobs
    price: Floats  # (types,) of a device
    price_tolerance: (
        float  # a price this small, relative to the largest, may be the solver's tolerance
    )
    _of_breakpoint: Floats  # (job types, breakpoints) cost of exactly such a rate

    @staticmethod
    def of(jobs: FillJobs, price: Floats, price_tolerance: float = 1e-10) -> "PriceCut":
        """The cut of any prices >= 0, of which one is not."""
        job_types = jobs.job_types
        spent = price * jobs.capacity
        price = np.where(spent > price_tolerance * spent.max(), price, 0.0)
        cost = breakpoint_weights.breakpoint_cost(
            job_types.rate, job_types.scale, job_types.breakpoints, price[jobs.accelerator_of_slot]
        )
        return PriceCut(jobs, price, price_tolerance, cost)

    @property
    def budget(self) -> float:
        """See ``Cut``."""
        return float(self.price @ self.jobs.capacity)

    def cost(self, height: Floats) -> float:
        """See ``Cut``."""
        jobs = self.jobs
        need = jobs.need(height)
        return breakpoint_weights.total_cost(
            jobs.job_type, jobs.count, need, jobs.job_types.breakpoints, self._of_breakpoint
        )

    def slack_at_price(self, height: Floats) -> tuple[Floats, Floats]:
        """See ``Cut``."""
        jobs, job_types = self.jobs, self.jobs.job_types
        price_tolerance = (
            self.price_tolerance
            * self.price.max()
            * job_types.scale
            / np.maximum(job_types.best, 1e-300)
        )
        most, marginal = breakpoint_weights.slack_at_price(
            jobs.job_type,
            jobs.need(height),
            job_types.breakpoints,
            self._of_breakpoint,
            price_tolerance,
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(jobs.unit > 0, most / jobs.unit, np.inf), marginal * jobs.unit


@dataclass(slots=True)
class ByBreakpoints:
    """The least factor on all capacities, by the simplex method over job types and their breakpoints."""

    jobs: FillJobs
    basis: tuple[bytes, ...] = ()
    iterations: int = 0
    warm: bool = False
    _of_breakpoint: Floats = field(init=False)
    _need: Floats = field(init=False)

    def query(self, height: Floats) -> tuple[float, Cut]:
        """See ``FeasibilityOracle``."""
        jobs, job_types = self.jobs, self.jobs.job_types
        self._need = jobs.need(height)
        many = breakpoint_weights.multiplicities(
            jobs.job_type, jobs.count, self._need, job_types.breakpoints
        )
        job_type, breakpoints = np.nonzero(breakpoint_weights.needed(many))
        like = ShareProblem(
            classes=JobClassSizes(
                job_types.id[job_type] * job_types.breakpoints.shape[1] + breakpoints,
                many[job_type, breakpoints],
                job_type,
                job_type,
            ),
            scale=job_types.scale[job_type],
            rate=job_types.rate[job_type],
            accelerator_of_slot=jobs.accelerator_of_slot,
            capacity=jobs.capacity,
            job_type=job_type,
            colocated_rate=None,
        )
        need = job_types.breakpoints[job_type, breakpoints]
        previous = self.basis
        if not previous and len(job_type) > SIMPLEX_LIMIT:
            previous = _crash(like, need, self._price_of_some(height))
        program = Program(problem=like, throughput=True, demand=need, previous=previous)
        types = np.arange(len(jobs.capacity))
        program.columns = ExtraColumns(
            cost=-np.ones(1), lower=-np.ones(1), upper=np.full(1, np.inf),
            column=np.zeros(len(types), np.int64), row=program.device_row(types), value=-np.ones(len(types)),
        )  # fmt: skip
        nothing = LinearObjective(np.zeros(len(job_type)), np.zeros(len(jobs.accelerator_of_slot)))
        answer = program.load().maximise(nothing)
        self.warm = self.warm or (bool(self.basis) and answer.warm)
        self.basis = answer.basis
        self.iterations += answer.iterations
        self._of_breakpoint = np.zeros(
            (*job_types.breakpoints.shape, len(jobs.accelerator_of_slot))
        )
        self._of_breakpoint[job_type, breakpoints] = answer.per_job(like)
        return float(answer.columns[0]), PriceCut.of(jobs, answer.device_price)

    def _price_of_some(self, height: Floats) -> Floats:
        """(types,) prices when every eighth row stands for eight."""
        jobs, some = self.jobs, np.arange(0, len(height), CERTIFY_EVERY)
        fewer = replace(
            jobs,
            job_type=jobs.job_type[some],
            count=jobs.count[some] * CERTIFY_EVERY,
            unit=jobs.unit[some],
        )
        sample = ByBreakpoints(fewer)
        _, cut = sample.query(height[some])
        self.iterations += sample.iterations
        return cut.price

    def shares(self) -> Floats:
        """(rows, slots) shares of a job at the heights last asked about."""
        jobs = self.jobs
        return breakpoint_weights.expand(
            jobs.job_type, self._need, jobs.job_types.breakpoints, self._of_breakpoint
        )


def centre_problem(jobs: FillJobs, height: Floats) -> tuple[Floats, int]:
    """(rows, slots) the analytic centre of all shares of a job that give these heights, as near as the
    interior-point method comes, and its steps."""
    need = jobs.need(height)
    there: Bools = jobs.capacity > 0
    usable = there[jobs.accelerator_of_slot]
    some = np.flatnonzero(need > 0)
    rate = jobs.job_types.rate[jobs.job_type[some]][:, usable]
    inner, _, _, steps = max_min(
        MaxMinClasses(
            worth=np.ascontiguousarray(rate / need[some, None]),
            class_size=jobs.count[some],
            scale=jobs.job_types.scale[jobs.job_type[some]],
            accelerator_of_slot=(np.cumsum(there) - 1)[jobs.accelerator_of_slot[usable]],
            capacity=jobs.capacity[there],
        ),
        1e-9,
    )
    inner[rate <= 0] = 0.0
    share = np.zeros((len(need), len(usable)))
    share[np.ix_(some, usable)] = inner
    return share, steps


def _crash(problem: ShareProblem, need: Floats, price: Floats) -> tuple[bytes, ...]:
    """A basis to start from, near the optimum if the prices are: every class where it has what it needs
    most cheaply, and the most used type as the one that all capacities must grow for."""
    classes, slots = problem.rate.shape
    each = np.arange(classes)
    of_slot = price[problem.accelerator_of_slot]
    fast, slow, time = breakpoint_weights.cheapest(
        each, need, np.ascontiguousarray(problem.rate), of_slot
    )
    two = np.flatnonzero(slow >= 0)
    status = np.full((classes, slots + 2), LOWER)
    status[each, fast] = BASIC
    status[two, slow[two]] = BASIC
    status[slow < 0, slots + 1] = BASIC
    devices = problem.classes.count * problem.scale
    used = np.bincount(problem.accelerator_of_slot[fast], devices * time, len(price))
    used += np.bincount(
        problem.accelerator_of_slot[slow[two]], (devices * (1 - time))[two], len(price)
    )
    frame = np.full(1 + len(price), BASIC)
    frame[1 + int((used / problem.capacity.clip(1.0)).argmax())] = LOWER
    return packed_basis(problem.classes.id, status, frame)


# --- one resource: all types alike ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Supply:
    """sum of all heights <= devices: the cut where heights are devices, of any type."""

    count: Floats  # (rows,)
    budget: float  # devices
    price: Floats = field(default_factory=lambda: np.ones(1))

    def cost(self, height: Floats) -> float:
        """See ``Cut``."""
        return float(self.count @ height)

    def slack_at_price(self, height: Floats) -> tuple[Floats, Floats]:
        """See ``Cut``."""
        return height, np.ones_like(height)

    def query(self, height: Floats) -> tuple[float, Cut]:
        """See ``FeasibilityOracle``: there is nothing but the supply."""
        return self.cost(height) / self.budget - 1.0 - REQUIREMENT_TOLERANCE, self


# --- jobs alone and in pairs ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class PairCut:
    """sum of what the rates of all jobs are worth <= price of all devices and of all jobs' time."""

    worth: Floats  # (rows,) of one height of all jobs of the row
    count: Floats  # (rows,)
    cap: Floats  # (rows,) the largest height
    budget: float
    price: Floats  # (types,)

    def cost(self, height: Floats) -> float:
        """See ``Cut``."""
        return float(self.worth @ height)

    def slack_at_price(self, height: Floats) -> tuple[Floats, Floats]:
        """See ``Cut``."""
        worth = self.worth / self.count
        free = worth * self.cap <= 1e-9 * (worth * self.cap).max(initial=0.0)
        return np.where(free, np.inf, height), np.where(free, np.inf, worth)


@dataclass(kw_only=True, slots=True)
class InPairs:
    """The largest part of all heights at once, over jobs alone and in pairs."""

    problem: ShareProblem  # its classes are the rows
    unit: Floats  # (rows,) steps/s of a job at height 1
    cap: Floats  # (rows,) the largest height
    basis: tuple[bytes, ...] = ()
    iterations: int = 0
    warm: bool = False
    _program: Program = field(init=False)
    _found: float = field(init=False)

    def query(self, height: Floats) -> tuple[float, Cut]:
        """See ``FeasibilityOracle``."""
        problem, need = self.problem, height * self.unit
        some = np.flatnonzero(need > 0)
        program = Program(problem=problem, throughput=True, previous=self.basis)
        program.columns = ExtraColumns(
            cost=np.ones(1), lower=np.zeros(1), upper=np.full(1, np.inf),
            column=np.zeros(len(some), np.int64), row=program.throughput_row(some), value=-need[some],
        )  # fmt: skip
        slots = len(problem.accelerator_of_slot)
        answer = program.load().maximise(LinearObjective(np.zeros(len(need)), np.zeros(slots)))
        self.basis, self._program, self._found = answer.basis, program, float(answer.columns[0])
        self.iterations += answer.iterations
        self.warm = self.warm or answer.warm
        value, price = answer.throughput_price, answer.device_price
        time = proven_time_price(
            problem, value, answer.time_price, price[problem.accelerator_of_slot]
        )
        count = problem.classes.count
        budget = float(count @ time + price @ problem.capacity)
        cut = PairCut(
            worth=value * self.unit * count, count=count, cap=self.cap, budget=budget, price=price
        )
        return 1.0 / self._found - 1.0, cut

    def fewest_pairs(self, pair_penalty: float) -> ProgramSolution:
        """The answer at the heights last asked about in which devices spend the least time with pairs.
        pair_penalty: what a device in a pair costs; 0 = any answer."""
        program, slots = self._program, len(self.problem.accelerator_of_slot)
        program.bound(0, min(self._found, 1.0) * (1.0 - TOLERANCE), np.inf)
        program.pair_penalty = pair_penalty
        nothing = LinearObjective(np.zeros(len(self.unit)), np.zeros(slots))
        answer = program.maximise(nothing, np.zeros(1))
        self.iterations += answer.iterations
        return answer


# --- what the shares really give --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FillCertificate:
    """Heights and uses as the jobs' own rates have them."""

    least: Floats  # (rows,) the smallest height of a job
    total: Floats  # (rows,) of all jobs
    use: float  # largest part of a job's time or of a type's devices
    alike: bool  # has every job the rates, scale and weight of its row?

    def short_of(self, rows: Rows, height: Floats) -> float:
        """The largest part of a row's height that a job of it does not have."""
        some = height > TINY_SHARE * rows.cap
        return max(0.0, float((1.0 - self.least[some] / height[some]).max(initial=0.0)))


class JobShares(NamedTuple):
    """Single jobs, the row that each is in, and its shares."""

    row: Ints1  # (jobs,)
    share: Floats2  # (jobs, slots)
    rate: Floats2  # (jobs, slots) steps/s
    scale: Ints1  # (jobs,) devices
    weight: Floats1  # (jobs,)


class _JobRows(NamedTuple):
    """What the jobs of a row are taken for, and what there is to share."""

    job_type: Ints1  # (rows,) row of the tables of job types
    type_rate: Floats2  # (job types, slots) steps/s
    type_scale: Floats1  # (job types,) devices
    weight: Floats1  # (rows,) of a job
    unit: Floats1  # (rows,) steps/s of a job at height 1
    accelerator_of_slot: Ints1  # (slots,)
    capacity: Floats1  # (types,) devices


def measure(jobs: FillJobs, single: JobShares, weight: Floats) -> FillCertificate:
    """The heights and uses that the shares of single jobs give. weight: (rows,) of a job."""
    rows = _JobRows(
        job_type=jobs.job_type,
        type_rate=jobs.job_types.rate,
        type_scale=jobs.job_types.scale,
        weight=weight,
        unit=jobs.unit,
        accelerator_of_slot=jobs.accelerator_of_slot,
        capacity=jobs.capacity,
    )
    return FillCertificate(*_measure(single, rows))


@kernel("Tuple((f8[::1], f8[::1], f8, b1))(JobShares, _JobRows)")
def _measure(jobs: JobShares, rows: _JobRows) -> tuple[Floats, Floats, float, bool]:
    """The fields of a ``FillCertificate``."""
    of, share, rate, scale, weight = jobs
    job_type, unit, capacity = rows.job_type, rows.unit, rows.capacity
    least, total = np.full(len(job_type), np.inf), np.zeros(len(job_type))
    used = np.zeros(len(capacity))
    use = 0.0
    alike = True
    for i in range(len(of)):
        row = of[i]
        c = job_type[row]
        alike = alike and scale[i] == rows.type_scale[c] and weight[i] == rows.weight[row]
        got = 0.0
        time = 0.0
        for j in range(share.shape[1]):
            k = rows.accelerator_of_slot[j]
            alike = alike and (rate[i, j] == rows.type_rate[c, j] or capacity[k] <= 0)
            got += rate[i, j] * share[i, j]
            time += share[i, j]
            used[k] += scale[i] * share[i, j]
        height = got / unit[row] if unit[row] > 0 else 0.0
        least[row] = min(least[row], height)
        total[row] += height
        use = max(use, time)
    for k in range(len(capacity)):
        if capacity[k] > 0:
            use = max(use, used[k] / capacity[k])
        elif used[k] > 0:
            use = np.inf
    return least, total, use, alike
