"""The report on sweeps, as one self-contained HTML page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from fairlead.analysis.experiments.point import Status
from fairlead.analysis.experiments.sweep import PARTIAL, PARTIAL_MEANS, summarise, sustainable
from fairlead.analysis.experiments.sweep_charts import (
    AXES,
    LOAD_FIGURES,
    SAMPLE_FIGURES,
    Swept,
    axis_of,
    lost_tables,
    sweep_charts,
)
from fairlead.analysis.report import chart_svg as charts
from fairlead.analysis.report.chart import Chart
from fairlead.analysis.report.downloads import (
    chart_table,
    downloads,
    metric_table,
)
from fairlead.analysis.report.markup import Html, join, tag
from fairlead.analysis.report.metric_catalogue import (
    AVERAGE_JCT,
    COST,
    LOST,
    P99_JCT,
    UTILIZATION,
    WORST_RHO,
    MetricKind,
    counted,
)
from fairlead.analysis.report.page import (
    configuration,
    note,
    page,
    section,
)
from fairlead.analysis.report.sortable_tables import SortableColumn, sortable

MAIN = "jct-load"
MAX_POINTS = 1500  # rows of the table of points; the download has all
_POINT_METRICS = (AVERAGE_JCT, P99_JCT, UTILIZATION, WORST_RHO, COST, LOST)


def sweep_report(sweeps: Sequence[Swept]) -> Html:
    """The report on one sweep, or on several whose loads are of one kind, as a page of HTML."""
    axis = axis_of(sweeps)
    drawn = sweep_charts(sweeps)
    names = ", ".join(swept.folder.name for swept in sweeps)
    main = join(*(charts.figure(chart, wide=True) for name, chart in drawn if name == MAIN))
    others = [figure.name for figure in LOAD_FIGURES if figure.name != MAIN]
    title = "Against the load" if axis != "none" else "All numbers side by side"
    return page(
        f"Fairlead: {names}",
        [
            join(tag("h1", f"Sweep {names}"), tag("p", _lead(sweeps), class_="lead")),
            section("Job completion time", join(note(_MEANS), main)) if main else Html(),
            _sustained(sweeps, axis),
            charts.chart_section(title, drawn, others),
            _distributions(sweeps, drawn),
            section("Lines and loads", _summary_table(sweeps, axis)),
            _incomplete(sweeps, axis),
            section("Points", _point_table(sweeps, axis)),
            downloads(
                [
                    ("points", "all numbers of every point", metric_table(_points(sweeps))),
                    ("figures", "the points of the figures", chart_table(drawn)),
                ]
            ),
            *(
                section(f"Configuration of {swept.folder.name}", configuration(_spec(swept)))
                for swept in sweeps
            ),
        ],
    )


_MEANS = (
    "Means over the seeds; error bars reach from the least to the greatest. A line has no point where "
    "a seed is not complete. Near divergence, curves leave the figure at its top."
)


def _lead(sweeps: Sequence[Swept]) -> str:
    cells = [cell for swept in sweeps for cell in swept.result.cells]
    counts = Counter(cell.outcome.status for cell in cells)
    ended = ", ".join(f"{counts[s]:,} {s.replace('_', ' ')}" for s in Status if counts[s])
    lines = sum(len(swept.result.lines) for swept in sweeps)
    seeds = len({cell.seed for cell in cells})
    version = ", ".join(dict.fromkeys(swept.result.version for swept in sweeps))
    return (
        f"{counted(lines, 'line')} · {counted(seeds, 'seed')} · {counted(len(cells), 'point')}: "
        f"{ended or 'none'} · Fairlead {version}"
    )


def _distributions(sweeps: Sequence[Swept], drawn: Sequence[tuple[str, Chart]]) -> Html:
    """Return the distributions of jobs, or why they are not known."""
    title = "How jobs differ"
    lost = lost_tables(sweeps)
    if lost:
        return section(title, join(*map(note, lost)))
    return charts.chart_section(title, drawn, [figure.name for figure in SAMPLE_FIGURES])


def _label(sweeps: Sequence[Swept], swept: Swept, line: str) -> str:
    return f"{swept.folder.name}: {line}" if len(sweeps) > 1 else line


def _sustained(sweeps: Sequence[Swept], axis: str) -> Html:
    """The highest load of each line that it sustains."""
    if axis != "rates":
        return Html()
    found = [
        (_label(sweeps, swept, line.name), sustainable(summarise(swept.result), line.name))
        for swept in sweeps
        for line in swept.result.lines
    ]
    words = (
        "The highest load up to which every seed is complete and the average JCT is at most twice that "
        "at the line's lowest load. Near saturation it tells more than a ratio of completion times."
    )
    names, loads = zip(*found, strict=True) if found else ((), ())
    table = sortable(
        [SortableColumn("Line", names), SortableColumn(AXES[axis], loads, MetricKind.RATIO)]
    )
    return section("Sustainable load", join(note(words), table))


def _summary_table(sweeps: Sequence[Swept], axis: str) -> Html:
    rows = [
        (_label(sweeps, swept, row.line) + (f" {PARTIAL}" if row.is_partial else ""), row)
        for swept in sweeps
        for row in summarise(swept.result)
    ]
    columns = [
        SortableColumn("Line", [label for label, _ in rows]),
        *_loads(axis, [row.load for _, row in rows]),
        SortableColumn("Seeds complete", [row.seeds for _, row in rows], MetricKind.COUNT),
        SortableColumn("of", [sum(row.statuses.values()) for _, row in rows], MetricKind.COUNT),
        SortableColumn("Average JCT", [row.jct_s for _, row in rows], MetricKind.TIME),
        SortableColumn("least", [row.jct_low_s for _, row in rows], MetricKind.TIME),
        SortableColumn("greatest", [row.jct_high_s for _, row in rows], MetricKind.TIME),
        SortableColumn("Makespan", [row.makespan_s for _, row in rows], MetricKind.TIME),
        SortableColumn("Utilisation", [row.utilization for _, row in rows], MetricKind.SHARE),
        SortableColumn("Cost", [row.cost for _, row in rows], MetricKind.MONEY),
    ]
    partial = any(row.is_partial for _, row in rows)
    words = f"Click a heading to sort.{f' {PARTIAL} {PARTIAL_MEANS}' if partial else ''}"
    return join(note(words), sortable(columns))


def _loads(axis: str, loads: Sequence[float | None]) -> list[SortableColumn]:
    """The column of loads, where there are any."""
    if axis == "none":
        return []
    return [
        SortableColumn(
            AXES[axis], [f"{load:g}" for load in loads if load is not None], MetricKind.COUNT, True
        )
    ]


def _incomplete(sweeps: Sequence[Swept], axis: str) -> Html:
    """Return the table of points that are not complete, with the reasons."""
    cells = [
        (_label(sweeps, swept, cell.line), cell)
        for swept in sweeps
        for cell in swept.result.cells
        if cell.outcome.status is not Status.COMPLETE
    ][:MAX_POINTS]
    if not cells:
        return Html()
    columns = [
        SortableColumn("Line", [label for label, _ in cells]),
        *_loads(axis, [cell.load for _, cell in cells]),
        SortableColumn("Seed", [cell.seed for _, cell in cells], MetricKind.COUNT, True),
        SortableColumn("Ended", [cell.outcome.status.replace("_", " ") for _, cell in cells]),
        SortableColumn("Why", [cell.outcome.reason for _, cell in cells]),
    ]
    return section("Points that are not complete", sortable(columns))


def _point_table(sweeps: Sequence[Swept], axis: str) -> Html:
    cells = [
        (_label(sweeps, swept, cell.line), cell)
        for swept in sweeps
        for cell in swept.result.cells
        if cell.outcome.status is Status.COMPLETE
    ]
    shown = cells[:MAX_POINTS]
    words = "Click a heading to sort."
    if len(shown) < len(cells):
        words = f"The first {len(shown):,} of {len(cells):,}; the download has all. {words}"
    columns = [
        SortableColumn("Line", [label for label, _ in shown]),
        *_loads(axis, [cell.load for _, cell in shown]),
        SortableColumn("Seed", [cell.seed for _, cell in shown], MetricKind.COUNT, True),
    ]
    for metric in _POINT_METRICS:
        values = [metric.of(cell.outcome.metrics) for _, cell in shown]
        columns.append(SortableColumn(metric.name, values, metric.kind))
    return join(note(words), sortable(columns))


def _points(sweeps: Sequence[Swept]) -> list[tuple[dict[str, object], dict[str, object]]]:
    """Return for each point its names with how it ended, and its metrics."""
    return [
        (
            {
                "sweep": swept.folder.name, "line": cell.line, "load": cell.load, "seed": cell.seed,
                "policy": cell.outcome.point.policy, "profile": cell.outcome.point.profile,
                "status": str(cell.outcome.status), "reason": cell.outcome.reason,
            },
            cell.outcome.metrics,
        )
        for swept in sweeps
        for cell in swept.result.cells
    ]  # fmt: skip


def _spec(swept: Swept) -> dict[str, object]:
    """Return the options of a sweep, in one level; those at their defaults are left out."""
    spec = asdict(swept.result.spec)
    given, defaults = spec.pop("input"), asdict(type(swept.result.spec.input)())
    changed = {key: value for key, value in given.items() if value != defaults[key]}
    known = {key: value for key, value in spec.items() if value not in (None, (), {}, [])}
    return {**known, **changed}
