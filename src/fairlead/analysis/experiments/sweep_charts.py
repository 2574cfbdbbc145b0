"""The figures of sweeps, as charts: pages and files show the same ones."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from fairlead.analysis.experiments.point import PointResult, Status
from fairlead.analysis.experiments.sweep import SweepResult
from fairlead.analysis.report.aggregate import rho_of
from fairlead.analysis.report.chart import Chart, Series
from fairlead.analysis.report.figure_style import SeedInterval
from fairlead.analysis.report.metric_catalogue import (
    AVERAGE_JCT,
    COST,
    LOST,
    MAKESPAN,
    P99_JCT,
    QUEUEING,
    UTILIZATION,
    MetricKind,
    Unit,
    number,
    unit_for,
    worst_rho,
)
from fairlead.analysis.report.run_charts import distribution
from fairlead.errors import ConfigError, RunError
from fairlead.model.arrays import Floats

CEILING = 8.0  # times the least mean of a chart: what is above, near divergence, leaves it
AXES = {"rates": "Jobs per hour", "jobs": "Number of jobs", "none": ""}


@dataclass(frozen=True)
class Swept:
    """A sweep and its folder."""

    folder: Path
    result: SweepResult


@dataclass(frozen=True)
class SweepCurve:
    """A line of a sweep: its loads in rising order, and the outcomes of all seeds at each."""

    name: str
    loads: tuple[float | None, ...]
    outcomes: tuple[tuple[PointResult, ...], ...]
    folder: Path


@dataclass(frozen=True)
class LoadFigure:
    """A number against the load."""

    name: str  # as ``--figure`` takes it
    title: str
    label: str
    kind: MetricKind
    of: Callable[[Mapping[str, object]], float | None]
    rises: bool = False  # without bound, near divergence


@dataclass(frozen=True)
class SampleFigure:
    """A figure of how jobs differ at one load."""

    name: str
    title: str
    axis: str
    kind: MetricKind
    column: str  # of the table of jobs


_Figure = TypeVar("_Figure", LoadFigure, SampleFigure)


def _per_job(key: str) -> Callable[[Mapping[str, object]], float | None]:
    def of(metrics: Mapping[str, object]) -> float | None:
        count, jobs = number(metrics.get(key)), number(metrics.get("n_jobs"))
        return None if count is None or not jobs else count / jobs

    return of


def _mean_rho(metrics: Mapping[str, object]) -> float | None:
    rho = metrics.get("rho")
    isolated = rho.get("isolated") if isinstance(rho, Mapping) else None
    return number(isolated.get("mean")) if isinstance(isolated, Mapping) else None


def _missed(metrics: Mapping[str, object]) -> float | None:
    jobs, missed = number(metrics.get("slo_jobs")), number(metrics.get("slo_violations"))
    return missed / jobs if jobs and missed is not None else None


LOAD_FIGURES = (
    LoadFigure("jct-load", "Average JCT", "Average JCT", MetricKind.TIME, AVERAGE_JCT.of, rises=True),
    LoadFigure("p99-load", "99th percentile JCT", "p99 JCT", MetricKind.TIME, P99_JCT.of, rises=True),
    LoadFigure("queueing-load", "Queueing delay", "Average queueing delay", MetricKind.TIME, QUEUEING.of),
    LoadFigure("makespan-load", "Makespan", "Makespan", MetricKind.TIME, MAKESPAN.of),
    LoadFigure("rho-load", "Finish-time fairness", "Mean rho, isolated", MetricKind.RATIO, _mean_rho),
    LoadFigure("worst-rho-load", "Worst finish-time fairness", "Worst rho, isolated", MetricKind.RATIO,
               worst_rho("isolated").of),
    LoadFigure("utilisation-load", "Utilisation", "Busy devices", MetricKind.SHARE, UTILIZATION.of),
    LoadFigure("cost-load", "Cost", "Cost", MetricKind.MONEY, COST.of),
    LoadFigure("deadlines-load", "Deadlines missed", "Jobs with a deadline that missed it", MetricKind.SHARE,
               _missed),
    LoadFigure("preemptions-load", "Preemptions", "Preemptions per job", MetricKind.RATIO,
               _per_job("preemptions")),
    LoadFigure("lost-load", "Lost work", "Run time lost to restarts", MetricKind.SHARE, LOST.of),
)  # fmt: skip
SAMPLE_FIGURES = (
    SampleFigure("jct", "Job completion time", "Completion time", MetricKind.TIME, "jct_s"),
    SampleFigure("rho", "Finish-time fairness", "Rho, isolated", MetricKind.RATIO, "rho_isolated"),
)


def axis_of(sweeps: Sequence[Swept]) -> str:
    """Return the axis of the sweeps' loads. Raises ConfigError where they do not agree."""
    first = sweeps[0]
    for other in sweeps[1:]:
        if other.result.spec.axis != first.result.spec.axis:
            raise ConfigError(
                f"{first.folder} and {other.folder} cannot share figures: their loads are "
                f"{first.result.spec.axis} and {other.result.spec.axis}"
            )
    return first.result.spec.axis


