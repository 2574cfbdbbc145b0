"""The facade as the front has it: what only the driver knows or may change is asked of its process."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from datetime import date
from math import isfinite
from pathlib import Path
from typing import Any, cast

import msgspec

from fairlead.cluster.front.caller_roles import check_admin
from fairlead.cluster.front.committed_state import CommittedState
from fairlead.cluster.front.compute_turns import TURNS
from fairlead.cluster.front.errors import unpack
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.job_metrics import MetricService
from fairlead.cluster.front.leases import LeaseTable
from fairlead.cluster.front.logs import LogService
from fairlead.cluster.front.messages import (
    Call,
    CallAnswer,
)
from fairlead.cluster.front.own_turns import OwnTurns
from fairlead.cluster.front.rate_limiter import RateLimiter
from fairlead.cluster.front.relay import encode_arguments, signature
from fairlead.cluster.front.time_share import TimeShare
from fairlead.cluster.front.usage_history import UsageHistory
from fairlead.cluster.front.view_cache import ViewCache
from fairlead.cluster.front.visible_tenants import without_others
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.accounting import Grouping, UsageView
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    Comparison,
    DeviceUsageView,
    Explanation,
    JobView,
    NodeView,
    Sample,
    StatusView,
    WhatIf,
)
from fairlead.cluster.protocol.audit import AuditFilter, AuditPage
from fairlead.cluster.protocol.job_search import FoundJobs, JobQuery
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.node_states import suspect_after_s
from fairlead.cluster.protocol.study import SearchView
from fairlead.cluster.store.audit_log import read_audit
from fairlead.cluster.store.backup import backup_age_s, stream
from fairlead.cluster.store.store import NAME
from fairlead.cluster.store.tokens import TokenTable
from fairlead.cluster.store.usage import read_usage, usage_view
from fairlead.errors import StoreError

LIMIT_S = 40.0  # of an answer: longer than the driver itself waits for the disk
FORECAST_TIMEOUT_S = 150.0  # of a forecast
COMMITTED_TIMEOUT_S = 5.0  # of one for which the last commit can stand in
PROMPT_S = 1.0  # of that, unless the driver is known to be alive since
# It has published its status within so long: an idle one does so every 1 to 1.5 s
STATUS_INTERVAL_S = 1.75
SILENT_S = 8.0  # without its status, after which a forecast under way is not waited for
POLL_S = 0.1  # between looks whether it is
METRICS_S = 0.5  # for the driver to say what it counts
WAITING = 48  # calls for which the driver is waited for at once
TURN_TIMEOUT_S = 1.0  # that a further one waits for its turn
MAX_YIELD_S = 2.0  # that a question waits while nodes wait to be told of orders
SUBMISSION_WAIT_S = 0.3  # that a submission does


class DriverSilentError(StoreError):
    """The driver has said nothing for so long that it may stand still."""


class DriverCalls:
    """Calls that wait for the driver. Any thread may call; answers come in on the event loop's."""

    def __init__(self, send: Callable[[Call], None]) -> None:
        self._send = send
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[str, Future[Any]]] = {}
        self._turns = threading.Semaphore(WAITING)

    def begin(self, method: str, *given: Any, **named: Any) -> "tuple[int, Future[Any]]":
        """Ask; the future ends with the result, or with the error that the driver raised."""
        arguments = encode_arguments(method, given, named)
        number = next(self._numbers)
        future: Future[Any] = Future()
        self._waiting[number] = method, future
        self._send(Call(number=number, method=method, arguments=arguments))
        return number, future

    def forget(self, number: int) -> None:
        """Drop a question for whose answer nobody waits any more."""
        self._waiting.pop(number, None)

    def answer(self, answer: CallAnswer) -> None:
        """The driver has answered."""
        method, future = self._waiting.pop(answer.number, ("", None))
        if future is None or not future.set_running_or_notify_cancel():
            return
        if answer.problem is not None:
            future.set_exception(unpack(answer.problem))
            return
        try:
            future.set_result(signature(method).result.decode(answer.result))
        except Exception as problem:
            future.set_exception(problem)

    def call(
        self,
        method: str,
        *given: Any,
        limit_s: float = 0.0,
        hopeless: Callable[[float], bool] | None = None,
        **named: Any,
    ) -> Any:
        """Ask, and wait. Raises StoreError where no answer comes in time: the driver stands still, or has
        too much to do. hopeless: shall no answer be waited for any more, after so many seconds? None: it is,
        up to the limit."""
        with TURNS.waiting():
            may_ask = self._turns.acquire(timeout=TURN_TIMEOUT_S)
        if not may_ask:
            raise StoreError("the scheduler has too much to answer now: try again in a moment")
        number = -1
        limit_s = limit_s or LIMIT_S
        try:
            number, future = self.begin(method, *given, **named)
            with TURNS.waiting():
                return _answer_within(future, limit_s, hopeless)
        except TimeoutError:
            raise StoreError(
                f"no answer from the scheduler within {limit_s:.0f} s; what was asked for may still be done"
            ) from None
        finally:
            self.forget(number)
            self._turns.release()


