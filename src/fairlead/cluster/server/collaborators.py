"""The parts of the driver, put together in the order in which one needs the other."""

from collections.abc import Callable
from dataclasses import dataclass

from fairlead.cluster.front.messages import PublishedNodeView, PublishedStatus
from fairlead.cluster.server.admission import Admission
from fairlead.cluster.server.attempt_ends import AttemptEnds, EndListener
from fairlead.cluster.server.attempt_orders import AttemptOrders
from fairlead.cluster.server.backend import LiveBackend
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.commit_log import CommitLog
from fairlead.cluster.server.core_renewal import CoreRenewal
from fairlead.cluster.server.estimator_session import EstimatorSession
from fairlead.cluster.server.inbox import Inbox
from fairlead.cluster.server.job_notices import JobNotices
from fairlead.cluster.server.job_pinning import JobPinning
from fairlead.cluster.server.kept_devices import KeptDevices
from fairlead.cluster.server.kept_waiters import KeptWaiters
from fairlead.cluster.server.membership import Membership
from fairlead.cluster.server.node_recovery import NodeRecovery
from fairlead.cluster.server.node_service import NodeService
from fairlead.cluster.server.node_watch import NodeWatch
from fairlead.cluster.server.parked import ParkedPrograms, ProgramDevices
from fairlead.cluster.server.pinned_jobs import PinnedJobs
from fairlead.cluster.server.precedence import Yielder
from fairlead.cluster.server.published_views import PublishedViews
from fairlead.cluster.server.report_intake import ReportIntake
from fairlead.cluster.server.restart_costs import (
    AutomaticRound,
    MeasuredStarts,
    RestartCostsOfJobs,
)
from fairlead.cluster.server.retries import Retries
from fairlead.cluster.server.retry_waits import RetryWaits
from fairlead.cluster.server.rollback_detection import RollbackDetector
from fairlead.cluster.server.round_clock import CapacityChecks, RoundClock
from fairlead.cluster.server.round_report import RoundReporter
from fairlead.cluster.server.round_starter import RoundStarter
from fairlead.cluster.server.solve_coordinator import SolveCoordinator
from fairlead.cluster.server.standbys import Standbys
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.cluster.server.view_builders import ViewBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """The parts that handle jobs between their submission and the core."""

    pinned: PinnedJobs
    retry_waits: RetryWaits
    admission: Admission
    retries: Retries


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptParts:
    """The parts by which attempts are ordered, accounted for and ended."""

    starts: MeasuredStarts
    costs: RestartCostsOfJobs
    kept: KeptDevices
    steps: StepAccounting
    orders: AttemptOrders
    notices: JobNotices | None
    ends: AttemptEnds
    standbys: Standbys
    intake: ReportIntake


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """Parts that handle nodes that come and go, and the capacity that the core may use."""

    service: NodeService
    pinning: JobPinning
    watch: NodeWatch
    membership: Membership
    rollback: RollbackDetector


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundParts:
    """The parts by which rounds are decided, started and ended."""

    solves: SolveCoordinator
    starter: RoundStarter
    clock: RoundClock
    backend: LiveBackend
    estimating: EstimatorSession
    renewal: CoreRenewal
    length: AutomaticRound


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewParts:
    """The parts that make the views that people are shown."""

    builder: ViewBuilder
    published: PublishedViews


@dataclass(frozen=True, slots=True, kw_only=True)
class Collaborators:
    """All parts; each works on the same ``ClusterState``."""

    inbox: Inbox
    precedence: Yielder
    commits: CommitLog
    jobs: JobParts
    attempts: AttemptParts
    nodes: NodeParts
    rounds: RoundParts
    view_parts: ViewParts


