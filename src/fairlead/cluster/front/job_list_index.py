"""All jobs as lists are searched and sorted by: kept beside the driver, which is not asked for thousands.

The rows are those of the last commit. Of them only what has changed since the last look is read again; after
jobs were removed, which jobs there are, too. What the driver shows otherwise than its row says (a job that
has ended in the round in force) it publishes.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, get_args

from fairlead.cluster.front.recent_results import RecentResults
from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.protocol.job_search import JobOrder, JobQuery
from fairlead.cluster.store.removed import REMOVED
from fairlead.cluster.store.rows import ON_DEVICES, OPEN_STATES, AttemptRow, JobRow
from fairlead.cluster.store.store import Store

MAX_ENDED = 20_000  # newest jobs that have ended; older ones are found by their ids alone
_STATE_ORDER = {state: rank for rank, state in enumerate(get_args(JobState))}

StepsNow: TypeAlias = Callable[[JobRow, AttemptRow], float]
_Key: TypeAlias = float | str | tuple[object, ...]


class IndexedJob(NamedTuple):
    """The fields that a job is searched and sorted by."""

    id: int
    name: str  # or its family, where it has none
    tenant: str
    user: str
    state: JobState
    reason: str
    array: int | None  # that it is a task of
    text: str  # in which words are looked for, in lower case
    steps: float
    total_steps: float
    rate: float  # steps/s where it runs; 0 = not known, or it does not run
    deadline_s: float | None  # this and the next: cluster's time
    ended_s: float | None
    place: tuple[str, tuple[int, ...]] | None  # node and devices of one that runs
    running: tuple[JobRow, AttemptRow] | None  # of one that has devices, for its steps of now


class IdsFound(NamedTuple):
    """A page of what was found."""

    ids: list[int]
    found: int
    states: dict[str, int]
    is_cut: bool


class JobListIndex:
    """See the module. Any thread may ask. What was read serves for ten times as long as reading took, a
    second at most."""

    def __init__(
        self,
        steps_now: StepsNow,
        now_s: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        max_ended: int = MAX_ENDED,
    ) -> None:
        """steps_now: steps of a job that has devices; now_s: the cluster's time."""
        self._steps_now = steps_now
        self._now_s = now_s
        self._max_ended = max_ended
        self._recent: RecentResults[list[IndexedJob]] = RecentResults(monotonic)
        self._forget()

    def _forget(self) -> None:
        """Begin anew."""
        self._rows: dict[int, JobRow] = {}  # open jobs
        self._sums: dict[int, bytes] = {}  # of these
        self._attempts: dict[tuple[int, int], AttemptRow] = {}  # open ones
        self._placed: dict[int, AttemptRow] = {}  # job -> the newest of these that was ordered
        self._jobs: dict[int, IndexedJob] = {}
        self._last = -1  # the newest job that was ever read
        self._removed: str | None = None  # what the store told of removals before it was read last
        self._is_cut = False

    def find(self, store: Store, query: JobQuery, displayed: Mapping[int, JobState]) -> IdsFound:
        """Return the ids of the jobs that a query asks for. displayed: state of the jobs that are not shown
        as their rows say. Raises StoreError where the store cannot be read."""
        jobs = self._recent.of("", lambda: self._read_whole(store))
        fits = jobs
        if query.tenant or query.user or query.array is not None:
            fits = [job for job in jobs if _belongs(job, query)]
        for word in query.search.lower().split():
            fits = [job for job in fits if word in job.text or word == str(job.id)]
        states = {job.id: _displayed_state(job, displayed) for job in fits}
        counts: Counter[str] = Counter(states.values())
        if query.state:
            wanted = OPEN_STATES if query.state == "open" else {query.state}
            fits = [job for job in fits if states[job.id] in wanted]
        ids = self._in_order(fits, query, states)
        page = ids[query.offset : query.offset + query.limit]
        return IdsFound(page, len(ids), dict(counts), self._is_cut)

    def _in_order(
        self, jobs: Sequence[IndexedJob], query: JobQuery, states: Mapping[int, JobState]
    ) -> list[int]:
        """Ids, those without a value of what they are sorted by last."""
        key = self._key(query.sort, states)
        known: list[tuple[_Key, int]] = []
        rest: list[int] = []
        for job in jobs:
            value = key(job)
            if value is None:
                rest.append(job.id)
            else:
                known.append((value, job.id))
        known.sort(reverse=query.descending)
        return [*(job for _, job in known), *sorted(rest)]

    def _key(
        self, order: JobOrder, states: Mapping[int, JobState]
    ) -> Callable[[IndexedJob], _Key | None]:
        keys: dict[JobOrder, Callable[[IndexedJob], _Key | None]] = {
            "id": lambda job: job.id,
            "name": lambda job: job.name.lower() or None,
            "tenant": lambda job: job.tenant.lower(),
            "state": lambda job: _STATE_ORDER[states[job.id]],
            "place": lambda job: job.place,
            "progress": lambda job: self._steps(job) / max(job.total_steps, 1.0),
            "left": self._left_s,
            "deadline": self._deadline_left_s,
            "reason": lambda job: job.reason.lower() or None,
        }
        return keys[order]

    def _steps(self, job: IndexedJob) -> float:
        return job.steps if job.running is None else self._steps_now(*job.running)

    def _left_s(self, job: IndexedJob) -> float | None:
        return max(job.total_steps - self._steps(job), 0.0) / job.rate if job.rate > 0 else None

    def _deadline_left_s(self, job: IndexedJob) -> float | None:
        if job.deadline_s is None:
            return None
        return job.deadline_s - (self._now_s() if job.ended_s is None else job.ended_s)

    # --- reading, by one thread at a time ------------------------------------------------------------

    def _read_whole(self, store: Store) -> list[IndexedJob]:
        """All jobs, as of the last commit. What was read in part when the store failed is read again."""
        try:
            return self._read(store)
        except Exception:
            self._forget()
            raise

    def _read(self, store: Store) -> list[IndexedJob]:
        """All jobs, as of the last commit."""
        removed, last = store.meta(REMOVED), store.last_job()  # before what they are about
        if self._last < 0 or removed != self._removed:
            self._match_ended(store)
            self._last = max(self._last, last)
        sums = store.open_job_sums()
        placed = self._read_attempts(store)
        changed = {job for job, checksum in sums.items() if self._sums.get(job) != checksum}
        closed = self._sums.keys() - sums.keys()
        newest = max(sums, default=-1)
        newer = [row for row in store.jobs(after=self._last, limit=1 << 30) if not row.open]
        known = store.jobs_of(sorted(changed | closed))
        for job in (changed | closed) - {row.id for row in known}:  # removed since the last look
            self._rows.pop(job, None)
            self._jobs.pop(job, None)
        for row in (*known, *newer):
            self._keep(row)
        self._sums = {job: checksum for job, checksum in sums.items() if job in self._rows}
        for job in (changed | placed) & self._rows.keys():
            self._jobs[job] = self._indexed(self._rows[job])
        self._last = max([self._last, newest, *(row.id for row in newer)])
        self._removed = removed
        self._forget_oldest()
        return list(self._jobs.values())

    def _match_ended(self, store: Store) -> None:
        """Keep the newest of the jobs that have ended, as many as may be, and no others."""
        newest = store.newest_ended_jobs(self._max_ended + 1)
        self._is_cut = len(newest) > self._max_ended
        there, known = set(newest[: self._max_ended]), self._jobs.keys() - self._rows.keys()
        for job in known - there:
            del self._jobs[job]
        for row in store.jobs_of(sorted(there - known)):
            self._keep(row)

    def _keep(self, row: JobRow) -> None:
        if row.open:
            self._rows[row.id] = row
            return
        self._rows.pop(row.id, None)
        self._jobs[row.id] = self._indexed(row)

    def _read_attempts(self, store: Store) -> set[int]:
        """Read the open attempts; returns the jobs of which they are others than before."""
        keys = store.open_attempt_keys()
        known = {key: row for key in keys if (row := self._attempts.get(key)) and row.ordered}
        fresh = [key for key in keys if key not in known]
        gone = self._attempts.keys() - set(keys)
        read = {(row.job, row.attempt): row for row in store.attempts_of(fresh)}
        self._attempts = {key: row for key in keys if (row := known.get(key) or read.get(key))}
        self._placed = {row.job: row for row in self._attempts.values() if row.ordered}
        return {job for job, _ in (*gone, *fresh)}

    def _forget_oldest(self) -> None:
        ended = len(self._jobs) - len(self._rows)
        if ended <= self._max_ended:
            return
        self._is_cut = True
        old = sorted(self._jobs.keys() - self._rows.keys())[: ended - self._max_ended]
        for job in old:
            del self._jobs[job]

    def _indexed(self, row: JobRow) -> IndexedJob:
        attempt = self._placed.get(row.id) if row.state in ON_DEVICES else None
        family, node, accelerator, rate = row.spec.family, "", "", 0.0
        if attempt is not None:
            node, accelerator = attempt.node, attempt.accelerator
            rate = row.measured_rate or row.spec.rates.get(accelerator, 0.0)
        words = (row.name, row.user, row.tenant, family, accelerator, node, row.reason)
        return IndexedJob(
            id=row.id,
            name=row.name or family,
            tenant=row.tenant,
            user=row.user,
            state=row.state,
            reason=row.reason,
            array=row.array,
            text="\n".join(words).lower(),
            steps=row.steps,
            total_steps=row.total_steps,
            rate=rate,
            deadline_s=row.deadline_s,
            ended_s=row.ended_s,
            place=None if attempt is None else (node, attempt.devices),
            running=None if attempt is None else (row, attempt),
        )


def _belongs(job: IndexedJob, query: JobQuery) -> bool:
    is_task = query.array in (None, job.array)
    return is_task and query.tenant in ("", job.tenant) and query.user in ("", job.user)


def _displayed_state(job: IndexedJob, displayed: Mapping[int, JobState]) -> JobState:
    return displayed.get(job.id, job.state) if job.state in OPEN_STATES else job.state
