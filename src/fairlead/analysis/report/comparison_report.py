"""The report on several runs side by side, as one self-contained HTML page."""

from collections.abc import Mapping, Sequence

import polars as pl

from fairlead.analysis.report import chart_svg as charts
from fairlead.analysis.report import report_figures as figures
from fairlead.analysis.report.aggregate import (
    completion_times,
    measured_jobs,
    rho_of,
    static_rho,
)
from fairlead.analysis.report.chart import Chart
from fairlead.analysis.report.downloads import (
    MAX_ROWS,
    chart_table,
    downloads,
    metric_table,
)
from fairlead.analysis.report.fairness import LIMITS
from fairlead.analysis.report.job_differences import difference_section, job_differences
from fairlead.analysis.report.markup import Html, join, table, tag
from fairlead.analysis.report.metric_catalogue import (
    AVERAGE_JCT,
    COMPLETED,
    COST,
    MAIN_METRICS,
    MAKESPAN,
    WORST_RHO,
    Direction,
    Metric,
    MetricKind,
    keys_of,
    metrics_of,
    unit_for,
    utilization_of,
    worst_rho,
)
from fairlead.analysis.report.page import (
    GLOSSARY,
    configurations,
    gallery,
    legend,
    note,
    page,
    reproduction,
    section,
    setup_line,
    wide,
)
from fairlead.analysis.report.relative_metrics import (
    RelativeMetric,
    format_ratio,
    relative_metrics,
)
from fairlead.analysis.report.report_figures import Bar
from fairlead.analysis.report.run_charts import (
    CHANGES,
    SHARES,
    PlottedRun,
    run_charts,
)
from fairlead.analysis.report.sortable_tables import SortableColumn, sortable
from fairlead.model.arrays import Floats

_OVER_TIME = ("utilisation", "fragmentation", "scattered", "queue")
Run = tuple[str, Mapping[str, object], Mapping[str, object], pl.DataFrame, pl.DataFrame]


def comparison_report(runs: Sequence[Run], reference: int | None = None) -> Html:
    """The report on several runs side by side, as a page of HTML.

    A run is (label, config, metrics, jobs, rounds), each as in ``run_report``. reference: position of
    the run that the others are related to, if one is.
    """
    labels = [label for label, *_ in runs]
    metrics = [run[2] for run in runs]
    configs = [run[1] for run in runs]
    setup = setup_line(configs[0], metrics[0]) if runs else ""
    drawn = run_charts([PlottedRun(*run) for run in runs])
    one_policy_each = len({str(config.get("policy")) for config in configs}) == len(runs)
    heading = f"{len(runs)} {'policies' if one_policy_each else 'runs'} compared"
    return page(
        "Fairlead: comparison",
        [
            join(tag("h1", heading), tag("p", setup, class_="lead")),
            _completion_warning(labels, configs, metrics),
            _relative(labels, metrics, reference),
            section(
                "At a glance", join(_overview(labels, metrics), _comparison_bars(labels, metrics))
            ),
            section("Job completion time", _comparison_cdf(runs)),
            _differences(runs),
            _fairness(runs),
            charts.chart_section("The cluster over time", drawn, _OVER_TIME),
            charts.chart_section("Shares, received and promised", drawn, SHARES),
            charts.chart_section("Preemptions, lost work and cost", drawn, CHANGES),
            section("All numbers", _comparison_table(labels, metrics)),
            section("Utilisation by accelerator type", _utilization_bars(labels, metrics)),
            _downloads(runs, drawn),
            section("How to reproduce this comparison", reproduction(configs, "compare")),
            section("Configuration", configurations(labels, configs)),
        ],
    )


def _differences(runs: Sequence[Run]) -> Html:
    """Return the differences per job of two runs of the same jobs."""
    if len(runs) != 2:
        return Html("")
    found = job_differences((runs[0][0], runs[1][0]), runs[0][3], runs[1][3])
    return Html("") if found is None else difference_section(found)