def curves(sweeps: Sequence[Swept]) -> list[SweepCurve]:
    """All lines; of several sweeps with the names of their folders."""
    return [
        _curve(swept, line.name, f"{swept.folder.name}: " if len(sweeps) > 1 else "")
        for swept in sweeps
        for line in swept.result.lines
    ]


def _curve(swept: Swept, line: str, prefix: str) -> SweepCurve:
    found: dict[float | None, list[PointResult]] = {}
    for cell in swept.result.cells:
        if cell.line == line:
            found.setdefault(cell.load, []).append(cell.outcome)
    loads = sorted(found, key=lambda load: load or 0.0)
    return SweepCurve(
        prefix + line, tuple(loads), tuple(tuple(found[x]) for x in loads), swept.folder
    )


def sweep_charts(
    sweeps: Sequence[Swept],
    *names: str,
    interval: SeedInterval = SeedInterval.RANGE,
    relative_to: str = "",
) -> list[tuple[str, Chart]]:
    """The figures of these names (all, where none is named) that the sweeps can give, by name. There are
    no distributions where a table of jobs is lost: ``lost_tables`` says which.

    spread: what error bars show; relative_to: a line of which the others' differences are shown, seed by
    seed, in figures against the load ("": none). Raises ConfigError where there is no such line.
    """
    axis, lines = axis_of(sweeps), curves(sweeps)
    reference = _line_named(lines, relative_to)

    def against_load(figure: LoadFigure) -> Chart | None:
        if reference is None:
            return load_chart(figure, lines, axis, interval)
        return difference_chart(figure, lines, reference, axis)

    charts = [
        *((one.name, against_load(one)) for one in _named(LOAD_FIGURES, names)),
        *((one.name, _sample_chart(one, lines, axis)) for one in _named(SAMPLE_FIGURES, names)),
    ]
    return [(name, chart) for name, chart in charts if chart is not None]


def _line_named(lines: Sequence[SweepCurve], name: str) -> SweepCurve | None:
    if not name:
        return None
    for line in lines:
        if line.name == name:
            return line
    known = ", ".join(line.name for line in lines)
    raise ConfigError(f"--relative-to: {name!r} is not a line of the sweep (choose from {known})")


def _named(figures: Sequence[_Figure], names: Sequence[str]) -> list[_Figure]:
    return [figure for figure in figures if not names or figure.name in names]


def load_chart(
    figure: LoadFigure,
    lines: Sequence[SweepCurve],
    axis: str,
    interval: SeedInterval = SeedInterval.RANGE,
) -> Chart | None:
    """The mean over the seeds, with their spread as error bars. There is no point where a seed is not
    complete: the mean of the others would flatter."""
    values = [over_seeds(seed_values(figure, line), interval) for line in lines]
    known = np.concatenate([v[0] for v in values] or [np.empty(0)])
    known = known[np.isfinite(known)]
    if not known.size or not known.any():
        return None
    largest = most = float(known.max())
    if figure.rises and axis == "rates":
        most = min(largest, CEILING * float(known.min()))
    unit = unit_for(figure.kind, [most])
    label = f"{figure.label} ({unit.name})" if unit.name else figure.label
    y_limit = most / unit.size if most < largest else None
    return _drawn(figure.title, label, lines, values, unit, axis, y_max=y_limit)


