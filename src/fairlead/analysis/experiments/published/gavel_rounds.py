"""Gavel's mechanism: the length of rounds, compared with the ideal without rounds."""

from collections.abc import Mapping, Sequence

import numpy as np

from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
    Reproduction,
)
from fairlead.analysis.experiments.published.gavel_continuous import (
    AT_ONCE,
    COARSE_SINGLE_RATES,
    SEED,
    SMALL_SCALE_NOTE,
)
from fairlead.analysis.experiments.published.gavel_curves import (
    CurveLine,
    LoadCurve,
    Loads,
    curve,
    marks,
    mean_rows,
    measure,
    sustained_rows,
    under,
)
from fairlead.analysis.experiments.published.gavel_jct_numbers import PAPER, ROUND_LENGTH
from fairlead.analysis.report.chart import Chart, Series

IDEAL = 0.0  # seconds: no rounds at all
SATURATED = 6.0  # jobs per hour
DEFAULT_PROFILE_ROUNDS_S = (IDEAL, 360.0, 2880.0)  # lengths that are run in the default profile too


def round_length(context: ExperimentContext) -> Findings:
    """Figure 13: aware least attained service with rounds of several lengths, and without rounds."""
    small = Loads((2.0, SATURATED), (SEED,), "1000:1300")
    loads = Loads(COARSE_SINGLE_RATES) if context.scale == "paper" else small
    lines = {length_s: _rounds(length_s) for length_s in ROUND_LENGTH}
    ours = [_in_default(lines[length_s]) for length_s in DEFAULT_PROFILE_ROUNDS_S]
    grids = measure(context, [*lines.values(), *ours], loads)
    curves = {s: curve(line.name, loads, grids[line.name]) for s, line in lines.items()}
    default = [curve(line.name, loads, grids[line.name]) for line in ours]
    every = [*curves.values(), *default]
    return Findings(
        (
            FindingTable(f"Average JCT at {SATURATED:g} jobs/h", _by_length(curves)),
            FindingTable("Average JCT over that without rounds", _over_ideal(curves, loads)),
            FindingTable("Sustainable rates", sustained_rows(every, {})),
            FindingTable("Means", mean_rows(every, loads.rates)),
        ),
        (
            _length_chart("Aware least attained service by length of rounds", [*curves.values()]),
            _length_chart("The same in the default profile", default),
        ),
        (
            "The published numbers are means of seeds 0 to 2, read off a figure to about a tenth.",
            "Rounds are those of the gavel profile with a solve at every arrival and end; the "
            "ideal lets every job progress at its shares all the time and solves at every change.",
            "The release's own option for the ideal ends with an error at the first completion.",
            f"{SATURATED:g} jobs/h are at the edge of what the cluster carries: seeds differ by a factor of "
            "two, and the longer the rounds, the more: with those of 1,440 s and more some jobs starve, and "
            "their runs are ended once four times as many jobs have come as are needed.",
            *(() if context.scale == "paper" else (SMALL_SCALE_NOTE,)),
        ),
    )


def _rounds(length_s: float) -> CurveLine:
    if length_s == IDEAL:
        return CurveLine("no rounds", "las_aware", ideal=True)
    return CurveLine(f"{length_s:g} s", "las_aware", solve_interval_s=AT_ONCE, round_s=length_s)


def _in_default(line: CurveLine) -> CurveLine:
    return under(line, f"{line.name}, default profile", profile="default", solve_interval_s=None)


def _by_length(curves: Mapping[float, LoadCurve]) -> tuple[FindingRow, ...]:
    return tuple(
        FindingRow(
            one.name,
            one.mean_at(SATURATED),
            ROUND_LENGTH[length_s],
            "h",
            one.why.get(
                SATURATED, f"mean over {len(one.seeds)} seeds; published: read off a figure"
            ),
        )
        for length_s, one in curves.items()
    )


def _over_ideal(curves: Mapping[float, LoadCurve], loads: Loads) -> tuple[FindingRow, ...]:
    """Return how far each length of rounds is from the ideal, at the highest rate below saturation and in
    it."""
    rows = []
    for rate in dict.fromkeys(
        min(loads.rates, key=lambda r: abs(r - at)) for at in (2.0, SATURATED)
    ):
        ideal = curves[IDEAL].mean_at(rate)
        for length_s, one in curves.items():
            mine = one.mean_at(rate)
            if length_s != IDEAL:
                ratio = mine / ideal if mine is not None and ideal else None
                known = ROUND_LENGTH[length_s] / ROUND_LENGTH[IDEAL] if rate == SATURATED else None
                what = f"{one.name} at {rate:g} jobs/h"
                rows.append(FindingRow(what, ratio, known, "x", one.why.get(rate, "")))
    return tuple(rows)


def _length_chart(title: str, curves: Sequence[LoadCurve]) -> Chart:
    series = tuple(one.series for one in curves)
    known = tuple(
        Series(one.name, np.array([SATURATED]), np.array([ROUND_LENGTH[length_s]]), published=True)
        for length_s, one in zip(ROUND_LENGTH, curves, strict=False)
        if len(curves) == len(ROUND_LENGTH)
    )
    return Chart(
        title,
        "Jobs per hour",
        "Average JCT (h)",
        (*series, *known),
        y_max=100.0,
        marks=marks(curves),
    )


REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        "gavel-round-length",
        "JCT by the length of rounds, beside the ideal without rounds",
        f"{PAPER}, figure 13; the release's notebooks of the mechanism",
        round_length,
    ),
)
