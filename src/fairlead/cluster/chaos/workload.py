"""The jobs that the cluster works on while it is hurt, and what it acknowledged of them."""

import random
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from fairlead.cluster.chaos.cluster import ChaosCluster
from fairlead.cluster.chaos.folders import PYTHON, ClusterFolders
from fairlead.cluster.chaos.job_ledger import (
    Expected,
    check_job,
    read_attempts,
)
from fairlead.cluster.protocol.api_models import JobView
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import FairleadError

OPEN = 11  # jobs in the system ...
# ... and where all are elastic: now few and now many, so that they are resized all the time. They are short:
# one that is alone on its nodes at three deaths of agents would be to blame for these.
OPEN_ELASTIC, OPEN_ELASTIC_S = (2, 4, 6, 3, 5), 4.0
STEP_S = 0.02
STEPS, STEPS_ELASTIC = (60, 900), (100, 500)
RANKS = (1, 1, 1, 1, 2, 2, 4)
NUMBERS = (1, 2, 4)  # of devices, that an elastic job may have
GRACE_S = 3.0
MAX_RETRIES = 1_000  # whatever fails here fails by our own hand
EVALUATES = 0.5  # of those with a lease: they have something to do after their loop
STANDBY = 0.5  # of jobs with a lease: they are prepared where they move to
EVALUATION_S = (0.1, 2.0)
ELASTIC = (
    0.5  # of jobs with a lease and no standby: the policy may decide how many devices they have
)
UNMANAGED = 0.3  # of those of one rank: without a lease


def job_spec(folders: ClusterFolders, name: str, total_steps: int, *, prefork: bool) -> JobSpec:
    """Return a job of one rank that writes down what it does. name: of its ledger."""
    return JobSpec(
        command=(sys.executable, "-m", "fairlead.cluster.chaos.job"),
        total_steps=total_steps,
        rates={"v100": 1 / STEP_S, "k80": 0.5 / STEP_S},
        env={
            "CHAOS_LEDGER": str(folders.ledger / name),
            "CHAOS_CONTROL": str(folders.control),
            "CHAOS_STEP_S": str(STEP_S),
        },
        cwd="/",
        grace_s=GRACE_S,
        max_retries=MAX_RETRIES,
        prefork=prefork,
    )


