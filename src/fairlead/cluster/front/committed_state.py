"""The state of the last commit, read from the database: shown while the driver does not answer."""

import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from fairlead.cluster.front import searches
from fairlead.cluster.front.job_list_index import IdsFound, JobListIndex
from fairlead.cluster.front.leases import LeaseTable
from fairlead.cluster.front.visible_jobs import existing, seen_by, task_ids
from fairlead.cluster.front.visible_tenants import may_see
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    Explanation,
    JobState,
    JobView,
    Sample,
)
from fairlead.cluster.protocol.deadlines import deadline_sentence
from fairlead.cluster.protocol.job_search import JobQuery
from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.node_states import silence_s, suspect_after_s
from fairlead.cluster.protocol.study import SearchView
from fairlead.cluster.store.database import readable, reader
from fairlead.cluster.store.job_views import (
    attempt_views,
    cannot_start,
    job_view,
    reported_so_far,
    story,
    under_way_s,
)
from fairlead.cluster.store.rows import ON_DEVICES, AttemptRow, JobRow
from fairlead.cluster.store.store import Store
from fairlead.model.duration_text import duration

MAX_NAMED = 3  # nodes of a sentence
_SAMPLE = msgspec.msgpack.Decoder(Sample)


class CommittedState:
    """Any thread may ask. Steps of jobs that run are as their nodes told the front."""

    def __init__(self, directory: Path, table: LeaseTable, now_s: Callable[[], float]) -> None:
        """directory: of the cluster's state; now_s: the cluster's time."""
        self._store = Store(directory)
        self._samples_path = directory / "samples.db"
        self._samples: sqlite3.Connection | None = None
        self._opened = False
        self._table = table
        self._now_s = now_s
        self._lock = threading.Lock()
        self._index = JobListIndex(self._steps_now, now_s)

    def jobs(
        self,
        caller: Caller,
        state: str = "",
        tenant: str = "",
        after: int = -1,
        limit: int = 1000,
        array: int | None = None,
    ) -> list[JobView]:
        """Return the jobs as the facade does; believed rates are not known here."""
        if caller.role != "admin":
            if tenant not in ("", caller.tenant):
                return []
            tenant = caller.tenant
        ids = None if array is None else task_ids(array, self._find(caller, array))
        after = after if ids is None else max(after, ids.start - 1)
        below = None if ids is None else ids.stop
        return self._views(self._reading().jobs(state, tenant, after, limit, below))

    def searches(self, caller: Caller) -> list[SearchView]:
        """Return the searches without their trials."""
        return searches.searches(self._reading(), caller)

    def search(self, caller: Caller, search: int) -> SearchView:
        """One search with its trials."""
        return searches.search(self._reading(), caller, search)

    def search_curves(self, caller: Caller, search: int) -> dict[int, MetricCurve]:
        """The curves of its trials."""
        return searches.search_curves(self._reading(), caller, search)

    def jobs_of(self, caller: Caller, ids: list[int]) -> list[JobView]:
        """Those of these jobs that there are and that the caller may see, in order of id."""
        rows = self._reading().jobs_of(ids)
        return self._views([row for row in rows if may_see(caller, row.tenant)])

    def _views(self, rows: list[JobRow]) -> list[JobView]:
        live: dict[int, list[AttemptRow]] = {}
        for attempt in self._reading().open_attempts():
            live.setdefault(attempt.job, []).append(attempt)
        return [self._view(row, live.get(row.id, [])) for row in rows]

    def find(self, caller: Caller, query: JobQuery, displayed: Mapping[int, JobState]) -> IdsFound:
        """Return the ids of the jobs that a query asks for. displayed: state of those that the driver does
        not show as their rows say."""
        if caller.role != "admin":
            if query.tenant not in ("", caller.tenant):
                return IdsFound([], 0, {}, False)
            query = msgspec.structs.replace(query, tenant=caller.tenant)
        if query.array is not None:
            task_ids(query.array, self._find(caller, query.array))
        return self._index.find(self._reading(), query, displayed)

    def job(self, caller: Caller, job: int) -> JobView:
        """One job."""
        row = self._row(caller, job)
        attempts = self._reading().attempts(job)
        open_ = [attempt for attempt in attempts if attempt.ended_s is None]
        return self._view(row, open_)

    def attempts(self, caller: Caller, job: int) -> list[AttemptView]:
        """Its attempts, oldest first."""
        job_row = self._row(caller, job)
        unmanaged = job_row.spec.unmanaged

        def as_now(row: AttemptRow) -> AttemptRow:
            status = self._status(row) if row.ended_s is None else None
            if status is None:
                return row
            return reported_so_far(
                row, status, self._steps(job_row, row, status), unmanaged=unmanaged
            )

        return attempt_views(self._reading().attempts(job), as_now)

    def explain(
        self, caller: Caller, job: int, silent_s: float, unwritable: str = ""
    ) -> Explanation:
        """Its story without a forecast. silent_s: for so long the driver has not answered; unwritable: why
        nothing can be written down just now."""
        view, attempts = self.job(caller, job), self.attempts(caller, job)
        where = f" on {len(view.devices)} x {view.accelerator} of {view.node}" if view.node else ""
        reason = f" ({view.reason})" if view.reason else ""
        facts = (
            "Nothing can be written down just now, so nothing new begins, and ends of attempts are not "
            f"known yet: {unwritable}."
            if unwritable
            else f"The scheduler has not answered for {silent_s:.0f} s.",
            f"As it was written down last, the job is {view.state}{where}{reason}.",
            self._leases(job),
            *filter(None, [deadline_sentence(view)]),
        )
        return Explanation(
            job=view,
            why_here=" ".join(facts),
            facts=facts,
            finish_s=None,
            finish_low_s=None,
            finish_high_s=None,
            forecasts=0,
            attempts=tuple(attempts),
            events=story(view, attempts),
            forecast_kind="none yet",
        )

    def _leases(self, job: int) -> str:
        """A sentence on what runs meanwhile: of a job, or of all where that holds no devices."""
        held = [one for one in self._reading().attempts(job) if one.ended_s is None and one.ordered]
        nodes = {name for one in held for name in one.nodes} or self._table.nodes.keys()
        if why := self._silent(nodes):
            return f"Leases are not renewed there, and what runs saves and ends with them: {why}."
        return "What runs goes on meanwhile: leases are renewed."

    def _silent(self, nodes: Collection[str]) -> str:
        """Which of these nodes do not report to this server; "" = all do. Only these renew leases."""
        now, limit_s = self._table.monotonic(), suspect_after_s(self._table.heartbeat_s)
        silent = []
        for name in sorted(nodes):
            node = self._table.nodes.get(name)
            if node is None or not node.seen:
                silent.append(f"{name} has not registered since the server was started")
            elif now - node.seen > limit_s:
                silent.append(f"{name} has been silent for {duration(now - node.seen)}")
        more = f" and {len(silent) - MAX_NAMED} more" if len(silent) > MAX_NAMED else ""
        return "; ".join(silent[:MAX_NAMED]) + more

    def samples(self, since_s: float) -> list[Sample]:
        """Return the samples from this time on, oldest first."""
        with self._lock, readable(self._samples_path):
            if self._samples is None:
                self._samples = reader(self._samples_path)
            rows = self._samples.execute(
                "SELECT sample FROM samples WHERE time_s >= ? ORDER BY time_s", (since_s,)
            ).fetchall()
        return [_SAMPLE.decode(sample) for (sample,) in rows]

    def _reading(self) -> Store:
        with self._lock:
            if not self._opened:
                self._store.open_for_reading()
                self._opened = True
        return self._store

    def _row(self, caller: Caller, job: int) -> JobRow:
        return existing(job, self._find(caller, job))

    def _find(self, caller: Caller, job: int) -> JobRow | None:
        return seen_by(caller, self._reading().job(job) if 0 <= job < 1 << 62 else None)

    def _view(self, row: JobRow, live: list[AttemptRow]) -> JobView:
        attempt = next((one for one in reversed(live) if one.ordered), None)
        status = None if attempt is None else self._status(attempt)
        obstacle = None
        if attempt is not None and status is not None and status.obstacle:
            obstacle = cannot_start({attempt.node.split(",")[0]: status.obstacle})
        steps, age_s = row.steps, self._progress_age_s(row, attempt, status)
        reason = row.reason if obstacle is None else obstacle
        if age_s is not None and attempt is not None:
            of = f"its steps are of {duration(age_s)} ago"
            reason = "; ".join(filter(None, [reason, self._silent(set(attempt.nodes)), of]))
        if attempt is not None and status is not None and row.state != "completed":
            steps = self._steps(row, attempt, status)
        return job_view(
            row,
            attempt if row.state in ON_DEVICES else None,
            self._now_s(),
            under_way_s=under_way_s(live, self._now_s()),
            state=row.state,
            ended_s=row.ended_s,
            reason=reason,
            steps=steps,
            rates={},
            measured_rate=row.measured_rate,
            measured_on=row.measured_on,
            status=status,
            progress_age_s=age_s,
        )

    def _progress_age_s(
        self, row: JobRow, attempt: AttemptRow | None, status: AttemptStatus | None
    ) -> float | None:
        """Seconds since the steps of a job with devices were counted; None = its node tells of them."""
        if attempt is None or status is not None or row.counted_s is None or not row.open:
            return None
        return max(self._now_s() - row.counted_s, 0.0)

    def _steps(self, row: JobRow, attempt: AttemptRow, status: AttemptStatus) -> float:
        """Steps of the job done by now, as its node told the front: by its run time where that is all that
        is known."""
        if status.loaded_step >= 0:
            return float(min(status.step, row.total_steps))
        gang = len(set(attempt.nodes)) > 1  # whose time counts once all of its ranks run
        if not row.spec.unmanaged or row.tells_steps or not attempt.rate or gang:
            return row.steps
        runs = status.state == "running"
        age_s = min(self._age_s(attempt), silence_s(self._table.heartbeat_s)) if runs else 0.0
        return row.by_time(attempt.from_step, attempt.rate, status.ran_s + age_s)

    def _steps_now(self, row: JobRow, attempt: AttemptRow) -> float:
        """Steps of a job that has devices, done by now as far as the front knows."""
        status = self._status(attempt)
        return row.steps if status is None else self._steps(row, attempt, status)

    def _age_s(self, attempt: AttemptRow) -> float:
        """Seconds since the first node of an attempt was heard of."""
        node = self._table.nodes.get(attempt.node.split(",")[0])
        return (
            0.0 if node is None or not node.seen else max(self._table.monotonic() - node.seen, 0.0)
        )

    def _status(self, attempt: AttemptRow) -> AttemptStatus | None:
        node = self._table.nodes.get(attempt.node.split(",")[0])
        statuses = () if node is None else node.statuses
        return next(
            (h for h in statuses if (h.job, h.attempt) == (attempt.job, attempt.attempt)), None
        )
