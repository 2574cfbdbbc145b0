"""The messages in which an agent tells the server of its node: registrations and reports."""

import time

import fairlead
from fairlead.cluster.agent.health import HealthChecks, HealthReport
from fairlead.cluster.agent.machine import machine_identity
from fairlead.cluster.agent.node import NodeController
from fairlead.cluster.agent.options import AgentOptions
from fairlead.cluster.agent.position_memory import PositionMemory
from fairlead.cluster.agent.rank_failures import one_line
from fairlead.cluster.agent.rank_server import Key
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_watch import SpawnerWatch
from fairlead.cluster.agent.start_trials import StartTrials
from fairlead.cluster.protocol.messages import PROTOCOL, NodeReport, Register

_MAX_REPORTED = 64  # of what may be many: incarnations of earlier agents, problems


class NodeReports:
    """Reports of one run of an agent, with ascending numbers."""

    def __init__(
        self,
        options: AgentOptions,
        incarnation: str,
        node: NodeController,
        *,
        spawner: SpawnerLink,
        spawner_watch: SpawnerWatch,
        health: HealthChecks,
        trials: StartTrials,
        memory: PositionMemory,
    ) -> None:
        self.incarnation = incarnation
        self.leaving = False  # all jobs have ended, and the server is to know that it ends
        self._options = options
        self._node = node
        self._spawner = spawner
        self._spawner_watch = spawner_watch
        self._health = health
        self._trials = trials
        self._memory = memory
        self._seq = 0
        self._told_ends: set[Key] = set()  # attempts whose ends the server has been told of

    def registration(self) -> Register:
        """The first message."""
        options = self._options
        return Register(
            protocol=PROTOCOL,
            version=fairlead.__version__,
            node=options.node,
            incarnation=self.incarnation,
            host=options.host,
            accelerator=options.devices.accelerator,
            devices=len(options.devices.indices),
            simulated_devices=options.devices.simulated_devices,
            holds=self._node.attempts.statuses(),
            parked=self._node.parked.report(),
            machine=machine_identity(),
            cleared=self._spawner.cleared[-_MAX_REPORTED:],
            seen=self._memory.position,
            halted_runs=self._memory.halted_runs,
            ending=self._node.orders.leaving,
            runs_as=options.isolation.runs_as,
            ends_in_s=-1.0 if options.ends_s is None else max(options.ends_s - time.time(), 0.0),
        )

    @property
    def has_new_ends(self) -> bool:
        """Return whether the next report is the first to tell of the end of an attempt."""
        return not self._ended() <= self._told_ends

    def _ended(self) -> set[Key]:
        return {attempt.key for attempt in self._node.attempts if attempt.ended}

    def next(self) -> NodeReport:
        """All that the node holds, and how it is."""
        self._seq += 1
        self._told_ends = self._ended()
        attempts = self._node.attempts
        health, spawner_problem = self._health.report or HealthReport(), self._spawner_watch.problem
        problems = [*filter(None, [spawner_problem]), *health.problems]
        return NodeReport(
            node=self._options.node,
            incarnation=self.incarnation,
            seq=self._seq,
            holds=self._health.usage.add_news(attempts.statuses(), attempts.running_ranks),
            orders_seq=self._node.orders.seq,
            problems=tuple(map(one_line, problems[:_MAX_REPORTED])),
            dead=health.dead,
            health_known=bool(spawner_problem) or self._health.report is not None,
            checked=self._trials.result.number,
            check_problem=one_line(self._trials.result.problem),
            ending=self._node.orders.leaving,
            leaving=self.leaving,
            parked=self._node.parked.report(),
        )
