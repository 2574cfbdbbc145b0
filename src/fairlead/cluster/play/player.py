"""Submits the jobs of a plan at their times and follows them until all have ended."""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from fairlead.cluster.play.planned_jobs import PlannedJob, submissions
from fairlead.cluster.protocol.api_models import AttemptView, JobView, Sample, StatusView
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import FairleadError, InputError, RunError
from fairlead.simulator.traces.atomic_write import write_atomically

T = TypeVar("T")
SUBMITTED = (
    "submitted.jsonl"  # in the folder of the run: [job of the trace, job of the cluster] a line
)
RETRY_S = 0.5  # between two tries, while the server does not answer
STOP_S = 0.1  # between two looks whether to stop
POLL_S = 1.0  # between two looks at the jobs
TOLD_S = 5.0  # between two words on how far it is
_AT_ONCE = 8  # questions, at the end


class ClusterClient(Protocol):
    """What is asked of a cluster: see ``http_client.Client``."""

    def submit(self, specs: Sequence[JobSpec], tenant: str = "", key: str = "") -> list[int]:
        """Submit jobs."""

    def status(self) -> StatusView:
        """Return the state of the cluster."""

    def jobs(self, state: str = "", tenant: str = "", after: int = -1) -> list[JobView]:
        """Return a page of jobs."""

    def attempts(self, job: int) -> list[AttemptView]:
        """Return the attempts of a job."""

    def samples(self, since_s: float = 0.0) -> list[Sample]:
        """Return samples of the cluster, one per round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedJobs:
    """What came of it. ids: job of the trace -> job of the cluster; jobs, attempts: by job of the cluster;
    samples: one per round, oldest first; solve_s: of solves that were seen; forgotten: jobs of the trace that
    the server does not know any more."""

    ids: dict[int, int]
    jobs: dict[int, JobView]
    attempts: dict[int, list[AttemptView]]
    samples: list[Sample]
    solve_s: list[float]
    forgotten: list[int]


@dataclass(slots=True, kw_only=True)
class Player:
    """Plays once. began_s: the cluster's time at which the first job is due; key: of this play, so that what
    is submitted again after an interruption is not submitted twice; keep_tenants: submit for the tenants of
    the trace; stop: whether to break off; say: told in words what happens."""

    client: ClusterClient
    folder: Path
    key: str
    began_s: float
    keep_tenants: bool
    stop: Callable[[], bool]
    say: Callable[[str], None]
    _ahead_s: float = field(
        default=0.0, init=False
    )  # of the cluster's clock, over the monotonic one
    _away: bool = field(default=False, init=False)
    _solve_s: list[float] = field(default_factory=list, init=False)
    _told: str = field(default="", init=False)
    _told_s: float = field(default=float("-inf"), init=False)

    def play(self, jobs: Sequence[PlannedJob]) -> PlayedJobs | None:
        """Submit, follow, and return what came of it; None = it was broken off."""
        ids = read_submitted(self.folder)
        self._ahead_s = self._ask(lambda: self.client.status().now_s) - time.monotonic()
        self._check_known(ids, jobs)
        groups = submissions(jobs)
        path = self.folder / SUBMITTED
        with write_atomically(path) as whole:  # without a line that was cut off
            whole.write_text("".join(_line(*both) for both in ids.items()))
        with path.open("a", encoding="utf-8") as file:
            for group in groups:
                if all(int(one.job.id) in ids for one in group):
                    continue
                if not self._wait_until(self.began_s + group[0].at_s):
                    return None
                found = self._submit(group)
                for one, given in zip(group, found, strict=True):
                    ids[int(one.job.id)] = given
                    file.write(_line(int(one.job.id), given))
                file.flush()
                self._progress(f"{len(ids):,} of {len(jobs):,} jobs submitted")
        if not self._follow(ids, len(jobs)):
            return None
        return self._result(ids)

    def _check_known(self, ids: dict[int, int], jobs: Sequence[PlannedJob]) -> None:
        """RunError where the server has other jobs under the ids of those that were submitted, or none of
        them: another state than the one that was played on."""
        if not ids:
            return
        mine = set(ids.values())
        found = {job.id: job.name for job in self._list("", min(mine) - 1) if job.id in mine}
        names = {int(one.job.id): one.spec.name for one in jobs}
        if not found or any(
            found.get(i, names.get(job)) != names.get(job) for job, i in ids.items()
        ):
            raise RunError(
                f"{self.folder}: the server does not have the jobs that were submitted: it has another state"
            )

    def _submit(self, group: Sequence[PlannedJob]) -> list[int]:
        tenant = group[0].job.tenant if self.keep_tenants else ""
        specs = [one.spec for one in group]
        return self._ask(lambda: self.client.submit(specs, tenant, f"{self.key}-{group[0].job.id}"))

    def _wait_until(self, at_s: float) -> bool:
        """Wait until the cluster's clock says so. False = it is to stop."""
        while not self.stop():
            left_s = at_s - (time.monotonic() + self._ahead_s)
            if left_s <= 0:
                return True
            time.sleep(min(left_s, STOP_S))
        return False

    def _follow(self, ids: dict[int, int], n: int) -> bool:
        """Wait until none of the jobs is open. False = it is to stop."""
        mine = set(ids.values())
        while not self.stop():
            status = self._ask(self.client.status)
            if status.solve_s is not None:
                self._solve_s.append(status.solve_s)
            views = self._list("open", min(mine) - 1)
            left = [job for job in views if job.id in mine]
            if not left:
                self.say(f"all {n:,} jobs have ended")
                return True
            running = sum(job.node != "" for job in left)
            self._progress(f"{n - len(left):,} of {n:,} jobs have ended, {running:,} run")
            until = time.monotonic() + POLL_S
            while time.monotonic() < until and not self.stop():
                time.sleep(STOP_S)
        return False

    def _progress(self, what: str) -> None:
        """Say it, unless something was said just now, or the same."""
        now = time.monotonic()
        if what != self._told and now - self._told_s >= TOLD_S:
            self.say(what)
            self._told, self._told_s = what, now

    def _result(self, ids: dict[int, int]) -> PlayedJobs:
        mine = set(ids.values())
        jobs = {job.id: job for job in self._list("", min(mine) - 1) if job.id in mine}
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            found = threads.map(lambda job: self._ask(lambda: self.client.attempts(job)), jobs)
            attempts = dict(zip(jobs, found, strict=True))
        known = {one: given for one, given in ids.items() if given in jobs}
        return PlayedJobs(
            ids=known,
            jobs=jobs,
            attempts=attempts,
            samples=self._ask(lambda: self.client.samples(self.began_s)),
            solve_s=self._solve_s,
            forgotten=sorted(ids.keys() - known.keys()),
        )

    def _list(self, state: str, after: int) -> list[JobView]:
        found: list[JobView] = []
        while page := self._ask(partial(self.client.jobs, state, after=after)):
            found += page
            after = page[-1].id
        return found

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask until the server answers; what it refuses raises InputError. KeyboardInterrupt: it is to stop,
        and the server does not answer."""
        while True:
            try:
                answer = question()
            except InputError:
                raise
            except FairleadError as problem:
                if not self._away:
                    self.say(f"{problem}; trying again")
                self._away = True
                time.sleep(RETRY_S)
                if self.stop():
                    raise KeyboardInterrupt from None
            else:
                self._away = False
                return answer


def _line(job: int, given: int) -> str:
    return f"[{job}, {given}]\n"


def read_submitted(folder: Path) -> dict[int, int]:
    """Return job of the trace -> job of the cluster, of those that were submitted before an interruption. A
    last line that is cut off is left out: its jobs are submitted again, under the same key."""
    path = folder / SUBMITTED
    found: dict[int, int] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            one, given = json.loads(line)
        except ValueError:
            continue
        found[int(one)] = int(given)
    return found
