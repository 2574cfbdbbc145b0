"""The oracle of water filling for jobs alone and in pairs: a linear program over classes and pairs, whose
prices are the cut of ``fairlead.policies.solve.water_filling``."""

from dataclasses import dataclass, field

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.policies.solve.candidate_pairs import proven_time_price
from fairlead.policies.solve.configurations import LinearObjective
from fairlead.policies.solve.program import ExtraColumns, Program, ProgramSolution
from fairlead.policies.solve.share_problem import ShareProblem
from fairlead.policies.solve.water_filling import LevelCut

TOLERANCE = 1e-9  # relative; what the second phase may lose of the heights


@dataclass(frozen=True, kw_only=True, slots=True)
class PairCut:
    """The cut: the value of all jobs' rates <= price of all devices and of all jobs' time."""

    worth: Floats  # (rows,) of one height of all jobs of the row
    count: Floats  # (rows,)
    cap: Floats  # (rows,) the largest height
    budget: float
    price: Floats  # (types,)

    def cost(self, height: Floats) -> float:
        """See ``LevelCut``."""
        return float(self.worth @ height)

    def slack_at_price(self, height: Floats) -> tuple[Floats, Floats]:
        """See ``LevelCut``."""
        worth = self.worth / self.count
        free = worth * self.cap <= 1e-9 * (worth * self.cap).max(initial=0.0)
        return np.where(free, np.inf, height), np.where(free, np.inf, worth)


@dataclass(kw_only=True, slots=True)
class PairOracle:
    """The largest part of all heights at once, over jobs alone and in pairs."""

    problem: ShareProblem  # its classes are the rows
    unit_rate: Floats  # (rows,) steps/s of a job at height 1
    cap: Floats  # (rows,) the largest height
    basis: tuple[bytes, ...] = ()
    iterations: int = 0
    warm: bool = False
    _program: Program = field(init=False)
    _found: float = field(init=False)

    def query(self, height: Floats) -> tuple[float, LevelCut]:
        """See ``FeasibilityOracle``."""
        problem, demand = self.problem, height * self.unit_rate
        some = np.flatnonzero(demand > 0)
        program = Program(problem=problem, throughput=True, previous=self.basis)
        program.columns = ExtraColumns(
            cost=np.ones(1), lower=np.zeros(1), upper=np.full(1, np.inf),
            column=np.zeros(len(some), np.int64), row=program.throughput_row(some), value=-demand[some],
        )  # fmt: skip
        slots = len(problem.accelerator_of_slot)
        solution = program.load().maximise(LinearObjective(np.zeros(len(demand)), np.zeros(slots)))
        self.basis, self._program, self._found = solution.basis, program, float(solution.columns[0])
        self.iterations += solution.iterations
        self.warm = self.warm or solution.warm
        value, price = solution.throughput_price, solution.device_price
        time = proven_time_price(
            problem, value, solution.time_price, price[problem.accelerator_of_slot]
        )
        count = problem.classes.count
        budget = float(count @ time + price @ problem.capacity)
        cut = PairCut(
            worth=value * self.unit_rate * count,
            count=count,
            cap=self.cap,
            budget=budget,
            price=price,
        )
        return 1.0 / self._found - 1.0, cut

    def fewest_pairs(self, pair_penalty: float) -> ProgramSolution:
        """The answer at the heights last asked about in which devices spend the least time with pairs.
        pair_penalty: what a device in a pair costs; 0 = any answer."""
        program, slots = self._program, len(self.problem.accelerator_of_slot)
        program.bound(0, min(self._found, 1.0) * (1.0 - TOLERANCE), np.inf)
        program.pair_penalty = pair_penalty
        nothing = LinearObjective(np.zeros(len(self.unit_rate)), np.zeros(slots))
        solution = program.maximise(nothing, np.zeros(1))
        self.iterations += solution.iterations
        return solution
