"""A sweep: policies against loads and seeds, as a description and as its results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeAlias

import msgspec

from fairlead.analysis.experiments.point import (
    Point,
    PointResult,
    Status,
)
from fairlead.analysis.experiments.result_store import code_version
from fairlead.analysis.experiments.sweep_loads import step_of
from fairlead.errors import RunError
from fairlead.simulator.simulation_input import SimulationInput

Axis: TypeAlias = Literal["rates", "jobs", "none"]
SUSTAINED = (
    2.0  # a load is sustained while the mean JCT is at most this many times that at the lowest load
)
MAX_STEPS = 200  # of automatic rates
RESULT = "sweep.json"
RunAll: TypeAlias = Callable[[Sequence[Point]], list[PointResult]]


@dataclass(frozen=True)
class Automatic:
    """Rates from low to high until a line's utilisation reaches ``threshold`` or it diverges."""

    threshold: float = 0.98
    first: float | None = None  # jobs per hour; None: as ``step``
    step: float | None = (
        None  # None: a tenth of what the devices could do (see ``experiments.rates``)
    )


@dataclass(frozen=True)
class SweepLine:
    """The name, policy, profile and varied options that all points of a curve share."""

    name: str
    policy: str
    profile: str
    varied: dict[str, str] = field(default_factory=dict)  # other options that differ between lines


@dataclass(frozen=True)
class Spec:
    """The points of a sweep.
    Every policy runs under every profile and combination of ``vary``, at every load and with every seed."""

    policies: tuple[str, ...]
    profiles: tuple[str, ...] = ("default",)
    seeds: tuple[int, ...] = (0,)
    axis: Axis = (
        "rates"  # loads are Poisson rates (jobs per hour), numbers of jobs, or there are none
    )
    loads: tuple[float, ...] = ()  # in rising order; () if automatic, and without an axis
    automatic: Automatic | None = None
    cutoffs: dict[str, float] = field(
        default_factory=dict
    )  # of lines, by name: no load from there on
    input: SimulationInput = field(
        default_factory=SimulationInput
    )  # of all points; ``generate`` without load
    vary: dict[str, list[str | float | bool | None]] = field(
        default_factory=dict
    )  # by field of the input

    def lines(self) -> dict[str, "tuple[SweepLine, SimulationInput]"]:
        """The curves by name, with the input that their points share."""
        several = len(self.profiles) > 1
        found = {}
        for profile in self.profiles:
            for policy in self.policies:
                for values in _combinations(self.vary):
                    shown = {k: _shown(v) for k, v in values.items() if len(self.vary[k]) > 1}
                    words = [f"({profile})"] if several else []
                    words += [f"{key}={value}" for key, value in shown.items()]
                    name = " ".join([policy, *words])
                    line = SweepLine(name, policy, profile, shown)
                    found[name] = (line, replace(self.input, **values))  # type: ignore[arg-type]
        return found

    def point(self, line: str, load: float | None, seed: int) -> Point:
        """A point of a line."""
        known, given = self.lines()[line]
        given = replace(given, seed=seed)
        if load is not None:
            base = given.generate or "gavel"
            text = (
                f"{base},interarrival={3600 / load!r}"
                if self.axis == "rates"
                else f"{base},interarrival=0,jobs={int(load)}"
            )
            given = replace(given, generate=text)
        return Point(known.policy, known.profile, given)


@dataclass(frozen=True)
class SweepCell:
    """A point in its place."""

    line: str
    load: float | None
    seed: int
    outcome: PointResult  # without seconds (the store has them); ``jobs`` relative to the folder


@dataclass(frozen=True)
class SweepResult:
    """All of a sweep, as ``sweep.json`` has it; equal sweeps give equal bytes."""

    version: str
    spec: Spec
    lines: tuple[SweepLine, ...]
    cells: tuple[SweepCell, ...]  # by line, load, seed


def run_sweep(spec: Spec, run: RunAll) -> SweepResult:
    """Run all of it. run: gives the outcome of each point, in order, and knows what was run before."""
    cells = _climbed(spec, run) if spec.automatic is not None else _at_loads(spec, run)
    lines = {name: at for at, name in enumerate(spec.lines())}
    cells.sort(key=lambda c: (lines[c.line], c.load or 0.0, c.seed))
    return SweepResult(
        code_version(), spec, tuple(line for line, _ in spec.lines().values()), tuple(cells)
    )


def _at_loads(spec: Spec, run: RunAll) -> list[SweepCell]:
    loads: tuple[float | None, ...] = spec.loads or (None,)
    combinations = [
        (line, load, seed)
        for load in sorted(loads, key=lambda x: -(x or 0.0))  # what takes longest begins first
        for line in spec.lines()
        for seed in spec.seeds
        if load is None or load < spec.cutoffs.get(line, float("inf"))
    ]
    return _cells(spec, run, combinations)


