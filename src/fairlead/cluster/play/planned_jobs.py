"""What is to be played: the jobs of a trace, faster and with fewer steps, and when each is submitted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import msgspec

from fairlead.cluster.play.workloads import Workloads
from fairlead.cluster.protocol.access import TENANT
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import check_spec
from fairlead.errors import ConfigError, InputError
from fairlead.model.cluster import Cluster, Locality
from fairlead.model.job import Arrival, Job
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry

MAX_AT_ONCE = 100  # jobs of one submission


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job of the trace. at_s: seconds after the first; arrival: with the steps and the deadline that are
    played."""

    at_s: float
    arrival: Arrival
    spec: JobSpec

    @property
    def job(self) -> Job:
        """The job, with the id that it has in the trace."""
        return self.arrival.job


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayPlan:
    """What is to be played, and on what. jobs: in order of time; table: the rates, of all accelerator types
    that are known; notes: on what of the trace is not played, in sentences."""

    jobs: Sequence[PlannedJob]
    table: Throughputs
    cluster: Cluster
    notes: tuple[str, ...] = ()


def plan_jobs(
    arrivals: Sequence[Arrival],
    rates: Throughputs,
    workloads: Workloads,
    *,
    speed: float,
    scale_steps: float,
) -> list[PlannedJob]:
    """The jobs in order of time. rates: of the accelerator types of the cluster; speed: by how much time
    goes faster between submissions; scale_steps: part of its steps that a job has, at least one.
    ConfigError: there are none."""
    if not arrivals:
        raise ConfigError("there are no jobs to play")
    first_s = arrivals[0].time_s
    return [
        _planned(one, (one.time_s - first_s) / speed, rates, workloads, scale_steps)
        for one in arrivals
    ]


def _planned(
    one: Arrival, at_s: float, rates: Throughputs, workloads: Workloads, scale_steps: float
) -> PlannedJob:
    job = one.job
    row = rates.row(job.job_type)
    assert row is not None  # the trace was checked against the table
    by_type = {
        slot.accelerator: float(rate)
        for slot, rate in zip(rates.slots, rates.rate[row], strict=True)
        if rate > 0 and slot.locality is Locality.CONSOLIDATED
    }
    played = replace(
        job,
        total_steps=float(max(round(job.total_steps * scale_steps), 1)),
        slo_s=None if job.slo_s is None else max(job.slo_s * scale_steps, 1.0),
        duration_s=None,
        adaptation=None,
    )
    spec = workloads.spec_of(played, by_type)
    name = f"{job.job_type.family}-{job.id}"
    return PlannedJob(at_s, Arrival(at_s, played), msgspec.structs.replace(spec, name=name))


def check_jobs(jobs: Sequence[PlannedJob], trace: str) -> None:
    """Raise InputError for what the server would refuse, before anything is submitted. trace: its name."""
    for one in jobs:
        where = f"{trace}: job {one.job.id}"
        if not re.fullmatch(TENANT, one.job.tenant):
            raise InputError(
                f"{where}: tenant: has up to 64 letters, digits, '.', '_' and '-', got {one.job.tenant!r}"
            )
        check_spec(one.spec, where)


def notes_on(arrivals: Sequence[Arrival], policy: str, profile: str) -> list[str]:
    """What of a trace and of the policy of the server cannot be played, in sentences."""
    notes = []
    if adapting := sum(one.job.adaptation is not None for one in arrivals):
        notes.append(f"{adapting:,} jobs that change their batch size keep their first one")
    if registry.make(policy, seed=0, profile=profile).space_sharing:
        notes.append(
            f"policy {policy} shares devices: the server does not know what pairs of these jobs cost each "
            "other, so it makes none"
        )
    return notes


def submissions(jobs: Sequence[PlannedJob]) -> list[list[PlannedJob]]:
    """The jobs in groups that are submitted together: those of one time and tenant."""
    found = []
    for _, same in groupby(jobs, key=lambda one: (one.at_s, one.job.tenant)):
        together = list(same)
        found += [together[at : at + MAX_AT_ONCE] for at in range(0, len(together), MAX_AT_ONCE)]
    return found
