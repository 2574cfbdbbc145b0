"""Charts as files and in pages: the same bytes each time, everything in its place."""

import dataclasses
import html.parser
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from fairlead.analysis.report import chart_svg as charts
from fairlead.analysis.report.chart import (
    Chart,
    Series,
    x_range,
    y_range,
)
from fairlead.analysis.report.chart_mpl import draw, draw_for_paper, matplotlib_style, write_chart
from fairlead.analysis.report.figure_style import FigureStyle
from fairlead.errors import ConfigError

RATES = np.array([1.0, 2.0, 4.0])
JCT = np.array([10.0, 12.0, 90.0])


def curve(name: str, factor: float = 1.0, **more: object) -> Series:
    return Series(name, RATES, factor * JCT, **more)  # type: ignore[arg-type]


PAIR = Chart(
    "JCT against <rate>",
    "Jobs per hour",
    "JCT (h)",
    (
        curve("las", low=0.9 * JCT, high=1.1 * JCT),
        curve("las", 1.05, published=True),
        curve("AlloX", 2.0, published=True),
    ),
    y_max=50.0,
    marks=((3.0, "sustainable"),),
)
BARS = Chart(
    "Cost",
    "",
    "$",
    (
        Series("ours", np.arange(2.0), np.array([3.0, np.nan])),
        Series("ours", np.arange(2.0), np.array([2.0, 4.0]), published=True),
    ),
    "bars",
    ("fifo", "a policy with a name that is far too long for its place"),
)


def test_the_same_chart_gives_the_same_files(tmp_path: Path) -> None:
    first = write_chart(PAIR, tmp_path / "one")
    second = write_chart(PAIR, tmp_path / "two.v2")
    assert [path.name for path in first + second] == [
        "one.png",
        "one.svg",
        "two.v2.png",
        "two.v2.svg",
    ]
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert b"dc:date" not in first[1].read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_a_users_settings_change_nothing(tmp_path: Path) -> None:
    import matplotlib as mpl

    (before,) = write_chart(PAIR, tmp_path / "before", ("svg",))
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.hashsalt": "other"}):
        (after,) = write_chart(PAIR, tmp_path / "after", ("svg",))
    assert before.read_bytes() == after.read_bytes()


def test_published_series_are_dashed_in_the_colour_of_ours() -> None:
    axes = draw(PAIR).axes[0]
    ours, published, other = (line for line in axes.lines if line.get_label() in PAIR.names)
    assert ours.get_color() == published.get_color() != other.get_color()
    assert ours.get_linestyle() == "-"
    assert published.get_linestyle() == other.get_linestyle() == "--"
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["las", "AlloX", "published"]
    assert axes.get_ylim()[1] == 50.0
    page = charts.chart_legend(PAIR)
    assert re.findall(r"</svg>([^<]*)</li>", page) == ["las", "AlloX", "published"]


def test_error_bars_reach_from_low_to_high() -> None:
    (bars,) = draw(PAIR).axes[0].containers
    (segments,) = (part.get_segments() for part in bars[2])
    assert [tuple(s[:, 1]) for s in segments] == [pytest.approx((0.9 * y, 1.1 * y)) for y in JCT]


def test_bars_stand_side_by_side_and_gaps_are_left_out() -> None:
    page = charts.draw(BARS)
    places = [float(x) for x in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="[\d.]+" height="[\d.]+" '
                                           r'(?:fill="#0072b2"|fill="#fff")', page)]  # fmt: skip
    assert len(places) == 3  # one value is not known
    assert "ours (published), fifo: 2" in page
    assert len(draw(BARS).axes[0].patches) == 4


def test_axes_hold_what_is_drawn() -> None:
    assert x_range(PAIR) == (1.0, 4.0)
    assert y_range(PAIR) == (0.0, 50.0)
    near_one = Chart("", "", "", (Series("", RATES, np.array([0.98, 1.0, 1.02])),))
    assert y_range(near_one)[0] == pytest.approx(0.9776)
    steps = Chart("", "", "", (Series("", np.array([0.1, 9.0]), np.array([1.0, 2.0]), steps=True),))
    assert x_range(steps) == (0.0, 9.0)
    logs = Chart("", "", "", (Series("", np.array([0.0, 10.0, 100.0]), np.array([0.0, 1.0, 10.0])),),
                 log_x=True, log_y=True)  # fmt: skip
    assert x_range(logs) == (10.0, 100.0)
    assert 0 < y_range(logs)[0] < 1.0


@pytest.mark.parametrize("kind", ["lines", "bars"])
def test_a_chart_without_values_is_still_a_picture(kind: str, tmp_path: Path) -> None:
    nothing = Series("las", np.empty(0), np.empty(0))
    chart = Chart("t", "x", "y", (nothing,), kind)  # type: ignore[arg-type]
    assert all(path.stat().st_size for path in write_chart(chart, tmp_path / "empty"))
    assert "There is nothing to show." in charts.figure(chart)


