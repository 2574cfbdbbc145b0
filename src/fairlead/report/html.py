"""Reports as one self-contained HTML page: no network, no library, light enough to send by mail."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from fairlead.model.arrays import Floats
from fairlead.report import figures
from fairlead.report.figures import Bar, clean
from fairlead.report.jobtable import job_table, values_of
from fairlead.report.page import (
    brief,
    configuration,
    configurations,
    gallery,
    legend,
    note,
    page,
    reproduce,
    section,
)
from fairlead.report.quantities import (
    AVERAGE_JCT,
    COMPLETED,
    COST,
    DASH,
    MAKESPAN,
    P99_JCT,
    UTILIZATION,
    WORST_RHO,
    Better,
    Kind,
    Quantity,
    devices,
    keys_of,
    number,
    quantities,
    unit_for,
    utilization_of,
)
from fairlead.report.reduce import (
    OverTime,
    accelerators,
    busiest_window,
    completion_times,
    over_time,
    timeline,
)

ZOOM_ROUNDS = 120  # rounds in the close-up of the timeline of a long run

Run = tuple[str, Mapping[str, object], Mapping[str, object], pl.DataFrame, pl.DataFrame]


def run_report(
    config: Mapping[str, object],
    metrics: Mapping[str, object],
    jobs: pl.DataFrame,
    rounds: pl.DataFrame,
    stints: pl.DataFrame,
) -> str:
    """The report on one run, as a page of HTML.

    Numbers that are missing or not finite show as a dash. The frames are those of a run directory: a
    row per job, per round (with ``busy_T`` device-seconds and ``capacity_T`` devices of each
    accelerator type T), and per uninterrupted stay of a job on its devices.
    """
    over = over_time(rounds)
    policy = config.get("policy") or "a policy"
    return page(
        f"Fairlead: {policy}",
        f"<h1>{clean(policy)}</h1><p class='lead'>{clean(_setting(config, metrics))}</p>",
        _cards(metrics),
        section("Job completion time", gallery(*_completion(metrics, _measured(config, jobs)))),
        section("The cluster over time", _cluster_over_time(over)),
        section("Who ran where", _timelines(config, jobs, rounds, stints, over)),
        section("Jobs", job_table(jobs)),
        section("All numbers", _numbers(metrics)),
        section("How to reproduce this run", reproduce([config], "simulate")),
        section("Configuration", configuration(config)),
    )


def comparison_report(runs: Sequence[Run]) -> str:
    """The report on several runs side by side, as a page of HTML.

    A run is (label, config, metrics, jobs, rounds), each as in ``run_report``.
    """
    labels = [label for label, *_ in runs]
    metrics = [run[2] for run in runs]
    configs = [run[1] for run in runs]
    setting = _setting(configs[0], metrics[0]) if runs else ""
    return page(
        "Fairlead: comparison",
        f"<h1>{len(runs)} policies compared</h1><p class='lead'>{clean(setting)}</p>",
        _unequal(labels, configs, metrics),
        section("At a glance", _comparison_bars(labels, metrics)),
        section("Job completion time", _comparison_cdf(runs)),
        section("All numbers", _comparison_table(labels, metrics)),
        section("Utilisation by accelerator type", _utilization_bars(labels, metrics)),
        section("How to reproduce this comparison", reproduce(configs, "compare")),
        section("Configuration", configurations(labels, configs)),
    )


def _shown(quantity: Quantity, metrics: Mapping[str, object], digits: int = 4) -> str:
    value = quantity.of(metrics)
    return unit_for(quantity.kind, [value], digits).full(value)


def _measured(config: Mapping[str, object], jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs that the metrics are about: those of the measurement window, if there is one."""
    match config.get("window"):
        case [int(first), int(end)]:
            return jobs.slice(first, end - first)
        case _:
            return jobs


# The parts of a report on one run


def _setting(config: Mapping[str, object], metrics: Mapping[str, object]) -> str:
    """What was run on what, in one line."""
    cluster = config.get("cluster")
    parts = [
        f"{config['trace']}" if config.get("trace") else "",
        f"{metrics['n_jobs']:,} jobs" if isinstance(metrics.get("n_jobs"), int) else "",
        ", ".join(f"{count} {name}" for name, count in cluster.items())
        if isinstance(cluster, Mapping)
        else str(cluster or ""),
        f"rounds of {brief(config['round_s'])} s" if config.get("round_s") else "",
        f"{config['profile']} profile" if config.get("profile") else "",
        f"seed {config['seed']}" if config.get("seed") is not None else "",
    ]
    return " · ".join(part for part in parts if part)


