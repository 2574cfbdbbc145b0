"""The messages in which an agent tells the server of its node: registrations and reports."""

import time
from collections.abc import Callable

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

HOLD_BACK_S = 10.0  # that an end waits, in reports, for what its job reported to be told
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
        has_untold_metrics: Callable[[int], bool],
    ) -> None:
        """has_untold_metrics: whether the server is still to be told of something that a job has reported."""
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
        self._has_untold_metrics = has_untold_metrics
        self._held_back_s: dict[Key, float] = {}  # since when (monotonic) the end of an attempt is

    def registration(self) -> Register:
        """The first message. A server that has only just come up may hear it before it takes metrics, so no
        end is told that these would come behind: the value of a trial is its last one."""
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
            holds=self._node.attempts.statuses(self._untold_ends()),
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
    def new_ends(self) -> set[Key]:
        """Return the attempts of whose ends the server has not been told yet."""
        return self._node.attempts.ended() - self._told_ends

    def _untold_ends(self) -> set[Key]:
        """Return the ended attempts of jobs of which the server is still to be told something."""
        return {key for key in self.new_ends if self._has_untold_metrics(key[0])}

    def _held_back(self) -> set[Key]:
        """Return the attempts of whose end the next report says nothing yet."""
        now, before = time.monotonic(), self._held_back_s
        self._held_back_s = {key: before.get(key, now) for key in self._untold_ends()}
        return {key for key, at in self._held_back_s.items() if now - at < HOLD_BACK_S}

    def next(self, *, is_last: bool = False) -> NodeReport:
        """All that the node holds, and how it is. is_last: there will be none that tells the rest."""
        self._seq += 1
        held_back = set() if is_last else self._held_back()
        self._told_ends = self._node.attempts.ended() - held_back
        attempts = self._node.attempts
        health, spawner_problem = self._health.report or HealthReport(), self._spawner_watch.problem
        problems = [*filter(None, [spawner_problem]), *health.problems]
        return NodeReport(
            node=self._options.node,
            incarnation=self.incarnation,
            seq=self._seq,
            holds=self._health.usage.add_news(attempts.statuses(held_back), attempts.running_ranks),
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