def test_a_gap_breaks_the_line() -> None:
    y = np.array([1.0, np.nan, 3.0, 4.0])
    page = charts.draw(Chart("t", "x", "y", (Series("a", np.arange(4.0), y),)))
    (path,) = re.findall(r'<path d="([^"]*)" fill="none" stroke="#0072b2" stroke-width="2"', page)
    assert path.count("M") == 2
    assert page.count("<circle") == 3


MANY = Chart(
    "Job completion time, of all jobs of the trace that were measured",
    "Completion time (h)",
    "Share of jobs (%)",
    tuple(
        Series(
            name,
            np.sort(np.random.default_rng(seed).lognormal(2.0, 1.2, 300)),
            np.linspace(0.0, 100.0, 300),
            steps=True,
        )
        for seed, name in enumerate(("las", "las_aware", "finish_time_aware", "makespan_aware"))
    ),
    log_x=True,
)
COLUMN = FigureStyle(line_styles=True)


@pytest.mark.parametrize("chart", [PAIR, BARS, MANY], ids=["lines", "bars", "cdf"])
@pytest.mark.parametrize("style", [COLUMN, FigureStyle(columns=2, font_pt=10.0, titles=False)])
def test_nothing_of_a_figure_for_a_paper_collides_or_is_cut_off(
    chart: Chart, style: FigureStyle
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with matplotlib_style(style):
        figure = draw_for_paper(chart, style)
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    whole = figure.bbox
    axes = figure.axes[0]
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        shown = [label for label in labels if label.get_text() and label.get_rotation() == 0]
        boxes = [label.get_window_extent() for label in shown]
        inside = [box for box in boxes if whole.x0 <= box.x0 and box.x1 <= whole.x1 + 1]
        for box, after in itertools.pairwise(sorted(inside, key=lambda box: (box.y0, box.x0))):
            assert not box.overlaps(after)
    title = axes._left_title  # type: ignore[attr-defined]
    for words in (axes.xaxis.label, axes.yaxis.label, title):
        if words.get_text():
            box = words.get_window_extent()
            assert whole.x0 <= box.x0
            assert box.x1 <= whole.x1 + 1
            assert whole.y0 <= box.y0
            assert box.y1 <= whole.y1 + 1
    assert bool(axes.get_title(loc="left")) is style.titles


def test_line_styles_tell_lines_and_bars_apart_without_colours() -> None:
    lines = draw_for_paper(MANY, COLUMN).axes[0].lines
    assert len({line.get_marker() for line in lines}) == len(MANY.series)
    assert all(line.get_markevery() for line in lines)
    plain = draw_for_paper(MANY, FigureStyle()).axes[0].lines
    assert {line.get_marker() for line in plain} == {""}
    other = Series("b", np.arange(2.0), np.ones(2))
    both = Chart("", "", "", (BARS.series[0], other), "bars", BARS.categories)
    hatches = {patch.get_hatch() or "" for patch in draw_for_paper(both, COLUMN).axes[0].patches}
    assert len(hatches) == 2


def test_a_figure_for_a_paper_has_its_size(tmp_path: Path) -> None:
    style = FigureStyle(columns=2, column_in=3.5, height_in=2.0)
    (page,) = write_chart(MANY, tmp_path / "cdf", ("pdf",), style)
    again = write_chart(MANY, tmp_path / "again", ("pdf",), style)[0]
    assert page.read_bytes() == again.read_bytes()
    assert re.search(rb"/MediaBox \[ ?0 0 527.76 144 ?\]", page.read_bytes())
    with pytest.raises(ConfigError, match="--font-size: must be from 4 to 24, got 40"):
        FigureStyle(font_pt=40.0).checked()


def test_a_long_legend_makes_a_figure_higher_or_is_refused() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    names = [f"finish_time_aware of seed {seed}" for seed in range(12)]
    lines = dataclasses.replace(
        MANY, series=tuple(dataclasses.replace(MANY.series[0], name=name) for name in names)
    )
    with matplotlib_style(COLUMN):
        figure = draw_for_paper(lines, COLUMN)
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    assert figure.get_figheight() > COLUMN.height
    axes, legend = figure.axes[0].get_window_extent(), figure.legends[0].get_window_extent()
    assert axes.height >= 0.3 * COLUMN.height * figure.dpi
    assert not axes.overlaps(legend)
    assert legend.y1 <= figure.bbox.y1 + 1
    with pytest.raises(ConfigError, match=r"--height: must be at least .* for a legend of 12"):
        draw_for_paper(lines, FigureStyle(height_in=2.0))


def test_names_are_text() -> None:
    nasty = "</title><script>alert(1)</script>"
    chart = Chart(
        nasty,
        nasty,
        nasty,
        (Series(nasty, RATES, JCT), Series("b", RATES, JCT)),
        marks=((2.0, nasty),),
    )

    class Tags(html.parser.HTMLParser):
        found: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.found.append(tag)

    Tags().feed(charts.figure(chart))
    assert "script" not in Tags.found
