"""Solves, timed."""

import time
from collections.abc import Iterable

from fairlead.model.events import Solved
from fairlead.model.plan import Planner, PlannerAnswer, PlannerState
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.mechanism import planner_calls


class TimedSolver:
    """The planner's heavy part, timed; answers that a journal holds are taken from there."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.recorded: Iterable[Solved] = ()
        self.seconds = 0.0
        self.gap: float | None = None
        self.violation = 0.0

    def __call__(self, snapshot: Snapshot, state: PlannerState) -> PlannerAnswer:
        began = time.perf_counter()
        known = next(iter(self.recorded), None)
        solution = None if known is None else known.answer
        if solution is None:
            solution = planner_calls.solve(self.planner, snapshot, state)
        gap = solution.report.gap
        if gap is not None:
            self.gap = max(self.gap or 0.0, gap)
        self.violation = max(self.violation, solution.report.violation)
        self.seconds += time.perf_counter() - began
        return solution

    def metrics(self) -> dict[str, float | None]:
        """Wall seconds in all, and the largest gap and violation of an answer."""
        return {
            "solve_s": self.seconds,
            "solve_gap": self.gap,
            "solve_violation": self.violation,
        }
