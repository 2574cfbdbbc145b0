"""Checks of a submission against the cluster and its jobs, before anything is written."""

from collections.abc import Callable

from fairlead.cluster.protocol.arrays import MAX_TASKS
from fairlead.cluster.protocol.dependencies import parse_dependency
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.store.rows import JobRow
from fairlead.errors import ConfigError
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs


def check_count(jobs: int) -> None:
    """Raises ConfigError for more jobs than one submission may have."""
    if jobs > MAX_TASKS:
        raise ConfigError(f"at most {MAX_TASKS:,} jobs at once, tasks included, got {jobs:,}")


def check_dependencies(where: str, spec: JobSpec, find: Callable[[int], JobRow | None]) -> None:
    """Raises ConfigError where a job is to wait for one that is not there. find: a job that the one who
    submits may see."""
    for dependency in map(parse_dependency, spec.after):
        row = find(dependency.job)
        if row is None or (dependency.is_array and row.array != row.id):
            raise ConfigError(f"{where}: after: {dependency.name}: there is none")


def check_single(where: str, spec: JobSpec) -> None:
    """Raises ConfigError for what a forecast does not simulate: jobs that wait for others, and arrays."""
    for name in ("after", "array"):
        if getattr(spec, name):
            raise ConfigError(f"{where}: {name}: cannot be part of a question, leave it out")


def check_rates_known(where: str, spec: JobSpec, catalogue: Throughputs) -> None:
    """Raises ConfigError for a family that nothing is known of and that brings no rates: a slip of the
    pen."""
    stated = JobType.parse(spec.family, spec.scale_factor)
    if not spec.family or spec.rates or catalogue.row(stated) is not None:
        return
    if spec.family in catalogue.families:
        raise ConfigError(
            f"{where}: family: {spec.family!r} has no rates at scale factor {spec.scale_factor}; "
            "give `rates`, or measure them with `fairlead measure`"
        )
    raise ConfigError(
        f"{where}: family: {spec.family!r} is not in the throughput table; give `rates`, leave `family` out, "
        "or measure them with `fairlead measure`"
    )
