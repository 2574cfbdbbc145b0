"""The source of explanations of jobs, for whom they are told, and the words that they share."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fairlead.cluster.front.recent_results import RecentResults
from fairlead.cluster.server.admission import Admission
from fairlead.cluster.server.attempt_statuses import steps_took_s
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.restart_costs import RestartCostsOfJobs
from fairlead.cluster.server.silence import silence
from fairlead.cluster.server.solve_coordinator import SolveCoordinator
from fairlead.cluster.server.unbooked_ends import unbooked_end

STUCK_S = 30.0  # without a step, and
STUCK_STEPS = 20.0  # as many times what a step takes, after which a job may hang
NAMED = 3  # jobs or nodes that a sentence names
Activity: TypeAlias = Literal[
    "silent", "training", "starting", "stopping", "stuck", "finishing", "ended"
]
# What a device is said to be held for, where the jobs on it do different things.
ACTIVITY_ORDER: tuple["Activity", ...] = (
    "silent",
    "stuck",
    "training",
    "finishing",
    "ended",
    "stopping",
    "starting",
)
_PHRASES: dict[Activity, str] = {
    "silent": "held by {} on nodes that are silent",
    "training": "held by {} in training",
    "starting": "held by {} still starting",
    "stopping": "held by {} told to stop and not ended yet",
    "stuck": "held by {} without a step for long, perhaps hanging",
    "finishing": "held by {} past the last step and not ended yet",
    "ended": "held by {} ended, which is not booked yet",
}
ALLOCATED_TO = "held by "


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The devices on which a job could run, by what is in their way. Each counts once."""

    free: dict[
        str, int
    ]  # accelerator type -> how many of its devices are; types without are left out
    jobs: dict[int, Activity]  # other jobs that hold some, or are to have some -> what they do
    allocated: dict[Activity, "AllocatedDevices"]  # by what those jobs do that hold them
    unusable: dict[str, int]  # state of nodes that may not be used -> their free devices
    usable: dict[str, int]  # accelerator type -> devices of nodes that may be used, free or not

    def has_room(self, devices: int) -> bool:
        """Return whether so many devices of one type are free."""
        return max(self.free.values(), default=0) >= devices


@dataclass(slots=True)
class AllocatedDevices:
    """Devices held by jobs that do the same."""

    devices: int = 0
    jobs: set[int] = field(default_factory=set)
    next: set[int] = field(default_factory=set)  # jobs whose starts wait for these devices


@dataclass(frozen=True, slots=True)
class ExplanationSource:
    """The parts of the server from which explanations are read."""

    state: ClusterState
    admission: Admission
    solves: SolveCoordinator
    costs: RestartCostsOfJobs
    device_uses: RecentResults[DeviceUse]


@dataclass(frozen=True, slots=True)
class Reader:
    """For whom it is told: jobs of other tenants are not named to users."""

    source: ExplanationSource
    tenant: str | None  # None = sees all

    def names(self, jobs: Iterable[int]) -> str:
        """Some jobs in words, a few of them by number."""
        all_ = sorted(jobs)
        seen = [job for job in all_ if self._may_see(job)][:NAMED]
        more = len(all_) - len(seen)
        if not seen:
            return "1 job" if more == 1 else f"{more} jobs"
        names = f"job{'s' * (len(seen) != 1)} {', '.join(map(str, seen))}"
        return f"{names} and {more} more" if more else names

    def _may_see(self, job: int) -> bool:
        row = self.source.state.registry.jobs.get(job)
        return self.tenant is None or (row is not None and row.tenant == self.tenant)


def activity_of(state: ClusterState, attempt: Attempt) -> Activity:
    """Return the present activity of an attempt that has not ended, as far as is known."""
    return "silent" if silence(state, attempt) else last_activity(state, attempt)


def last_activity(state: ClusterState, attempt: Attempt) -> Activity:
    """Return the activity of an attempt that has not ended, as of when its node was last heard of."""
    if attempt.stopping:
        return "ended" if unbooked_end(state.fleet, attempt) else "stopping"
    status = state.fleet.status(attempt.first_node, attempt.key)
    if status is None:
        return "starting"
    if unbooked_end(state.fleet, attempt):
        return "ended"
    if attempt.broken:
        return "stopping"
    if status.state == "ended" or status.completed or status.finishing:
        return "finishing"
    if status.state == "stopping":
        return "stopping"
    if status.stall:
        return "stuck"
    if status.state == "starting":
        return "starting"
    if attempt.row.spec.unmanaged:
        return "training"
    if status.loaded_step < 0:
        return "starting"
    made = status.step - status.loaded_step
    usual_s = steps_took_s(status) / made if made > 0 else 0.0
    if made > 0 and status.step_age_s > max(STUCK_S, STUCK_STEPS * usual_s):
        return "stuck"
    return "training"


def waits_for_devices(state: ClusterState, attempt: Attempt) -> bool:
    """Return whether the node of rank 0 has not confirmed yet that the devices of an attempt are free."""
    status = state.fleet.status(attempt.first_node, attempt.key)
    return status is None or (status.state == "starting" and status.wait_s < 0)


def allocated_to(reader: Reader, jobs: list[int], activity: Activity) -> str:
    """By whom devices are held, in words that begin with ``ALLOCATED_TO``. activity: what these jobs do."""
    several = activity == "training" and len(jobs) > NAMED
    return _PHRASES[activity].format(f"{len(jobs)} jobs" if several else reader.names(jobs))


def count_devices(count: int) -> str:
    """So many devices, in words."""
    return "1 device" if count == 1 else f"{count} devices"


def enumerate_parts(parts: Iterable[str]) -> str:
    """One part or more, joined by commas and an "and"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