def _cards(metrics: Mapping[str, object]) -> str:
    shown = (AVERAGE_JCT, P99_JCT, MAKESPAN, UTILIZATION, WORST_RHO, COST)
    cards = [(quantity.name, _shown(quantity, metrics, digits=3)) for quantity in shown]
    done, every = COMPLETED.of(metrics), number(metrics.get("n_jobs"))
    both = done is not None and every is not None
    cards.append(("Jobs completed", f"{done:,.0f} of {every:,.0f}" if both else DASH))
    inner = (f"<div class='card'><b>{clean(v)}</b><span>{clean(n)}</span></div>" for n, v in cards)
    return f"<div class='cards'>{''.join(inner)}</div>"


def _completion(metrics: Mapping[str, object], jobs: pl.DataFrame) -> Iterator[tuple[str, str]]:
    times = completion_times(jobs)
    yield (
        "Share of jobs completed within a time",
        figures.cdf([("all jobs", times)], "completion time"),
    )
    scales = keys_of([metrics], "avg_jct_by_scale_s")
    if scales:
        found = [_scale_jct(metrics, key) for key in scales]
        unit = unit_for(Kind.TIME, found, 3)
        rows = [Bar(devices(k), v, unit.full(v)) for k, v in zip(scales, found, strict=True)]
        yield (
            "Average completion time by number of devices",
            figures.bars(rows, "Average JCT by devices"),
        )


def _scale_jct(metrics: Mapping[str, object], key: object) -> float | None:
    table = metrics["avg_jct_by_scale_s"]
    return number(table[key]) if isinstance(table, Mapping) else None


def _cluster_over_time(over: OverTime | None) -> str:
    if over is None:
        return note("No round was run.")
    key = legend([("active: jobs in the system", 5), ("running", 0)])
    return gallery(
        ("Utilisation by accelerator type", figures.utilization_over_time(over)),
        ("Jobs in the system", key + figures.jobs_over_time(over)),
    )


def _timelines(
    config: Mapping[str, object],
    jobs: pl.DataFrame,
    rounds: pl.DataFrame,
    stints: pl.DataFrame,
    over: OverTime | None,
) -> str:
    """The whole run, and a close-up of its busiest part if it is long."""
    if over is None or not stints.height:
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
        shown = timeline(stints, sizes, window)
        if shown is not None:
            picture = figures.device_timeline(shown, _names(jobs, shown.bars["job"]), title)
            parts.append(
                f"<figure class='wide'><h3>{title}</h3><div class='scroll'>{picture}</div></figure>"
            )
    return "".join(parts)


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
    """What the timeline says of each job that it shows."""
    rows = jobs.filter(pl.col("job").is_in(shown.unique().to_list()))
    times = unit_for(Kind.TIME, [number(value) for value in values_of(rows, "jct_s")], 3)
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


def _numbers(metrics: Mapping[str, object]) -> str:
    groups: dict[str, list[str]] = {}
    for quantity in quantities([metrics]):
        meaning = f" title='{clean(quantity.meaning)}'" if quantity.meaning else ""
        value = _shown(quantity, metrics)
        row = f"<tr><td{meaning}>{clean(quantity.name)}</td><td class='n'>{value}</td></tr>"
        groups.setdefault(quantity.group, []).append(row)
    tables = (
        f"<table><tbody><tr><th class='group' colspan='2' scope='colgroup'>{clean(group)}</th></tr>"
        f"{''.join(rows)}</tbody></table>"
        for group, rows in groups.items()
    )
    return f"<div class='columns'>{''.join(tables)}</div>{note(_GLOSSARY)}"


_GLOSSARY = (
    "JCT: job completion time, from arrival to completion. Rho: finish-time fairness; isolated = JCT over "
    "the JCT under an equal, isolated share of the cluster; static = JCT over exclusive run time x max(1, "
    "jobs of the trace / devices). Above 1 a job did worse than under an equal split."
)


