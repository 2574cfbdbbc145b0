"""The core's make-up: put together anew, from its own state, with the nodes and the policy of now."""

import logging
from collections.abc import Callable
from dataclasses import replace

import fairlead
from fairlead.cluster.server.admission import Admission
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.commit_log import CommitLog
from fairlead.cluster.server.decided_shares import DecidedShares
from fairlead.cluster.server.estimator_session import EstimatorSession
from fairlead.cluster.server.rates import table_for
from fairlead.cluster.server.solve_coordinator import SolveCoordinator
from fairlead.model.cluster import Cluster, Node
from fairlead.model.events import JobsSubmitted, NodeLost
from fairlead.model.job import RestartCosts
from fairlead.model.plan import Planner, Policy
from fairlead.policies import registry
from fairlead.scheduler import journal
from fairlead.scheduler.core.checkpoint import take_checkpoint
from fairlead.scheduler.setup import Setup, build, restore, traits_of

_log = logging.getLogger(__name__)
RESUME_S = 0.1  # that it costs to go on where a job is parked; of a job that did, it is measured


class CoreRenewal:
    """On the driver's thread. A change of the make-up (nodes, policy) and every so many records begin a new
    segment of the journal: the core goes on as whoever replays that segment will."""

    def __init__(
        self,
        state: ClusterState,
        *,
        commits: CommitLog,
        estimating: EstimatorSession,
        admission: Admission,
        solves: SolveCoordinator,
        restart_s: Callable[[], float],
        round_s: Callable[[], float],
    ) -> None:
        """restart_s: seconds that a start is believed to cost; round_s: that rounds are to last."""
        self._state = state
        self._commits = commits
        self._estimating = estimating
        self._admission = admission
        self._solves = solves
        self._restart_s = restart_s
        self._round_s = round_s

    def renew(self) -> None:
        """A new segment, and a new core, if there are nodes."""
        state = self._state
        state.rebuild_due = False
        if not state.fleet.nodes:
            return
        now = state.now_s()
        self._adjust_round()
        setup, planner = self._make_setup()
        if state.scheduler is None:
            state.scheduler = build(setup, planner)
            records = [journal.encode(setup)]
        else:
            checkpoint = take_checkpoint(state.scheduler.data)
            state.scheduler = restore(setup, checkpoint, planner)
            records = [journal.encode(setup), journal.encode(checkpoint)]
        state.setup = setup
        if not state.decided.time_s:  # what was decided before the server was started
            state.decided = DecidedShares.of(state.scheduler, now)
        self._estimating.take_over(state.scheduler, now)
        self._admission.forget_learning()
        state.ready = True
        self._solves.begin_anew()
        self._commits.begin_segment(records)
        self._emit_lost_nodes(now)
        self._admission.refit(now)
        if state.round is None:  # nothing else would make the new core decide
            state.emit(JobsSubmitted(now, ()))

    def _adjust_round(self) -> None:
        state, before_s = self._state, self._state.round_s
        state.round_s = self._round_s()
        if state.round is not None:  # it may end before its time, not after it
            state.round.length_s = min(state.round.length_s, state.round_s)
        if state.round_s != before_s:
            _log.info("--round auto: rounds of %g s, after %g s", state.round_s, before_s)

    def _emit_lost_nodes(self, now: float) -> None:
        """Nodes that were lost before the core knew them, unless it is about to be told so."""
        core = self._state.scheduler
        assert core is not None
        announced = {event.node for event in self._state.events if isinstance(event, NodeLost)}
        for index, node in enumerate(core.data.cluster.nodes):
            job_on_device = core.data.running.topology.usable[
                core.data.cluster.device_node == index
            ]
            if node.name in self._state.lost_nodes - announced and job_on_device.any():
                self._state.emit(NodeLost(now, node.name))

    def _make_setup(self) -> tuple[Setup, Policy | Planner]:
        state, options = self._state, self._state.options
        profile, seed = replace(options.profile, round_s=state.round_s), options.seed
        made = registry.make(state.policy, seed=seed, profile=profile.name)
        nodes = sorted(state.fleet.nodes.values(), key=lambda node: node.name)
        cluster = Cluster(
            tuple(Node(n.name, n.accelerator, n.devices) for n in nodes),
            {a: p for a, p in options.prices.items() if a in {n.accelerator for n in nodes}},
        )
        current = None if state.scheduler is None else state.scheduler.data.beliefs.known
        table = table_for(
            options.catalogue,
            cluster,
            state.registry.jobs,
            current,
            space_sharing=made.space_sharing,
        )
        setup = Setup(
            version=fairlead.__version__,
            cluster=cluster,
            throughputs=replace(table.on(cluster, profile.scattered), origin="journal"),
            policy=getattr(made, "spec", state.policy),
            settings=profile,
            seed=seed,
            restart_costs=RestartCosts(self._restart_s()),
            resume_costs=RestartCosts(RESUME_S),
            overlap_solves=True,
            traits=None if isinstance(made, Planner) else traits_of(made),
        )
        return setup, made
