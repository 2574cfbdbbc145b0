"""The driver's thread of the server: core, backend and store, recovered after a crash.

Whoever wants something of it hands a function to ``call``; what that returns is passed on when it is
durable. A change of the core's make-up (nodes, policy) and every so many records begin a new segment of the
journal: the core is put together anew from its own state, and goes on as whoever replays that segment will.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import numpy as np

import fairlead
from fairlead.cluster.forecasting.arrivals import Recent
from fairlead.cluster.front.metrics import Counters
from fairlead.cluster.server.admission import Admission
from fairlead.cluster.server.attempts import Attempt, JobRegistry
from fairlead.cluster.server.backend import LiveBackend
from fairlead.cluster.server.clock import Clock
from fairlead.cluster.server.estimator_session import EstimatorSession
from fairlead.cluster.server.explain import DeviceUse
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.membership import Membership
from fairlead.cluster.server.published_views import PublishedViews
from fairlead.cluster.server.rates import table_for
from fairlead.cluster.server.recent_results import RecentResults
from fairlead.cluster.server.recovery import recover
from fairlead.cluster.server.restart_costs import RestartCostsOfJobs
from fairlead.cluster.server.retries import Retries
from fairlead.cluster.server.solve_coordinator import SolveCoordinator
from fairlead.cluster.server.standing import DecidedShares
from fairlead.cluster.server.view_builders import sample
from fairlead.cluster.store.rows import JobRow
from fairlead.cluster.store.store import Store, Transaction
from fairlead.errors import FairleadError, StoreError
from fairlead.model.cluster import Cluster, Node
from fairlead.model.commands import (
    Command,
    EndJobs,
    JobEnd,
    Solve,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsPaused,
    JobsSubmitted,
    NodeLost,
    RatesLearned,
    Solved,
)
from fairlead.model.job import JobId, RestartCosts
from fairlead.model.plan import Planner
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.scheduler import journal
from fairlead.scheduler.core.checkpoint import take_checkpoint
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.driver import drive
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.scheduler.setup import (
    Setup,
    build,
    restore,
    traits_of,
)

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
RETRY_S = 0.5  # between attempts to write to a store that fails
MIN_SAMPLES = 20  # starts that must have been measured before their median counts
MISJUDGED_FACTOR = 3.0  # a belief that is wrong by this factor is given up


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How a live cluster works; all times in seconds."""

    policy: str
    profile: MechanismSettings
    catalogue: Throughputs
    nodes: tuple[Node, ...] | None = None  # None: whatever agents register
    prices: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    lease_s: float = 30.0
    heartbeat_s: float = 2.0  # the shortest; see Fleet
    rate_bound: float = 0.01  # drift between the clocks of two machines, relative
    mtbf_s: float = 86400.0  # of a node, as long as nothing is known of it
    solve_limit_s: float = 60.0
    early_s: float = float("inf")  # a round of this age ends where devices are free and jobs wait
    restart_s: float | None = None  # that a start costs, until it is known; None = a guess by round
    checkpoints: str = ""  # directory for those of all jobs; "" = each agent its own
    estimator: str = "oracle"  # of rates; oracle = the catalogue, and what jobs bring along
    segment_records: int = 20_000
    keep_segments: int = 2


