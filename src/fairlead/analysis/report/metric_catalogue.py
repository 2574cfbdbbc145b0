"""The metrics of a report: where each is found, in what unit it is shown, and which value is better."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Real

from fairlead.model.duration_text import DASH


class MetricKind(Enum):
    """The quantity that a number measures."""

    TIME = "time"  # seconds, shown in s, min, h or days
    SHARE = "share"  # a fraction, shown in %
    MONEY = "money"  # $
    COUNT = "count"
    RATIO = "ratio"


class Direction(Enum):
    """Direction in which a metric is better."""

    LOWER = -1
    NEITHER = 0
    HIGHER = 1


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit and precision in which a column of numbers is written."""

    name: str  # "h", "%", "$", ...; empty for bare numbers
    size: float  # one unit, in the measure that the number is held in
    decimals: int

    def bare(self, value: float | None) -> str:
        """The number without its unit."""
        return DASH if value is None else f"{value / self.size:,.{self.decimals}f}"

    def full(self, value: float | None) -> str:
        """The number with its unit."""
        if value is None or not self.name:
            return self.bare(value)
        if self.name == "$":
            return f"-${self.bare(-value)}" if value < 0 else f"${self.bare(value)}"
        return f"{self.bare(value)} {self.name}"


_TIME_UNITS = (("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", 3600.0, 3600.0 * 2000))


def counted(number: int, noun: str) -> str:
    """``1 start``, ``2 starts``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def number(value: object) -> float | None:
    """The value as a float; None for all that is not a finite number."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def unit_for(kind: MetricKind, values: Iterable[float | None], digits: int = 4) -> Unit:
    """The unit in which people read these numbers, with so many digits for the largest."""
    known = [value for value in values if value is not None]
    largest = max((abs(value) for value in known), default=0.0)
    match kind:
        case MetricKind.TIME:
            return _time_unit(largest, digits)
        case MetricKind.SHARE:
            return Unit("%", 0.01, 1)
        case MetricKind.MONEY:
            return Unit("$", 1.0, 2 if largest < 1000 else 0)
        case MetricKind.COUNT:
            return Unit("", 1.0, 0 if all(value == round(value) for value in known) else 1)
        case MetricKind.RATIO:
            return Unit("", 1.0, max(_decimals(largest, digits), 2) if largest < 1000 else 0)


def with_unit(kind: MetricKind, value: object, digits: int = 4) -> str:
    """One number with its unit."""
    known = number(value)
    return unit_for(kind, [known], digits).full(known)


def _time_unit(largest_s: float, digits: int) -> Unit:
    for name, size, below in _TIME_UNITS:
        if largest_s < below:
            return Unit(name, size, _decimals(largest_s / size, digits))
    return Unit("days", 86400.0, _decimals(largest_s / 86400.0, digits))


