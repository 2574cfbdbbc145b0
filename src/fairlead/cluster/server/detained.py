"""Jobs of which a start may still run on a node that is given nothing more.

The core is told to leave them be: it neither starts them elsewhere, which would have to wait, nor holds
devices for them meanwhile. A start that can go on goes on outside the rounds; what it does is credited later.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np

from fairlead.cluster.protocol.node_states import NodeState, condition
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.fleet import LiveNode
from fairlead.cluster.store.rows import JobRow
from fairlead.model.events import JobsPaused

if TYPE_CHECKING:
    from fairlead.cluster.server.server_loop import ServerLoop

# Where starts are left alone. From a node that is drained and answers, jobs go elsewhere at once, saved.
_DETAINING: frozenset[NodeState] = frozenset(("suspect", "unhealthy", "waiting"))


class Detained:
    """Part of the engine, on the driver's thread; ``reason`` may be called from any."""

    def __init__(self, engine: "ServerLoop") -> None:
        self.engine = engine
        self.nodes: dict[int, str] = {}  # job -> the node that it is detained by
        self._releasing: set[int] = set()  # let go, and not in a decision of the core yet
        self._told: set[int] = set()  # of these, those that the core knows to be let go

    def has(self, job: int) -> bool:
        """Is it detained, or has the core not decided since it was let go?"""
        return job in self.nodes or job in self._releasing

    def let_go(self, jobs: Iterable[int]) -> None:
        """The core is told now that these jobs are let go."""
        self._told.update(self._releasing.intersection(jobs))

    def decided(self, jobs: Collection[int], solving: bool) -> None:
        """The core has decided on a round with these jobs. solving: by shares of before the last changes."""
        self._releasing.difference_update(jobs)
        if not solving:
            self._releasing -= self._told
        self._told &= self._releasing

    def update(self) -> None:
        """Find the jobs anew, and tell the core of those that are detained now and of those no longer."""
        found: dict[int, str] = {}
        for name in sorted(self.engine.backend.lost_nodes):
            node = self.engine.fleet.nodes.get(name)
            if node is not None and self._detains(node):
                for start in list(self.engine.book.on_node.get(name, {}).values()):
                    if self._keep(node, start):
                        found[start.row.id] = name
        before, self.nodes = self.nodes, found
        self._tell([job for job in found if job not in before], held=True)
        self._tell([job for job in before if job not in found], held=False)

    def _detains(self, node: LiveNode) -> bool:
        state = condition(node, self.engine.fleet.monotonic()).state
        return state in _DETAINING or (
            state == "drained" and (node.suspect or bool(node.inherited))
        )

    def _keep(self, node: LiveNode, start: Attempt) -> bool:
        """May a start that the node was given still run there, and is its job to wait for that? One that has
        not begun is given up, and a gang of which another node is well stops there."""
        backend, row = self.engine.backend, start.row
        if not start.ordered or node.name in start.gone or not row.open or row.state == "paused":
            return False
        if start.key not in node.granted and start.key not in node.inherited:
            self._give_up(node, start)
            return False
        mine = {device for rank in start.nodes[node.name] for device in rank.devices}
        if not node.suspect and (mine.intersection(node.dead) or node.name in start.obstacles):
            return False  # nothing goes on there, or has begun
        if any(other not in backend.lost_nodes for other in start.nodes):
            backend.stop(row.id, f"node {node.name} is {self._state(node.name)}")
            return node.suspect or bool(node.inherited)
        return True

    def _give_up(self, node: LiveNode, start: Attempt) -> None:
        """No lease was granted for it, so it has not begun; once the orders are without it none will be."""
        backend = self.engine.backend
        if not start.stopping:
            backend.stop(start.row.id, f"node {node.name} is {self._state(node.name)}")
        elif self.engine.fleet.cannot_begin(node.name, start.key):
            backend.part_over(node.name, start)

    def _tell(self, jobs: list[int], held: bool) -> None:
        rows = [self.engine.book.jobs[job] for job in jobs if job in self.engine.book.jobs]
        if held:
            self._releasing.difference_update(jobs)
        told = [row.id for row in rows if self._is_cores(row) and (held or not self._waits(row))]
        if told:
            self.engine.backend.chance = True
            self.engine.backend.tell_corrections()
            now = self.engine.clock.now_s()
            self.engine.backend.events.append(JobsPaused(now, np.array(sorted(told)), held))
            if not held:
                self._releasing.update(told)

    def _is_cores(self, row: JobRow) -> bool:
        """Is it for the core to hold the job, or let it go?"""
        return row.open and row.state != "paused" and not self.engine.admission.outside(row.id)

    def _waits(self, row: JobRow) -> bool:
        """Is the core to go on holding the job, until it is tried again?"""
        return self.engine.retries.keep_held(row.id)

    def _state(self, name: str) -> str:
        return condition(self.engine.fleet.nodes[name], self.engine.fleet.monotonic()).state

    def reason(self, job: int) -> str:
        """Why a detained job is where it is, as of now; "" if it is not detained."""
        name = self.nodes.get(job, "")
        node = self.engine.fleet.nodes.get(name)
        if node is None:
            return ""
        current = condition(node, self.engine.fleet.monotonic())
        if self.engine.backend.goes_on(job):
            return f"its node {name} is {current.state}: {current.reason}"
        return f"waits for node {name}, {current.reason}"
