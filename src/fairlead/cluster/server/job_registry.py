"""The jobs and attempts that a server has in memory."""

from dataclasses import dataclass, field

from fairlead.cluster.protocol.api_models import ENDED_STATES
from fairlead.cluster.protocol.messages import AttemptKey
from fairlead.cluster.server.attempt_statuses import steps_took_s
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.store.rows import AttemptRow, JobRow, TenantTotals


@dataclass(frozen=True, slots=True)
class Training:
    """The steps that an attempt has trained so far, and the seconds that they took."""

    attempt: int
    from_step: float
    step: float
    seconds: float  # that these steps have taken

    @staticmethod
    def of(attempt: Attempt) -> "Training | None":
        """Return the training as last reported by the attempt's first node; None if unknown."""
        leader = attempt.leader
        if leader is None or leader.loaded_step < 0 or max(leader.step_age_s, leader.trained_s) < 0:
            return None
        return Training(
            attempt=attempt.record.attempt,
            from_step=float(leader.loaded_step),
            step=float(leader.step),
            seconds=steps_took_s(leader),
        )


@dataclass(slots=True)
class JobRegistry:
    """The open jobs and live starts in memory; what changed since the last commit is marked."""

    # Open, or with an attempt that has not ended
    jobs: dict[int, JobRow] = field(default_factory=dict)
    live: dict[int, list[Attempt]] = field(default_factory=dict)  # job -> its starts, oldest first
    on_node: dict[str, dict[AttemptKey, Attempt]] = field(default_factory=dict)
    dirty_jobs: set[int] = field(default_factory=set)
    dirty_attempts: dict[AttemptKey, AttemptRow] = field(default_factory=dict)
    trained: dict[int, Training] = field(default_factory=dict)  # open job -> its last attempt's
    tenants: dict[str, TenantTotals] = field(default_factory=dict)
    tenants_changed: bool = False
    ended: list[int] = field(default_factory=list)  # jobs of which ``held_jobs`` has not heard yet

    def totals_of(self, tenant: str) -> TenantTotals:
        """Return the totals of a tenant so far, to be changed: they are written with the next commit."""
        self.tenants_changed = True
        return self.tenants.setdefault(tenant, TenantTotals())

    def add(self, attempt: Attempt) -> None:
        """An attempt begins."""
        self.live.setdefault(attempt.row.id, []).append(attempt)
        for node in attempt.nodes:
            self.on_node.setdefault(node, {})[attempt.key] = attempt
        self.dirty_attempts[attempt.key] = attempt.record
        self.dirty_jobs.add(attempt.row.id)

    def drop(self, attempt: Attempt) -> None:
        """An attempt has ended and is booked."""
        attempts = self.live[attempt.row.id]
        attempts.remove(attempt)
        if not attempts:
            del self.live[attempt.row.id]
        for node in attempt.nodes:
            self.on_node[node].pop(attempt.key, None)
        if (training := Training.of(attempt)) is not None:
            self.trained[attempt.row.id] = training
        self.dirty_attempts[attempt.key] = attempt.record
        self.dirty_jobs.add(attempt.row.id)
        self.close(attempt.row.id)

    def close(self, job: int) -> None:
        """Ended jobs leave the memory once their rows are committed; see ``forget_closed``."""
        self.dirty_jobs.add(job)

    def forget_closed(self) -> None:
        """After a commit: let go of jobs that have ended and have no attempt left."""
        for job in list(self.dirty_jobs):
            row = self.jobs.get(job)
            if row is not None and row.state in ENDED_STATES and job not in self.live:
                del self.jobs[job]
                self.trained.pop(job, None)
        self.dirty_jobs.clear()
        self.dirty_attempts.clear()

    def newest(self, job: int) -> Attempt | None:
        """The newest attempt of a job that has not ended."""
        attempts = self.live.get(job)
        return attempts[-1] if attempts else None
