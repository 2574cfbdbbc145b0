"""The report on a run, as one self-contained HTML page: no network, no library, light enough to mail."""

from collections.abc import Iterator, Mapping

import polars as pl

from fairlead.analysis.report import chart_svg as charts
from fairlead.analysis.report import report_figures as figures
from fairlead.analysis.report.aggregate import (
    accelerators,
    busiest_window,
    completion_times,
    measured_jobs,
    over_time,
    static_rho,
    timeline,
    worst_jobs,
)
from fairlead.analysis.report.device_bands import MOST, bands_over_time, device_bands
from fairlead.analysis.report.downloads import (
    MAX_ROWS,
    chart_table,
    downloads,
    metric_table,
)
from fairlead.analysis.report.fairness import LIMITS
from fairlead.analysis.report.job_table import job_table, values_of
from fairlead.analysis.report.markup import Html, join, table, tag
from fairlead.analysis.report.metric_catalogue import (
    AVERAGE_JCT,
    COMPLETED,
    COST,
    MAKESPAN,
    P99_JCT,
    UTILIZATION,
    WORST_RHO,
    Metric,
    MetricKind,
    devices,
    keys_of,
    metrics_of,
    number,
    unit_for,
    worst_rho,
)
from fairlead.analysis.report.page import (
    GLOSSARY,
    configuration,
    figure,
    gallery,
    legend,
    note,
    page,
    reproduction,
    section,
    setup_line,
    wide,
)
from fairlead.analysis.report.picture_data import OverTime
from fairlead.analysis.report.report_figures import Bar
from fairlead.analysis.report.run_charts import (
    CHANGES,
    OVER_TIME,
    SHARES,
    PlottedRun,
    run_charts,
)
from fairlead.model.duration_text import DASH

ZOOM_ROUNDS = 120  # rounds in the close-up of the timeline of a long run


def run_report(
    config: Mapping[str, object],
    metrics: Mapping[str, object],
    jobs: pl.DataFrame,
    rounds: pl.DataFrame,
    intervals: pl.DataFrame,
) -> Html:
    """The report on one run, as a page of HTML.

    Numbers that are missing or not finite show as a dash. The frames are those of a run directory: a
    row per job, per round (with ``busy_T`` device-seconds and ``capacity_T`` devices of each
    accelerator type T), and per placement interval.
    """
    over = over_time(rounds)
    policy = config.get("policy") or "a policy"
    drawn = run_charts([PlottedRun(str(policy), config, metrics, jobs, rounds)])
    return page(
        f"Fairlead: {policy}",
        [
            join(tag("h1", policy), tag("p", setup_line(config, metrics), class_="lead")),
            _cards(metrics),
            section(
                "Job completion time", gallery(*_completion(metrics, measured_jobs(config, jobs)))
            ),
            _titled(
                "Finish-time fairness",
                join(_fairness(metrics, jobs), charts.gallery(drawn, ("rho",))),
            ),
            section(
                "The cluster over time",
                join(_cluster_over_time(over), charts.gallery(drawn, OVER_TIME)),
            ),
            charts.chart_section("Shares, received and promised", drawn, SHARES),
            charts.chart_section("Preemptions, lost work and cost", drawn, CHANGES),
            _titled("Devices of elastic jobs", _bands(intervals, over)),
            section("Who ran where", _timelines(config, jobs, rounds, intervals, over)),
            section("Jobs", job_table(jobs)),
            section("All numbers", _numbers(metrics)),
            downloads(
                [
                    (
                        "metrics",
                        "all numbers of the run",
                        metric_table([({"policy": policy}, metrics)]),
                    ),
                    ("figures", "the points of the figures", chart_table(drawn)),
                    ("jobs", "the jobs", worst_jobs(jobs, MAX_ROWS)),
                ]
            ),
            section("How to reproduce this run", reproduction([config], "simulate")),
            section("Configuration", configuration(config)),
        ],
    )


def _shown(metric: Metric, metrics: Mapping[str, object], digits: int = 4) -> str:
    value = metric.of(metrics)
    return unit_for(metric.kind, [value], digits).full(value)


def _cards(metrics: Mapping[str, object]) -> Html:
    static = worst_rho("static")
    other = P99_JCT if static.of(metrics) is None else static
    shown = (AVERAGE_JCT, MAKESPAN, UTILIZATION, other, WORST_RHO, COST)
    cards = [(metric.name, _shown(metric, metrics, digits=3)) for metric in shown]
    done, every = COMPLETED.of(metrics), number(metrics.get("n_jobs"))
    both = done is not None and every is not None
    cards.append(("Jobs completed", f"{done:,.0f} of {every:,.0f}" if both else DASH))
    inner = (tag("div", tag("b", v), tag("span", n), class_="card") for n, v in cards)
    return tag("div", *inner, class_="cards")


def _completion(metrics: Mapping[str, object], jobs: pl.DataFrame) -> Iterator[tuple[str, Html]]:
    times = completion_times(jobs)
    yield (
        "Share of jobs completed within a time",
        figures.cdf([("all jobs", times)], "completion time"),
    )
    scales = keys_of([metrics], "avg_jct_by_scale_s")
    if scales:
        found = [_scale_jct(metrics, key) for key in scales]
        unit = unit_for(MetricKind.TIME, found, 3)
        rows = [Bar(devices(k), v, unit.full(v)) for k, v in zip(scales, found, strict=True)]
        yield (
            "Average completion time by number of devices",
            figures.bars(rows, "Average JCT by devices"),
        )


