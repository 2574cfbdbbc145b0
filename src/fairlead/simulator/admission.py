"""Which of the jobs that arrive are let in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import numpy as np

from fairlead.errors import SimulationError
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command, EndJobs, JobEnd
from fairlead.model.events import Event, JobsSubmitted
from fairlead.model.job import Job, JobId
from fairlead.model.third_party import third_party_call
from fairlead.scheduler.driver import Backend


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """The state of the system at one time, as an admission rule is shown it.

    time_s: seconds since the simulation began, >= 0. cluster: every node, failed ones included. jobs: job
    id -> job, of all jobs in the system: running, waiting, and admitted earlier at this same time; read-only.
    """

    time_s: float
    cluster: Cluster
    jobs: Mapping[JobId, Job]


@runtime_checkable
class AdmissionRule(Protocol):
    """Decides at each arrival whether the job is let in. It must be deterministic: a run that is resumed
    asks it again."""

    @property
    def name(self) -> str:
        """Name in reports and errors."""

    def admit(self, job: Job, state: AdmissionState) -> bool:
        """Return whether the job is let in; False refuses it for good. Jobs that arrive at one time are asked
        about one by one."""


class AdmittingBackend:
    """A backend in front of another, which keeps refused jobs from the scheduler."""

    def __init__(self, backend: Backend, admission: AdmissionRule, cluster: Cluster) -> None:
        self.backend = backend
        self.admission = admission
        self.cluster = cluster
        self.refused: list[JobId] = []
        self._jobs: dict[JobId, Job] = {}

    def next(self) -> Event | None:
        """The next event, without the jobs that are refused."""
        event = self.backend.next()
        if not isinstance(event, JobsSubmitted):
            return event
        admitted = tuple(job for job in event.jobs if self._admits(job, event.time_s))
        admitted_ids = {job.id for job in admitted}
        refused = [job.id for job in event.jobs if job.id not in admitted_ids]
        if refused:
            self._refuse(refused, event.time_s)
        return replace(event, jobs=admitted)

    def _admits(self, job: Job, time_s: float) -> bool:
        state = AdmissionState(time_s, self.cluster, MappingProxyType(self._jobs))
        where = f"admission {type(self.admission).__name__} at {time_s:.0f} s: job {job.id}"
        with third_party_call(where, SimulationError):
            admitted: object = self.admission.admit(job, state)
        if not isinstance(admitted, bool | np.bool_):
            raise SimulationError(f"{where}: expected True or False, got {admitted!r:.60}")
        if not admitted:
            return False
        self._jobs[job.id] = job
        return True

    def _refuse(self, jobs: list[JobId], time_s: float) -> None:
        self.refused += jobs
        end = np.full(len(jobs), int(JobEnd.DROPPED))
        ids = np.array(jobs, np.int64)
        self.backend.perform(EndJobs(time_s, ids, end, np.full(len(jobs), time_s)))

    def perform(self, command: Command) -> None:
        """Pass a command on."""
        if isinstance(command, EndJobs):
            for job in command.jobs.tolist():
                self._jobs.pop(JobId(job), None)
        self.backend.perform(command)
