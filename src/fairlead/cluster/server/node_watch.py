"""The states of nodes as time passes: noted when they change, and acted on."""

from fairlead.cluster.server.after_restore import end_hold_if_due
from fairlead.cluster.server.attempt_ends import AttemptEnds
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.job_pinning import JobPinning
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.server.node_service import NodeService
from fairlead.cluster.server.parked import ParkedPrograms, unpark_useless
from fairlead.cluster.server.report_intake import ReportIntake
from fairlead.cluster.server.silence import rank_lifetime_s
from fairlead.cluster.server.standbys import Standbys

DRIVER_STALL_S = 2.0  # without a look for so long: the driver stood still, and has heard nobody


class NodeWatch:
    """On the driver's thread."""

    def __init__(
        self,
        state: ClusterState,
        *,
        service: NodeService,
        pinning: JobPinning,
        intake: ReportIntake,
        ends: AttemptEnds,
        standbys: Standbys,
        programs: ParkedPrograms,
    ) -> None:
        self._state = state
        self._service = service
        self._pinning = pinning
        self._intake = intake
        self._ends = ends
        self._standbys = standbys
        self._programs = programs
        self._looked = 0.0  # monotonic

    def poll(self) -> None:
        """Note what time alone has changed. Called twice a second."""
        state, fleet = self._state, self._state.fleet
        for name in fleet.silent(lambda node: rank_lifetime_s(state, node)):
            self.mark_lost(name, "node lost")
        end_hold_if_due(state)
        now = fleet.monotonic()
        away_s, self._looked = now - self._looked, now
        if away_s > DRIVER_STALL_S:
            fleet.reset_silence()
        fleet.find_suspects()
        for node in list(fleet.nodes.values()):
            if node.agent.inherited:
                self._book_expired(node)
            if not state.registry.on_node.get(node.name) and self._is_gone(node):
                state.disable(
                    node.name
                )  # whoever left all at once may be in use, as far as the core knows
                if not self._may_be_placed_on(node.name):
                    state.remove_node(node.name)
                    continue
            self._service.settle(node)
        self._end_on_forgotten()
        self._pinning.update()
        unpark_useless(state)
        self._programs.poll()
        self._standbys.poll()

    def _may_be_placed_on(self, node: str) -> bool:
        """Return whether the core has not been told yet that a node may not be used."""
        core = self._state.scheduler
        if core is None:
            return False
        names = [one.name for one in core.data.cluster.nodes]
        if node not in names:
            return False
        mine = core.data.cluster.device_node == names.index(node)
        return bool(core.data.running.topology.usable[mine].any())

    def _end_on_forgotten(self) -> None:
        """End what was ordered on forgotten nodes: a round may have been decided just before."""
        registry, nodes = self._state.registry, self._state.fleet.nodes
        forgotten = [name for name, some in registry.on_node.items() if some and name not in nodes]
        for name in forgotten:
            attempts = list(registry.on_node[name].values())
            self._ends.orphan(name, attempts, "node forgotten")

    def _is_gone(self, node: LiveNode) -> bool:
        """Return whether a node will not come back: it is no longer in the cluster file, or was there for a
        time only (``AgentHistory.ends_s``) and has left, or is lost. Nothing that it was granted may live."""
        if node.leaving:
            return True
        over = bool(node.agent.left_s) or node.lost
        return (
            over
            and node.agent.ends_s > 0
            and not node.agent.inherited
            and not self._is_listed(node)
        )

    def _is_listed(self, node: LiveNode) -> bool:
        listed = self._state.options.nodes or ()
        return any(one.name == node.name for one in listed)

    def close(self) -> None:
        """Before a decision: the core shall use no node that is suspect by now."""
        for node in list(self._state.fleet.nodes.values()):
            self._service.settle(node, deciding=True)
        self._pinning.update()

    def take_over(self, nodes: set[str]) -> None:
        """Take over what these nodes said last."""
        for node in sorted(nodes):
            self._intake.apply(node)

    def mark_lost(self, name: str, reason: str) -> None:
        """A node is gone, and with it whatever ran there."""
        self._intake.apply(name)  # the last that it said, before it is forgotten
        self._ends.note_agent_death(self._state.fleet.nodes[name])
        self._state.fleet.mark_lost(name)
        attempts = list(self._state.registry.on_node.get(name, {}).values())
        self._ends.orphan(name, attempts, reason)
        self._state.disable(name)

    def _book_expired(self, node: LiveNode) -> None:
        """Book the attempts of earlier agents of a node that are over by now."""
        over = self._state.fleet.drop_expired(node.name)
        if over:
            mine = self._state.registry.on_node.get(node.name, {})
            attempts = [mine[key] for key in over if key in mine]
            reason = f"another agent has taken over the name {node.name!r} of its node"
            self._ends.orphan(node.name, attempts, reason)
            self._service.keep(node)
