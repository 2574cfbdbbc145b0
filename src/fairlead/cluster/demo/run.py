"""Run the demonstration on a cluster that is up, and sum up what it has shown."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.cluster.demo.jobs import JOBS, Family
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    JobView,
    StatusView,
    TenantView,
)
from fairlead.cluster.protocol.attempt_end import PREEMPTIONS
from fairlead.errors import FairleadError

POLL_S = 0.25  # between two looks at the cluster
LIMIT_S = 110.0  # something is wrong if it takes longer
# The parts of what an attempt costs beside training.
PARTS = ("wait_s", "start_s", "load_s", "save_s", "stop_s")

Watch = Callable[[StatusView, list[JobView]], None]


@dataclass
class DemoSummary:
    """The outcome of the demonstration. All lists in order of job ids."""

    seconds: float
    jobs: list[JobView]
    attempts: list[AttemptView]
    tenants: tuple[TenantView, ...]
    promised: dict[str, float]  # tenant -> part of the device time, while it was handed out

    @property
    def preempted(self) -> list[AttemptView]:
        """Attempts that ended because the scheduler wanted it so."""
        return [attempt for attempt in self.attempts if attempt.end in PREEMPTIONS]

    def mean_s(self, part: str, attempts: Iterable[AttemptView]) -> float | None:
        """Mean seconds of one of ``PARTS`` where it is known; None = nowhere."""
        known = [getattr(attempt, part) for attempt in attempts if getattr(attempt, part) >= 0]
        return sum(known) / len(known) if known else None


@dataclass
class PromisedShares:
    """The parts of the device time that tenants were promised, over all looks, weighted by what was held."""

    promised: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add_interval(self, status: StatusView, lasted_s: float) -> None:
        """Take note of it."""
        allocated = sum(allocated for _, _, allocated in status.devices.values())
        for tenant in status.tenants:
            self.promised[tenant.name] += tenant.share_promised * allocated * lasted_s

    def shares(self) -> dict[str, float]:
        """Tenant -> part of all."""
        in_all = sum(self.promised.values()) or 1.0
        return {name: part / in_all for name, part in self.promised.items()}


def play(
    client: Client,
    checkpoints: Path,
    watch: Watch,
    broken: Callable[[], str],
    plan: Sequence[tuple[float, Family, float]] = JOBS,
) -> DemoSummary:
    """Submit the jobs when their time has come, watch until all have ended.

    checkpoints: a directory for them; watch: told of every look; broken: the name of a process of the
    cluster that has ended, "" = none; plan: as ``JOBS``. Raises FairleadError if one has, or if the jobs
    take too long.
    """
    began = polled = time.monotonic()
    promised_shares, ids, left = PromisedShares(), [], list(enumerate(plan))
    while True:
        while left and left[0][1][0] <= time.monotonic() - began:
            number, (_, family, work_s) = left.pop(0)
            ids += client.submit([family.job(number, work_s, checkpoints)], tenant=family.tenant)
        status, jobs = client.status(), client.jobs()
        now = time.monotonic()
        promised_shares.add_interval(status, now - polled)
        polled = now
        watch(status, jobs)
        if not left and all(job.ended_s is not None for job in jobs):
            break
        if name := broken():
            raise FairleadError(f"{name}: ended by itself")
        if now - began > LIMIT_S:
            raise FairleadError(f"the jobs are not done after {LIMIT_S:.0f} s")
        time.sleep(POLL_S)
    attempts = [attempt for job in ids for attempt in client.attempts(job)]
    return DemoSummary(now - began, jobs, attempts, status.tenants, promised_shares.shares())
