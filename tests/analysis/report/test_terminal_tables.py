"""Tables for the terminal."""

import io
import math

import pytest
from rich.console import Console

from fairlead.analysis.report.metric_catalogue import MetricKind, with_unit
from fairlead.analysis.report.terminal_tables import (
    comparison_table,
    ratio_table,
    show,
    summary_table,
)

METRICS = {
    "avg_jct_s": 7200.0, "makespan_s": 36000.0, "utilization": 0.5, "cost": 12.5, "n_completed": 10,
    "rho": {"isolated": {"max": 1.25}}, "avg_queueing_delay_s": math.nan,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (MetricKind.TIME, 12.0, "12.00 s"),
        (MetricKind.TIME, 600.0, "10.00 min"),
        (MetricKind.TIME, 360_000.0, "100.0 h"),
        (MetricKind.TIME, 86_400_000.0, "1,000 days"),
        (MetricKind.SHARE, 0.1234, "12.3 %"),
        (MetricKind.MONEY, 12.5, "$12.50"),
        (MetricKind.MONEY, 123456.7, "$123,457"),
        (MetricKind.COUNT, 1234, "1,234"),
        (MetricKind.RATIO, 1.0, "1.000"),
        (MetricKind.TIME, math.nan, "-"),
        (MetricKind.TIME, None, "-"),
        (MetricKind.COUNT, True, "-"),
    ],
)
def test_numbers_have_the_units_that_people_read(
    kind: MetricKind, value: object, words: str
) -> None:
    assert with_unit(kind, value) == words


def printed(*runs: tuple[str, dict[str, object]]) -> list[str]:
    stream = io.StringIO()
    show(comparison_table(runs), stream)
    return stream.getvalue().splitlines()


def test_off_a_terminal_a_comparison_is_plain_ascii_with_a_star_at_the_best() -> None:
    lines = printed(("las", METRICS), ("fifo[x]", METRICS | {"avg_jct_s": 14400.0}))
    assert all(line.isascii() and "\x1b" not in line for line in lines)
    las, fifo = (next(line for line in lines if name in line) for name in ("las", "fifo[x]"))
    assert "2.000*" in las
    assert "4.000 " in fifo
    assert "10.00*" not in las  # both took as long
    assert [cell.strip() for cell in las.split("|")][5] == "-"  # queueing delay is not a number


def test_ratios_stand_beside_the_numbers_that_they_relate() -> None:
    slow = METRICS | {"avg_jct_s": 14400.0, "rho": {"static": {"max": 2.5, "unfair_1_05": 0.125}}}
    fast = METRICS | {"rho": {"static": {"max": 1.25, "unfair_1_05": 0.0}}}
    stream = io.StringIO()
    show(ratio_table([("las", slow), ("shockwave", fast)], reference=1), stream)
    out = stream.getvalue()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines()]
    assert ["las", "10.00", "1.00", "4.000", "2.00", "2.500", "2.00", "12.5", "-"] in rows
    assert ["shockwave", "10.00", "1.00", "2.000", "1.00", "1.250", "1.00", "0.0", "-"] in rows
    assert "ratio to shockwave" in out
    assert out.isascii()


def test_a_long_name_is_never_cut() -> None:
    name = "a_policy_with_a_name_" * 8
    assert any(name in line for line in printed((name, METRICS)))


def test_a_summary_shows_what_is_known() -> None:
    stream = io.StringIO()
    show(summary_table({"policy": "las", "profile": "gavel"}, METRICS), stream)
    out = stream.getvalue()
    assert "las (gavel profile)" in out
    for words in ("Average JCT", "2.000 h", "50.0 %", "$12.50", "1.250"):
        assert words in out
    assert "Preemptions" not in out
    assert out.isascii()


def test_a_narrow_terminal_gets_fewer_columns_and_whole_numbers() -> None:
    runs = [("max_min_fairness_perf", METRICS), ("fifo", METRICS)]
    everything, narrow = comparison_table(runs), comparison_table(runs, width=80)
    assert len(narrow.columns) < len(everything.columns)
    stream = io.StringIO()
    Console(file=stream, width=80, force_terminal=True, no_color=True).print(narrow)
    assert "…" not in stream.getvalue()
    assert "2.000" in stream.getvalue()
