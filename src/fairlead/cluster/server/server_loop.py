"""The driver's thread of the server: core, backend and store, recovered after a crash.

Whoever wants something of it hands a function to ``call``; what that returns is passed on when it is
durable.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypedDict, TypeVar, Unpack

from fairlead.cluster.forecasting.arrivals import RecentSubmissions
from fairlead.cluster.front.messages import PublishedNodeView, PublishedStatus
from fairlead.cluster.server.clock import Clock
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.collaborators import Collaborators, collaborators
from fairlead.cluster.server.decided_shares import DecidedShares
from fairlead.cluster.server.fleet import Fleet, NodeNotices
from fairlead.cluster.server.inbox import PACE_S, Inbox
from fairlead.cluster.server.job_registry import JobRegistry
from fairlead.cluster.server.options import LiveOptions
from fairlead.cluster.server.recovery import recover
from fairlead.cluster.server.view_builders import sample
from fairlead.cluster.store.replaced import ReplacedError
from fairlead.cluster.store.store import Store
from fairlead.errors import FairleadError, StoreError
from fairlead.model.commands import (
    Command,
    EndJobs,
    JobEnd,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsPaused,
    RatesLearned,
    Solved,
)
from fairlead.scheduler import journal
from fairlead.scheduler.driver import drive

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
ENDED = "the server is ending; nothing was changed"


class LoopArguments(TypedDict, total=False):
    """The arguments that a server's loop may be given; each has a default."""

    send_to_front: Callable[
        [NodeNotices | PublishedNodeView | PublishedStatus], None
    ]  # given what the front shall know
    failed: Callable[[BaseException], None]  # told when the driver cannot go on
    clock: Clock  # the cluster's time
    monotonic: Callable[[], float]  # seconds, for leases
    pace_s: float  # least seconds between two commits


class ServerLoop:
    """See the module."""

    def __init__(
        self,
        store: Store,
        options: LiveOptions,
        **given: Unpack[LoopArguments],
    ) -> None:
        inbox = Inbox(given.get("pace_s", PACE_S))
        send_to_front = given.get("send_to_front", _ignore)
        fleet = Fleet(
            lease_s=options.lease_s,
            rate_bound=options.rate_bound,
            monotonic=given.get("monotonic", time.monotonic),
            on_change=inbox.notify,
            shortest_s=options.heartbeat_s,
            send_to_front=send_to_front,
        )
        self.state = ClusterState(
            options=options,
            store=store,
            clock=given.get("clock") or Clock(),
            registry=JobRegistry(),
            fleet=fleet,
            policy=options.policy,
        )
        self.parts: Collaborators = collaborators(
            self.state,
            inbox,
            send_to_front=send_to_front,
            is_stopping=lambda: self._stopping,
            is_interrupted=self._is_interrupted,
        )
        self.recent = RecentSubmissions()  # submissions, for forecasts
        self._observer = CoreObserver(self.state, self.parts)
        self._failed = given.get("failed", _raise)
        self._stopping = False
        self._ended = False  # the driver's thread takes no call any more
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)

    # --- from outside ------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover what there is, then drive."""
        recover(self.state, self.parts)
        self.parts.rounds.solves.solver.start()
        self._thread.start()

    def stop(self) -> None:
        """Commit and end. Jobs go on under their agents for as long as their leases last."""
        self._stopping = True
        self.parts.inbox.put(_nothing)
        self._thread.join()
        self.parts.rounds.solves.solver.stop()

    def call(self, do: Callable[[], _Result]) -> "Future[_Result]":
        """Have something done by the driver's thread; the result comes when it is durable. It can be
        cancelled until that thread begins with it.

        Raises (from the future): StoreError where the server ends, or cannot write."""
        future: Future[_Result] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            if self._ended:
                future.set_exception(StoreError(ENDED))
                return
            try:
                self.parts.commits.answer(future, do())
            except FairleadError as problem:
                future.set_exception(problem)
            except Exception as problem:  # one bad request must not end the server
                _log.exception("a request failed")
                future.set_exception(problem)

        if self.state.commit_error:  # it would wait for nobody knows how long
            future.set_exception(StoreError(self.state.commit_error))
        else:
            self.parts.inbox.put(run)
            if self._ended:  # asked after the put: whoever comes meanwhile is seen here or there
                self.parts.inbox.empty()
        return future

    def listen_to_ends(self, listener: Callable[[EndJobs], None]) -> None:
        """Have somebody told of jobs that leave the core, from the start on."""
        self._observer.end_listeners.append(listener)

    def set_policy(self, policy: str) -> None:
        """Shares are solved for anew, by another policy (the driver's thread)."""
        self.state.policy = policy
        self.state.write(lambda t: t.set_meta("policy", policy))
        self.state.rebuild_due = True

    # --- the driver's thread -----------------------------------------------------------------------

    def _run(self) -> None:
        state, parts = self.state, self.parts
        try:
            parts.commits.publish_recovered()
            while not self._stopping:
                if state.scheduler is None:
                    parts.rounds.backend.next()
                else:
                    core = _TimedCore(state)
                    drive(core, parts.rounds.estimating.backend, (self._observer,))  # type: ignore[arg-type]
                if not self._stopping:
                    parts.rounds.renewal.renew()
            if state.scheduler is not None and not state.halted:
                parts.rounds.renewal.renew()  # so that the next version need not decide as this one did
            parts.commits.commit()
        except BaseException as problem:
            if not isinstance(problem, ReplacedError):  # whoever ends the process says so
                _log.critical("the driver cannot go on", exc_info=problem)
            self._failed(problem)
        finally:
            self._ended = True  # who waits for an answer would wait for ever
            parts.commits.refuse("the server ended before it was written")
            parts.inbox.empty()

    def _is_interrupted(self) -> bool:
        state = self.state
        full = state.segment_records >= state.options.segment_records
        renews = (state.rebuild_due or full) and bool(state.fleet.nodes) and not state.halted
        return self._stopping or renews