def difference_chart(
    figure: LoadFigure, lines: Sequence[SweepCurve], reference: SweepCurve, axis: str
) -> Chart | None:
    """Return a chart of the distance of the other lines from the reference: the mean over the seeds of the
    difference at the same load and seed, with its 95 % confidence interval. The same seed gives all lines the
    same jobs, so what the jobs of a seed do to all of them cancels."""
    others = [line for line in lines if line is not reference]
    values = [
        over_seeds(paired_differences(figure, line, reference), SeedInterval.CONFIDENCE)
        for line in others
    ]
    means = np.concatenate([value[0] for value in values] or [np.empty(0)])
    if not np.isfinite(means).any():
        return None
    unit = unit_for(figure.kind, [float(np.nanmax(np.abs(means)))])
    label = f"{figure.label} less that of {reference.name}"
    label = f"{label} ({unit.name})" if unit.name else label
    title = f"{figure.title}, compared with {reference.name}"
    return _drawn(title, label, others, values, unit, axis)


def paired_differences(
    figure: LoadFigure, line: SweepCurve, reference: SweepCurve
) -> list[list[float | None]]:
    """Of each load of a line, by seed, how far it is from the reference at the same load and seed; None
    where one of the two has no value."""
    known = {
        key: value for at_load in _by_seed(figure, reference) for key, value in at_load.items()
    }
    return [
        [_less(value, known.get(key)) for key, value in at_load.items()]
        for at_load in _by_seed(figure, line)
    ]


def _drawn(
    title: str,
    label: str,
    lines: Sequence[SweepCurve],
    values: Sequence[Floats],
    unit: Unit,
    axis: str,
    *,
    y_max: float | None = None,
) -> Chart:
    """Values (3, loads) of each line against the load, or as bars where there is no load."""
    if axis == "none":
        names = tuple(line.name for line in lines)
        return Chart(title, "", label, (_bars(values, unit),), "bars", names)
    series = tuple(_series(line, v, unit) for line, v in zip(lines, values, strict=True))
    return Chart(title, AXES[axis], label, series, y_max=y_max)


def seed_values(figure: LoadFigure, line: SweepCurve) -> list[list[float | None]]:
    """Return for each load the values of its seeds; None for a run that is not complete or lacks the
    value."""
    return [
        [figure.of(one.metrics) if one.status is Status.COMPLETE else None for one in outcomes]
        for outcomes in line.outcomes
    ]


def _by_seed(
    figure: LoadFigure, line: SweepCurve
) -> list[dict[tuple[float | None, int], float | None]]:
    """Return for each outcome its values by load and seed."""
    return [
        {(load, one.point.input.seed): value for one, value in zip(outcomes, values, strict=True)}
        for load, outcomes, values in zip(
            line.loads, line.outcomes, seed_values(figure, line), strict=True
        )
    ]


