"""A trace: who arrives when, and what of the file could not be used."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real

from fairlead.errors import TraceError
from fairlead.model.argument_checks import TEXT, brief_repr, check_fields, list_of
from fairlead.model.batch_size_rules import adaptation_fault
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.limits import (
    MAX_JOBS,
    MAX_NUMBER,
    MAX_SECONDS,
    MAX_WEIGHT,
    MIN_POSITIVE,
    MIN_WEIGHT,
    is_duration,
    is_weight,
)
from fairlead.model.third_party import third_party_call
from fairlead.model.throughputs import Throughputs

LARGEST_ID = 2**53  # what a float holds exactly
NAMED = 5  # lines that a summary names before it says "..."


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that is left out, and why."""

    line: int | None  # from 1; None where the trace was not read from a file
    reason: str
    job: JobId | None = None  # the id that it would have had, where it had one


_TYPES = {"name": TEXT, "format": TEXT, "arrivals": list_of(Arrival, "a list of Arrival")}


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of arrival, and what became of the rows that are no such job. TraceError names a field
    of another type than these."""

    name: str  # the file, or what generated it
    format: str  # name of the format that it was read as
    arrivals: list[Arrival]
    skipped: tuple[Skipped, ...] = ()  # rows left out, each with line and reason
    notes: tuple[str, ...] = ()  # what the reader did with the rows that it kept
    lines: tuple[int, ...] = ()  # line of each arrival; () = not from a file
    devices: tuple[int, ...] = ()  # devices that the file asks for; () = the scale factors

    def __post_init__(self) -> None:
        check_fields(self, _TYPES, TraceError)


def iterated(arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    """Yield the arrivals; TraceError if the third-party code that gives them fails."""
    with third_party_call("trace", TraceError):
        for arrival in arrivals:  # noqa: UP028 # it would close their generator with this one
            yield arrival


def checked(arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    """Yield the arrivals, each checked as a reader checks the rows of a file; TraceError names the job."""
    time_s, seen = 0.0, set[int]()
    for number, arrival in enumerate(iterated(arrivals)):
        if not isinstance(arrival, Arrival):
            raise TraceError(
                f"trace: arrival {number}: expected an Arrival, got {brief_repr(arrival)}"
            )
        if not isinstance(arrival.job, Job):
            raise TraceError(
                f"trace: arrival {number}: job: expected a Job, got {brief_repr(arrival.job)}"
            )
        if number == MAX_JOBS:
            raise TraceError(
                f"trace: more than {MAX_JOBS} jobs: what has no end needs measured_jobs or stop_at_s"
            )
        try:
            _check(arrival, number, time_s, seen)
        except (AttributeError, TypeError):
            raise TraceError(f"arrival {number}: {_no_number(arrival)}") from None
        time_s = arrival.time_s
        seen.add(arrival.job.id)
        yield arrival


def _check(arrival: Arrival, number: int, after_s: float, seen: set[int]) -> None:
    """TraceError names what is out of its bounds. after_s: time of the arrival before; seen: ids so far."""
    job = arrival.job
    where = f"arrival {number} (job {job.id})"
    if not after_s <= arrival.time_s <= MAX_SECONDS:
        raise TraceError(
            f"{where}: time must be a number from {after_s}, that of the one before, to "
            f"{MAX_SECONDS:g}, got {arrival.time_s}"
        )
    for name, value, holds, expected in (
        (
            "total_steps",
            job.total_steps,
            MIN_POSITIVE <= job.total_steps <= MAX_NUMBER,
            f"a number from {MIN_POSITIVE:g} to {MAX_NUMBER:g}",
        ),
        ("scale_factor", job.scale_factor, 1 <= job.scale_factor < LARGEST_ID, "at least 1"),
        ("weight", job.weight, is_weight(job.weight), f"from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"),
        (
            "slo_s",
            job.slo_s,
            job.slo_s is None or 0 < job.slo_s <= MAX_SECONDS,
            f"above 0 and at most {MAX_SECONDS:g} s, or None",
        ),
        (
            "duration_s",
            job.duration_s,
            job.duration_s is None or is_duration(job.duration_s),
            f"from 0 to {MAX_SECONDS:g} s, or None",
        ),
        ("id", job.id, 0 <= job.id < LARGEST_ID, "from 0 to 2**53 - 1"),
    ):
        if not holds:
            raise TraceError(f"{where}: {name} must be {expected}, got {value}")
    if job.id in seen:
        raise TraceError(f"{where}: id: an arrival before it has it too")
    for name, text in (("family", job.family), ("tenant", job.tenant)):
        if not isinstance(text, str):
            raise TraceError(f"{where}: {name}: expected text, got {brief_repr(text)}")
    if job.adaptation is not None and (fault := adaptation_fault(job.adaptation, job.family)):
        raise TraceError(f"{where}: adaptation: {fault}")


def _no_number(arrival: Arrival) -> str:
    """Return a sentence on the first field that has to be a number and is none."""
    for name in ("time_s", "id", "total_steps", "scale_factor", "weight", "slo_s", "duration_s"):
        value = getattr(arrival if name == "time_s" else arrival.job, name)
        if not isinstance(value, Real | None):
            return f"{name}: expected a number, got {brief_repr(value)}"
    return f"adaptation: of another type than it has to be: {brief_repr(arrival.job.adaptation)}"


def usable(trace: Trace, throughputs: Throughputs, cluster: Cluster | None = None) -> Trace:
    """The trace without the jobs that can never run on this cluster (on any accelerator of the table,
    if there is no cluster); each of them is in ``skipped`` with its reason."""
    obstacles = _Obstacles(throughputs, cluster)
    reasons = [obstacles.reason(arrival.job) for arrival in trace.arrivals]
    if not any(reasons):
        return trace
    keep = [i for i, reason in enumerate(reasons) if reason is None]
    skipped = tuple(
        Skipped(trace.lines[i] if trace.lines else None, reason, trace.arrivals[i].job.id)
        for i, reason in enumerate(reasons)
        if reason is not None
    )
    return replace(
        trace,
        arrivals=[trace.arrivals[i] for i in keep],
        skipped=trace.skipped + skipped,
        lines=_chosen(trace.lines, keep),
        devices=_chosen(trace.devices, keep),
    )


def only_usable(
    arrivals: Iterable[Arrival],
    throughputs: Throughputs,
    cluster: Cluster,
    skipped: list[Skipped],
) -> Iterator[Arrival]:
    """Yield the usable arrivals of a stream that may have no end; jobs that can never run are added to
    ``skipped``."""
    obstacles = _Obstacles(throughputs, cluster)
    for arrival in arrivals:
        reason = obstacles.reason(arrival.job)
        if reason is None:
            yield arrival
        else:
            skipped.append(Skipped(None, reason, arrival.job.id))


def _chosen(values: Sequence[int], keep: list[int]) -> tuple[int, ...]:
    return tuple(values[i] for i in keep) if values else ()


class _Obstacles:
    """The reasons why jobs of a job type cannot run, worked out once per job type."""

    def __init__(self, throughputs: Throughputs, cluster: Cluster | None) -> None:
        self.table = throughputs if cluster is None else throughputs.columns(cluster.slots)
        self.cluster = cluster
        self.known: dict[JobType, str | None] = {}

    def reason(self, job: Job) -> str | None:
        """Return why this job cannot run, at one of its batch sizes, or None if it can at all of them."""
        numbers = job.devices or (job.scale_factor,)
        kinds = [job.job_type.with_scale_factor(number) for number in numbers]
        obstacles = [self._of(kind) for kind in kinds]
        found = None if None in obstacles else obstacles[0]  # one number that fits is enough
        found = found or self._lasts_too_long(job)
        if found is not None or job.adaptation is None:
            return found
        for batch in job.adaptation.batches:
            found = self._of(job.job_type.with_batch_size(batch))
            if found is not None:
                return f"{found}, which {job.family} changes to"
        return None

    def _lasts_too_long(self, job: Job) -> str | None:
        """Return why a job could run, but would not end."""
        row = self.table.row(job.job_type)
        fastest = 0.0 if row is None else float(self.table.fastest[row])
        if job.total_steps <= fastest * MAX_SECONDS:
            return None
        named = f"{job.family} at scale factor {job.scale_factor}"
        return (
            f"{named} would run for more than {MAX_SECONDS:g} s at its fastest, {fastest:g} steps/s"
        )

    def _of(self, job_type: JobType) -> str | None:
        if job_type not in self.known:
            self.known[job_type] = self._find(job_type)
        return self.known[job_type]

    def _find(self, job_type: JobType) -> str | None:
        named = f"{job_type.name} at scale factor {job_type.scale_factor}"
        row = self.table.row(job_type)
        slots = [
            slot
            for i, slot in enumerate(self.table.slots)
            if row is not None and self.table.rate[row, i] > 0
        ]
        if not slots:
            where = "" if self.cluster is None else f" on {', '.join(self.cluster.accelerators)}"
            return f"no rate for {named}{where}"
        if self.cluster is None:
            return None
        size = dict(zip(self.cluster.accelerators, self.cluster.capacity.tolist(), strict=True))
        if any(size[slot.accelerator] >= job_type.scale_factor for slot in slots):
            return None
        have = ", ".join(f"{int(size[slot.accelerator])} {slot.accelerator}" for slot in slots)
        return f"{named} needs more devices than there are ({have})"


def skipped_summary(trace: Trace) -> list[str]:
    """One line per reason for a trace; see ``summarise``."""
    return summarise(trace.skipped)


def summarise(rows: Iterable[Skipped]) -> list[str]:
    """One line per reason, e.g. ``4 rows skipped: no rate for A3C at scale factor 4 (lines 3, 9)``."""
    groups: dict[str, list[Skipped]] = {}
    for skipped in rows:
        groups.setdefault(skipped.reason, []).append(skipped)
    return [_summary(reason, group) for reason, group in groups.items()]


def _summary(reason: str, group: list[Skipped]) -> str:
    from_file = group[0].line is not None
    what = "row" if from_file else "job"
    where = "line" if from_file else "job"
    numbers = [one.line if from_file else one.job for one in group]
    named = ", ".join(str(n) for n in numbers[:NAMED]) + (", ..." if len(group) > NAMED else "")
    plural = "" if len(group) == 1 else "s"
    return f"{len(group)} {what}{plural} skipped: {reason} ({where}{plural} {named})"