def collaborators(
    state: ClusterState,
    inbox: Inbox,
    *,
    send_to_front: Callable[[PublishedNodeView | PublishedStatus], None],
    is_stopping: Callable[[], bool],
    is_interrupted: Callable[[], bool],
) -> Collaborators:
    """All parts of a driver. send_to_front: given what the front shall show; is_stopping: whether the server
    ends; is_interrupted: whether the core is to be put together anew, or the server ends."""
    precedence, solves = Yielder(), SolveCoordinator(state, inbox)
    service = NodeService(state, NodeRecovery(state))
    jobs = _job_parts(state, service)
    attempts = _attempt_parts(state, jobs, service)
    nodes = _node_parts(state, inbox, service, jobs, attempts)
    builder = ViewBuilder(
        state,
        admission=jobs.admission,
        pinning=nodes.pinning,
        solves=solves,
        storage=jobs.retries.storage,
    )
    views = ViewParts(builder=builder, published=PublishedViews(state, builder, send_to_front))
    commits = CommitLog(
        state,
        publisher=views.published,
        is_stopping=is_stopping,
        committed=nodes.rollback.publish,
    )
    starter = RoundStarter(
        state,
        orders=attempts.orders,
        steps=attempts.steps,
        pinned=jobs.pinned,
        standbys=attempts.standbys,
    )
    clock = _round_clock(state, precedence, jobs, attempts, nodes)
    backend = LiveBackend(
        state,
        inbox=inbox,
        intake=attempts.intake,
        clock=clock,
        starter=starter,
        solves=solves,
        precedence=precedence,
        settle=jobs.admission.settle,
        commit=commits.commit,
        is_interrupted=is_interrupted,
    )
    estimating = EstimatorSession(state, backend)
    length = AutomaticRound(state, attempts.starts)
    renewal = CoreRenewal(
        state,
        commits=commits,
        estimating=estimating,
        admission=jobs.admission,
        solves=solves,
        restart_s=attempts.starts.restart_s,
        round_s=length.length_s,
    )
    rounds = RoundParts(
        solves=solves,
        starter=starter,
        clock=clock,
        backend=backend,
        estimating=estimating,
        renewal=renewal,
        length=length,
    )
    return Collaborators(
        inbox=inbox,
        precedence=precedence,
        commits=commits,
        jobs=jobs,
        attempts=attempts,
        nodes=nodes,
        rounds=rounds,
        view_parts=views,
    )


def _job_parts(state: ClusterState, service: NodeService) -> JobParts:
    pinned, retry_waits = PinnedJobs(), RetryWaits()
    admission = Admission(state, pinned, retry_waits)
    retries = Retries(
        state, admission=admission, pinned=pinned, status=retry_waits, cordons=service
    )
    return JobParts(pinned=pinned, retry_waits=retry_waits, admission=admission, retries=retries)


def _attempt_parts(state: ClusterState, jobs: JobParts, service: NodeService) -> AttemptParts:
    retries, admission = jobs.retries, jobs.admission
    starts = MeasuredStarts(state)
    costs = RestartCostsOfJobs(state, starts, retries.storage.reasons)
    steps = StepAccounting(state, admission.learn_batch)
    orders = AttemptOrders(state, steps=steps, rates=admission, listener=retries)
    notices, kept = None if state.options.webhook is None else JobNotices(state), KeptDevices(state)
    listeners: tuple[EndListener, ...] = (starts, retries, kept)
    listeners += () if notices is None else (notices,)
    ends = AttemptEnds(state, steps=steps, orders=orders, listeners=listeners)
    standbys = Standbys(state, orders)
    intake = ReportIntake(
        state,
        steps=steps,
        orders=orders,
        ends=ends,
        standbys=standbys,
        training=retries,
        obstacles=service,
    )
    return AttemptParts(
        starts=starts,
        costs=costs,
        kept=kept,
        steps=steps,
        orders=orders,
        notices=notices,
        ends=ends,
        standbys=standbys,
        intake=intake,
    )


def _node_parts(
    state: ClusterState,
    inbox: Inbox,
    service: NodeService,
    jobs: JobParts,
    attempts: AttemptParts,
) -> NodeParts:
    intake, ends = attempts.intake, attempts.ends
    pinning = JobPinning(
        state,
        jobs.pinned,
        steps=attempts.steps,
        orders=attempts.orders,
        ends=ends,
        admission=jobs.admission,
        retry_waits=jobs.retry_waits,
    )
    watch = NodeWatch(
        state,
        service=service,
        pinning=pinning,
        intake=intake,
        ends=ends,
        standbys=attempts.standbys,
        programs=ParkedPrograms(state, attempts.steps),
    )
    rollback = RollbackDetector(state)
    membership = Membership(
        state, inbox=inbox, service=service, intake=intake, ends=ends, rollback=rollback
    )
    return NodeParts(
        service=service,
        pinning=pinning,
        watch=watch,
        membership=membership,
        rollback=rollback,
    )


def _round_clock(
    state: ClusterState,
    precedence: Yielder,
    jobs: JobParts,
    attempts: AttemptParts,
    nodes: NodeParts,
) -> RoundClock:
    return RoundClock(
        state,
        reporter=RoundReporter(state, attempts.steps, attempts.kept),
        steps=attempts.steps,
        nodes=nodes.watch,
        costs=attempts.costs,
        binder=ProgramDevices(state, attempts.starts.can_suspend),
        retries=jobs.retries,
        capacity=CapacityChecks(
            for_waiting=jobs.admission.has_capacity,
            for_misplaced=KeptWaiters(state, jobs.admission.rates).could_run_elsewhere,
        ),
        precede=precedence.take,
    )
