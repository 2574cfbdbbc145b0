"""The parts of the driver, put together in the order in which one needs the other."""

from collections.abc import Callable
from dataclasses import dataclass

from fairlead.cluster.front.messages import ShownNode, ShownStatus
from fairlead.cluster.server.admission import Admission
from fairlead.cluster.server.attempt_ends import AttemptEnds
from fairlead.cluster.server.attempt_orders import AttemptOrders
from fairlead.cluster.server.backend import LiveBackend
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.commit_log import CommitLog
from fairlead.cluster.server.core_renewal import CoreRenewal
from fairlead.cluster.server.detained import Detention
from fairlead.cluster.server.detained_jobs import DetainedJobs
from fairlead.cluster.server.estimator_session import EstimatorSession
from fairlead.cluster.server.held_jobs import HeldJobs
from fairlead.cluster.server.inbox import Inbox
from fairlead.cluster.server.membership import Membership
from fairlead.cluster.server.node_recovery import NodeRecovery
from fairlead.cluster.server.node_service import NodeService
from fairlead.cluster.server.node_watch import NodeWatch
from fairlead.cluster.server.precedence import Yielder
from fairlead.cluster.server.published_views import PublishedViews
from fairlead.cluster.server.report_intake import ReportIntake
from fairlead.cluster.server.restart_costs import MeasuredStarts, RestartCostsOfJobs
from fairlead.cluster.server.retries import Retries
from fairlead.cluster.server.round_clock import RoundClock
from fairlead.cluster.server.round_report import RoundReporter
from fairlead.cluster.server.round_starter import RoundStarter
from fairlead.cluster.server.solve_coordinator import SolveCoordinator
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.cluster.server.view_builders import ViewBuilder


@dataclass(frozen=True, slots=True)
class Collaborators:
    """All parts; each works on the same ``ClusterState``."""

    inbox: Inbox
    precedence: Yielder
    detained: DetainedJobs
    admission: Admission
    service: NodeService
    retries: Retries
    starts: MeasuredStarts
    costs: RestartCostsOfJobs
    steps: StepAccounting
    orders: AttemptOrders
    ends: AttemptEnds
    intake: ReportIntake
    detention: Detention
    watch: NodeWatch
    membership: Membership
    solves: SolveCoordinator
    starter: RoundStarter
    clock: RoundClock
    viewer: ViewBuilder
    views: PublishedViews
    commits: CommitLog
    backend: LiveBackend
    estimating: EstimatorSession
    renewal: CoreRenewal


def collaborators(
    state: ClusterState,
    inbox: Inbox,
    *,
    tell: Callable[[ShownNode | ShownStatus], None],
    is_stopping: Callable[[], bool],
    is_interrupted: Callable[[], bool],
) -> Collaborators:
    """All parts of a driver. tell: given what the front shall show; is_stopping: whether the server ends;
    is_interrupted: whether the core is to be put together anew, or the server ends."""
    detained, held, precedence = DetainedJobs(), HeldJobs(), Yielder()
    admission = Admission(state, detained, held)
    service = NodeService(state, NodeRecovery(state))
    retries = Retries(state, admission=admission, detained=detained, held=held, cordons=service)
    starts, costs = MeasuredStarts(state), RestartCostsOfJobs(state)
    steps = StepAccounting(state, admission.learn_batch)
    orders = AttemptOrders(state, steps=steps, rates=admission, listener=retries)
    ends = AttemptEnds(state, steps=steps, orders=orders, listeners=(starts, retries))
    intake = ReportIntake(
        state, steps=steps, orders=orders, ends=ends, training=retries, obstacles=service
    )
    detention = Detention(
        state,
        detained,
        steps=steps,
        orders=orders,
        ends=ends,
        admission=admission,
        held=held,
    )
    watch = NodeWatch(state, service=service, detention=detention, intake=intake, ends=ends)
    membership = Membership(state, inbox=inbox, service=service, intake=intake, ends=ends)
    solves = SolveCoordinator(state, inbox)
    starter = RoundStarter(state, orders=orders, steps=steps, detained=detained)
    clock = RoundClock(
        state,
        reporter=RoundReporter(state, steps),
        steps=steps,
        nodes=watch,
        costs=costs,
        retries=retries,
        has_room=admission.has_room,
        precede=precedence.take,
    )
    viewer = ViewBuilder(state, admission=admission, detention=detention, solves=solves)
    views = PublishedViews(state, viewer, tell)
    commits = CommitLog(state, publisher=views, is_stopping=is_stopping)
    backend = LiveBackend(
        state,
        inbox=inbox,
        intake=intake,
        clock=clock,
        starter=starter,
        solves=solves,
        precedence=precedence,
        commit=commits.commit,
        is_interrupted=is_interrupted,
    )
    estimating = EstimatorSession(state, backend)
    renewal = CoreRenewal(
        state,
        commits=commits,
        estimating=estimating,
        admission=admission,
        solves=solves,
        restart_s=starts.restart_s,
    )
    return Collaborators(
        inbox=inbox,
        precedence=precedence,
        detained=detained,
        admission=admission,
        service=service,
        retries=retries,
        starts=starts,
        costs=costs,
        steps=steps,
        orders=orders,
        ends=ends,
        intake=intake,
        detention=detention,
        watch=watch,
        membership=membership,
        solves=solves,
        starter=starter,
        clock=clock,
        viewer=viewer,
        views=views,
        commits=commits,
        backend=backend,
        estimating=estimating,
        renewal=renewal,
    )