def _fairness(metrics: Mapping[str, object], jobs: pl.DataFrame) -> Html:
    """The distribution of static rho, and the worst by number of devices and by mode; empty where static rho
    is not defined."""
    if worst_rho("static").of(metrics) is None:
        return Html()
    sample = ("all jobs", static_rho(jobs))
    picture = figures.cdf([sample], "static rho", kind=MetricKind.RATIO, limits=LIMITS)
    groups = [(name, _worst_by(jobs, column)) for name, column in _GROUPS]
    worst = (
        join(
            tag("h3", f"Worst static rho by {name}"),
            figures.bars(rows, f"Worst static rho by {name}"),
        )
        for name, rows in groups
        if len(rows) > 1
    )
    curve = figure("Share of jobs up to a static rho", picture)
    return tag("div", curve, tag("div", *worst), class_="figures")


def _titled(title: str, inner: Html) -> Html:
    """A section, where there is something in it."""
    return section(title, inner) if inner else Html()


_GROUPS = (("number of devices", "scale_factor"), ("mode", "mode"))


def _worst_by(jobs: pl.DataFrame, column: str) -> list[Bar]:
    """Return a bar per value of a column: the largest static rho among its jobs."""
    if column not in jobs.columns:
        return []
    known = jobs.filter(pl.col("rho_static").is_not_null() & pl.col(column).is_not_null())
    found = known.group_by(column).agg(pl.col("rho_static").max()).sort(column).rows()
    unit = unit_for(MetricKind.RATIO, [value for _, value in found])
    name = devices if column == "scale_factor" else str
    return [Bar(name(group), value, unit.full(value)) for group, value in found]


def _scale_jct(metrics: Mapping[str, object], key: object) -> float | None:
    table = metrics["avg_jct_by_scale_s"]
    return number(table[key]) if isinstance(table, Mapping) else None


def _cluster_over_time(over: OverTime | None) -> Html:
    if over is None:
        return note("No round was run.")
    key = legend([("active: jobs in the system", 5), ("running", 0)])
    return gallery(
        ("Utilisation by accelerator type", figures.utilization_over_time(over)),
        ("Jobs in the system", join(key, figures.jobs_over_time(over))),
    )


def _bands(intervals: pl.DataFrame, over: OverTime | None) -> Html:
    """How many devices each job had whose number changed; empty where there is none."""
    bands = device_bands(intervals) if over is not None and intervals.height else []
    if over is None or not bands:
        return Html()
    changes = sum(one.changes for one in bands)
    who = "One job" if len(bands) == 1 else f"{len(bands):,} jobs"
    often = "once" if changes == 1 else f"{changes:,} times"
    words = f"{who} had more than one number of devices, and changed it {often}."
    if len(bands) > MOST:
        words += f" The first {MOST} of them are shown."
    return join(note(words), wide(bands_over_time(bands, float(over.edges_s[-1]))))


def _timelines(
    config: Mapping[str, object],
    jobs: pl.DataFrame,
    rounds: pl.DataFrame,
    intervals: pl.DataFrame,
    over: OverTime | None,
) -> Html:
    """The whole run, and a close-up of its busiest part if it is long."""
    if over is None or not intervals.height:
        return note("No job ran.")
    whole = (float(over.edges_s[0]), float(over.edges_s[-1]))
    windows = [("The whole run", whole)]
    if rounds.height > 2 * ZOOM_ROUNDS:
        window = busiest_window(over, ZOOM_ROUNDS / rounds.height)
        windows.append((f"Close-up of about {ZOOM_ROUNDS} rounds at the busiest time", window))
    sizes = _sizes(config, rounds)
    parts = [
        note(
            "Rows are devices, colours are jobs; point at a bar to see which. Each column of pixels "
            "shows the job that held the device at that moment. Packed jobs share a row."
        )
    ]
    for title, window in windows:
        shown = timeline(intervals, sizes, window)
        if shown is not None:
            picture = figures.device_timeline(shown, _names(jobs, shown.bars["job"]), title)
            parts.append(wide(picture, title=title))
    return join(*parts)


def _sizes(config: Mapping[str, object], rounds: pl.DataFrame) -> dict[str, int]:
    """Accelerator type -> devices, from the configuration, else as the rounds counted them."""
    cluster = config.get("cluster")
    if isinstance(cluster, Mapping):
        counts = {str(name): number(count) for name, count in cluster.items()}
        known = {name: int(count) for name, count in counts.items() if count is not None}
        if len(known) == len(counts):
            return known
    most = {name: number(rounds[f"capacity_{name}"].max()) for name in accelerators(rounds)}
    return {name: int(count or 0) for name, count in most.items()}


def _names(jobs: pl.DataFrame, shown: pl.Series) -> dict[int, str]:
    """Job -> its description in the timeline, for the jobs that it shows."""
    rows = jobs.filter(pl.col("job").is_in(shown.unique().to_list()))
    times = unit_for(MetricKind.TIME, [number(value) for value in values_of(rows, "jct_s")], 3)
    names: dict[int, str] = {}
    for row in rows.iter_rows(named=True):
        jct = number(row.get("jct_s"))
        outcome = row.get("end") or "" if jct is None else f"JCT {times.full(jct)}"
        words = (
            f"job {row['job']}",
            row.get("family") or "",
            devices(row.get("scale_factor")),
            outcome,
        )
        names[row["job"]] = " · ".join(str(word) for word in words if word)
    return names


def _numbers(metrics: Mapping[str, object]) -> Html:
    groups: dict[str, list[Html]] = {}
    for metric in metrics_of([metrics]):
        row = tag(
            "tr",
            tag("td", metric.name, title=metric.meaning or None),
            tag("td", _shown(metric, metrics), class_="n"),
        )
        groups.setdefault(metric.group, []).append(row)
    tables = (
        table((), [tag("tr", tag("th", group, class_="group", colspan=2, scope="colgroup")), *rows])
        for group, rows in groups.items()
    )
    return join(tag("div", *tables, class_="columns"), note(GLOSSARY))
