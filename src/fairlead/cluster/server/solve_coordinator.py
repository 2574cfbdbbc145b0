"""Solves, off the driver's thread; while there is no new answer the last one holds."""

import logging
from concurrent.futures import Future

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.inbox import Inbox
from fairlead.cluster.server.solver import Solver, SolveTimeoutError
from fairlead.model.commands import Solve
from fairlead.model.duration_text import duration
from fairlead.model.events import Solved
from fairlead.model.plan import PlannerAnswer

_log = logging.getLogger(__name__)

# After a solve with rates of pairs that took too long, in solve limits: how long jobs get shares alone.
WITHOUT_PAIRS = 10.0


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
        self._too_slow = ""  # policy whose program with pairs had no answer in time
        self._without_pairs_until_s = 0.0

    def begin_anew(self) -> None:
        """The core is another one: the answer under way is worth nothing."""
        self.generation += 1
        self.began_s = None
        self._state.solving = False
        self.solver.give_up("the policy or the nodes have changed")

    @property
    def state(self) -> str:
        """State of the solver in a few words, for people."""
        if self.status != "ok":
            return self.status
        began_s, without = self.began_s, self.without_pairs
        state = "ok" if began_s is None else f"under way for {self._state.now_s() - began_s:.0f} s"
        return f"{state}, without pairs: {without}" if without else state

    @property
    def without_pairs(self) -> str:
        """Return why jobs have no shares beside each other at present, though the policy gives such; else
        ""."""
        left_s = self._without_pairs_until_s - self._state.now_s()
        if left_s <= 0 or self._state.policy != self._too_slow:
            return ""
        limit = duration(self._state.options.solve_limit_s)
        return f"with them there was no answer within {limit} (tried again in {duration(left_s)})"

    def ask(self, problem: Solve) -> None:
        """Have a problem solved; the answer comes as an event. Where one with rates of pairs had no answer
        in time, jobs get shares alone for a while: better than no share for those that are new."""
        generation = self.generation
        self.began_s = self._state.now_s()
        snapshot = problem.snapshot.without_pairs() if self.without_pairs else problem.snapshot
        has_pairs = snapshot.colocated_rate is not None

        def answered(future: "Future[PlannerAnswer]") -> None:
            self._inbox.put(lambda: self._answered(generation, future, has_pairs))

        assert self._state.setup is not None
        setup = self._state.setup
        self.solver.submit(
            setup.policy, setup.seed, setup.settings, snapshot, problem.state
        ).add_done_callback(answered)

    def _answered(self, generation: int, future: "Future[PlannerAnswer]", has_pairs: bool) -> None:
        if generation != self.generation:
            return
        now = self._state.now_s()
        assert self.began_s is not None
        self.took_s = now - self.began_s
        self._state.counters.solve_seconds.observe(self.took_s)
        self.began_s = None
        problem = future.exception()
        if problem is not None:
            if has_pairs and isinstance(problem, SolveTimeoutError):
                pause_s = WITHOUT_PAIRS * self._state.options.solve_limit_s
                self._too_slow, self._without_pairs_until_s = self._state.policy, now + pause_s
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
