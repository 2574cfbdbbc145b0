"""The notices about jobs that the operator's webhook is sent."""

from typing import Literal, TypeAlias

import msgspec

from fairlead.cluster.protocol.api_models import JobState

NoticeKind: TypeAlias = Literal["job.ended", "job.failed", "job.preempted", "job.deadline_missed"]


class NotedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as a notice tells of it. The fields are those of ``api_models.JobView``."""

    id: int
    name: str
    tenant: str
    user: str
    state: JobState
    reason: str
    steps: float
    total_steps: float
    starts: int
    failures: int
    preemptions: int
    deadline: str
    array: int | None
    array_index: int | None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice about a job to the operator's webhook."""

    id: str  # the same whenever it is sent again
    kind: NoticeKind
    time_s: float  # when it came about, wall clock, seconds since 1970
    job: NotedJob
