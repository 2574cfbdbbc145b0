"""Curves of a measure against the load: what the reproductions of Gavel's continuous experiments share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import TypeAlias

import numpy as np

from fairlead.analysis.experiments.findings import ExperimentContext, FindingRow
from fairlead.analysis.experiments.point import (
    Point,
    PointResult,
    Status,
)
from fairlead.analysis.experiments.sweep import SUSTAINED
from fairlead.analysis.report.chart import Series
from fairlead.model.arrays import Floats
from fairlead.simulator.simulation_input import SimulationInput

RATES = (
    "builtin:gavel"  # the rates of the release; its generator draws from the families of this table
)
CLUSTER = "v100=36,p100=36,k80=36"
WINDOW = "4000:5000"
SEEDS = (0, 1, 2)
MULTI = ",multi-gpu"  # of the generator
LABEL = 50  # characters of a mark

Published: TypeAlias = Mapping[str, Mapping[float, float]]  # by name of a line, by jobs per hour


@dataclass(frozen=True, slots=True)
class CurveLine:
    """A curve: a policy under a profile."""

    name: str
    policy: str
    profile: str = "gavel"
    solve_interval_s: float | None = None
    round_s: float | None = None
    ideal: bool = False


@dataclass(frozen=True, slots=True)
class Loads:
    """Loads at which curves are measured."""

    rates: tuple[float, ...]  # jobs per hour, rising
    seeds: tuple[int, ...] = SEEDS
    window: str = WINDOW
    cluster: str = CLUSTER
    flags: str = ""  # of the generator

    def point(self, line: CurveLine, rate: float, seed: int) -> Point:
        """The simulation of a line at a rate, with a seed."""
        given = SimulationInput(
            generate=f"gavel,interarrival={3600 / rate!r}{self.flags}",
            throughputs=RATES,
            cluster=self.cluster,
            window=self.window,
            seed=seed,
            round_s=line.round_s,
            solve_interval_s=line.solve_interval_s,
            ideal=line.ideal,
        )
        return Point(line.policy, line.profile, given)

    def points(self, line: CurveLine) -> list[Point]:
        """All of a line, by rate and seed."""
        return [self.point(line, rate, seed) for rate in self.rates for seed in self.seeds]


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """A measure of a line."""

    name: str
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    values: Floats  # (rates, seeds); nan: that run is not complete
    why: Mapping[float, str] = field(default_factory=dict)  # by rate: why a value is missing there
    diverges: float | None = None  # the lowest rate at which a run has diverged

    @property
    def mean(self) -> Floats:
        """(rates,) over the seeds; nan unless all are complete."""
        out: Floats = self.values.mean(axis=1)
        return out

    def at(self, rate: float, seed: int) -> float | None:
        """The value there; None where there is none."""
        if rate not in self.rates or seed not in self.seeds:
            return None
        return _number(self.values[self.rates.index(rate), self.seeds.index(seed)])

    def mean_at(self, rate: float) -> float | None:
        """The mean of the seeds there; None where there is none."""
        return _number(self.mean[self.rates.index(rate)]) if rate in self.rates else None

    @property
    def sustained(self) -> float | None:
        """The highest rate up to which the mean is at most twice that at the lowest rate."""
        return sustained(self.rates, self.mean)

    @property
    def series(self) -> Series:
        """The means, with bars from the least to the greatest of the seeds."""
        gone = np.isnan(self.mean)
        low = np.where(gone, nan, self.values.min(axis=1))
        high = np.where(gone, nan, self.values.max(axis=1))
        return Series(self.name, np.array(self.rates), self.mean, low, high)


Grid: TypeAlias = Mapping[tuple[float, int], PointResult]  # a line's outcomes, by rate and seed


def measure(
    context: ExperimentContext, lines: Sequence[CurveLine], loads: Loads
) -> dict[str, Grid]:
    """Run all lines at once; by name."""
    outcomes = iter(context.run([point for line in lines for point in loads.points(line)]))
    return {
        line.name: {(rate, seed): next(outcomes) for rate in loads.rates for seed in loads.seeds}
        for line in lines
    }


def jct_h(outcome: PointResult) -> float:
    """The average JCT in hours; nan if the run is not complete."""
    value = outcome.metrics.get("avg_jct_s") if outcome.status is Status.COMPLETE else None
    return nan if value is None else value / 3600


def curve(
    name: str, loads: Loads, grid: Grid, of: Callable[[PointResult], float] = jct_h
) -> LoadCurve:
    """A measure of a line that was run at these loads."""
    return curve_of(
        name, loads, grid, np.array([[of(grid[r, s]) for s in loads.seeds] for r in loads.rates])
    )


def curve_of(name: str, loads: Loads, grid: Grid, values: Floats) -> LoadCurve:
    """The curve of these values, (rates, seeds); grid: the outcomes that say why some are missing."""
    why: dict[float, str] = {}
    for (rate, seed), outcome in grid.items():
        if outcome.status is not Status.COMPLETE:
            why.setdefault(rate, f"seed {seed} {outcome.status}: {outcome.reason}".rstrip(": "))
    gone = [r for (r, _), outcome in grid.items() if outcome.status is Status.DIVERGED]
    return LoadCurve(name, loads.rates, loads.seeds, values, why, min(gone, default=None))


def either(one: Grid, other: Grid) -> Grid:
    """For a ratio of two lines: at each point the run that is not complete, if any."""
    return {at: o if o.status is not Status.COMPLETE else other[at] for at, o in one.items()}


def sustained(rates: Sequence[float], values: Floats) -> float | None:
    """The highest rate up to which no value is missing or above ``SUSTAINED`` times the first one; None
    where the first is missing itself."""
    fine = values <= SUSTAINED * values[0]  # False where a value is nan
    count = len(fine) if fine.all() else int(np.argmin(fine))
    return rates[count - 1] if count else None


def named(curves: Sequence[LoadCurve]) -> dict[str, LoadCurve]:
    """The curves by name."""
    return {one.name: one for one in curves}


def published_series(published: Published) -> tuple[Series, ...]:
    """Return the published curves, by the names of our lines."""
    return tuple(
        Series(name, np.array(list(known)), np.array(list(known.values())), published=True)
        for name, known in published.items()
    )


def marks(curves: Sequence[LoadCurve]) -> tuple[tuple[float, str], ...]:
    """Return marks at the rates where curves diverge; one mark for all that diverge at the same rate."""
    at: dict[float, list[str]] = {}
    for one in curves:
        if one.diverges is not None:
            at.setdefault(one.diverges, []).append(one.name)
    return tuple((rate, _diverge(names)) for rate, names in sorted(at.items()))


def _diverge(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} diverges"
    joined = f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{joined if len(joined) <= LABEL else f'{len(names)} of them'} diverge"


def published_rows(
    curves: Sequence[LoadCurve], published: Published, seed: int, unit: str = "h"
) -> tuple[FindingRow, ...]:
    """A row for each published value whose rate was measured: one seed's, as they were published."""
    return tuple(
        FindingRow(
            f"{one.name} at {rate:g} jobs/h",
            one.at(rate, seed),
            known,
            unit,
            one.why.get(rate, "") if one.at(rate, seed) is None else "",
        )
        for one in curves
        for rate, known in published.get(one.name, {}).items()
        if rate in one.rates
    )