# The parts of a comparison


def _unequal(
    labels: Sequence[str],
    configs: Sequence[Mapping[str, object]],
    metrics: Sequence[Mapping[str, object]],
) -> str:
    """A warning where averages are over different jobs (those of a window are all complete)."""
    if any(isinstance(config.get("window"), list | tuple) for config in configs):
        return ""
    done = [COMPLETED.of(run) for run in metrics]
    if len({count for count in done if count is not None}) < 2:
        return ""
    words = ", ".join(
        f"{label} {count:,.0f}"
        for label, count in zip(labels, done, strict=True)
        if count is not None
    )
    return (
        "<p class='warning'>The runs did not complete the same number of jobs, so their averages are "
        f"over different jobs. Completed: {clean(words)}.</p>"
    )


def _comparison_bars(labels: Sequence[str], metrics: Sequence[Mapping[str, object]]) -> str:
    return gallery(
        *(
            (f"{quantity.name} (lower is better)", _bars(quantity, labels, metrics))
            for quantity in (AVERAGE_JCT, MAKESPAN, COST, WORST_RHO)
        )
    )


def _bars(
    quantity: Quantity,
    labels: Sequence[str],
    metrics: Sequence[Mapping[str, object]],
    largest: float | None = None,
) -> str:
    values = [quantity.of(run) for run in metrics]
    unit = unit_for(quantity.kind, values)
    best = quantity.best(values, unit)
    rows = [
        Bar(label, value, unit.full(value), series, series in best)
        for series, (label, value) in enumerate(zip(labels, values, strict=True))
    ]
    return figures.bars(rows, quantity.name, largest=largest)


def _utilization_bars(labels: Sequence[str], metrics: Sequence[Mapping[str, object]]) -> str:
    types = [str(key) for key in keys_of(metrics, "utilization_by_type")]
    if not types:
        return note("The runs do not say.")
    return gallery(
        *((name, _bars(utilization_of(name), labels, metrics, largest=1.0)) for name in types)
    )


def _comparison_cdf(runs: Sequence[Run]) -> str:
    samples: list[tuple[str, Floats]] = [
        (label, completion_times(_measured(config, jobs))) for label, config, _, jobs, _ in runs
    ]
    key = legend([(label, series) for series, (label, _) in enumerate(samples)])
    picture = figures.cdf(samples, "completion time", size=(1120, 400))
    return f"<figure class='wide'>{key}<div class='scroll'>{picture}</div></figure>"


def _comparison_table(labels: Sequence[str], metrics: Sequence[Mapping[str, object]]) -> str:
    """Numbers as rows, runs as columns, the best of each row marked."""
    body, group = [], ""
    for quantity in quantities(metrics):
        if quantity.group != group:
            group = quantity.group
            span = len(labels) + 1
            body.append(
                f"<tr><th class='group' colspan='{span}' scope='colgroup'>{clean(group)}</th></tr>"
            )
        body.append(_comparison_row(quantity, metrics))
    head = "".join(f"<th class='n' scope='col'>{clean(label)}</th>" for label in labels)
    return (
        f"{note('The best of each row is shaded; small figures are the distance from it.')}"
        f"<div class='scroll'><table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
        f"</table></div>{note(_GLOSSARY)}"
    )


def _comparison_row(quantity: Quantity, metrics: Sequence[Mapping[str, object]]) -> str:
    values = [quantity.of(run) for run in metrics]
    unit = unit_for(quantity.kind, values)
    best = quantity.best(values, unit)
    least = min((value for value in values if value is not None), default=0.0)
    relative = (
        quantity.better is Better.LOWER and quantity.kind in (Kind.TIME, Kind.MONEY) and least > 0
    )
    cells = []
    for i, value in enumerate(values):
        style, mark = ("n best", " ★") if i in best else ("n", "")
        apart = relative and best and i not in best and value is not None
        more = f"<small>+{100 * (value / least - 1):.1f} %</small>" if apart and value else ""
        cells.append(f"<td class='{style}'>{unit.bare(value)}{mark}{more}</td>")
    name = f"{quantity.name} ({unit.name})" if unit.name else quantity.name
    return f"<tr><td class='what' title='{clean(quantity.meaning)}'>{clean(name)}</td>{''.join(cells)}</tr>"
