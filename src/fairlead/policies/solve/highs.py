"""The boundary to HiGHS: a linear program as sparse arrays in, a checked optimum out.

Three steps: pass the program, set a starting basis, run. The status is checked every time; anything but
an optimum raises. Every program gets a solver of its own, so nothing is carried over from one solve to
the next except what the caller passes in: the same program and basis give the same bits anywhere.

Allocation programs are small once jobs are grouped (tens of columns per accelerator type) and almost
always start next to their optimum, so presolve is off and the method is the primal simplex: 0.2 ms cold
and under 0.1 ms warm at 25 classes and 3 types, against 1.8 ms with presolve.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import SolveError
from fairlead.model.arrays import Floats
from fairlead.model.lazy_module import LazyModule

highspy: Any = LazyModule("highspy")  # a fifth of a second of CPU time

Int32s: TypeAlias = NDArray[np.int32]
Statuses: TypeAlias = NDArray[np.uint8]  # HiGHS basis codes; see LOWER, BASIC

INFINITY = float("inf")
LOWER, BASIC = (
    np.uint8(0),
    np.uint8(1),
)  # HighsBasisStatus: kLower, nonbasic at the lower bound; kBasic

_COLWISE = 1
_MINIMISE = 1

_OPTIONS: Mapping[str, object] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "presolve": "off",
    "solver": "simplex",
    "simplex_strategy": 4,  # primal: the phases of one solve and most warm starts are primal feasible
    "simplex_scale_strategy": 0,  # programs come in with rows of order one
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-10,
}

_ROBUST_OPTIONS: Mapping[str, object] = {
    "presolve": "on",
    "simplex_strategy": 1,  # dual
    "simplex_scale_strategy": 2,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearProgram:
    """Maximise cost @ x subject to row_lower <= A x <= row_upper, col_lower <= x <= col_upper.

    A is stored by columns: column c has the rows ``index[start[c]:start[c + 1]]``.
    """

    cost: Floats  # (columns,)
    col_lower: Floats  # (columns,)
    col_upper: Floats  # (columns,)
    row_lower: Floats  # (rows,)
    row_upper: Floats  # (rows,)
    start: Int32s  # (columns + 1,)
    index: Int32s  # (nonzeros,)
    value: Floats  # (nonzeros,)


@dataclass(frozen=True, slots=True)
class Basis:
    """Start of a simplex run: one HiGHS status per column and per row."""

    columns: Statuses  # (columns,)
    rows: Statuses  # (rows,)


class _EmptySolution(NamedTuple):
    """An empty solution with the fields of a HiGHS one."""

    col_value: list[float]
    row_dual: list[float]


@dataclass(frozen=True)
class Optimum:
    """A proven optimum of a linear program. Arrays that nobody asks for are not made."""

    objective: float
    iterations: int
    solution: Any  # as HiGHS has it

    @cached_property
    def value(self) -> Floats:
        """(columns,) the optimal x."""
        return np.array(self.solution.col_value, np.float64)

    @cached_property
    def dual(self) -> Floats:
        """(rows,) gain of the objective per unit of right-hand side."""
        return -np.array(self.solution.row_dual, np.float64)


class HighsModel:
    """One program inside HiGHS, for the phases of a single solve; ``close`` is not needed."""

    def __init__(self, program: LinearProgram) -> None:
        self._program = program
        self._highs: Any = None

    def load(self, basis: Basis | None = None) -> bool:
        """Pass the program and, if given, a starting basis; False where the basis was refused."""
        self._highs = _solver()
        self._pass()
        if basis is None:
            return False
        if self._highs.setBasis(_to_highs(basis)) == highspy.HighsStatus.kOk:
            return True
        self._pass()  # a refused basis may leave traces
        return False

    def maximise(self, cost: Floats | None = None) -> Optimum:
        """The optimum of the program, or with another cost from where the last run ended."""
        highs = self._highs
        if cost is not None:
            columns = np.arange(len(cost), dtype=np.int32)
            _ok(highs.changeColsCost(len(cost), columns, -cost), "take the second cost")
        self._run()
        status = highs.getModelStatus()
        ended = highspy.HighsModelStatus
        if status not in (ended.kOptimal, ended.kInfeasible, ended.kUnbounded):
            status = self._run_robustly()
        if status == highspy.HighsModelStatus.kModelEmpty and self._is_met_by_zero():
            return Optimum(0.0, 0, _EmptySolution([], [-0.0] * len(self._program.row_lower)))
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolveError(
                f"the linear program ({len(self._program.cost)} columns, "
                f"{len(self._program.row_lower)} rows) ended as "
                f"{highs.modelStatusToString(status)!r} instead of optimal"
            )
        return Optimum(
            objective=-float(highs.getObjectiveValue()),
            iterations=int(highs.getInfoValue("simplex_iteration_count")[1]),
            solution=highs.getSolution(),
        )

    def _is_met_by_zero(self) -> bool:
        """Return whether x = 0 meets all rows: HiGHS does not say so of a program without columns."""
        p = self._program
        return bool((p.row_lower <= 0).all() and (p.row_upper >= 0).all())

    def _run(self) -> None:
        """Run HiGHS with one thread. If other code (such as CVXPY) has used it in this thread with more
        threads, it refuses one; it then runs with its default number, of which these programs use one."""
        if self._highs.run() == highspy.HighsStatus.kError:
            self._highs.setOptionValue("threads", 0)
            self._highs.run()

    def _run_robustly(self) -> Any:
        """From scratch, with scaling, presolve and the dual simplex, where the quick way ended without an
        answer: coefficients may differ by ten orders of magnitude. Returns HiGHS's status."""
        highs = self._highs
        for name, value in _ROBUST_OPTIONS.items():
            highs.setOptionValue(name, value)
        highs.clearSolver()
        self._run()
        for name in _ROBUST_OPTIONS:
            highs.setOptionValue(name, _OPTIONS[name])
        return highs.getModelStatus()

    def basis(self) -> Basis:
        """Basis at which the last run ended. (``getBasicVariables`` would be faster, and ends the process
        where presolve has solved everything.)"""
        return to_basis(self.raw_basis())

    def raw_basis(self) -> Any:
        """Basis at which the last run ended, as the HiGHS object, without a copy; ``listed`` converts it."""
        return self._highs.getBasis()

    def renew(self, program: LinearProgram) -> None:
        """Replace the program by another of the same rows and columns; the next run starts where the last
        ended."""
        ended = self.raw_basis()
        self._program = program
        self._pass()
        if self._highs.setBasis(ended) != highspy.HighsStatus.kOk:
            self._pass()

    def bound(self, column: int, lower: float, upper: float) -> None:
        """Change the bounds of one column."""
        _ok(self._highs.changeColBounds(column, lower, upper), f"bound column {column}")

    def add(self, cost: Floats, start: Int32s, index: Int32s, value: Floats) -> None:
        """Append columns with bounds 0 and infinity. start: (columns + 1,) as in ``LinearProgram``."""
        n = len(cost)
        lower, upper = np.zeros(n), np.full(n, INFINITY)
        _ok(
            self._highs.addCols(n, -cost, lower, upper, len(value), start[:-1], index, value),
            f"take {n} more columns",
        )

    def _pass(self) -> None:
        p = self._program
        columns, rows = len(p.cost), len(p.row_lower)
        _ok(
            self._highs.passModel(
                columns,
                rows,
                len(p.value),
                _COLWISE,
                _MINIMISE,
                0.0,
                -p.cost,
                p.col_lower,
                p.col_upper,
                p.row_lower,
                p.row_upper,
                p.start,
                p.index,
                p.value,
                np.zeros(columns, np.int32),  # every column is continuous
            ),
            f"take a program of {columns} columns and {rows} rows",
        )


