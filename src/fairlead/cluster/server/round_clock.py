"""The clock of the rounds: they end, at their time or before it, and a standstill is noticed."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.devices_held import waits_for_devices_of_others
from fairlead.cluster.server.live_round import MAX_ROUND_S, LiveRound
from fairlead.cluster.server.round_report import RoundReporter
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.model.events import Event, Stalled

STALL_S = 1.0  # nothing runs and jobs wait: tell the core after so long
STALL_INTERVAL_S = 30.0  # between two times that it is told
POLL_S = 0.5  # between looks at the nodes


class NodeLooker(Protocol):
    """Watches the nodes: see ``node_watch``."""

    def poll(self) -> None:
        """Note what time alone has changed."""

    def close(self) -> None:
        """Before a decision: the core shall use no node that is not well."""

    def take_over(self, nodes: set[str]) -> None:
        """Take over what nodes said last."""


class CostLearner(Protocol):
    """The costs of restarts: see ``restart_costs``."""

    def learned(self, current: LiveRound, now: float) -> Event | None:
        """Return the event to tell the core before it decides upon the next round; None: it knows all."""

    def is_applied(self) -> bool:
        """Whether the policy in force leaves jobs alone that cost too much to stop."""


class Holder(Protocol):
    """Jobs that are held back: see ``retries``."""

    def poll(self, now: float) -> None:
        """Do what is due by ``now``, the cluster's time."""

    def hold(self, now: float) -> None:
        """Tell the core of jobs that take no part in the next round."""


class Binder(Protocol):
    """Binds jobs to devices: see ``parked.ProgramDevices``."""

    def tell(self) -> None:
        """Tell the core what it does not know yet, before it decides."""


class CapacityChecks(NamedTuple):
    """Whether the next round would have free devices for jobs."""

    for_waiting: Callable[[], bool]  # that have none
    for_misplaced: Callable[[], bool]  # that were given some which others keep


class RoundClock:
    """On the driver's thread."""

    def __init__(
        self,
        state: ClusterState,
        *,
        reporter: RoundReporter,
        steps: StepAccounting,
        nodes: NodeLooker,
        costs: CostLearner,
        binder: Binder,
        retries: Holder,
        capacity: CapacityChecks,
        precede: Callable[[], None],
    ) -> None:
        """precede: holds up questions while a round is reported and decided."""
        self._state = state
        self._reporter = reporter
        self._steps = steps
        self._nodes = nodes
        self._costs = costs
        self._binder = binder
        self._retries = retries
        self._capacity = capacity
        self._precede = precede
        # After a restart of the server, until when the end of a round waits for nodes to come back:
        self._returned_s = 0.0  # any of them
        self._settled_s = 0.0  # those of its attempts
        self._asked_s = 0.0  # when it was asked for room last, and
        self._found_capacity = False  # what was found
        self._looked_s = 0.0
        self._idle_since: float | None = None

    def wait_for_nodes(self, returned_s: float, settled_s: float) -> None:
        """After a restart of the server: no round ends before all nodes have come back, until ``returned_s``
        at the latest, or those of its attempts, until ``settled_s``; both of the cluster's time."""
        self._returned_s, self._settled_s = returned_s, settled_s

    def timeout_s(self) -> float:
        """For how long nothing needs to be looked at: until the end of the round, at most half a second."""
        if self._state.round is None:
            return 0.2
        left_s = self._state.round.end_s - self._state.now_s()
        return min(left_s, 0.5) if left_s > 0 else 0.02

    def poll(self) -> None:
        """Do what is due by time alone: lost nodes, the end of the round, a stall, another try."""
        now, state = self._state.now_s(), self._state
        self._retries.poll(now)
        if now - self._looked_s >= POLL_S:
            self._looked_s = now
            self._nodes.poll()
        if state.round is None:
            self._steps.emit_corrections(now)
            self._retries.hold(now)
            self._binder.tell()
            self._poll_idle(now)
            self._reporter.report_kept(None, now)
            return
        if self._is_over(state.round, now):
            self.end_round(now)

    def end_round(self, now: float) -> None:
        """Report the round in force, if any. After a restart of the server nodes get time to come back."""
        state = self._state
        if state.round is None or self._expects_nodes(state.round, now):
            return
        self._precede()
        state.fleet.round_ended()
        self._nodes.close()
        # Progress alone is no news, so it has not been taken over yet.
        self._nodes.take_over(state.round.nodes)
        current, state.round = state.round, None
        self._retries.hold(now)
        report = self._reporter.report(current, now)
        self._steps.emit_adaptations(now)
        self._steps.emit_corrections(now)
        if (costs := self._costs.learned(current, now)) is not None:
            state.emit(costs)
        self._binder.tell()
        state.emit(report)

    def end_soon(self) -> None:
        """The core wants the round to end; where nodes are still coming back, at the first chance."""
        self.end_round(self._state.now_s())
        if self._state.round is not None:
            self._state.round.length_s = 0.0

    def _expects_nodes(self, current: LiveRound, now: float) -> bool:
        """Whether nodes that the core reckons with may still come back from a restart of the server."""
        if now >= max(self._returned_s, self._settled_s):
            return False
        state = self._state
        missing = {node.name for node in state.fleet.nodes.values() if not node.registered}
        missing -= state.lost_nodes
        if missing and now < self._returned_s:
            return True
        running = (attempt for job, attempt in current.attempts.items() if job not in current.ended)
        return any(not missing.isdisjoint(attempt.nodes) for attempt in running)

    def _is_over(self, current: LiveRound, now: float) -> bool:
        """Whether a round ends: when all of it has ended, at its time, or before it when jobs wait that could
        run on free devices. Jobs that go on do not notice.

        Neither do young starts, unless the policy in force would take their devices. Then they hold up the
        end: where starts take longer than rounds, jobs that take turns would never train otherwise. Who
        waits beside free devices waits for no attempt that is older than a round."""
        if len(current.ended) == len(current.attempts):
            return True
        capacity = self._finds_capacity(current, now)
        if not capacity and now < current.end_s:
            return False
        limit_s = (1 if capacity else MAX_ROUND_S) * current.length_s
        return self._costs.is_applied() or not self._begins(current, now, limit_s)

    def _begins(self, current: LiveRound, now: float, limit_s: float) -> bool:
        """Whether an attempt of the round is young. limit_s: seconds since its order, and since the beginning
        of the round, after which none is."""
        return now < current.started_s + limit_s and any(
            job not in current.ended
            and attempt.is_young(now, limit_s)
            and not waits_for_devices_of_others(attempt)  # else there is no start to be lost
            for job, attempt in current.attempts.items()
        )

    def _finds_capacity(self, current: LiveRound, now: float) -> bool:
        """Whether the round has lasted long enough to be ended early, and a job waits that could run on free
        devices; as it was when that was asked last."""
        state, early_s = self._state, self._state.early_s
        wait_s = min(early_s, 1.0)  # it takes milliseconds to find out
        if now - current.started_s < early_s:
            return False
        if now - self._asked_s >= wait_s:
            self._asked_s = now
            state.capacity_changed = state.capacity_changed and self._capacity.for_waiting()
            self._found_capacity = state.capacity_changed or self._capacity.for_misplaced()
        return self._found_capacity

    def _poll_idle(self, now: float) -> None:
        state = self._state
        waits = any(
            row.state in ("waiting", "preempted") and row.retry_s is None
            for row in state.registry.jobs.values()
        )
        if state.solving or state.events or not waits:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= STALL_S:
            self._idle_since = now + STALL_INTERVAL_S - STALL_S  # again, but not all the time
            state.emit(Stalled(now))