def _less(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def over_seeds(values: Sequence[Sequence[float | None]], interval: SeedInterval) -> Floats:
    """(3, loads) mean over the seeds, and the ends of the error bars; nan where a seed has no value.

    values: (loads, seeds).
    """
    found = []
    for seeds in values:
        known = np.array([value for value in seeds if value is not None], np.float64)
        if len(known) < len(seeds) or not known.size:
            found.append((np.nan,) * 3)
            continue
        mean = float(known.mean())
        if interval is SeedInterval.RANGE:
            found.append((mean, float(known.min()), float(known.max())))
        else:
            half = confidence_half_width(known)
            found.append((mean, mean - half, mean + half))
    return np.array(found, np.float64).reshape(-1, 3).T


def confidence_half_width(values: Floats) -> float:
    """Half the width of the 95 % confidence interval of the mean of independent, normally distributed
    values (Student's t); nan of fewer than two."""
    if len(values) < 2:
        return float("nan")
    from scipy.special import stdtrit

    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return float(stdtrit(len(values) - 1, 0.975)) * error


def _series(line: SweepCurve, values: Floats, unit: Unit) -> Series:
    mean, low, high = values / unit.size
    several = any(len(outcomes) > 1 for outcomes in line.outcomes)
    loads = np.array(line.loads, np.float64)
    return Series(line.name, loads, mean, low if several else None, high if several else None)


def _bars(values: Sequence[Floats], unit: Unit) -> Series:
    """A bar per line, for sweeps without loads."""
    mean, low, high = np.concatenate(values, axis=1) / unit.size
    several = bool((high > low).any())
    at = np.arange(len(mean), dtype=np.float64)
    return Series("", at, mean, low if several else None, high if several else None)


def shared_load(lines: Sequence[SweepCurve]) -> float | None:
    """The highest load at which every line is complete with every seed; None if there is none."""
    complete = [
        {
            load
            for load, outcomes in zip(line.loads, line.outcomes, strict=True)
            if load is not None and all(one.status is Status.COMPLETE for one in outcomes)
        }
        for line in lines
    ]
    return max(set.intersection(*complete), default=None) if complete else None


def _sample_chart(figure: SampleFigure, lines: Sequence[SweepCurve], axis: str) -> Chart | None:
    """The distribution over the jobs of all seeds, at the highest load that all lines sustain."""
    load = shared_load(lines)
    if axis != "none" and load is None:
        return None
    try:
        samples = [(line.name, _sample(figure, line, load)) for line in lines]
    except RunError:
        return None
    where = "" if load is None else f" at {load:g} {AXES[axis].lower()}"
    return distribution(f"{figure.title}{where}", figure.axis, samples, figure.kind)


def _sample(figure: SampleFigure, line: SweepCurve, load: float | None) -> Floats:
    """(jobs,) increasing, of all seeds; RunError where a table of jobs cannot be read."""
    tables = [_jobs(path, figure.column) for path in _tables(line, load)]
    known = [rho_of(table, figure.column) for table in tables]
    return np.sort(np.concatenate(known)) if known else np.empty(0)


def _tables(line: SweepCurve, load: float | None) -> Iterator[Path]:
    """The tables of jobs of all seeds at a load."""
    outcomes = line.outcomes[line.loads.index(load)] if load in line.loads else ()
    for one in outcomes:
        if one.jobs and one.status is Status.COMPLETE:
            yield line.folder / one.jobs


def lost_tables(sweeps: Sequence[Swept]) -> list[str]:
    """A sentence for each sweep that lacks tables of jobs which distributions need: which, and how to
    make them again."""
    lines = curves(sweeps)
    load, sentences = shared_load(lines), []
    for folder in dict.fromkeys(swept.folder for swept in sweeps):
        paths = [path for line in lines if line.folder == folder for path in _tables(line, load)]
        problems = [(path, why) for path in paths if (why := _unreadable(path))]
        if problems:
            path, why = problems[0]
            more = f" (and {len(problems) - 1} more of its points)" if problems[1:] else ""
            sentences.append(
                f"{why}{more}; figures of how jobs differ are left out. To make a point again, remove "
                f"its .json file ({path.with_suffix('.json')}) and run: "
                f"fairlead sweep --resume {shlex.quote(str(folder))}"
            )
    return sentences


def _unreadable(path: Path) -> str:
    """Return why a table of jobs cannot be read; "" if it can."""
    try:
        for figure in SAMPLE_FIGURES:
            _jobs(path, figure.column)
    except RunError as problem:
        return str(problem)
    return ""


def _jobs(path: Path, column: str) -> pl.DataFrame:
    """The jobs of a point, one column of them; none where the table does not have it."""
    try:
        table = pl.scan_parquet(path)
        known = column in table.collect_schema().names()
        return table.select(column).collect() if known else pl.DataFrame()
    except OSError as problem:
        raise RunError(f"{path}: cannot be read: {problem.strerror or 'not found'}") from None
    except pl.exceptions.PolarsError as problem:
        raise RunError(f"{path}: is not a Parquet table: {problem}") from None