def to_basis(ended: Any) -> Basis:
    """The basis from what ``HighsModel.raw_basis`` returns."""
    return Basis(
        np.frombuffer(bytes(ended.col_status), np.uint8),
        np.frombuffer(bytes(ended.row_status), np.uint8),
    )


def _solver() -> Any:
    """A new solver, of the base class: ``Highs`` refers to itself by its callbacks, which are not needed
    here, and would stay in memory until the garbage collector runs."""
    highs: Any = highspy._Highs()
    highs.passOptions(_options())
    return highs


@cache
def _options() -> Any:
    options = highspy.HighsOptions()
    for name, value in _OPTIONS.items():
        setattr(options, name, value)
    return options


def _ok(status: Any, what: str) -> None:
    if status == highspy.HighsStatus.kError:
        raise SolveError(f"the solver refused to {what}")


@cache
def _statuses() -> list[Any]:
    """HiGHS's basis statuses, by code."""
    return sorted(highspy.HighsBasisStatus.__members__.values(), key=int)


def _to_highs(basis: Basis) -> Any:
    out, status = highspy.HighsBasis(), _statuses()
    most = len(status) - 1
    out.col_status = [status[code] for code in np.minimum(basis.columns, most).tolist()]
    out.row_status = [status[code] for code in np.minimum(basis.rows, most).tolist()]
    out.valid = True
    basic = np.count_nonzero(basis.columns == BASIC) + np.count_nonzero(basis.rows == BASIC)
    out.alien = basic != len(basis.rows)  # HiGHS then completes or reduces it
    return out
