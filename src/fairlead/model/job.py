"""A training job, and its arrival."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import NewType

from fairlead.errors import ConfigError
from fairlead.model.adaptation import Adaptation
from fairlead.model.argument_checks import (
    NUMBER,
    check_fields,
    instance_of,
    is_whole,
    mapping_to_numbers,
)
from fairlead.model.job_type import JobType
from fairlead.model.limits import MAX_SECONDS, is_duration

JobId = NewType("JobId", int)


@dataclass(frozen=True, slots=True)
class Job:
    """A training job as its owner describes it. Readers check the fields; this class stores them."""

    id: JobId
    family: str  # the name of its job type: model and batch size
    scale_factor: int  # devices used at once, all of one accelerator type
    total_steps: float
    _: KW_ONLY
    weight: float = 1.0
    tenant: str = ""
    slo_s: float | None = None  # seconds from arrival to deadline; None = no deadline
    duration_s: float | None = None  # running time that the trace states, if it states one
    adaptation: Adaptation | None = None  # None: it keeps its batch size
    devices: tuple[
        int, ...
    ] = ()  # scale factors that an elastic job may have, ascending; () = it keeps its

    @property
    def job_type(self) -> JobType:
        """The job type at its first batch size: the row of the throughput table that it uses."""
        return JobType.parse(self.family, self.scale_factor)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and the time at which it is submitted.

    time_s: seconds from the beginning of the trace, finite, >= 0; traces hold arrivals in its order.
    """

    time_s: float
    job: Job

    def __post_init__(self) -> None:
        """Convert an int to the float that it stands for: a journal reads floats, and a replay must agree."""
        if isinstance(self.time_s, Integral):
            object.__setattr__(self, "time_s", float(self.time_s))


@dataclass(frozen=True, slots=True)
class RestartCosts:
    """Seconds that a job loses each time it starts on devices which it did not hold before."""

    default_s: float = 0.0
    by_family: Mapping[str, float] = field(default_factory=dict)
    by_job: Mapping[JobId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, _COSTS)
        for cost_s in (self.default_s, *self.by_family.values(), *self.by_job.values()):
            if not is_duration(cost_s):
                raise ConfigError(
                    f"a restart cost must be from 0 to {MAX_SECONDS:g} s, got {cost_s} (restart_costs)"
                )

    def of(self, job: Job) -> float:
        """Return the seconds for one job: its own figure, else its family's, else the default."""
        return self.by_job.get(job.id, self.by_family.get(job.family, self.default_s))

    @property
    def largest_s(self) -> float:
        """The largest of all figures."""
        return max(self.default_s, *self.by_family.values(), *self.by_job.values(), 0.0)


_COSTS = {
    "default_s": NUMBER,
    "by_family": mapping_to_numbers(instance_of(str), "seconds by name of a family"),
    "by_job": mapping_to_numbers(is_whole, "seconds by id of a job"),
}
