"""Pins a job to a node that gets no new work, as long as an attempt of the job may still run there.

The core pauses a pinned job: it neither starts it elsewhere, which would have to wait for the attempt, nor
reserves devices for it. An attempt that can go on does so outside the rounds, and its steps are credited
later.
"""

import numpy as np

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.node_states import NodeState
from fairlead.cluster.server.admission import Admission
from fairlead.cluster.server.attempt_ends import AttemptEnds
from fairlead.cluster.server.attempt_orders import AttemptOrders
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.server.node_condition import condition
from fairlead.cluster.server.pinned_jobs import PinnedJobs
from fairlead.cluster.server.retry_waits import RetryWaits
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.cluster.store.rows import JobRow
from fairlead.model.events import JobsPaused

# States of a node that pin its jobs. From a drained node that answers, jobs are saved and move at once.
_PINNING_STATES: frozenset[NodeState] = frozenset(("suspect", "unhealthy", "waiting", "offline"))


class JobPinning:
    """Pauses jobs in the core while an attempt of theirs may still run on a node that gets no new work.

    Used on the driver's thread; ``reason`` may be called from any thread.
    """

    def __init__(
        self,
        state: ClusterState,
        jobs: PinnedJobs,
        *,
        steps: StepAccounting,
        orders: AttemptOrders,
        ends: AttemptEnds,
        admission: Admission,
        retry_waits: RetryWaits,
    ) -> None:
        self._state = state
        self.jobs = jobs
        self._steps = steps
        self._orders = orders
        self._ends = ends
        self._admission = admission
        self._retry_waits = retry_waits

    def update(self) -> None:
        """Find the pinned jobs anew; pause newly pinned ones in the core and resume those no longer
        pinned."""
        state = self._state
        found: dict[int, str] = {}
        for name in sorted(state.lost_nodes):
            node = state.fleet.nodes.get(name)
            if node is not None and self._pins(node):
                for attempt in list(state.registry.on_node.get(name, {}).values()):
                    if self._stays_pinned(node, attempt):
                        found[attempt.row.id] = name
        pinned, released = self.jobs.replace(found)
        self._emit(pinned, pinned=True)
        self._emit(released, pinned=False)

    def _pins(self, node: LiveNode) -> bool:
        state = condition(node, self._state.fleet.monotonic()).state
        return state in _PINNING_STATES or (
            state == "drained" and (node.suspect or bool(node.agent.inherited))
        )

    def _stays_pinned(self, node: LiveNode, attempt: Attempt) -> bool:
        """Return whether an attempt may still run on the node, so that its job has to wait for it. An attempt
        that has not begun is withdrawn; one that also runs on a healthy node is told to stop."""
        row = attempt.row
        if not attempt.ordered or node.name in attempt.gone or not row.open:
            return False
        if row.state == "paused":
            return False
        if attempt.key not in node.leases.granted and attempt.key not in node.agent.inherited:
            self._withdraw(node, attempt)
            return False
        # Its end has been told, and is about to be booked; or its agent stops it, as a drained node would.
        if node.agent.left_s or (node.agent.ending and not node.suspect):
            return False
        mine = {device for rank in attempt.nodes[node.name] for device in rank.devices}
        if not node.suspect and (
            mine.intersection(node.health.dead) or node.name in attempt.obstacles
        ):
            return False  # nothing goes on there, or has begun
        if any(other not in self._state.lost_nodes for other in attempt.nodes):
            self._stop(node, row.id)
            return node.suspect or bool(node.agent.inherited)
        return True

    def _withdraw(self, node: LiveNode, attempt: Attempt) -> None:
        """Withdraw an attempt without a lease, which has not begun and cannot once its order is gone."""
        if not attempt.stopping:
            self._stop(node, attempt.row.id)
        elif self._state.fleet.cannot_begin(node.name, attempt.key):
            self._ends.part_over(node.name, attempt)

    def _stop(self, node: LiveNode, job: int) -> None:
        state = condition(node, self._state.fleet.monotonic()).state
        reason = f"node {node.name} is {state}"
        # A program may stand still until its node is back; if that is lost, so is the program, as ever.
        self._orders.stop(job, AttemptEnd.STOPPED, reason, parks=True)

    def _emit(self, jobs: list[int], pinned: bool) -> None:
        registry = self._state.registry
        rows = [registry.jobs[job] for job in jobs if job in registry.jobs]
        if pinned:
            self.jobs.hold(jobs)
        changed = [
            row.id for row in rows if self._is_in_core(row) and (pinned or not self._waits(row))
        ]
        if changed:
            self._state.capacity_changed = True
            now = self._state.now_s()
            self._steps.emit_corrections(now)
            self._state.emit(JobsPaused(now, np.array(sorted(changed)), pinned))
            if not pinned:
                self.jobs.release(changed)

    def _is_in_core(self, row: JobRow) -> bool:
        """Return whether the core knows the job and decides when it runs."""
        return row.open and row.state != "paused" and not self._admission.is_outside(row.id)

    def _waits(self, row: JobRow) -> bool:
        """Return whether the core keeps the job paused until its next retry."""
        return self._retry_waits.keep_waiting(row.id)

    def reason(self, job: int) -> str:
        """Return why the job is pinned, as of now; "" if it is not pinned."""
        name = self.jobs.nodes.get(job, "")
        node = self._state.fleet.nodes.get(name)
        if node is None:
            return ""
        current = condition(node, self._state.fleet.monotonic())
        if self.jobs.is_running(self._state.registry, job):
            return f"its node {name} is {current.state}: {current.reason}"
        return f"waits for node {name}, {current.reason}"
