"""Curves of the metrics that jobs report: of one job, or of several over each other."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fairlead.analysis.report.markup import Html, clean, tag
from fairlead.analysis.report.metric_catalogue import Unit
from fairlead.analysis.report.svg import (
    Axis,
    PlotFrame,
    colour,
    dashes,
    empty,
    grid_x,
    grid_y,
    picture,
)
from fairlead.cluster.front.web.layout import SLOW, Section, columns, figure, note
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.model.arrays import Floats

SHOWN = 16  # metrics of a job that are drawn
CURVES = 200  # most curves in one picture
POINTS = 250  # and points of each
_SIZE = (620, 220)
_HUGE = 1e300
_STEPS = Unit("", 1.0, 0)
_VALUES = Unit("", 1.0, 4)


class NamedCurve(NamedTuple):
    """A curve and what it is called; ``faint``: it stands behind the others."""

    label: str
    curve: MetricCurve
    faint: bool = False


def metrics_section(curves: Sequence[MetricCurve]) -> Section:
    """The section with all metrics of a job; hidden where it has reported none."""
    if not curves:
        return Section("metrics", "Metrics", Html(""), SLOW, hidden=True)
    figures = [
        figure(f"{curve.name}: {curve.last:.5g} at step {curve.last_step:,}", _alone(curve))
        for curve in curves[:SHOWN]
    ]
    more = len(curves) - len(figures)
    cut = note(f"The first {SHOWN} of {len(curves)} metrics are drawn.") if more > 0 else None
    return Section("metrics", "Metrics", tag("div", cut, columns(*figures)), SLOW)


def _alone(curve: MetricCurve) -> Html:
    return curves_picture([NamedCurve(curve.name, curve)], f"{curve.name} by step")


def curves_picture(curves: Sequence[NamedCurve], title: str, size: tuple[int, int] = _SIZE) -> Html:
    """Values by step, all curves over each other; those in the back are drawn first."""
    drawn = [one for one in curves if one.curve.steps][-CURVES:]
    if not drawn:
        return empty("Nothing has been reported yet.", size)
    frame = PlotFrame(*size, left=64, right_margin=14)
    most = max(one.curve.steps[-1] for one in drawn)
    least = min(one.curve.steps[0] for one in drawn)
    values = np.concatenate([_values(one.curve) for one in drawn])
    low, high = float(values.min()), float(values.max())
    margin = 0.04 * (high - low) or max(abs(high) * 0.04, 1e-9)
    x = Axis(float(least), float(max(most, least + 1)), frame.left, frame.right)
    y = Axis(low - margin, high + margin, frame.bottom, frame.top)
    order = sorted(range(len(drawn)), key=lambda i: not drawn[i].faint)
    lines = [_line(x, y, i, drawn[i]) for i in order]
    grid = [grid_y(frame, y, _VALUES, 4), grid_x(frame, x, _STEPS, "step")]
    return picture(*size, title, "".join([*grid, *lines]))


def _values(curve: MetricCurve) -> Floats:
    """The values, but for those whose differences no float can hold."""
    return np.clip(np.array(curve.values, np.float64), -_HUGE, _HUGE)


def _line(x: Axis, y: Axis, series: int, one: NamedCurve) -> str:
    curve = one.curve
    every = -(-len(curve.steps) // POINTS)  # the newest is among them
    across = x.all(np.array(curve.steps, np.float64))[::-1][::every][::-1]
    along = y.all(_values(curve))[::-1][::every][::-1]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, along, strict=True))
    dash = dashes(series)
    style = f'stroke="{colour(series)}" stroke-width="{1 if one.faint else 1.8}"'
    style += f' stroke-dasharray="{dash}"' if dash else ""
    style += ' opacity="0.35"' if one.faint else ""
    label = clean(f"{one.label}: {curve.last:.5g} at step {curve.last_step:,}")
    dot = ""
    if len(curve.steps) == 1:
        dot = f'<circle cx="{across[0]:.1f}" cy="{along[0]:.1f}" r="2.5" fill="{colour(series)}"/>'
    return f'<g><title>{label}</title><polyline points="{points}" fill="none" {style}/>{dot}</g>'