class CoreObserver:
    """Sees what the core is told and what it commands: the journal, and whoever follows the core."""

    def __init__(
        self,
        state: ClusterState,
        parts: Collaborators,
        end_listeners: Sequence[Callable[[EndJobs], None]] = (),
    ) -> None:
        """end_listeners: told of jobs that leave the core."""
        self._state = state
        self._parts = parts
        self.end_listeners = list(end_listeners)

    def event(self, event: Event) -> None:
        """Called before the core handles it."""
        self._parts.commits.append(journal.encode(event))
        if isinstance(event, Solved):
            self._state.solving = False
            self._state.capacity_changed = True  # who had no share of the time may have one now
        elif isinstance(event, RatesLearned):
            self._parts.rounds.estimating.learned(event)
        elif isinstance(event, JobsPaused) and not event.paused:
            self._parts.jobs.pinned.resume(event.jobs.tolist())

    def command(self, command: Command) -> None:
        """Called before the backend performs it."""
        self._parts.commits.append(journal.encode(command))
        if isinstance(command, EndJobs):
            self._parts.rounds.estimating.forget(command.jobs.tolist())
            for listener in self.end_listeners:
                listener(command)
            self._state.count_ended([JobEnd(end).name.lower() for end in command.end.tolist()])
        if isinstance(command, StartRound):
            with contextlib.suppress(StoreError):  # a full disk costs a point in a plot, no more
                self._state.store.add_sample(sample(self._state, command))
            self._parts.rounds.estimating.write(command.time_s)
            if (
                self._parts.attempts.starts.is_misjudged()
                or self._parts.rounds.length.is_outdated()
            ):
                self._state.rebuild_due = True


class _TimedCore:
    """The core, with the time that its decisions take. Stands for it in the driver."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def handle(self, event: Event) -> list[Command]:
        """Let the core handle an event; return its commands."""
        state = self._state
        assert state.scheduler is not None
        began = time.perf_counter()
        commands = state.scheduler.handle(event)
        if any(isinstance(command, StartRound) for command in commands):
            state.decide_s = time.perf_counter() - began
            state.counters.round_decision_seconds.observe(state.decide_s)
        if isinstance(event, Solved) or any(isinstance(c, StartRound) for c in commands):
            now, before = state.now_s(), state.decided
            state.decided = DecidedShares.of(state.scheduler, now, state.policy, before)
        return commands


def _ignore(_: object) -> None:
    return None


def _nothing() -> None:
    return None


def _raise(problem: BaseException) -> None:
    raise problem