def _answer_within(
    future: Future[Any], limit_s: float, hopeless: Callable[[float], bool] | None
) -> Any:
    """The result. Raises what the driver raised; where it is not waited for any longer, TimeoutError, or
    DriverSilentError if that is hopeless."""
    if hopeless is None:  # nothing to look for: dozens who looked all the time would be felt
        return future.result(limit_s)
    began = time.monotonic()
    while not future.done():
        waited_s = time.monotonic() - began
        if hopeless(waited_s):
            raise DriverSilentError("the scheduler does not answer now")
        if waited_s >= limit_s:
            raise TimeoutError
        wait([future], min(POLL_S, limit_s - waited_s))
    return future.result()


class RemoteFacade:
    """``facade.Facade``: what is kept here is answered at once, the rest by the driver."""

    def __init__(
        self, calls: DriverCalls, logs: LogService, directory: Path, table: LeaseTable
    ) -> None:
        """directory: of the cluster's state."""
        self._table = table
        self._calls = calls
        self._directory = directory
        self.shown = ViewCache(
            lambda name: _seen(table, name), timeout_s=lambda: suspect_after_s(table.heartbeat_s)
        )
        self._committed = CommittedState(directory, table, self._now_s)
        self._rate_limiter = RateLimiter()
        self._own_turns = OwnTurns()  # for questions, wherever they are answered
        self._local = TimeShare()  # for what is answered here of the driver's questions
        self._logs = logs
        self.job_metrics = MetricService(directory, logs)
        self._driver_metrics = ""
        self.prices: dict[str, float] = {}  # $ per device-hour, by type
        self.usage_history = UsageHistory(time.monotonic)
        self.tokens = TokenTable()

    def authenticate(self, token: str) -> Caller | None:
        """Return the caller with this token; None if there is none."""
        return self.tokens.find(token)

    def log(
        self, caller: Caller, job: int, cursor: str = "", limit: int = 1 << 16
    ) -> tuple[str, str]:
        """Output behind the cursor, and the next cursor."""
        return self._logs.read(caller, job, cursor, limit)

    def usage(self, caller: Caller, job: int) -> list[DeviceUsageView]:
        """Return how busy the devices of a job were, by attempt and rank."""
        self._logs.check_visible(caller, job)
        return self.usage_history.of(job, self._now_s())

    def metrics(self, caller: Caller, job: int, name: str = "") -> list[MetricCurve]:
        """The metrics that a job has reported."""
        return self.job_metrics.read(caller, job, name)

    def searches(self, caller: Caller) -> list[SearchView]:
        """The searches, as the last commit has them."""
        with self._own_turns.turn(), self._local.turn():
            return self._committed.searches(caller)

    def search(self, caller: Caller, search: int) -> SearchView:
        """One of them, with its trials."""
        with self._own_turns.turn(), self._local.turn():
            return self._committed.search(caller, search)

    def search_curves(self, caller: Caller, search: int) -> dict[int, MetricCurve]:
        """The curves of its trials."""
        with self._own_turns.turn(), self._local.turn():
            return self._committed.search_curves(caller, search)

    # --- what is shown without asking the driver ---------------------------------------------------

    def status(self, caller: Caller) -> StatusView:
        """The cluster in one screen."""
        shown = self.shown.status(caller)
        if shown is None:
            shown = self._calls.call("status", caller)
        age_s = backup_age_s(self._directory)  # of now: no commit says that there is a newer one
        return msgspec.structs.replace(shown, backup_age_s=age_s)

    def nodes(self, caller: Caller) -> list[NodeView]:
        """All nodes."""
        return self.shown.nodes(caller)

    def failed_nodes(self, caller: Caller) -> list[NodeView]:
        """Return the nodes that have failed."""
        return self.shown.failed_nodes(caller)

    def samples(self, caller: Caller, since_s: float = 0.0) -> list[Sample]:
        """Over time. To a user, tenants other than their own are ``others``."""
        samples = self._committed.samples(since_s)
        if caller.role == "admin":
            return samples
        return [without_others(sample, caller.tenant) for sample in samples]

    # --- what the driver knows better than the last commit -----------------------------------------

    def jobs(
        self,
        caller: Caller,
        state: str = "",
        tenant: str = "",
        after: int = -1,
        limit: int = 1000,
        array: int | None = None,
    ) -> list[JobView]:
        """Return the jobs in order of id."""
        jobs: list[JobView] = self._best("jobs", caller, state, tenant, after, limit, array=array)
        return jobs

    def find_jobs(self, caller: Caller, query: JobQuery) -> FoundJobs:
        """Return the jobs that a query asks for. Which these are is found here, so that the driver is asked
        for no more than are shown."""
        found = self._committed.find(caller, query, self.shown.displayed_states)
        jobs: list[JobView] = self._best("jobs_of", caller, found.ids) if found.ids else []
        views = {job.id: job for job in jobs}
        return FoundJobs(
            jobs=[views[job] for job in found.ids if job in views],
            found=found.found,
            states=found.states,
            is_cut=found.is_cut,
        )

    def job(self, caller: Caller, job: int) -> JobView:
        """One job."""
        view: JobView = self._best("job", caller, job)
        return view

    def attempts(self, caller: Caller, job: int) -> list[AttemptView]:
        """Its attempts, oldest first."""
        attempts: list[AttemptView] = self._best("attempts", caller, job)
        return attempts

    def explain(self, caller: Caller, job: int) -> Explanation:
        """Its story; without a forecast where the driver does not answer."""
        with self._own_turns.turn():
            self._yield_now()
            if not self.shown.is_stale:
                with contextlib.suppress(StoreError):
                    explanation: Explanation = self._ask_promptly("explain", caller, job)
                    return explanation
            with self._local.turn():
                status = self.shown.status(caller)
                return self._committed.explain(
                    caller, job, self.shown.age_s, "" if status is None else status.unwritable
                )

    def what_if(self, caller: Caller, question: WhatIf) -> Comparison:
        """Return the comparison for a question. Raises StoreError at once where the driver does not answer,
        and soon where it falls silent meanwhile."""
        if not self.shown.is_stale:
            with contextlib.suppress(DriverSilentError):
                answer: Comparison = self._calls.call(
                    "what_if",
                    caller,
                    question,
                    limit_s=FORECAST_TIMEOUT_S,
                    hopeless=self._is_silent,
                )
                return answer
        raise StoreError(
            f"the scheduler has not answered for {self.shown.age_s:.0f} s: ask again when it does"
        )

    def _is_silent(self, waited_s: float) -> bool:
        """Return whether the driver has been silent for so long that no forecast can be expected."""
        del waited_s
        return self.shown.age_s > SILENT_S

    def _best(self, method: str, *given: Any, **named: Any) -> Any:
        """Return the driver's answer, or that of the last commit if the driver does not answer soon."""
        with self._own_turns.turn():
            self._yield_now()
            if not self.shown.is_stale:
                with contextlib.suppress(StoreError):
                    return self._ask_promptly(method, *given, **named)
            with self._local.turn():
                return _aged(getattr(self._committed, method)(*given, **named), self.shown.age_s)

    def _ask_promptly(self, method: str, *given: Any, **named: Any) -> Any:
        """Return the driver's answer. Raises StoreError if it does not answer promptly and may be stuck, or
        does not answer soon."""
        return self._calls.call(
            method, *given, limit_s=COMMITTED_TIMEOUT_S, hopeless=self._may_stand_still, **named
        )

    def _yield_now(self) -> None:
        """Questions share an interpreter with renewals and with the orders of a round: these go first."""
        with TURNS.waiting():
            self._rate_limiter.wait()
        self._yield_to_orders(MAX_YIELD_S)

    def _yield_to_orders(self, timeout_s: float) -> None:
        """Wait until nodes have been told of their orders, for so long at most."""
        until = time.monotonic() + timeout_s
        while self._table.is_pushing() and time.monotonic() < until:
            with TURNS.waiting():
                time.sleep(POLL_S)

    def submit(
        self, caller: Caller, specs: list[JobSpec], tenant: str = "", key: str = ""
    ) -> list[int]:
        """Ids of the jobs, once they are durable."""
        self._yield_to_orders(SUBMISSION_WAIT_S)
        ids: list[int] = self._calls.call("submit", caller, specs, tenant, key)
        return ids

    def _may_stand_still(self, waited_s: float) -> bool:
        return waited_s >= PROMPT_S and self.shown.age_s > STATUS_INTERVAL_S

    def _now_s(self) -> float:
        status = self.shown.status(_FRONT)
        return 0.0 if status is None else status.now_s

    def backup(self, caller: Caller) -> Iterator[bytes]:
        """All of the state as the last commit left it, piece by piece."""
        check_admin(caller)
        return stream(self._directory)

    def audit(
        self, caller: Caller, wanted: AuditFilter, cursor: str = "", limit: int = 1000
    ) -> AuditPage:
        """A page of the audit log."""
        check_admin(caller)
        with self._local.turn():
            return read_audit(self._directory, wanted, cursor, limit)

    def accounting(
        self,
        caller: Caller,
        by: tuple[Grouping, ...] = (),
        since: date | None = None,
        until: date | None = None,
    ) -> UsageView:
        """Device time by groups, as the last commit left it."""
        with self._local.turn():
            usage = read_usage(self._directory / NAME, time.time())
        tenant = None if caller.role == "admin" else caller.tenant
        return usage_view(usage, by, self.prices, since=since, until=until, tenant=tenant)

    def driver_metrics(self) -> str:
        """Return the driver's counters for Prometheus; the last known where it does not answer at once."""
        if self.shown.is_stale:
            return self._driver_metrics
        with contextlib.suppress(StoreError):
            self._driver_metrics = self._calls.call("metrics_text", limit_s=METRICS_S)
        return self._driver_metrics

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_") or method not in vars(Facade):
            raise AttributeError(method)
        return lambda *given, **named: self._calls.call(method, *given, **named)


_FRONT = Caller("front", "", "admin")


def _aged(found: Any, age_s: float) -> Any:
    """Return ``found``, with each view of a job marked as perhaps ``age_s`` seconds old."""
    if isinstance(found, JobView):
        return msgspec.structs.replace(found, age_s=age_s if isfinite(age_s) else None)
    if isinstance(found, list):
        return [_aged(one, age_s) for one in found]
    return found


def _seen(table: LeaseTable, name: str) -> float:
    node = table.nodes.get(name)
    return 0.0 if node is None else node.seen


def facade_of(remote: RemoteFacade) -> Facade:
    """Return the remote facade with the type that its callers use."""
    return cast(Facade, remote)
