"""Tables for the terminal; plain ASCII where the output is no terminal."""

import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.analysis.report.metric_catalogue import (
    COMPLETED,
    LOST,
    MAIN_METRICS,
    MOVES,
    P99_JCT,
    QUEUEING,
    Metric,
    metrics_of,
    unit_for,
)
from fairlead.analysis.report.relative_metrics import format_ratio, relative_metrics


def summary_table(config: Mapping[str, object], metrics: Mapping[str, object]) -> Table:
    """The numbers of one run, one per line; those that are missing are left out, the main ones never."""
    name = f"{config.get('policy') or 'run'} ({config.get('profile') or 'default'} profile)"
    table = Table(title=Text(name), box=box.SIMPLE, title_justify="left", show_header=False)
    table.add_column("number")
    table.add_column("value", justify="right")
    group = ""
    for metric in metrics_of([metrics]):
        value = metric.of(metrics)
        if value is None and metric not in MAIN_METRICS:
            continue
        if group and metric.group != group:
            table.add_section()
        group = metric.group
        table.add_row(Text(metric.name), Text(unit_for(metric.kind, [value]).full(value)))
    return table


def comparison_table(
    runs: Sequence[tuple[str, Mapping[str, object]]], width: int | None = None
) -> Table:
    """One run per line; the best value of each column is bold and carries a star.

    Where ``width`` characters are too few, the least important columns are left out, and the time lost to
    restarts where there is none.
    """
    lost = any(LOST.of(metrics) for _, metrics in runs)
    columns = [metric for metric in MAIN_METRICS if metric is not LOST or lost]
    for least in (MOVES, COMPLETED, QUEUEING, P99_JCT, None):
        table = _comparison(runs, columns)
        if width is None or least is None or _width(table) <= width:
            break
        columns.remove(least)
    return table


def ratio_table(runs: Sequence[tuple[str, Mapping[str, object]]], reference: int) -> Table:
    """One run per line: what the papers compare, and its ratio to that of the reference."""
    rows = relative_metrics([metrics for _, metrics in runs], reference)
    named = Text(f"x: ratio to {runs[reference][0]}; lower is better")
    table = Table(box=box.SIMPLE, padding=(0, 1), caption=named)
    table.add_column("policy", overflow="fold", vertical="bottom")
    for row in rows:
        name = f"{row.metric.short}\n{row.unit.name}" if row.unit.name else row.metric.short
        table.add_column(Text(name), justify="right", no_wrap=True, vertical="bottom")
        table.add_column("x", justify="right", no_wrap=True, vertical="bottom")
    for i, (label, _) in enumerate(runs):
        pairs = ((row.unit.bare(row.values[i]), format_ratio(row.ratios[i], "")) for row in rows)
        cells = (Text(cell) for pair in pairs for cell in pair)
        table.add_row(Text(label), *cells, style="bold" if i == reference else None)
    return table


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Characters per line of a terminal; None where the output is none, and may be of any width."""
    console = Console(file=stream or sys.stdout)
    return console.width if console.is_terminal else None


def show(table: Table, stream: TextIO | None = None) -> None:
    """Print a table: as wide as it needs, in ASCII and without colours, where the output is no terminal."""
    console = Console(file=stream or sys.stdout, highlight=False)
    if not console.is_terminal:
        table.box = box.ASCII
        console.width = max(_width(table), console.width)
    console.print(table)


def _width(table: Table) -> int:
    """Characters per line that a table needs to show everything."""
    console = Console()
    return console.measure(table, options=console.options.update(width=1_000_000)).maximum


def _comparison(runs: Sequence[tuple[str, Mapping[str, object]]], shown: Sequence[Metric]) -> Table:
    table = Table(box=box.SIMPLE, padding=(0, 1), caption=Text("* best of its column"))
    table.add_column("policy", overflow="fold", vertical="bottom")
    columns = [_column(metric, [metrics for _, metrics in runs]) for metric in shown]
    for metric, (unit, _) in zip(shown, columns, strict=True):
        name = f"{metric.short}\n{unit}" if unit else metric.short
        table.add_column(Text(name), justify="right", no_wrap=True)
    for row, (label, _) in enumerate(runs):
        table.add_row(Text(label), *(cells[row] for _, cells in columns))
    return table


def _column(metric: Metric, runs: Sequence[Mapping[str, object]]) -> tuple[str, list[Text]]:
    """The unit of a column, and its cells."""
    values = [metric.of(metrics) for metrics in runs]
    unit = unit_for(metric.kind, values)
    best = metric.best(values, unit)
    cells = [
        Text(f"{unit.bare(value)}*", style="bold green")
        if i in best
        else Text(f"{unit.bare(value)} ")
        for i, value in enumerate(values)
    ]
    return unit.name, cells