def mean_rows(
    curves: Sequence[LoadCurve], rates: Sequence[float], unit: str = "h"
) -> tuple[FindingRow, ...]:
    """Means over the seeds, with the least and the greatest of them."""
    return tuple(
        _mean_row(one, rate, unit) for one in curves for rate in rates if rate in one.rates
    )


def _mean_row(one: LoadCurve, rate: float, unit: str) -> FindingRow:
    values = one.values[one.rates.index(rate)]
    mean = one.mean_at(rate)
    if mean is None:
        remark = one.why.get(rate, "not complete")
    elif len(values) > 1:
        remark = (
            f"{values.min():.4g} to {values.max():.4g} {unit} over {len(values)} seeds".replace(
                "  ", " "
            )
        )
    else:
        remark = "one seed"
    return FindingRow(f"{one.name} at {rate:g} jobs/h", mean, None, unit, remark)


def ratio_rows(
    curves: Mapping[str, LoadCurve],
    published: Published,
    ratios: Sequence[tuple[str, str, float]],
    seed: int,
) -> tuple[FindingRow, ...]:
    """Return how many times the first of two lines the second is better at a rate: by the seed that was
    published, and by the means of all seeds."""
    rows = []
    for over, base, rate in ratios:
        if not {over, base} <= curves.keys() or rate not in curves[over].rates:
            continue
        a, b = curves[over], curves[base]
        what = f"{over} over {base} at {rate:g} jobs/h"
        known = ratio(published.get(over, {}).get(rate), published.get(base, {}).get(rate))
        why = a.why.get(rate, b.why.get(rate, ""))
        one = ratio(a.at(rate, seed), b.at(rate, seed))
        rows.append(FindingRow(f"{what}, seed {seed}", one, known, "x", why if one is None else ""))
        if len(a.seeds) > 1:
            both = ratio(a.mean_at(rate), b.mean_at(rate))
            rows.append(FindingRow(f"{what}, means", both, known, "x", why if both is None else ""))
    return tuple(rows)


def sustained_rows(curves: Sequence[LoadCurve], published: Published) -> tuple[FindingRow, ...]:
    """Sustainable rates: the measure of a policy's strength that does not depend on how near to
    saturation one looks."""
    return tuple(_sustained_row(one, published.get(one.name, {})) for one in curves)


def _sustained_row(one: LoadCurve, known: Mapping[float, float]) -> FindingRow:
    rates = list(known)
    theirs = sustained(rates, np.array(list(known.values()))) if known else None
    words = []
    if one.sustained == one.rates[-1]:
        words.append("at least: the highest rate that was run")
    if theirs is not None and theirs == rates[-1]:
        words.append("published: at least, the highest rate there is")
    return FindingRow(one.name, one.sustained, theirs, "jobs/h", "; ".join(words))


def under(line: CurveLine, name: str, **changes: object) -> CurveLine:
    """The line under another name, with some of its fields changed."""
    return replace(line, name=name, **changes)  # type: ignore[arg-type]


def grid_rates(step: float, stop: float) -> tuple[float, ...]:
    """Rates as the release spaces them: step, 2 step ... stop."""
    return tuple(round(step * k, 6) for k in range(1, round(stop / step) + 1))


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def ratio(above: float | None, below: float | None) -> float | None:
    """Return the ratio; None if one of the numbers is unknown or 0."""
    return above / below if above is not None and below else None
