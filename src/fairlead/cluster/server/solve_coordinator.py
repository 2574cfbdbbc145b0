"""Solves, off the driver's thread; while there is no new answer the last one holds."""

import logging
from concurrent.futures import Future

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.inbox import Inbox
from fairlead.cluster.server.solver import Solver
from fairlead.model.commands import Solve
from fairlead.model.events import Solved
from fairlead.model.plan import PlannerAnswer

_log = logging.getLogger(__name__)


class SolveCoordinator:
    """On the driver's thread."""

    def __init__(self, state: ClusterState, inbox: Inbox) -> None:
        self._state = state
        self._inbox = inbox
        self.solver = Solver(state.options.solve_limit_s)
        self.generation = 0  # of the core: answers to problems of an earlier one are dropped
        self.status = "ok"  # how the last one went
        self.began_s: float | None = None  # of the one under way
        self.took_s: float | None = None  # the last one
        self.solved_s: float | None = None  # when the answer that holds came

    def begin_anew(self) -> None:
        """The core is another one: the answer under way is worth nothing."""
        self.generation += 1
        self.began_s = None
        self._state.solving = False
        self.solver.give_up("the policy or the nodes have changed")

    @property
    def state(self) -> str:
        """In a few words, for people."""
        if self.status != "ok" or self.began_s is None:
            return self.status
        return f"under way for {self._state.now_s() - self.began_s:.0f} s"

    def ask(self, problem: Solve) -> None:
        """Have a problem solved; the answer comes as an event."""
        generation = self.generation
        self.began_s = self._state.now_s()

        def answered(future: "Future[PlannerAnswer]") -> None:
            self._inbox.put(lambda: self._answered(generation, future))

        assert self._state.setup is not None
        setup = self._state.setup
        self.solver.submit(
            setup.policy, setup.seed, setup.settings, problem.snapshot, problem.state
        ).add_done_callback(answered)

    def _answered(self, generation: int, future: "Future[PlannerAnswer]") -> None:
        if generation != self.generation:
            return
        now = self._state.now_s()
        assert self.began_s is not None
        self.took_s = now - self.began_s
        self._state.counters.solve_seconds.observe(self.took_s)
        self.began_s = None
        problem = future.exception()
        if problem is not None:
            suffix = (
                ""
                if self.solved_s is None
                else f"; the shares of {now - self.solved_s:.0f} s ago hold"
            )
            self._state.counters.solve_failures.inc()
            self.status = f"failed: {problem}{suffix}"
            _log.error("solve %s", self.status)
            self._state.emit(Solved(now, error=str(problem)))
            return
        self.status, self.solved_s = "ok", now
        self._state.emit(Solved.of(now, future.result()))