class ServerLoop:
    """See the module."""

    def __init__(self, store: Store, options: LiveOptions) -> None:
        self.store = store
        self.options = options
        self.policy = options.policy
        self.clock = Clock()
        self.book = JobRegistry()
        self.admission = Admission(self)
        self.membership = Membership(self)
        self.estimating = EstimatorSession(self, options.estimator)
        self.fleet = Fleet(
            options.lease_s,
            options.rate_bound,
            time.monotonic,
            self._notice,
            options.heartbeat_s,
        )
        self.backend = LiveBackend(
            self.book,
            self.fleet,
            self.clock.now_s,
            self._commit,
            self._ask,
            self._checkpoint_s,
            self._rate,
            self._at_end,
            self._at_stop,
        )
        self.backend.wanted = self._wants
        self.backend.early_s = options.early_s
        self.backend.checkpoints = options.checkpoints
        self.backend.has_room = self.admission.has_room
        self.backend.learn_batch = self.admission.learn_batch
        costs = RestartCostsOfJobs(self)
        self.backend.learn_costs, self.backend.heeds_costs = costs.learned, costs.heeded
        self.retries = self.backend.retries = Retries(self)
        self.backend.watch_nodes = self.membership.watch.look
        self.backend.obstructed = self.membership.watch.obstructed
        self.backend.close_nodes = self.membership.watch.close
        self.backend.detained = self.membership.detained.has
        self.backend.decided = self.membership.detained.decided
        self.solving = SolveCoordinator(self, options.solve_limit_s)
        self.scheduler: Scheduler | None = None
        self.setup: Setup | None = None
        self.trouble = ""  # why nothing can be made durable just now
        self.decide_s: float | None = None
        self.next_job = 0
        self.restarts: deque[float] = deque(maxlen=1000)  # seconds that starts took
        self.keys: dict[str, list[int]] = {}  # of submissions that are not committed yet
        self.counters = Counters()
        self.segment_records = 0  # in the newest segment
        self.journal_records = 0  # in all segments
        self.ended_counts: dict[str, int] = {}  # state -> jobs that ended in it
        self._records: list[bytes] = []
        self._writes: list[Callable[[Transaction], None]] = []
        self._answers: list[tuple[Future[Any], Any]] = []
        self._rebuild = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)
        self.recent = Recent()  # submissions, for forecasts
        self.standing = DecidedShares()  # what the core has decided, for whoever asks
        self.device_uses = RecentResults[DeviceUse](self.fleet.monotonic)  # likewise
        self.at_ends: Callable[[EndJobs], None] = _no_matter  # told of jobs that leave the core
        self.showcase = PublishedViews(self)
        self.failed: Callable[[BaseException], None] = _raise  # told when the driver cannot go on

    # --- from outside ------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover what there is, then drive."""
        recover(self)
        self.solving.solver.start()
        self._thread.start()

    def stop(self) -> None:
        """Commit and end. Jobs go on under their agents for as long as their leases last."""
        self._stopping = True
        self.backend.inbox.put(_nothing)
        self._thread.join()
        self.solving.solver.stop()

    def call(self, do: Callable[[], _Result]) -> "Future[_Result]":
        """Have something done by the driver's thread; the result comes when it is durable."""
        future: Future[_Result] = Future()
        future.set_running_or_notify_cancel()  # a caller who hangs up cannot cancel it any more

        def run() -> None:
            try:
                self._answers.append((future, do()))
            except FairleadError as problem:
                future.set_exception(problem)
            except Exception as problem:  # one bad request must not end the server
                _log.exception("a request failed")
                future.set_exception(problem)

        if self.trouble:  # it would wait for nobody knows how long
            future.set_exception(StoreError(self.trouble))
        else:
            self.backend.inbox.put(run)
        return future

    def write(self, change: Callable[[Transaction], None]) -> None:
        """Have something more written with the next commit (the driver's thread)."""
        self._writes.append(change)

    # --- the driver's thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                if self.scheduler is None:
                    self.backend.next()
                else:
                    drive(_Timed(self), self.estimating.backend, (self,))  # type: ignore[arg-type]
                if not self._stopping:
                    self._take_over()
            if self.scheduler is not None:
                self._take_over()  # so that the next version need not decide as this one did
            self._commit()
        except BaseException as problem:
            _log.critical("the driver cannot go on", exc_info=problem)
            self.failed(problem)

    def _wants(self) -> bool:
        full = self.segment_records >= self.options.segment_records
        return self._stopping or ((self._rebuild or full) and bool(self.fleet.nodes))

    def rebuild(self) -> None:
        """Put the core together anew at the next chance: nodes or policy have changed."""
        self._rebuild = True

    def event(self, event: Event) -> None:
        """An observer of the driver: the journal."""
        self._records.append(journal.encode(event))
        if isinstance(event, Solved):
            self.backend.solving = False
        elif isinstance(event, RatesLearned):
            self.estimating.learned(event)
        elif isinstance(event, JobsPaused) and not event.paused:
            self.membership.detained.let_go(event.jobs.tolist())

    def command(self, command: Command) -> None:
        """An observer of the driver: the journal."""
        self._records.append(journal.encode(command))
        if isinstance(command, EndJobs):
            self.estimating.forget(command.jobs.tolist())
            self.at_ends(command)
            for end in command.end.tolist():
                state = JobEnd(end).name.lower()
                self.ended_counts[state] = self.ended_counts.get(state, 0) + 1
        if isinstance(command, StartRound):
            with contextlib.suppress(StoreError):  # a full disk costs a point in a plot, no more
                self.store.add_sample(sample(self, command))
            self.estimating.write(command.time_s)
            if self.misjudges():
                self.rebuild()

    def set_policy(self, policy: str) -> None:
        """Shares are solved for anew, by another policy."""
        self.policy = policy
        self.write(lambda t: t.set_meta("policy", policy))
        self.rebuild()

    # --- durability ----------------------------------------------------------------------------------

    def _commit(self) -> None:
        book, answers = self.book, self._answers
        self._answers = []
        jobs = list(book.dirty_jobs)
        nodes = {node for stint in book.dirty_stints.values() for node in stint.nodes}
        if self._records or self._writes or book.dirty_jobs or book.dirty_stints:
            if not self._write_until_done():  # nothing of it is durable, so nobody is told of it
                for future, _ in answers:
                    future.set_exception(StoreError(self.trouble))
                return
            book.forget_closed()
            self.keys.clear()
        nodes |= self.fleet.publish()
        self.showcase.publish(jobs, nodes, waits=bool(answers))
        for future, result in answers:
            future.set_result(result)
        self.showcase.publish_rest()

    def _write_until_done(self) -> bool:
        """Is it written? If not, the server ends."""
        while True:
            try:
                with self.counters.commit_seconds.time(), self.store.transaction() as t:
                    self._write_all(t)
                break
            except StoreError as problem:
                if not self.trouble:
                    _log.error("%s; leases go on being renewed", problem)
                self.trouble = str(problem)
                if self._stopping:
                    return False
                self.showcase.show_status()
                time.sleep(RETRY_S)
        self.trouble = ""
        self.segment_records += len(self._records)
        self.journal_records += len(self._records)
        self._records, self._writes = [], []
        return True

    def _write_all(self, t: Transaction) -> None:
        book = self.book
        if self._records:
            t.append(self._records)
        jobs = [book.jobs[job] for job in sorted(book.dirty_jobs) if job in book.jobs]
        t.put_jobs(jobs)
        t.put_stints(book.dirty_stints.values())
        for write in self._writes:
            write(t)
        if book.tenants_changed:
            t.set_meta("tenants", msgspec.json.encode(book.tenants).decode())
            book.tenants_changed = False
        t.set_meta("clock", self.clock.to_meta())

    # --- the core's make-up --------------------------------------------------------------------------

    def _take_over(self) -> None:
        """A new segment: the core anew from its own state, with the nodes and the policy of now."""
        self._rebuild = False
        if not self.fleet.nodes:
            return
        now = self.clock.now_s()
        setup, planner = self._make_setup()
        if self.scheduler is None:
            self.scheduler = build(setup, planner)
            records = [journal.encode(setup)]
        else:
            state = take_checkpoint(self.scheduler)
            self.scheduler = restore(setup, state, planner)
            records = [journal.encode(setup), journal.encode(state)]
        self.setup = setup
        if not self.standing.time_s:  # what was decided before the server was started
            self.standing = DecidedShares.of(self.scheduler, now)
        self.estimating.take_over(self.scheduler, now)
        self.admission.learning = set()
        self.backend.cluster = setup.cluster
        self.backend.ready = True
        self.solving.begin_anew()
        self.write(lambda t: _no_matter(t.new_segment(records)))
        self._commit()
        self.segment_records = len(records)
        self._tell_lost_nodes(now)
        self.admission.refit(now)
        if self.backend.round is None:  # nothing else would make the new core decide
            self.backend.events.append(JobsSubmitted(now, ()))

    def _tell_lost_nodes(self, now: float) -> None:
        """Nodes that were lost before the core knew them."""
        assert self.scheduler is not None
        works = self.scheduler.running.site.works
        for index, node in enumerate(self.scheduler.cluster.nodes):
            mine = works[self.scheduler.cluster.device_node == index]
            if node.name in self.backend.lost_nodes and mine.any():
                self.backend.events.append(NodeLost(now, node.name))

    def _make_setup(self) -> "tuple[Setup, Any]":
        profile, seed = self.options.profile, self.options.seed
        made = registry.make(self.policy, seed=seed, profile=profile.name)
        nodes = sorted(self.fleet.nodes.values(), key=lambda node: node.name)
        cluster = Cluster(
            tuple(Node(n.name, n.accelerator, n.devices) for n in nodes),
            {a: p for a, p in self.options.prices.items() if a in {n.accelerator for n in nodes}},
        )
        current = None if self.scheduler is None else self.scheduler.beliefs.known
        table = table_for(self.options.catalogue, cluster, self.book.jobs, current)
        setup = Setup(
            fairlead.__version__,
            cluster,
            replace(table.on(cluster, profile.scattered), origin="journal"),
            getattr(made, "spec", self.policy),
            profile,
            seed,
            RestartCosts(self.restart_s()),
            overlap_solves=True,
            traits=None if isinstance(made, Planner) else traits_of(made),
        )
        return setup, made

    # --- for the backend -----------------------------------------------------------------------------

    def _ask(self, problem: Solve) -> None:
        self.solving.ask(problem)

    def _notice(self, node: str) -> None:
        self.backend.notice(node)

    def _rate(self, row: JobRow, accelerator: str) -> float:
        return self.admission.rates(row).get(accelerator, 0.0)

    def _checkpoint_s(self, start: Attempt) -> float:
        """How often to save: sqrt(2 x save time x MTBF) of all its nodes together, Young's rule, at most
        3.5 % of the time (CheckFreq's bound)."""
        save_s = max(start.row.save_s, 0.01)
        mtbf_s = self.options.mtbf_s / len(start.nodes)
        return float(max((2 * save_s * mtbf_s) ** 0.5, save_s / 0.035))

    def restart_s(self) -> float:
        """Seconds that a start on other devices costs, as it was measured here: the median of late."""
        if len(self.restarts) >= MIN_SAMPLES:
            return float(np.median(self.restarts))
        if self.setup is not None:
            return self.setup.restart_costs.default_s
        guess_s = self.options.profile.round_s / 360.0
        return guess_s if self.options.restart_s is None else self.options.restart_s

    def misjudges(self) -> bool:
        """Do starts cost so much more or less than the core believes that it has to be told?"""
        if self.setup is None or len(self.restarts) < MIN_SAMPLES:
            return False
        believed_s, measured_s = self.setup.restart_costs.default_s, self.restart_s()
        return not believed_s / MISJUDGED_FACTOR <= measured_s <= believed_s * MISJUDGED_FACTOR

    def _at_stop(self, start: Attempt, failure: str) -> None:
        """Count it, and take note of what the start cost."""
        stint = start.stint
        self.counters.job_failures.inc(bool(failure))
        self.counters.preemptions.inc(start.stopping in ("preempted", "moved"))
        if stint.trained_s is not None:  # its wait for the devices is the end of the job before it
            self.restarts.append(stint.trained_s - stint.began_s)
        self.retries.ended(start, failure)

    def _at_end(self, row: JobRow, now: float) -> None:
        """Finish-time fairness of a job that is about to complete: its JCT over the time that its steps
        would have taken with its part of the cluster to itself (Gavel's rho)."""
        if self.scheduler is None or JobId(row.id) not in self.scheduler.ledger:
            return
        jobs = self.scheduler.ledger.jobs
        at = self.scheduler.ledger.row(JobId(row.id))
        isolated_s = float(jobs.isolated_s[at])
        if jobs.isolated_rate[at] > 0:
            isolated_s += (row.total_steps - jobs.done_then[at]) / jobs.isolated_rate[at]
        if isolated_s > 0:
            row.rho = float((now - row.submitted_s) / isolated_s)


class _Timed:
    """The core, with the time that its decisions take. Stands for it in the driver."""

    def __init__(self, engine: ServerLoop) -> None:
        self.engine = engine

    def handle(self, event: Event) -> list[Command]:
        """As the core does it."""
        engine = self.engine
        assert engine.scheduler is not None
        began = time.perf_counter()
        commands = engine.scheduler.handle(event)
        if any(isinstance(command, StartRound) for command in commands):
            engine.decide_s = time.perf_counter() - began
            engine.counters.round_decision_seconds.observe(engine.decide_s)
        if isinstance(event, Solved) or any(isinstance(c, StartRound) for c in commands):
            engine.standing = DecidedShares.of(engine.scheduler, engine.clock.now_s())
        return commands


def _no_matter(_: object) -> None:
    return None


def _nothing() -> None:
    return None


def _raise(problem: BaseException) -> None:
    raise problem
