"""Jobs of which an attempt may still run on a node that is given nothing more are left there.

The core is told to leave them be: it neither starts them elsewhere, which would have to wait, nor holds
devices for them meanwhile. An attempt that can go on goes on outside the rounds; what it does is credited
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
from fairlead.cluster.server.detained_jobs import DetainedJobs
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.server.node_condition import condition
from fairlead.cluster.server.retry_waits import RetryWaits
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.cluster.store.rows import JobRow
from fairlead.model.events import JobsPaused

# Where attempts are left alone. From a node that is drained and answers, jobs go elsewhere at once, saved.
_DETAINING_STATES: frozenset[NodeState] = frozenset(("suspect", "unhealthy", "waiting", "offline"))


class Detention:
    """Holds jobs back in the core while an attempt of theirs may still run on a node that is given no jobs.

    Used on the driver's thread; ``reason`` may be called from any.
    """

    def __init__(
        self,
        state: ClusterState,
        jobs: DetainedJobs,
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
        """Find the jobs anew, and tell the core of those that are detained now and of those no longer."""
        state = self._state
        found: dict[int, str] = {}
        for name in sorted(state.lost_nodes):
            node = state.fleet.nodes.get(name)
            if node is not None and self._detains(node):
                for attempt in list(state.registry.on_node.get(name, {}).values()):
                    if self._stays_detained(node, attempt):
                        found[attempt.row.id] = name
        detained, released = self.jobs.replace(found)
        self._emit(detained, detained=True)
        self._emit(released, detained=False)

    def _detains(self, node: LiveNode) -> bool:
        state = condition(node, self._state.fleet.monotonic()).state
        return state in _DETAINING_STATES or (
            state == "drained" and (node.suspect or bool(node.agent.inherited))
        )

    def _stays_detained(self, node: LiveNode, attempt: Attempt) -> bool:
        """May an attempt that the node was given still run there, and is its job to wait for that? One that
        has not begun is given up, and a gang of which another node is well stops there."""
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
        """No lease was granted for it, so it has not begun; once the orders are without it none will be."""
        if not attempt.stopping:
            self._stop(node, attempt.row.id)
        elif self._state.fleet.cannot_begin(node.name, attempt.key):
            self._ends.part_over(node.name, attempt)

    def _stop(self, node: LiveNode, job: int) -> None:
        state = condition(node, self._state.fleet.monotonic()).state
        self._orders.stop(job, AttemptEnd.STOPPED, f"node {node.name} is {state}")

    def _emit(self, jobs: list[int], detained: bool) -> None:
        registry = self._state.registry
        rows = [registry.jobs[job] for job in jobs if job in registry.jobs]
        if detained:
            self.jobs.hold(jobs)
        changed = [
            row.id for row in rows if self._is_in_core(row) and (detained or not self._waits(row))
        ]
        if changed:
            self._state.capacity_changed = True
            now = self._state.now_s()
            self._steps.emit_corrections(now)
            self._state.emit(JobsPaused(now, np.array(sorted(changed)), detained))
            if not detained:
                self.jobs.release(changed)

    def _is_in_core(self, row: JobRow) -> bool:
        """Whether it is the core that holds the job or lets it go."""
        return (
            row.open
            and row.state != "paused"
            and not self._admission.awaits_fitting_cluster(row.id)
        )

    def _waits(self, row: JobRow) -> bool:
        """Whether the core goes on holding the job until it is tried again."""
        return self._retry_waits.keep_waiting(row.id)

    def reason(self, job: int) -> str:
        """Why a detained job is where it is, as of now; "" if it is not detained."""
        name = self.jobs.nodes.get(job, "")
        node = self._state.fleet.nodes.get(name)
        if node is None:
            return ""
        current = condition(node, self._state.fleet.monotonic())
        if self.jobs.is_running(self._state.registry, job):
            return f"its node {name} is {current.state}: {current.reason}"
        return f"waits for node {name}, {current.reason}"