def _climbed(spec: Spec, run: RunAll) -> list[SweepCell]:
    """From low to high, all lines side by side; each ends where it is saturated."""
    automatic = spec.automatic
    assert automatic is not None
    step = {
        name: automatic.step or step_of(spec.point(name, 1.0, spec.seeds[0]))
        for name in spec.lines()
    }
    cells: list[SweepCell] = []
    climbing = list(step)
    for number in range(MAX_STEPS):
        at = {
            name: round((automatic.first or step[name]) + number * step[name], 10)
            for name in climbing
        }
        climbing = [name for name in climbing if at[name] < spec.cutoffs.get(name, float("inf"))]
        if not climbing:
            break
        combinations = [(name, at[name], seed) for name in climbing for seed in spec.seeds]
        found = _cells(spec, run, combinations)
        cells += found
        climbing = [
            name
            for name in climbing
            if not _saturated([c.outcome for c in found if c.line == name], automatic.threshold)
        ]
    return cells


def _saturated(outcomes: list[PointResult], threshold: float) -> bool:
    if any(one.status is not Status.COMPLETE for one in outcomes):
        return True
    return fmean(one.metrics["utilization"] for one in outcomes) >= threshold


def _cells(
    spec: Spec, run: RunAll, combinations: Sequence[tuple[str, float | None, int]]
) -> list[SweepCell]:
    outcomes = run([spec.point(*combination) for combination in combinations])
    return [
        SweepCell(*combination, replace(one, seconds=0.0, jobs=_relative(one.jobs)))
        for combination, one in zip(combinations, outcomes, strict=True)
    ]


def _relative(path: str) -> str:
    return f"points/{Path(path).name}" if path else ""


PARTIAL = "*"  # marks numbers of a row that is partial
PARTIAL_MEANS = (
    "Over the complete seeds only: the mean of all is not known, and may be far greater."
)


@dataclass(frozen=True)
class LoadSummary:
    """A line at a load, over the seeds that are complete there."""

    line: str
    load: float | None
    seeds: int  # complete ones
    jct_s: float | None  # mean of the seeds' means; None: no seed is complete
    jct_low_s: float | None  # the least and the greatest
    jct_high_s: float | None
    makespan_s: float | None
    utilization: float | None
    cost: float | None
    statuses: dict[Status, int]  # of all seeds

    @property
    def is_partial(self) -> bool:
        """Return whether the means are those of some seeds only: the others are not complete."""
        return 0 < self.seeds < sum(self.statuses.values())


def summarise(result: SweepResult) -> list[LoadSummary]:
    """A row for each line and load, in the order of the cells."""
    groups: dict[tuple[str, float | None], list[PointResult]] = {}
    for cell in result.cells:
        groups.setdefault((cell.line, cell.load), []).append(cell.outcome)
    return [_summary(line, load, group) for (line, load), group in groups.items()]


def _summary(line: str, load: float | None, outcomes: list[PointResult]) -> LoadSummary:
    done = [one.metrics for one in outcomes if one.status is Status.COMPLETE]
    jct = _values(done, "avg_jct_s")
    statuses = [one.status for one in outcomes]
    return LoadSummary(
        line=line,
        load=load,
        seeds=len(done),
        jct_s=fmean(jct) if jct else None,
        jct_low_s=min(jct, default=None),
        jct_high_s=max(jct, default=None),
        makespan_s=_mean(_values(done, "makespan_s")),
        utilization=_mean(_values(done, "utilization")),
        cost=_mean(_values(done, "cost")),
        statuses={status: statuses.count(status) for status in Status if status in statuses},
    )


def sustainable(rows: list[LoadSummary], line: str) -> float | None:
    """The highest load up to which every seed is complete and the mean JCT is at most ``SUSTAINED`` times
    that at the line's lowest load; None where the lowest is not complete itself."""
    highest, lowest_s = None, None
    for row in sorted((r for r in rows if r.line == line), key=lambda r: r.load or 0.0):
        if row.load is None or row.jct_s is None or set(row.statuses) != {Status.COMPLETE}:
            break
        lowest_s = row.jct_s if lowest_s is None else lowest_s
        if row.jct_s > SUSTAINED * lowest_s:
            break
        highest = row.load
    return highest


def read_sweep(folder: Path) -> SweepResult:
    """The results in a sweep's folder, or RunError."""
    path = folder / RESULT
    try:
        return msgspec.json.decode(path.read_bytes(), type=SweepResult)
    except OSError as problem:
        raise RunError(f"{path}: cannot be read ({problem.strerror})") from None
    except msgspec.MsgspecError as problem:
        raise RunError(f"{path}: is not the result of a sweep: {problem}") from None


def _combinations(
    vary: Mapping[str, list[str | float | bool | None]],
) -> list[dict[str, str | float | bool | None]]:
    found: list[dict[str, str | float | bool | None]] = [{}]
    for name, values in vary.items():
        found = [{**one, name: value} for one in found for value in values]
    return found


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _values(metrics: list[dict[str, float | None]], name: str) -> list[float]:
    return [value for one in metrics if (value := one.get(name)) is not None]


def _mean(values: list[float]) -> float | None:
    return fmean(values) if values else None