def _overview(labels: Sequence[str], metrics: Sequence[Mapping[str, object]]) -> Html:
    """A row per run, to be sorted by any number."""
    columns = [SortableColumn("Run", labels)]
    for metric in MAIN_METRICS:
        values = [metric.of(run) for run in metrics]
        if any(value is not None for value in values):
            columns.append(SortableColumn(metric.name, values, metric.kind))
    return join(note("Click a heading to sort."), sortable(columns))


def _downloads(runs: Sequence[Run], drawn: Sequence[tuple[str, Chart]]) -> Html:
    """Return the page's downloads; of the jobs at most ``MAX_ROWS`` rows, the same number of each run."""
    each = MAX_ROWS // max(len(runs), 1)
    jobs = [
        jobs.head(each).select(pl.lit(label).alias("run"), pl.all())
        for label, _, _, jobs, _ in runs
        if jobs.width
    ]
    scope = (
        f"jobs; the first {each:,} of a run" if any(r[3].height > each for r in runs) else "jobs"
    )
    return downloads(
        [
            ("metrics", "all numbers", metric_table([({"run": r[0]}, r[2]) for r in runs])),
            ("figures", "the points of the figures", chart_table(drawn)),
            ("jobs", scope, pl.concat(jobs, how="diagonal_relaxed") if jobs else pl.DataFrame()),
        ]
    )


def _completion_warning(
    labels: Sequence[str],
    configs: Sequence[Mapping[str, object]],
    metrics: Sequence[Mapping[str, object]],
) -> Html:
    """A warning where averages are over different jobs (those of a window are all complete)."""
    if any(isinstance(config.get("window"), list | tuple) for config in configs):
        return Html()
    done = [COMPLETED.of(run) for run in metrics]
    if len({count for count in done if count is not None}) < 2:
        return Html()
    words = ", ".join(
        f"{label} {count:,.0f}"
        for label, count in zip(labels, done, strict=True)
        if count is not None
    )
    return tag(
        "p",
        "The runs did not complete the same number of jobs, so their averages are over different "
        f"jobs. Completed: {words}.",
        class_="warning",
    )


def _relative(
    labels: Sequence[str], metrics: Sequence[Mapping[str, object]], reference: int | None
) -> Html:
    """Bars and a table of ratios to the reference."""
    if reference is None:
        return Html()
    rows = relative_metrics(metrics, reference)
    return section(
        f"Relative to {labels[reference]}",
        join(
            note("Lower is better in all four; x is the ratio to the reference."),
            wide(figures.panels(rows, labels, reference)),
            _ratio_table(rows, labels, reference),
        ),
    )


def _ratio_table(rows: Sequence[RelativeMetric], labels: Sequence[str], reference: int) -> Html:
    head = [tag("th", name, class_="n", scope="col") for row in rows for name in (row.heading, "x")]
    lines = []
    for i, label in enumerate(labels):
        cells = (
            tag("td", words, class_="n")
            for row in rows
            for words in (row.unit.bare(row.values[i]), format_ratio(row.ratios[i], ""))
        )
        style = "reference" if i == reference else None
        lines.append(tag("tr", tag("td", label), *cells, class_=style))
    return tag("div", table([tag("th"), *head], lines), class_="scroll")


def _comparison_bars(labels: Sequence[str], metrics: Sequence[Mapping[str, object]]) -> Html:
    return gallery(
        *(
            (f"{metric.name} (lower is better)", _bars(metric, labels, metrics))
            for metric in (AVERAGE_JCT, MAKESPAN, COST, WORST_RHO)
        )
    )


