"""Counts of a live cluster, kept as things change: nobody counts 20,000 jobs because a page is open."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.store.rows import ON_DEVICES


class CountedJob(NamedTuple):
    """The part of the counts that an open job adds."""

    tenant: str
    state: str  # of its row
    displayed_state: JobState  # as it is shown: what has ended in the round in force has ended
    weight: float
    devices: int
    unsaved_s: float | None = None  # it runs, and has not saved since then, when a save failed
    deadline_s: float | None = None  # of one that has not ended, as it is shown


class CountedNode(NamedTuple):
    """The part of the counts that a node adds."""

    accelerator: str
    devices: int
    working: int
    allocated: int


@dataclass(slots=True)
class TenantTally:
    """The open jobs of a tenant."""

    states: Counter[str] = field(default_factory=Counter)  # of their rows
    weight: float = 0.0
    devices: int = 0  # of those that run

    @property
    def jobs(self) -> int:
        """Return how many jobs there are."""
        return self.states.total()

    @property
    def running(self) -> int:
        """Return how many of them hold devices."""
        return sum(self.states[state] for state in ON_DEVICES)


class Tally:
    """The counts. ``note_job`` and ``note_node`` replace what one of them adds."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()  # of open jobs, as they are shown
        self.ended: dict[str, int] = {}  # state -> jobs, of the moment of ``states``
        self.tenants: dict[str, TenantTally] = {}
        self.unsaved_since: dict[int, float] = {}  # job that runs -> when its last save failed
        self.displayed: dict[int, JobState] = {}  # open jobs not shown as their rows say
        self._jobs: dict[int, CountedJob] = {}
        self._deadlines: dict[int, float] = {}  # job -> cluster's time
        self._nodes: dict[str, CountedNode] = {}
        self._devices: dict[str, tuple[int, int, int]] = {}

    def note_job(self, number: int, job: CountedJob | None) -> None:
        """The job as it is now; None = it has ended."""
        before = self._jobs.get(number)
        if before == job:  # of most jobs whose rows change no more than their progress
            return
        self.unsaved_since.pop(number, None)
        if job is not None and job.unsaved_s is not None:
            self.unsaved_since[number] = job.unsaved_s
        self.displayed.pop(number, None)
        if job is not None and job.displayed_state != job.state:
            self.displayed[number] = job.displayed_state
        if before is not None:
            del self._jobs[number]
            self._deadlines.pop(number, None)
            self._add(before, -1)
        if job is not None:
            self._jobs[number] = job
            if job.deadline_s is not None:
                self._deadlines[number] = job.deadline_s
            self._add(job, 1)

    def unsaved_s(self, now_s: float) -> float | None:
        """Return for how many seconds saves have failed of the job that has been so for longest; None =
        all jobs can save."""
        since_s = min(list(self.unsaved_since.values()), default=None)
        return None if since_s is None else max(now_s - since_s, 0.0)

    def _add(self, job: CountedJob, sign: int) -> None:
        tenant = self.tenants.setdefault(job.tenant, TenantTally())
        self.states[job.displayed_state] += sign
        tenant.states[job.state] += sign
        tenant.weight += sign * job.weight
        tenant.devices += sign * job.devices * (job.state in ON_DEVICES)
        if not tenant.jobs:
            tenant.weight = 0.0  # without what rounding has left

    def past_deadline(self, now_s: float) -> int:
        """Return how many jobs have not ended and are past their deadlines."""
        return sum(deadline_s < now_s for deadline_s in list(self._deadlines.values()))

    def note_node(self, name: str, node: CountedNode | None) -> None:
        """The node as it is now; None = it is removed."""
        for counted, sign in ((self._nodes.pop(name, None), -1), (node, 1)):
            if counted is not None:
                every, working, allocated = self._devices.get(counted.accelerator, (0, 0, 0))
                self._devices[counted.accelerator] = (
                    every + sign * counted.devices,
                    working + sign * counted.working,
                    allocated + sign * counted.allocated,
                )
        if node is not None:
            self._nodes[name] = node

    @property
    def devices(self) -> dict[str, tuple[int, int, int]]:
        """Accelerator type -> (in all, working, held), of types that there are."""
        return {name: counts for name, counts in sorted(self._devices.items()) if counts[0]}