def _decimals(largest: float, digits: int) -> int:
    whole = 1 if largest < 10 else int(math.log10(largest)) + 1
    return max(digits - whole, 0)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a report."""

    name: str
    path: tuple[object, ...]  # keys into the metrics, outermost first
    kind: MetricKind
    better: Direction
    group: str
    short: str = ""  # for narrow columns
    meaning: str = ""
    optional: bool = False  # left out where no run has it

    def of(self, metrics: Mapping[str, object]) -> float | None:
        """Its value in the metrics of one run; None if missing."""
        found: object = metrics
        for key in self.path:
            if not isinstance(found, Mapping):
                return None
            found = found.get(key)
        return number(found)

    def best(self, values: Sequence[float | None], unit: Unit) -> frozenset[int]:
        """Positions of the best value as it is shown; none where nothing sets the runs apart."""
        known = [value for value in values if value is not None]
        shown = {unit.bare(value) for value in known}
        if self.better is Direction.NEITHER or len(shown) < 2:
            return frozenset()
        best = unit.bare(min(known) if self.better is Direction.LOWER else max(known))
        return frozenset(i for i, value in enumerate(values) if unit.bare(value) == best)


_ISOLATED = "completion time over the time under an equal, isolated share of the cluster"
_STATIC = "completion time over exclusive run time x max(1, jobs of the trace / devices)"
_THEMIS = "completion time over exclusive run time x max(1, jobs in the system / devices), over its rounds"

AVERAGE_JCT = Metric(
    name="Average JCT",
    path=("avg_jct_s",),
    kind=MetricKind.TIME,
    better=Direction.LOWER,
    group="Completion",
    short="avg JCT",
    meaning="job completion time: from arrival to completion",
)
P99_JCT = Metric(
    "99th percentile JCT", ("jct_percentiles_s", "p99"), MetricKind.TIME, Direction.LOWER, "Completion",
    "p99 JCT",
)  # fmt: skip
MAKESPAN = Metric(
    name="Makespan",
    path=("makespan_s",),
    kind=MetricKind.TIME,
    better=Direction.LOWER,
    group="Completion",
    short="makespan",
    meaning="when the run ended",
)
QUEUEING = Metric(
    name="Average queueing delay",
    path=("avg_queueing_delay_s",),
    kind=MetricKind.TIME,
    better=Direction.LOWER,
    group="Completion",
    short="queueing",
    meaning="from arrival to the first start",
)
UTILIZATION = Metric(
    name="Utilisation",
    path=("utilization",),
    kind=MetricKind.SHARE,
    better=Direction.NEITHER,
    group="Cluster",
    short="util",
    meaning="busy device time over available device time; a slower policy keeps devices busy for longer",
)
COST = Metric("Cost", ("cost",), MetricKind.MONEY, Direction.LOWER, "Cluster", "cost")
WORST_RHO = Metric(
    name="Worst rho (isolated)",
    path=("rho", "isolated", "max"),
    kind=MetricKind.RATIO,
    better=Direction.LOWER,
    group="Finish-time fairness",
    short="worst\nrho",
    meaning=_ISOLATED,
)
MOVES = Metric(
    name="Moves per job-hour",
    path=("moves_per_job_hour",),
    kind=MetricKind.RATIO,
    better=Direction.LOWER,
    group="Changes of place",
    short="moves\n/job h",
    meaning="changes of devices from one round to the next, per hour of run time",
)
LOST = Metric(
    "Run time lost to restarts", ("lost_share",), MetricKind.SHARE, Direction.LOWER, "Changes of place",
    "lost",
)  # fmt: skip
COMPLETED = Metric(
    "Completed", ("n_completed",), MetricKind.COUNT, Direction.HIGHER, "Jobs", "jobs\ndone"
)


# What every comparison shows first, in this order.
MAIN_METRICS = (
    AVERAGE_JCT, P99_JCT, MAKESPAN, QUEUEING, UTILIZATION, COST, WORST_RHO, MOVES, LOST, COMPLETED,
)  # fmt: skip


def _rho(which: str, meaning: str, optional: bool = False) -> tuple[Metric, ...]:
    def one(name: str, key: str, kind: MetricKind, short: str = "") -> Metric:
        path, group = ("rho", which, key), "Finish-time fairness"
        return Metric(
            name=f"{name} ({which})",
            path=path,
            kind=kind,
            better=Direction.LOWER,
            group=group,
            short=short,
            meaning=meaning,
            optional=optional,
        )

    return (
        one("Worst rho", "max", MetricKind.RATIO, f"worst\n{which}\nrho"),
        one("Mean rho", "mean", MetricKind.RATIO),
        one("Median rho", "p50", MetricKind.RATIO),
        *(
            one(f"Jobs with rho > {limit}", key, MetricKind.SHARE, f"{which}\nrho\n> {limit}")
            for key, limit in (("unfair_1", "1"), ("unfair_1_05", "1.05"), ("unfair_1_1", "1.1"))
        ),
    )


def _envy() -> tuple[Metric, ...]:
    meaning = (
        "how far two jobs differ in the part of the rounds from arrival to end in which they ran"
    )
    return tuple(
        Metric(
            f"{name} envy", ("envy", key), MetricKind.RATIO, Direction.LOWER, "Finish-time fairness",
            meaning=meaning, optional=True,
        )
        for name, key in (("Largest", "max"), ("Mean", "mean"))
    )  # fmt: skip


def _fixed() -> tuple[Metric, ...]:
    low, neither = Direction.LOWER, Direction.NEITHER
    jct, cluster, changes = "Completion", "Cluster", "Changes of place"
    jobs, effort = "Jobs", "Scheduler"
    return (
        AVERAGE_JCT,
        Metric("Median JCT", ("jct_percentiles_s", "p50"), MetricKind.TIME, low, jct, "p50 JCT"),
        Metric("90th percentile JCT", ("jct_percentiles_s", "p90"), MetricKind.TIME, low, jct, "p90 JCT"),
        P99_JCT,
        MAKESPAN,
        QUEUEING,
        UTILIZATION,
        Metric(
            "Utilisation, Gavel's definition", ("gavel_utilization",), MetricKind.SHARE, neither, cluster,
            meaning="counts idle gaps between rounds as busy", optional=True,
        ),
        COST,
        WORST_RHO,
        *_rho("isolated", _ISOLATED)[1:],
        *_rho("static", _STATIC),
        *_rho("themis", _THEMIS, optional=True),
        *_envy(),
        Metric("Preemptions", ("preemptions",), MetricKind.COUNT, low, changes),
        Metric("Moves", ("moves",), MetricKind.COUNT, low, changes),
        MOVES,
        Metric("Restarts", ("restarts",), MetricKind.COUNT, low, changes),
        Metric(
            "Restarts per job-hour", ("restarts_per_job_hour",), MetricKind.RATIO, low, changes,
            meaning="moves, and starts after a pause, per hour of run time",
        ),
        LOST,
        Metric("the same in time", ("restart_lost_s",), MetricKind.TIME, low, changes),
        Metric(
            "Device time on more servers than needed", ("spread_share",), MetricKind.SHARE, low, changes,
            meaning="of jobs on more servers than they need, over busy device time",
        ),
        Metric("Jobs", ("n_jobs",), MetricKind.COUNT, neither, jobs),
        COMPLETED,
        Metric("Dropped", ("n_dropped",), MetricKind.COUNT, low, jobs),
        Metric(
            "Ended before their last step", ("n_forced",), MetricKind.COUNT, low, jobs,
            meaning="completed all the same: they had run for longer than their profile allows",
            optional=True,
        ),
        Metric("Killed", ("n_killed",), MetricKind.COUNT, neither, jobs),
        Metric("Cancelled", ("n_cancelled",), MetricKind.COUNT, neither, jobs, optional=True),
        Metric("Unfinished", ("n_unfinished",), MetricKind.COUNT, neither, jobs, optional=True),
        Metric(
            "Measured", ("n_measured",), MetricKind.COUNT, neither, jobs,
            meaning="jobs of the measurement window", optional=True,
        ),
        Metric("Jobs with a deadline", ("slo_jobs",), MetricKind.COUNT, neither, jobs),
        Metric("Deadlines missed", ("slo_violations",), MetricKind.COUNT, low, jobs),
        Metric("Rounds", ("n_rounds",), MetricKind.COUNT, neither, effort),
        Metric("Solves", ("n_solves",), MetricKind.COUNT, neither, effort),
        Metric("CPU time of the simulation", ("cpu_s",), MetricKind.TIME, neither, effort),
        Metric("of it in the solver", ("solve_s",), MetricKind.TIME, neither, effort),
    )  # fmt: skip


METRICS: tuple[Metric, ...] = _fixed()


def worst_rho(which: str) -> Metric:
    """The largest rho by one of the definitions."""
    return _at("rho", which, "max")


def unfair(which: str) -> Metric:
    """The share of jobs whose rho, by one of the definitions, is above 1.05."""
    return _at("rho", which, "unfair_1_05")


def _at(*path: str) -> Metric:
    return next(metric for metric in METRICS if metric.path == path)


def metrics_of(runs: Sequence[Mapping[str, object]]) -> list[Metric]:
    """Every number that a report on these runs shows, in order and group by group."""
    parts = {MAKESPAN: _by_scale(runs), UTILIZATION: _by_type(runs)}
    found = [part for metric in METRICS for part in (metric, *parts.get(metric, ()))]
    return [q for q in found if not q.optional or any(q.of(run) is not None for run in runs)]


def utilization_of(accelerator: str) -> Metric:
    """The utilisation of one accelerator type."""
    path = ("utilization_by_type", accelerator)
    return Metric(
        f"Utilisation of {accelerator}", path, MetricKind.SHARE, Direction.NEITHER, "Cluster"
    )


def keys_of(runs: Sequence[Mapping[str, object]], name: str) -> list[object]:
    """Keys of a metric that is itself a table, over all runs, each once."""
    tables = [run.get(name) for run in runs]
    return list(
        dict.fromkeys(key for table in tables if isinstance(table, Mapping) for key in table)
    )


def _by_type(runs: Sequence[Mapping[str, object]]) -> list[Metric]:
    return [utilization_of(str(key)) for key in keys_of(runs, "utilization_by_type")]


def _by_scale(runs: Sequence[Mapping[str, object]]) -> list[Metric]:
    def metric(scale: object) -> Metric:
        name, path = f"Average JCT, {devices(scale)}", ("avg_jct_by_scale_s", scale)
        return Metric(name, path, MetricKind.TIME, Direction.LOWER, "Completion")

    scales = keys_of(runs, "avg_jct_by_scale_s")
    return [metric(scale) for scale in sorted(scales, key=lambda scale: int(str(scale)))]


def devices(count: object) -> str:
    """A number of devices, in words."""
    return "1 device" if str(count) == "1" else f"{count} devices"
