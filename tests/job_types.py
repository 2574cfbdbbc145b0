"""Job types by the names that files give them."""

from fairlead.model.job_type import JobType


def job_types(*named: tuple[str, int]) -> tuple[JobType, ...]:
    """The job types of these names and scale factors."""
    return tuple(JobType.parse(name, scale_factor) for name, scale_factor in named)