class JobLoad:
    """A thread that submits jobs as others end. What goes wrong is in ``violation``."""

    def __init__(
        self, cluster: ChaosCluster, rng: random.Random, *, resizing: bool = False
    ) -> None:
        """resizing: all jobs are elastic, few, and longer."""
        self.cluster = cluster
        self.jobs: dict[str, Expected] = {}  # by name, which is the key of the submission too
        self.ids: dict[str, int] = {}  # as acknowledged
        self.refused = 0  # submissions that had to be sent again
        self.violations: list[str] = []
        self._rng = rng
        self._resizing = resizing
        self._is_submitting = True
        self._abandoned = False
        self._submitted_at: dict[str, float] = {}  # monotonic, by name: just before the first try
        self._thread = threading.Thread(target=self._run, name="work")

    def start(self) -> None:
        """Begin to submit."""
        self._thread.start()

    def end(self, *, cancel: bool = False) -> None:
        """Submit no more; what is under way is acknowledged when this returns. abandon: or is given up, as
        the server may never answer again."""
        self._is_submitting, self._abandoned = False, cancel
        self._thread.join()

    def _run(self) -> None:
        try:
            count = 0
            while self._is_submitting:
                view = self._poll()
                if view is not None:
                    count = sum(job.ended_s is None and job.search is None for job in view)
                most = self._most()
                if count < (
                    most if view is not None else 2 * most
                ):  # a server that is away as well
                    self._submit()
                    count += 1
                else:
                    time.sleep(0.2)
        except Exception as problem:
            self.violations.append(f"{type(problem).__name__}: {problem}")

    def _most(self) -> int:
        """Jobs that are to be in the system now."""
        if not self._resizing:
            return OPEN
        return OPEN_ELASTIC[int(time.monotonic() / OPEN_ELASTIC_S) % len(OPEN_ELASTIC)]

    def _poll(self) -> list[JobView] | None:
        """All jobs, if the server answers. More steps than the jobs have made are never counted."""
        try:
            with self.cluster.client() as client:
                views = list(client.all_jobs())
        except FairleadError:
            return None
        for view in views:
            if view.name in self.jobs and view.steps > (most := self._max_steps(view.name)):
                self.violations.append(
                    f"job {view.id}: {view.steps:g} steps counted, {most:g} made"
                )
        return views

    def _max_steps(self, name: str) -> float:
        """Steps that a job can have made. Those of an unmanaged job are its run time, which begins before its
        ledger does: at most the time since its submission."""
        expected = self.jobs[name]
        if expected.unmanaged:
            return (time.monotonic() - self._submitted_at[name]) / expected.step_s
        logs = read_attempts(self.cluster.folders.ledger / name)
        return max(max((log.last for log in logs), default=0), 0)

    def _submit(self) -> None:
        """Submit, with one key, until it is acknowledged."""
        name = f"job-{len(self.jobs)}"
        ranks = self._rng.choice(RANKS)
        resizing = self._resizing
        unmanaged = not resizing and ranks == 1 and self._rng.random() < UNMANAGED
        evaluates = not unmanaged and self._rng.random() < EVALUATES
        standby = not (unmanaged or resizing) and self._rng.random() < STANDBY
        expected = Expected(
            name,
            self._rng.randint(*(STEPS_ELASTIC if resizing else STEPS)),
            STEP_S,
            ranks,
            unmanaged,
            self._rng.uniform(*EVALUATION_S) if evaluates else 0.0,
            standby=standby,
            elastic=resizing or (not unmanaged and not standby and self._rng.random() < ELASTIC),
        )
        spec = self._spec(expected)
        self._submitted_at[name] = time.monotonic()
        self.jobs[name] = expected
        while True:
            try:
                with self.cluster.submitting, self.cluster.client() as client:
                    (self.ids[name],) = client.submit([spec], key=name)
                if self._rng.random() < 0.2:  # the answer may have been lost on its way
                    with self.cluster.submitting, self.cluster.client() as client:
                        again = client.submit([spec], key=name)
                    if again != [self.ids[name]]:
                        self.violations.append(
                            f"{name}: ids {again} and {self.ids[name]} for one key"
                        )
                return
            except FairleadError:
                self.refused += 1
                if self._abandoned:
                    return
                time.sleep(0.2)

    def _spec(self, expected: Expected) -> JobSpec:
        folders = self.cluster.folders
        prefork = self._rng.random() < 0.7
        by_path = not prefork and self._rng.random() < 0.5
        spec = job_spec(folders, expected.name, expected.total_steps, prefork=prefork)
        return msgspec.structs.replace(
            spec,
            command=(PYTHON, *spec.command[1:]) if by_path else spec.command,
            name=expected.name,
            scale_factor=expected.ranks,
            devices=NUMBERS if expected.elastic else (),
            env={
                **spec.env,
                "CHAOS_EVALUATION_S": f"{expected.evaluation_s:.3f}",
                "CHAOS_STANDBY": "1" if expected.standby else "",
            },
            checkpoint_dir=str(folders.checkpoints.folder / expected.name),
            unmanaged=expected.unmanaged,
            keeps_progress=expected.unmanaged,
            standby=expected.standby,
        )

    # --- the end ---------------------------------------------------------------------------------

    def await_jobs(self, limit_s: float) -> None:
        """Wait until all jobs have ended; those that do not in time are in ``violation``."""
        until = time.monotonic() + limit_s
        while (views := self._poll()) is None or any(job.ended_s is None for job in views):
            if time.monotonic() > until:
                left = [job for job in views or () if job.ended_s is None]
                self.violations.extend(
                    f"job {job.id} is {job.state} after {limit_s:.0f} s without faults: {self._why(job)}"
                    for job in left
                )
                self.violations.append(f"by then: {self._situation()}")
                return
            self.cluster.missing()  # takes nodes back that were cordoned meanwhile
            time.sleep(0.2)

    def _why(self, job: JobView) -> str:
        """Return the cluster's explanation of a job that does not end."""
        try:
            with self.cluster.client() as client:
                return client.explain(job.id).why_here or job.reason
        except FairleadError as problem:
            return f"{job.reason} (explain: {problem})"

    def _situation(self) -> str:
        """Return a line on the cluster's round and nodes, as it tells them."""
        try:
            with self.cluster.client() as client:
                status = client.status()
                nodes = [f"{node.name} {node.state} ({node.reason})" for node in client.nodes()]
        except FairleadError as problem:
            return str(problem)
        return f"round {status.round}, solve {status.solve}; {', '.join(nodes)}"

    def check(self, disk_was_full: bool) -> Iterator[str]:
        """Every way in which the jobs are not as they must be."""
        yield from self.violations
        with self.cluster.client() as client:
            own = [view for view in client.all_jobs() if view.search is None]
            views, count = {view.name: view for view in own}, len(own)
            attempts = {name: client.attempts(view.id) for name, view in views.items()}
        if count != len(self.jobs):
            yield f"{len(self.jobs)} jobs were submitted, the server has {count}"
        for name, expected in self.jobs.items():
            view = views.get(name)
            if view is None or view.id != self.ids.get(name):
                yield f"{name} was acknowledged as job {self.ids.get(name)} and is not there"
                continue
            folder = self.cluster.folders.ledger / name
            found = check_job(expected, folder, view, attempts[name], disk_was_full)
            yield from (f"job {view.id} ({name}): {violation}" for violation in found)