def _bars(
    metric: Metric,
    labels: Sequence[str],
    metrics: Sequence[Mapping[str, object]],
    largest: float | None = None,
) -> Html:
    values = [metric.of(run) for run in metrics]
    unit = unit_for(metric.kind, values)
    best = metric.best(values, unit)
    rows = [
        Bar(label, value, unit.full(value), series, series in best)
        for series, (label, value) in enumerate(zip(labels, values, strict=True))
    ]
    return figures.bars(rows, metric.name, largest=largest)


def _utilization_bars(labels: Sequence[str], metrics: Sequence[Mapping[str, object]]) -> Html:
    types = [str(key) for key in keys_of(metrics, "utilization_by_type")]
    if not types:
        return note("The runs do not say.")
    return gallery(
        *((name, _bars(utilization_of(name), labels, metrics, largest=1.0)) for name in types)
    )


def _comparison_cdf(runs: Sequence[Run]) -> Html:
    samples: list[tuple[str, Floats]] = [
        (label, completion_times(measured_jobs(config, jobs))) for label, config, _, jobs, _ in runs
    ]
    key = legend([(label, series) for series, (label, _) in enumerate(samples)])
    return wide(figures.cdf(samples, "completion time", size=(1120, 400)), key=key)


def _fairness(runs: Sequence[Run]) -> Html:
    """The distributions of rho, isolated and, where it is defined, static."""
    isolated = [
        (label, rho_of(measured_jobs(config, jobs), "rho_isolated"))
        for label, config, _, jobs, _ in runs
    ]
    known = [run for run in runs if worst_rho("static").of(run[2]) is not None]
    static = [(label, static_rho(jobs)) for label, _, _, jobs, _ in known]
    parts = [
        _rho_figure(name, samples)
        for name, samples in (("static rho", static), ("isolated rho", isolated))
        if any(sample.size for _, sample in samples)
    ]
    if not parts:
        return Html()
    words = note(
        "Share of jobs with a rho up to a value; the broken lines stand at 1, 1.05 and 1.1."
    )
    return section("Finish-time fairness", join(words, *parts))


def _rho_figure(name: str, samples: Sequence[tuple[str, Floats]]) -> Html:
    key = legend([(label, series) for series, (label, _) in enumerate(samples)])
    picture = figures.cdf(samples, name, kind=MetricKind.RATIO, limits=LIMITS, size=(1120, 400))
    return wide(picture, key=key)


def _comparison_table(labels: Sequence[str], metrics: Sequence[Mapping[str, object]]) -> Html:
    """Numbers as rows, runs as columns, the best of each row marked."""
    body, group = [], ""
    for metric in metrics_of(metrics):
        if metric.group != group:
            group = metric.group
            heading = tag("th", group, class_="group", colspan=len(labels) + 1, scope="colgroup")
            body.append(tag("tr", heading))
        body.append(_comparison_row(metric, metrics))
    head = (tag("th", label, class_="n", scope="col") for label in labels)
    return join(
        note("The best of each row is shaded; small figures are the distance from it."),
        tag("div", table([tag("th"), *head], body), class_="scroll"),
        note(GLOSSARY),
    )


def _comparison_row(metric: Metric, metrics: Sequence[Mapping[str, object]]) -> Html:
    values = [metric.of(run) for run in metrics]
    unit = unit_for(metric.kind, values)
    best = metric.best(values, unit)
    least = min((value for value in values if value is not None), default=0.0)
    by_how_much = (
        metric.better is Direction.LOWER
        and metric.kind in (MetricKind.TIME, MetricKind.MONEY)
        and least > 0
    )
    cells = []
    for i, value in enumerate(values):
        style, mark = ("n best", " ★") if i in best else ("n", "")
        marked = by_how_much and best and i not in best and value is not None
        more = tag("small", f"+{100 * (value / least - 1):.1f} %") if marked and value else None
        cells.append(tag("td", unit.bare(value), mark, more, class_=style))
    name = f"{metric.name} ({unit.name})" if unit.name else metric.name
    return tag("tr", tag("td", name, class_="what", title=metric.meaning), *cells)
