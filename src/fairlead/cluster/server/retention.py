"""Removes what has been kept for long enough of jobs that have ended: checkpoints, output, rows.

A thread goes through the ended jobs, some at a time. Of each job its checkpoints go first, then its output,
then its row and those of its attempts, in one transaction with the sums that accounting keeps of them. So
whatever it is killed at, what is left is still known, and is found again in the next turn. What is removed is
written into the audit log before.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fairlead.cluster.folder_removal import remove_folder
from fairlead.cluster.protocol.audit import SERVER_USER, AuditEntry, audit_time, jobs_text
from fairlead.cluster.server.directory_claims import is_within, normal_path
from fairlead.cluster.server.runtime_options import RuntimeOptions
from fairlead.cluster.server.server_loop import ServerLoop
from fairlead.cluster.server.submissions import SubmissionQueue
from fairlead.cluster.store.audit_log import NEVER_ROTATE, AuditLog
from fairlead.cluster.store.ended_jobs import (
    EndedJob,
    ended_jobs,
    has_folder,
    named_directories,
    remove_jobs,
)
from fairlead.cluster.store.metric_store import MetricStore
from fairlead.errors import StoreError

DAY_S = 86_400.0
BATCH = 100  # jobs that are looked at, and removed, at once
PAUSE_S = 0.2  # between two batches
TURN_S = 600.0  # from the end of a turn through all ended jobs to the next, at most
MIN_TURN_S = 1.0  # and at least
PART = 0.25  # of the shortest time that anything is kept
CHECK_S = 30.0  # for the driver's thread to say which jobs it has done with
LOGS = "logs"  # below the state directory
_log = logging.getLogger(__name__)


class Retention:
    """Works on a thread of its own, once something is to be removed."""

    def __init__(self, loop: ServerLoop, submissions: SubmissionQueue, directory: Path) -> None:
        """directory: of the cluster's state."""
        self._loop = loop
        self._submissions = submissions
        self._directory = directory
        self._options = RuntimeOptions()
        self._named: list[str] = []  # directories that jobs have named, as of the last look
        self._audit = AuditLog(directory, NEVER_ROTATE)
        self._news = threading.Event()
        self._closed = threading.Event()
        self._troubles: set[str] = set()  # that have been told
        self._noted: set[tuple[str, int]] = set()  # in the audit log: what is removed of which job
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def keep(self, options: RuntimeOptions) -> None:
        """These options hold from now on."""
        self._options = options
        self._news.set()
        if _removes(options) and not self._thread.is_alive() and not self._closed.is_set():
            self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Begin with nothing more. Storage that hangs is not waited for."""
        self._closed.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._news.clear()
            try:
                self._turn()
            except StoreError as problem:
                self._tell(str(problem))
            except Exception:
                _log.exception("what has been kept for long enough could not be removed")
            self._news.wait(self._interval_s())

    def _interval_s(self) -> float:
        """Seconds from the end of a turn to the next: a part of the shortest time that anything is kept."""
        options = self._options
        kept = (options.keep_ended_jobs, options.keep_logs, options.keep_checkpoints)
        shortest_s = min((days * DAY_S for days in kept if days), default=TURN_S)
        return min(TURN_S, max(shortest_s * PART, MIN_TURN_S))

    def _turn(self) -> None:
        """Go through all jobs that have ended."""
        after = -1
        while _removes(self._options):
            jobs = ended_jobs(self._loop.state.store.path, after, BATCH)
            if not jobs:
                self._remove_searches()
                return
            after = jobs[-1].id
            self.remove_due(jobs)
            if self._closed.wait(PAUSE_S):
                return

    def remove_due(self, jobs: Sequence[EndedJob]) -> None:
        """Remove what has been kept for long enough of these jobs. Raises StoreError."""
        state, options = self._loop.state, self._options
        if state.halted or state.commit_error:
            return
        now_s = state.now_s()
        jobs = self._without_trials_in_use(jobs)

        def due(days: float) -> list[EndedJob]:
            until_s = now_s - days * DAY_S if days else float("-inf")
            return [job for job in jobs if job.ended_s is not None and job.ended_s <= until_s]

        checkpoints, rows = due(options.keep_checkpoints), due(options.keep_ended_jobs)
        outputs = due(options.keep_logs or options.keep_ended_jobs)
        if checkpoints:
            self._named = list(map(normal_path, named_directories(state.store.path)))
        over = self._over({job.id for job in (*checkpoints, *outputs, *rows)})
        left = self._remove_folders(
            "checkpoints", [job for job in checkpoints if job.id in over], self._checkpoints_of
        )
        left |= self._remove_folders(
            "logs", [job for job in outputs if job.id in over], self._output_of
        )
        self._remove_rows([job for job in rows if job.id in over - left])

    def _without_trials_in_use(self, jobs: Sequence[EndedJob]) -> Sequence[EndedJob]:
        """Return the jobs but for trials of searches that go on: they judge others by them. Raises
        StoreError."""
        if all(job.search < 0 for job in jobs):
            return jobs
        go_on = {row.id for row in self._loop.state.store.searches() if not row.settled}
        return [job for job in jobs if job.search not in go_on]

    def _over(self, ids: set[int]) -> set[int]:
        """Those of these jobs that the driver's thread has done with: it writes of them no more, and looks
        for them no more when a server is started."""
        if not ids:
            return set()
        state = self._loop.state

        def find() -> set[int]:
            registry, current = state.registry, state.round
            used = {job for job, _ in registry.dirty_attempts} | registry.dirty_jobs
            used |= registry.jobs.keys() | registry.live.keys()
            used |= set() if current is None else current.attempts.keys()
            open_ = [row for row in registry.jobs.values() if row.open]
            used |= self._loop.parts.jobs.admission.held.needed(open_)
            return ids - used

        try:
            return self._loop.call(find).result(CHECK_S)
        except TimeoutError:
            raise StoreError("retention: the scheduler has too much to do now") from None

    def _remove_folders(
        self,
        what: str,
        jobs: Sequence[EndedJob],
        place_of: Callable[[EndedJob], tuple[Path, str] | None],
    ) -> set[int]:
        """Remove a folder of each of these jobs, where there is one. place_of: the directory that it is in,
        and its name. Returns the jobs of which something may be left."""
        left, found = set[int](), list[tuple[EndedJob, Path, str]]()
        for job in jobs:
            if (place := place_of(job)) is None:
                continue
            try:
                if has_folder(*place):
                    found.append((job, *place))
            except OSError as problem:
                left.add(job.id)
                self._tell(f"{place[0]}: cannot be read ({problem.strerror})")
        condemned = [one for one in found if self._condemn(one[1] / one[2])]
        try:
            self._note_once(f"remove {what}", [job for job, _, _ in condemned])
            gone = {
                job.id
                for job, parent, name in condemned
                if not self._closed.is_set() and self._remove_folder(parent, name)
            }
            self._noted -= {(f"remove {what}", job) for job in gone}
        finally:
            for _, parent, name in condemned:
                self._submissions.release(str(parent / name))
        return left | {job.id for job, _, _ in found} - gone

    def _condemn(self, path: Path) -> bool:
        """Keep new jobs from naming a folder, until it is released. False: an open job has named it."""
        condemned = self._submissions.condemn(str(path))
        if not condemned:
            self._tell(f"{path}: stays, for a job that has not ended names it")
        return condemned

    def _remove_folder(self, parent: Path, name: str) -> bool:
        """Remove a folder. Returns whether it is gone."""
        try:
            remove_folder(parent, name)
        except OSError as problem:
            self._tell(f"{parent / name}: cannot be removed ({problem.strerror or problem})")
            return False
        return True

    def _checkpoints_of(self, job: EndedJob) -> tuple[Path, str] | None:
        """Return where its checkpoints are; None where another job has named their folder, or one in it: it
        is no longer this one's alone."""
        if not job.own_checkpoints:
            return None
        path = Path(job.own_checkpoints)
        own = normal_path(job.own_checkpoints)
        if any(is_within(one, own) for one in self._named):
            return None
        return path.parent, path.name

    def _output_of(self, job: EndedJob) -> tuple[Path, str] | None:
        folder = self._directory / LOGS
        return (folder, str(job.id)) if folder.is_dir() else None

    def _remove_rows(self, jobs: Sequence[EndedJob]) -> None:
        if jobs and not self._closed.is_set():
            self._note("remove jobs", jobs)
            state = self._loop.state
            offset_s = time.time() - state.now_s()
            metrics = MetricStore(self._directory)
            metrics.remove(job.id for job in jobs)
            metrics.close()
            remove_jobs(state.store, jobs, offset_s, state.clock.to_meta())

    def _remove_searches(self) -> None:
        """Remove searches that ended as long ago as jobs may be kept, with their trials; but for the newest,
        for ids go on from it."""
        state, days = self._loop.state, self._options.keep_ended_jobs
        if not days or state.halted or state.commit_error:
            return
        until_s = state.now_s() - days * DAY_S
        rows = state.store.searches()[:-1]
        due = [row for row in rows if row.settled and row.ended_s is not None]
        ids = [row.id for row in due if (row.ended_s or 0.0) <= until_s]
        if ids:
            self._loop.call(lambda: state.write(lambda t: t.delete_searches(ids))).result(CHECK_S)

    def _note_once(self, action: str, jobs: Sequence[EndedJob]) -> None:
        """Do so, but for what is tried again after it failed."""
        new = [job for job in jobs if (action, job.id) not in self._noted]
        self._note(action, new)
        self._noted |= {(action, job.id) for job in new}

    def _note(self, action: str, jobs: Sequence[EndedJob]) -> None:
        """Write into the audit log what is about to be removed. Raises StoreError: then nothing is."""
        if jobs:
            entry = AuditEntry(
                time=audit_time(time.time()),
                user=SERVER_USER,
                source="local",
                action=action.replace(" ", "_"),
                object=jobs_text([job.id for job in jobs]),
                outcome="accepted",
            )
            self._audit.append([entry])

    def _tell(self, trouble: str) -> None:
        """Say once what is wrong."""
        if trouble not in self._troubles:
            self._troubles.add(trouble)
            _log.warning("retention: %s", trouble)


def _removes(options: RuntimeOptions) -> bool:
    """Return whether anything is to be removed at all."""
    return bool(options.keep_ended_jobs or options.keep_logs or options.keep_checkpoints)
