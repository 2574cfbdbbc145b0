"""Ratios to a reference run, and the figure of them."""

import html.parser

import pytest

from fairlead.analysis.report.relative_metrics import relative_metrics
from fairlead.analysis.report.report_figures import OTHER_BARS_COLOUR, panels
from fairlead.analysis.report.svg import colour


def run(makespan_s: float | None, unfair: float, which: str = "static") -> dict[str, object]:
    rho = {which: {"max": 1.5, "unfair_1_05": unfair}}
    return {"makespan_s": makespan_s, "avg_jct_s": 100.0, "rho": rho}


class Picture(html.parser.HTMLParser):
    """Bars with their heights, and the words."""

    def __init__(self, svg: str) -> None:
        super().__init__()
        self.bars: list[tuple[str, float]] = []
        self.words: list[str] = []
        self.feed(svg)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "rect":
            self.bars.append((given["fill"] or "", float(given["height"] or 0)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_ratios_are_over_the_reference() -> None:
    makespan, jct, worst, unfair = relative_metrics([run(300.0, 0.2), run(200.0, 0.1)], reference=1)
    assert makespan.ratios == (1.5, 1.0)
    assert jct.ratios == (1.0, 1.0)
    assert worst.values == (1.5, 1.5)
    assert unfair.ratios == (2.0, 1.0)
    assert "1.05" in unfair.heading


def test_there_is_no_ratio_to_nothing() -> None:
    makespan, *_, unfair = relative_metrics([run(None, 0.2), run(200.0, 0.0)], reference=1)
    assert makespan.ratios == (None, 1.0)
    assert unfair.ratios == (None, None)


@pytest.mark.parametrize("which", ["static", "isolated"])
def test_rho_is_static_where_it_is_known(which: str) -> None:
    rows = relative_metrics([run(300.0, 0.2, which)], reference=0)
    assert [row.values for row in rows[2:]] == [(1.5,), (0.2,)]
    assert all(which in row.metric.name for row in rows[2:])


@pytest.mark.parametrize("n", [1, 5, 7, 13, 40])
def test_a_figure_has_a_bar_per_run_and_quantity_and_one_stands_out(n: int) -> None:
    runs = [run(100.0 * (i + 1), 0.1) for i in range(n)]
    svg = panels(relative_metrics(runs, n // 2), [f"policy {i}" for i in range(n)], n // 2)
    shown = Picture(svg)
    assert len(shown.bars) == 4 * n
    assert [fill for fill, _ in shown.bars].count(colour(0)) == 4
    assert [fill for fill, _ in shown.bars].count(OTHER_BARS_COLOUR) == 4 * (n - 1)
    makespan = [height for _, height in shown.bars[:n]]
    assert makespan == pytest.approx([makespan[-1] * (i + 1) / n for i in range(n)], abs=0.11)
    over_bars = 4 * n - (n - 1) if n < 40 else 0  # forty leave no room: see the tooltips
    assert shown.words.count("1.00×") == over_bars
    assert "1.00× that of" in svg


def test_a_figure_shows_values_where_there_is_no_ratio() -> None:
    runs = [run(None, 0.25), run(200.0, 0.0)]
    shown = Picture(panels(relative_metrics(runs, 1), ["a", "b"], 1))
    assert "25.0 %" in shown.words
    assert "0.0 %" in shown.words
    assert "-" in shown.words
