"""Notices of what has become of jobs, for the operator's webhook.

A notice is a row of the store. It is written with the commit that makes true what it tells, and deleted once
the receiver has taken it. So a server that is killed anywhere sends it after its next start, perhaps twice.
"""

import logging
import time
from collections.abc import Callable

import msgspec

from fairlead.cluster.protocol.deadlines import standing
from fairlead.cluster.protocol.notices import NotedJob, Notice, NoticeKind
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.store.rows import JobRow

PREFIX = "notice/"  # of the keys of notices among the store's other facts
MAX_WAITING = 10_000  # notices that the receiver has not taken; further ones are dropped
MANY_PREEMPTIONS = 10  # of a job of which a notice tells; the next one after twice as many
_log = logging.getLogger(__name__)


class JobNotices:
    """Notes what people are to be told. On the driver's thread."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._next = 0  # number of the next notice
        self._waiting: set[str] = set()  # keys of those that are not delivered
        self._dropped = 0
        state.note_end = self.job_ended

    def recover(self) -> None:
        """After a restart of the server."""
        self._waiting = {key for key, _ in self._state.store.metas(PREFIX, MAX_WAITING)}
        self._next = max((int(key.removeprefix(PREFIX)) for key in self._waiting), default=0) + 1
        self._next = max(self._next, int(time.time() * 1000))  # above those delivered before

    def job_ended(self, row: JobRow) -> None:
        """A job has ended, as its row says. What still runs of it may save more: it is waited for."""
        if not row.end_noted and not self._state.registry.live.get(row.id):
            self._add("job.ended", row)

    def ended(self, attempt: Attempt, failure: str) -> None:
        """An attempt is over and booked. failure: why it failed, "" = it did not."""
        row = attempt.row
        if attempt.completed() and row.open and not row.end_noted:
            row.end_noted = True  # its row says so when the round ends
            self._state.registry.dirty_jobs.add(row.id)
            self._add("job.ended", row, completed_s=attempt.over_s(self._state.now_s()))
        if not (row.open or row.end_noted or self._state.registry.live.get(row.id)):
            row.end_noted = True
            self._state.registry.dirty_jobs.add(row.id)
            self._add("job.ended", row, steps=attempt.record.to_step)
        if failure and row.open:
            self._add("job.failed", row, failure)
        times, rest = divmod(row.preemptions, MANY_PREEMPTIONS)
        if attempt.is_preempted and row.open and times and not rest and not times & (times - 1):
            self._add("job.preempted", row, f"preempted {row.preemptions} times")

    def note_deadlines(self, has_ended: Callable[[JobRow], bool]) -> None:
        """Of jobs that are past their deadlines and have not ended, once each. has_ended: as people are
        told."""
        for row in past_deadlines(self._state):
            row.deadline_noted = True
            self._state.registry.dirty_jobs.add(row.id)
            if not has_ended(row):
                self._add("job.deadline_missed", row)

    def delivered(self, keys: list[str]) -> None:
        """The receiver has taken these, or they are too old."""
        for key in keys:
            self._waiting.discard(key)
            self._state.write(lambda t, key=key: t.delete_meta(key))  # type: ignore[misc]

    def _add(
        self,
        kind: NoticeKind,
        row: JobRow,
        reason: str = "",
        *,
        completed_s: float | None = None,
        steps: float | None = None,
    ) -> None:
        """completed_s: when the job has completed, if its row does not say so yet. steps: those done, if its
        row is behind."""
        if len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:  # not each of thousands
                _log.error("%d notices for the webhook were dropped: it takes none", self._dropped)
            return
        key = f"{PREFIX}{self._next:015d}"
        notice = Notice(
            id=f"{self._next:015d}",
            kind=kind,
            time_s=time.time(),
            job=_noted(
                row, reason or row.reason, self._state.now_s(), completed_s=completed_s, steps=steps
            ),
        )
        self._next += 1
        self._waiting.add(key)
        text = msgspec.json.encode(notice).decode()
        self._state.write(lambda t: t.set_meta(key, text))


def past_deadlines(state: ClusterState) -> list[JobRow]:
    """Open jobs whose deadlines are past, without those that were noted already. Any thread."""
    now_s = state.now_s()
    return [
        row
        for row in state.registry.jobs.copy().values()
        if row.open and not row.deadline_noted and (row.deadline_s or now_s) < now_s
    ]


def _noted(
    row: JobRow, reason: str, now_s: float, *, completed_s: float | None, steps: float | None
) -> NotedJob:
    done = row.steps if steps is None else steps
    ended_s = row.ended_s if completed_s is None else completed_s
    left_s = None if row.deadline_s is None else row.deadline_s - (ended_s or now_s)
    state = row.state if completed_s is None else "completed"
    return NotedJob(
        id=row.id,
        name=row.name,
        tenant=row.tenant,
        user=row.user,
        state=state,
        reason=reason if completed_s is None else "",
        steps=done if completed_s is None else row.total_steps,
        total_steps=row.total_steps,
        starts=row.starts,
        failures=row.failures,
        preemptions=row.preemptions,
        deadline="" if left_s is None else standing(state, left_s, ended_s is not None, 0.0),
        array=None if row.array < 0 else row.array,
        array_index=None if row.array < 0 else row.array_index,
    )
