"""Submissions of jobs on their way to the disk.

Their rows are written first, and the core hears of the jobs after that: a server that ends in between finds
them when it starts again, as jobs that its core does not know yet. So they can be part of any commit of the
driver's thread, and are taken back where that fails: who was refused may ask again. While that thread is busy
for long (a round of thousands of jobs is decided, written and published in a second or more), a thread of
this module's own writes them by themselves.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.array_tasks import count_tasks, folder_of, tasks_of
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.directory_claims import DirectoryClaims
from fairlead.cluster.server.inbox import Inbox
from fairlead.cluster.server.rates import job_type_of
from fairlead.cluster.store.rows import JobRow, TrialRow
from fairlead.cluster.store.store import Transaction
from fairlead.errors import FairleadError, StoreError

DRIVER_TIMEOUT_S = 0.1  # that a submission waits for the driver's thread
# Likewise, from the end of a round until its orders are published: they shall not wait for people.
ROUND_TIMEOUT_S = 0.35
MAX_JOBS = 1000  # that are written at once beside the driver's thread, which waits for that
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Submission:
    """Jobs that somebody submits together."""

    user: str
    tenant: str
    specs: Sequence[JobSpec]
    key: str  # of this user's submission; the same again submits nothing. "" = none
    ids: "Future[list[int]]" = field(default_factory=Future)  # once they are durable
    asked_s: float = field(default_factory=time.monotonic)
    trial: TrialRow | None = None  # that the one job is, which is written with it
    is_wanted: Callable[[], bool] = lambda: True  # asked when it is about to be written

    @property
    def jobs(self) -> int:
        """Return how many there are: an array is as many as it has tasks."""
        return sum(map(count_tasks, self.specs))


@dataclass(slots=True)
class _Joined:
    """The submissions that are written with the commit under way."""

    rows: list[JobRow] = field(default_factory=list)
    keys: dict[str, list[JobRow]] = field(default_factory=dict)  # key -> the jobs submitted with it
    asked: list[tuple[Submission, list[int]]] = field(
        default_factory=list
    )  # who waits for which ids


class SubmissionQueue:
    """``submit`` and ``withdraw`` from any thread; joins the driver's commits (``commit_log.Joining``)."""

    def __init__(
        self,
        state: ClusterState,
        inbox: Inbox,
        *,
        admit: Callable[[list[JobRow]], None],
        answer: Callable[["Future[Any]", object], None],
        has_ended: Callable[[JobRow], bool],
    ) -> None:
        """admit: takes over new jobs whose rows are durable, on the driver's thread; answer: ends a future
        with a value once what that thread has committed is shown; has_ended: whether a job has, as people
        are told, on any thread."""
        self._state = state
        self._inbox = inbox
        self._admit = admit
        self._answer = answer
        self._waiting: deque[Submission] = deque()
        self._joined = _Joined()
        self._claims = DirectoryClaims(has_ended)
        self._turn = threading.Lock()  # of who gives ids to those that wait
        self._news = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="submissions", daemon=True)

    def start(self) -> None:
        """Once the state is recovered."""
        with self._turn:
            self._claims.add(self._state.registry.jobs.copy().values())
        self._thread.start()

    def close(self) -> None:
        """Write nothing any more. What waits is not answered."""
        self._closed.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, submission: Submission) -> "Future[list[int]]":
        """Have it made durable. Raises StoreError where nothing can be just now."""
        why = self._state.halted or self._state.commit_error
        if why:  # it would wait for nobody knows how long
            raise StoreError(why)
        submission.ids.set_running_or_notify_cancel()  # who hangs up cannot cancel it any more
        self._waiting.append(submission)
        self._inbox.put(_commit_soon)
        self._news.set()
        return submission.ids

    def withdraw(self, submission: Submission) -> bool:
        """Have it forgotten, if nobody has begun to write it. Returns whether that is so."""
        with self._turn:
            if submission not in self._waiting:
                return False
            self._waiting.remove(submission)
            return True

    def condemn(self, directory: str) -> bool:
        """Have no new job name a directory of checkpoints that is about to be removed, until ``release``.
        Returns whether it may be: no open job names it."""
        with self._turn:
            return self._claims.condemn(directory)

    def release(self, directory: str) -> None:
        """It is removed, or stays."""
        with self._turn:
            self._claims.release(directory)

    # --- the driver's thread -----------------------------------------------------------------------

    def collect(self) -> bool:
        """All that wait become part of the commit that is about to be written; returns whether any does."""
        with self._turn:
            while self._waiting:
                submission = self._waiting.popleft()
                try:
                    self._enter(submission)
                except Exception as problem:  # one bad submission must not end the server
                    _refuse(submission, problem)
        return bool(self._joined.asked)

    def write(self, t: Transaction) -> None:
        """Their jobs and keys."""
        t.put_jobs(self._joined.rows)
        for submission, ids in self._joined.asked:
            _put_trial(t, submission, ids)
        for key, rows in self._joined.keys.items():
            t.put_key(key, [row.id for row in rows])

    def committed(self) -> list[int]:
        """They are durable: their jobs take part from now on. Returns the jobs' ids."""
        joined, self._joined = self._joined, _Joined()
        self._admit(joined.rows)
        for submission, ids in joined.asked:
            self._answer(submission.ids, ids)
        return [row.id for row in joined.rows]

    def refuse(self, why: str) -> None:
        """They cannot be written, and their jobs never were; the ids are not given again."""
        joined, self._joined = self._joined, _Joined()
        with self._turn:
            self._claims.remove(joined.rows)
        for submission, _ in joined.asked:
            submission.ids.set_exception(StoreError(why))

    def _enter(self, submission: Submission) -> None:
        joined, key = self._joined, submission.key
        durable = self._durable_ids(submission)
        if durable is not None:
            submission.ids.set_result(durable)
            return
        rows = joined.keys.get(key) if key else None
        if rows is not None:
            joined.asked.append((submission, _ids_of_same(submission, rows)))
            return
        if self._state.halted:  # since it was submitted
            raise StoreError(self._state.halted)
        rows = self._rows(submission)
        joined.rows += rows
        joined.asked.append((submission, [row.id for row in rows]))
        if key:
            joined.keys[key] = rows

    def _durable_ids(self, submission: Submission) -> list[int] | None:
        """The ids of an earlier submission with this key; None = there was none. Raises ConflictError where
        its jobs were others, as far as they have not left the store."""
        state, key = self._state, submission.key
        ids = state.store.key(key) if key else None
        if ids is None:
            return None
        rows = [state.registry.jobs.get(id_) or state.store.job(id_) for id_ in ids]
        known = [row for row in rows if row is not None]
        return ids if len(known) < len(ids) else _ids_of_same(submission, known)

    def _rows(self, submission: Submission) -> list[JobRow]:
        """New jobs, of the next ids. Raises ConflictError where one would save to another's directory,
        InputError where to the server's own; ConflictError for what is not wanted any more."""
        if not submission.is_wanted():
            raise ConflictError("it is not wanted any more")
        state = self._state
        self._claims.check(
            submission.specs, submission.tenant, state.checkpoints, state.store.directory
        )
        now, rows = state.now_s(), list[JobRow]()
        for spec in submission.specs:
            first = self._row(submission, spec, state.next_job + len(rows), now)
            rows += tasks_of(first) if spec.array else [first]
        state.next_job += len(rows)
        self._claims.add(rows)
        return rows

    def _row(self, submission: Submission, spec: JobSpec, id_: int, now: float) -> JobRow:
        trial = submission.trial
        return JobRow(
            id=id_,
            name=spec.name,
            tenant=submission.tenant,
            user=submission.user,
            spec=spec,
            submitted_s=now,
            total_steps=float(spec.total_steps),
            acknowledged_total=float(spec.total_steps),
            rates_family=job_type_of(spec, self._state.options.catalogue).name,
            weight=spec.weight,
            folder=folder_of(id_),
            checkpoints=self._state.checkpoints,
            search=-1 if trial is None else trial.search,
            trial=0 if trial is None else trial.number,
            parameters={} if trial is None else trial.parameters,
        )

    # --- the thread for when that is busy ----------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            self._news.wait()
            self._news.clear()
            while self._waiting and not self._closed.wait(DRIVER_TIMEOUT_S):
                try:
                    self._write_aside()
                except StoreError as problem:
                    _log.error("%s", problem)
                except Exception:
                    _log.exception("submissions could not be written beside the driver's thread")

    def _write_aside(self) -> None:
        """Make durable what has waited for long enough, without the driver."""
        state = self._state
        if (
            state.halted or state.commit_error or state.fleet.hold.until
        ):  # ids depend on agents' words
            return
        with self._turn:
            taken = self._overdue()
            if not taken:
                return
            first = state.next_job
            jobs: dict[Submission, list[JobRow]] = {}
            try:
                for submission in taken:
                    try:
                        jobs[submission] = self._rows(submission)
                    except ConflictError as problem:
                        _refuse(submission, problem)
                self._write(jobs)
            except Exception:  # the driver takes them over when it can, or says what is wrong
                state.next_job = first
                for rows in jobs.values():
                    self._claims.remove(rows)
                self._waiting.extendleft(one for one in reversed(taken) if not one.ids.done())
                raise
            # First: what people ask for next is done behind it.
            self._inbox.put(partial(self._admit, [row for rows in jobs.values() for row in rows]))
        for submission, rows in jobs.items():
            submission.ids.set_result([row.id for row in rows])

    def _overdue(self) -> list[Submission]:
        """Those that have waited for long enough, oldest first; they wait no longer. What has a key
        that is known is left to the driver, and so is what came after it."""
        timeout_s = ROUND_TIMEOUT_S if self._state.fleet.is_deciding else DRIVER_TIMEOUT_S
        until, left = time.monotonic() - timeout_s, MAX_JOBS
        taken: list[Submission] = []
        keys = set[str]()
        while self._waiting and left > 0 and self._waiting[0].asked_s <= until:
            key = self._waiting[0].key
            if key and (key in keys or self._is_known(key)):
                break
            taken.append(self._waiting.popleft())
            keys.add(key)
            left -= taken[-1].jobs
        return taken

    def _is_known(self, key: str) -> bool:
        return key in self._joined.keys or self._state.store.key(key) is not None

    def _write(self, jobs: dict[Submission, list[JobRow]]) -> None:
        with self._state.store.transaction() as t:
            t.put_jobs([row for rows in jobs.values() for row in rows])
            for submission, rows in jobs.items():
                _put_trial(t, submission, [row.id for row in rows])
                if submission.key:
                    t.put_key(submission.key, [row.id for row in rows])
            t.set_meta("clock", self._state.clock.to_meta())


def _put_trial(t: Transaction, submission: Submission, ids: Sequence[int]) -> None:
    """The trial is there if and only if its job is."""
    if submission.trial is not None:
        t.put_trial(replace(submission.trial, job=ids[0]))


def _commit_soon() -> None:
    """The driver's thread commits whenever it has done what it was asked."""


def _ids_of_same(submission: Submission, rows: Sequence[JobRow]) -> list[int]:
    """Ids of the jobs of an earlier submission with its key. Raises ConflictError where they were others."""
    submitted = [row.spec for row in rows if row.array in (-1, row.id)]  # one of each array
    if submitted != list(submission.specs):
        key = submission.key.partition("/")[2]
        raise ConflictError(f"key: {key!r} was used before, for other jobs")
    return [row.id for row in rows]


def _refuse(submission: Submission, problem: Exception) -> None:
    if not isinstance(problem, FairleadError):
        _log.error("a submission failed", exc_info=problem)
    submission.ids.set_exception(problem)
