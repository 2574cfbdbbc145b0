"""Searches that go on while the cluster is hurt, and the rules that must hold of their trials."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fairlead.cluster.chaos.cluster import ChaosCluster
from fairlead.cluster.chaos.folders import ClusterFolders
from fairlead.cluster.chaos.job import loss_of
from fairlead.cluster.chaos.job_ledger import (
    Expected,
    check_cancelled_job,
    check_job,
    read_attempts,
)
from fairlead.cluster.chaos.workload import STEP_S, job_spec
from fairlead.cluster.protocol.api_models import AttemptView, JobView
from fairlead.cluster.protocol.study import (
    ParameterRange,
    PrunerSpec,
    SearchView,
    StudySpec,
    TrialView,
    best_of,
)
from fairlead.cluster.searching.samplers import SamplerTask, suggest
from fairlead.errors import FairleadError

TRIALS = 9  # of a search
PARALLEL = 3
STEPS = 135  # of a trial
FIRST_RUNG = 15  # steps, after which ASHA stops trials


def make_study(folders: ClusterFolders, name: str, seed: int) -> StudySpec:
    """Return a search whose trials report the loss of a step, and stop early where it is large."""
    return StudySpec(
        metric="loss",
        parameters={"x": ParameterRange("float", low=0.0, high=1.0)},
        job=job_spec(folders, name, STEPS, prefork=True),
        trials=TRIALS,
        parallel=PARALLEL,
        name=name,
        sampler="random",
        seed=seed,
        pruner=PrunerSpec("asha", min_step=FIRST_RUNG),
    )


class SearchLoad:
    """A thread that begins a search whenever the one before it has ended."""

    def __init__(self, cluster: ChaosCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.ids: dict[str, int] = {}  # as acknowledged, by name, which is the key too
        self._rng = rng
        self._seeds: dict[str, int] = {}
        self._is_submitting = True
        self._abandoned = False
        self._faults: list[str] = []
        self._thread = threading.Thread(target=self._run, name="searches")

    def start(self) -> None:
        """Begin to search."""
        self._thread.start()

    def end(self, *, cancel: bool = False) -> None:
        """Begin no more; a search under way goes on. cancel: what is not acknowledged yet is given up."""
        self._is_submitting, self._abandoned = False, cancel
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._is_submitting:
                if all(view.state != "running" for view in self._views() or ()):
                    self._submit()
                time.sleep(0.5)
        except Exception as problem:
            self._faults.append(f"{type(problem).__name__}: {problem}")

    def _views(self) -> list[SearchView] | None:
        """All searches without their trials; None where the server does not answer, or knows of none."""
        try:
            with self.cluster.client() as client:
                return client.searches()
        except FairleadError:
            return None

    def _submit(self) -> None:
        """Begin a search, with one key, until it is acknowledged."""
        name = f"search-{len(self.ids)}"
        self._seeds.setdefault(name, self._rng.randrange(1 << 30))
        while not self._abandoned:
            try:
                with self.cluster.submitting, self.cluster.client() as client:
                    study = make_study(self.cluster.folders, name, self._seeds[name])
                    self.ids[name] = client.search(study, key=name)
                return
            except FairleadError:
                time.sleep(0.2)

    # --- the end ---------------------------------------------------------------------------------

    def await_end(self, limit_s: float) -> None:
        """Wait until all searches have ended; those that do not in time are found by ``check``."""
        until = time.monotonic() + limit_s
        while (views := self._views()) is None or any(view.state == "running" for view in views):
            if time.monotonic() > until:
                self._faults.append(f"searches go on {limit_s:.0f} s after the last fault")
                return
            self.cluster.missing()  # takes nodes back that were cordoned meanwhile
            time.sleep(0.2)

    def check(self, *, disk_was_full: bool, reports_lost: bool) -> Iterator[str]:
        """Every way in which searches are not as they must be. disk_was_full: jobs could not save at times;
        reports_lost: a node lost files, and maybe metrics that it had not passed on."""
        yield from self._faults
        with self.cluster.client() as client:
            found = {view.name: view.id for view in client.searches()}
            if found != self.ids:
                yield f"searches {self.ids} were acknowledged, the server has {found}"
                return
            jobs = list(client.all_jobs())
            for number in self.ids.values():
                checks = SearchChecks(
                    client.search_status(number),
                    {job.id: job for job in jobs if job.search == number},
                    client.attempts,
                    self.cluster.folders.ledger,
                )
                for fault in checks.run(disk_was_full=disk_was_full, reports_lost=reports_lost):
                    yield f"search {number}: {fault}"


class SearchChecks:
    """The checks of one search."""

    def __init__(
        self,
        view: SearchView,
        jobs: Mapping[int, JobView],
        attempts: Callable[[int], list[AttemptView]],
        ledger: Path,
    ) -> None:
        """jobs: of the search, by id; attempts: those of a job; ledger: folder of all ledgers."""
        self._view = view
        self._jobs = jobs
        self._attempts = attempts
        self._ledger = ledger

    def run(self, *, disk_was_full: bool, reports_lost: bool) -> Iterator[str]:
        """Every way in which it is not as it must be; see ``SearchLoad.check``."""
        view = self._view
        if view.state != "completed":
            yield f"is {view.state} ({view.reason})"
        numbers = [trial.number for trial in view.trials]
        if numbers != list(range(TRIALS)) or sum(view.counts.values()) != TRIALS:
            yield f"has the trials {numbers}, counted as {view.counts}"
        if sorted(trial.job for trial in view.trials) != sorted(self._jobs):
            yield f"has the jobs {sorted(self._jobs)}, its trials are others"
            return
        best = best_of(view.study, view.trials)
        if view.best != best:
            yield f"shows {view.best} as its best trial, which is {best}"
        for trial in view.trials:
            for fault in self._check_trial(trial, disk_was_full, reports_lost):
                yield f"trial {trial.number} (job {trial.job}): {fault}"

    def _check_trial(
        self, trial: TrialView, disk_was_full: bool, reports_lost: bool
    ) -> Iterator[str]:
        job = self._jobs[trial.job]
        folder = self._ledger / f"{self._view.name}-{trial.number}"
        ran_as = {log.job for log in read_attempts(folder)}
        if not ran_as <= {trial.job}:
            yield f"ran as the jobs {sorted(ran_as)}"
        if job.trial != trial.number or job.parameters != trial.parameters:
            yield f"its job is trial {job.trial} with {job.parameters}"
        before = [None] * trial.number  # a random sampler looks at how many there are alone
        asked = suggest(SamplerTask(self._view.study, before))  # type: ignore[arg-type]
        if trial.parameters != asked.parameters:
            yield f"has {trial.parameters}, its sampler suggests {asked.parameters}"
        yield from self._check_value(trial, reports_lost)
        yield from self._check_run(trial, job, disk_was_full)

    def _check_value(self, trial: TrialView, reports_lost: bool) -> Iterator[str]:
        if trial.value is not None:
            right = loss_of(float(trial.parameters["x"]), trial.step or 0)
            if trial.value != right:
                yield f"has the value {trial.value} at step {trial.step}, which was {right}"
        if trial.state == "completed" and trial.step != STEPS and not reports_lost:
            yield f"has the value of step {trial.step} of {STEPS}"
        if (trial.state == "failed" and not reports_lost) or trial.state == "stopped":
            yield f"is {trial.state} ({trial.reason})"

    def _check_run(self, trial: TrialView, job: JobView, disk_was_full: bool) -> Iterator[str]:
        expected = Expected(f"{self._view.name}-{trial.number}", STEPS, STEP_S)
        folder = self._ledger / expected.name
        if trial.state == "pruned":
            if job.state != "cancelled":
                yield f"is pruned, and its job {job.state}"
            yield from check_cancelled_job(expected, folder)
        else:
            attempts = self._attempts(job.id)
            yield from check_job(expected, folder, job, attempts, disk_was_full)
