"""A training job, and its arrival."""

from dataclasses import dataclass
from typing import NewType

JobId = NewType("JobId", int)


@dataclass(frozen=True, slots=True)
class Job:
    """A training job as its owner describes it. Readers check the fields; this class stores them."""

    id: JobId
    family: str  # model family with its batch size, a key of the throughput table
    scale_factor: int  # devices used at once, all of one accelerator type
    total_steps: float
    weight: float = 1.0
    tenant: str = ""
    slo_s: float | None = None  # seconds from arrival to deadline; None = no deadline
    duration_s: float | None = None  # running time that the trace states, if it states one


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and the time at which it is submitted."""

    time_s: float
    job: Job
