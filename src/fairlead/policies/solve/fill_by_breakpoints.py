"""The oracle of water filling for any number of jobs of a few job types, each alone: the simplex method.

Jobs count by their breakpoints (``fairlead.policies.solve.breakpoints``), so that the program does not grow
with them. Its prices are the cut of ``fairlead.policies.solve.water_filling``.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.policies.solve import breakpoints as breakpoint_weights
from fairlead.policies.solve.carried_basis import encode_matching_basis
from fairlead.policies.solve.configurations import LinearObjective
from fairlead.policies.solve.fill_jobs import FillJobs
from fairlead.policies.solve.highs import BASIC, LOWER
from fairlead.policies.solve.job_classes import JobClasses
from fairlead.policies.solve.program import ExtraColumns, Program
from fairlead.policies.solve.share_problem import ShareProblem
from fairlead.policies.solve.water_filling import LevelCut

# With more pairs of job type and breakpoint than this, a first solve starts from the prices of a sample.
SIMPLEX_LIMIT = 512
SAMPLE_EVERY = 8  # the sample is one row in so many


@dataclass(frozen=True, slots=True)
class PriceCut:
    """The cut: the sum over jobs of the least cost of its demand at given prices <= price of all devices."""

    jobs: FillJobs
    price: Floats  # (types,) of a device
    price_tolerance: float  # relative to the largest price; one below may be the solver's rounding
    _of_breakpoint: Floats  # (job types, breakpoints) cost of exactly such a rate

    @staticmethod
    def of(jobs: FillJobs, price: Floats, price_tolerance: float = 1e-10) -> "PriceCut":
        """The cut of prices >= 0, (types,), of which at least one is > 0."""
        job_types = jobs.job_types
        spent = price * jobs.capacity
        price = np.where(spent > price_tolerance * spent.max(), price, 0.0)
        cost = breakpoint_weights.breakpoint_cost(
            job_types.rate,
            job_types.scale,
            job_types.breakpoints,
            price[jobs.accelerator_of_slot] * jobs.slot_devices,
        )
        return PriceCut(jobs, price, price_tolerance, cost)

    @property
    def budget(self) -> float:
        """See ``LevelCut``."""
        return float(self.price @ self.jobs.capacity)

    def cost(self, height: Floats) -> float:
        """See ``LevelCut``."""
        jobs = self.jobs
        demand = jobs.demand(height)
        return breakpoint_weights.total_cost(
            jobs.job_type, jobs.count, demand, jobs.job_types.breakpoints, self._of_breakpoint
        )

    def slack_at_price(self, height: Floats) -> tuple[Floats, Floats]:
        """See ``LevelCut``."""
        jobs, job_types = self.jobs, self.jobs.job_types
        price_tolerance = (
            self.price_tolerance
            * self.price.max()
            * job_types.scale
            / np.maximum(job_types.best, 1e-300)
        )
        most, marginal = breakpoint_weights.slack_at_price(
            jobs.job_type,
            jobs.demand(height),
            job_types.breakpoints,
            self._of_breakpoint,
            price_tolerance,
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(
                jobs.unit_rate > 0, most / jobs.unit_rate, np.inf
            ), marginal * jobs.unit_rate


@dataclass(slots=True)
class BreakpointOracle:
    """The least factor on all capacities, by the simplex method over job types and their breakpoints."""

    jobs: FillJobs
    basis: tuple[bytes, ...] = ()
    iterations: int = 0
    warm: bool = False
    _of_breakpoint: Floats = field(init=False)
    _demand: Floats = field(init=False)

    def query(self, height: Floats) -> tuple[float, LevelCut]:
        """See ``FeasibilityOracle``."""
        jobs, job_types = self.jobs, self.jobs.job_types
        self._demand = jobs.demand(height)
        multiplicity = breakpoint_weights.multiplicities(
            jobs.job_type, jobs.count, self._demand, job_types.breakpoints
        )
        job_type, breakpoints = np.nonzero(breakpoint_weights.needed(multiplicity))
        like = ShareProblem(
            classes=JobClasses(
                job_types.id[job_type] * job_types.breakpoints.shape[1] + breakpoints,
                multiplicity[job_type, breakpoints],
                job_type,
                job_type,
            ),
            scale=job_types.scale[job_type],
            rate=job_types.rate[job_type],
            accelerator_of_slot=jobs.accelerator_of_slot,
            slot_devices=jobs.slot_devices,
            capacity=jobs.capacity,
            job_type=job_type,
            colocated_rate=None,
        )
        demand = job_types.breakpoints[job_type, breakpoints]
        previous = self.basis
        if not previous and len(job_type) > SIMPLEX_LIMIT:
            previous = _crash(like, demand, self._sample_prices(height))
        program = Program(problem=like, throughput=True, demand=demand, previous=previous)
        types = np.arange(len(jobs.capacity))
        program.columns = ExtraColumns(
            cost=-np.ones(1), lower=-np.ones(1), upper=np.full(1, np.inf),
            column=np.zeros(len(types), np.int64), row=program.device_row(types), value=-np.ones(len(types)),
        )  # fmt: skip
        nothing = LinearObjective(np.zeros(len(job_type)), np.zeros(len(jobs.accelerator_of_slot)))
        solution = program.load().maximise(nothing)
        self.warm = self.warm or (bool(self.basis) and solution.warm)
        self.basis = solution.basis
        self.iterations += solution.iterations
        self._of_breakpoint = np.zeros(
            (*job_types.breakpoints.shape, len(jobs.accelerator_of_slot))
        )
        self._of_breakpoint[job_type, breakpoints] = solution.per_job(like)
        return float(solution.columns[0]), PriceCut.of(jobs, solution.device_price)

    def _sample_prices(self, height: Floats) -> Floats:
        """(types,) prices that solve a sample, in which each row represents ``SAMPLE_EVERY``."""
        jobs, sample_rows = self.jobs, np.arange(0, len(height), SAMPLE_EVERY)
        sampled = replace(
            jobs,
            job_type=jobs.job_type[sample_rows],
            count=jobs.count[sample_rows] * SAMPLE_EVERY,
            unit_rate=jobs.unit_rate[sample_rows],
        )
        sample = BreakpointOracle(sampled)
        _, cut = sample.query(height[sample_rows])
        self.iterations += sample.iterations
        return cut.price

    def shares(self) -> Floats:
        """(rows, slots) shares of a job at the heights of the last ``query``."""
        jobs = self.jobs
        return breakpoint_weights.expand(
            jobs.job_type, self._demand, jobs.job_types.breakpoints, self._of_breakpoint
        )


def _crash(problem: ShareProblem, demand: Floats, price: Floats) -> tuple[bytes, ...]:
    """A crash basis, near-optimal if the prices are: every class on the slots that meet its demand at least
    cost, and the type with the highest use as the one that is binding."""
    classes, slots = problem.rate.shape
    each = np.arange(classes)
    slot_price = problem.slot_cost(price)
    fast, slow, time = breakpoint_weights.cheapest(
        each, demand, np.ascontiguousarray(problem.rate), slot_price
    )
    two = np.flatnonzero(slow >= 0)
    status = np.full((classes, slots + 2), LOWER)
    status[each, fast] = BASIC
    status[two, slow[two]] = BASIC
    status[slow < 0, slots + 1] = BASIC
    devices = problem.classes.count * problem.scale
    on_fast = devices * time * problem.slot_devices[fast]
    on_slow = (devices * (1 - time))[two] * problem.slot_devices[slow[two]]
    used = np.bincount(problem.accelerator_of_slot[fast], on_fast, len(price))
    used += np.bincount(problem.accelerator_of_slot[slow[two]], on_slow, len(price))
    frame = np.full(1 + len(price), BASIC)
    frame[1 + int((used / problem.capacity.clip(1.0)).argmax())] = LOWER
    return encode_matching_basis(problem.classes.id, status, frame)
