"""The pages of searches: a list of them, and one with its best trial, its trials and their curves."""

from collections.abc import Mapping, Sequence

import numpy as np

from fairlead.analysis.report.markup import Html, clean, join, tag
from fairlead.analysis.report.metric_catalogue import counted
from fairlead.analysis.report.svg import FAINT, GRID, INK, colour, empty, fit, picture, write
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.web import tables
from fairlead.cluster.front.web.curves import NamedCurve, curves_picture
from fairlead.cluster.front.web.layout import FAST, SLOW, Page, Section, button, note, scroll
from fairlead.cluster.front.web.markup import link, name
from fairlead.cluster.front.web.page_request import PageRequest
from fairlead.cluster.front.web.tables import TableCell, TableColumn
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.read_study import text_of
from fairlead.cluster.protocol.study import Parameter, ParameterRange, SearchView, TrialView
from fairlead.model.duration_text import DASH, ago, duration

HERE = "/searches"
TRIALS = 500  # newest trials in the table and in the pictures
_WIDE, _TALL = 1120, 300
_COLUMNS = (
    TableColumn("Search", "n"),
    TableColumn("Name", "name"),
    TableColumn("User", "name", less=True),
    TableColumn("State", "tight"),
    TableColumn("Trials", "n", "that are over, of how many"),
    TableColumn("Metric", "name"),
    TableColumn("Best", "n"),
    TableColumn("Started", "n", less=True),
    TableColumn("Why", "why", less=True),
)


def searches_page(facade: Facade, ask: PageRequest) -> Page:
    """The page at ``/searches``, the newest first."""
    found = facade.searches(ask.caller)[::-1]
    now_s = facade.status(ask.caller).now_s
    if not found:
        body = note("There are no searches: fairlead search STUDY.toml begins one.")
    else:
        rows = [_search_row(view, now_s) for view in found]
        body = tables.table("searches", "Searches", _COLUMNS, rows)
    return Page(
        "Searches",
        "Searches for good parameters",
        [Section("list", "Searches", body, FAST)],
        here=HERE,
    )


def _search_row(view: SearchView, now_s: float) -> Sequence[TableCell]:
    over = sum(count for state, count in view.counts.items() if state != "running")
    best = None if view.best is None else view.best.value
    return (
        TableCell(link(f"{HERE}/{view.id}", str(view.id)), view.id),
        TableCell(name(view.name)),
        TableCell(name(view.user)),
        TableCell(view.state),
        TableCell(f"{over:,} of {view.study.trials:,}", over),
        TableCell(name(view.study.metric)),
        TableCell(DASH if best is None else f"{best:.5g}", best),
        TableCell(ago(view.started_s, now_s), view.started_s),
        TableCell(view.reason or view.waiting_reason or DASH),
    )


def search_page(facade: Facade, ask: PageRequest) -> Page:
    """The page at ``/searches/{search}``."""
    number = search_of(ask)
    view = facade.search(ask.caller, number)
    now_s = facade.status(ask.caller).now_s
    sections = []
    if ask.wants(FAST):
        sections.append(_facts(view, ask.caller, now_s))
    if ask.wants(SLOW):
        curves = facade.search_curves(ask.caller, number)
        sections += [_parallel_section(view), _curves_section(view, curves)]
    if ask.wants(FAST):
        sections.append(_trials_section(view))
    title = f"Search {view.id}" + (f" {view.name}" if view.name else "")
    return Page(title, f"Search {view.id} of {view.tenant}: {view.state}", sections, here=HERE)


def search_of(ask: PageRequest) -> int:
    """The search in the address; InputError where it is none."""
    return PageRequest(ask.caller, {"job": ask.path["search"]}).job


def _facts(view: SearchView, caller: Caller, now_s: float) -> Section:
    study = view.study
    until_s = now_s if view.ended_s is None else view.ended_s
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(view.counts.items()))
    facts = [
        ("Tenant and user", join(name(view.tenant), " · ", name(view.user))),
        ("Metric", f"{study.metric}, {study.direction}; the {study.value} value of a trial counts"),
        ("Target", DASH if study.target is None else f"{study.target:g}"),
        ("Trials", f"{counts or 'none yet'}; at most {study.trials:,}, {study.parallel:,} at once"),
        ("Sampler", f"{study.sampler}, seed {study.seed}"),
        ("Stopped early by", study.pruner.type),
        ("Weight", _weight(view)),
        ("Time", duration(until_s - view.started_s)),
    ]
    listed = tag("dl", *(tag("div", tag("dt", t), tag("dd", v)) for t, v in facts), class_="facts")
    reason = tag("p", view.reason[:1].upper() + view.reason[1:] + ".") if view.reason else None
    if view.waiting_reason:
        reason = tag("p", f"No trial begins for now: {view.waiting_reason}.")
    may = caller.role == "admin" or (caller.role == "user" and caller.tenant == view.tenant)
    tools = tag("span", view.state)
    if may and view.state == "running":
        question = f"Stop search {view.id} and its trials? It cannot be taken back."
        stop = button(f"{HERE}/{view.id}/stop", "Stop", question)
        tools = join(tools, tag("div", stop, class_="actions"))
    body = join(reason, _best(view), listed)
    return Section("facts", f"Search {view.id}: {view.name or DASH}", body, FAST, tools=tools)


def _weight(view: SearchView) -> str:
    study = view.study
    favoured = f", the best {study.favour} have {study.favour_factor:g} times as much each"
    return f"{study.weight:g} for all trials together" + favoured * bool(study.favour)


def _best(view: SearchView) -> Html:
    best = view.best
    if best is None:
        return note("No trial has completed yet.")
    parameters = ", ".join(f"{key} = {_text(value)}" for key, value in best.parameters.items())
    job = link(f"/jobs/{best.job}", f"job {best.job}")
    value = tag("strong", f"{view.study.metric} {best.value:.6g}")
    return tag("p", f"Best: trial {best.number} (", job, "), ", value, f", with {parameters}.")


def _text(value: Parameter) -> str:
    return f"{value:.5g}" if isinstance(value, float) else text_of(value)


def _curves_section(view: SearchView, curves: Mapping[int, MetricCurve]) -> Section:
    """All trials over each other; those that were stopped stand behind the others."""
    ended = {trial.number: trial for trial in view.trials}
    named = [
        NamedCurve(
            f"trial {number}", curve, faint=number in ended and ended[number].state == "pruned"
        )
        for number, curve in sorted(curves.items())[-TRIALS:]
    ]
    title = f"{view.study.metric} by step, each trial"
    drawn = scroll(title, curves_picture(named, title, (_WIDE, _TALL)))
    about = note("A line is a trial; those that were stopped early are faint.")
    return Section("curves", f"{view.study.metric} of the trials", join(about, drawn), SLOW)


def _parallel_section(view: SearchView) -> Section:
    title = "Parameters of the trials"
    drawn = scroll(title, parallel_coordinates(view))
    about = note("A line is a trial, from its parameters to its value: the better, the darker.")
    return Section("parameters", title, join(about, drawn), SLOW)


def parallel_coordinates(view: SearchView) -> Html:
    """A vertical axis for each parameter and one for the metric, and a line for each trial."""
    study = view.study
    trials = [trial for trial in view.trials if trial.value is not None][-TRIALS:]
    size = (_WIDE, _TALL)
    if not trials:
        return empty("No trial has a value yet.", size)
    names = [*study.parameters, study.metric]
    across = np.linspace(70, _WIDE - 70, len(names))
    values = np.clip([trial.value or 0.0 for trial in trials], -1e300, 1e300)
    low, high = float(values.min()), float(values.max())
    ranks = np.argsort(np.argsort(study.sign * values, kind="stable"), kind="stable")
    parts = []
    for x, key in zip(across, names, strict=True):
        parts.append(f'<path d="M{x:.1f} 34V{_TALL - 24}" stroke="{GRID}"/>')
        parts.append(write(x, 16, fit(key, 130), anchor="middle", fill=INK))
        one = study.parameters.get(key)
        bottom, top = (f"{low:.4g}", f"{high:.4g}") if one is None else _ends(one)
        parts.append(write(x, 30, fit(top, 130), anchor="middle", fill=FAINT))
        parts.append(write(x, _TALL - 8, fit(bottom, 130), anchor="middle", fill=FAINT))
    order = sorted(range(len(trials)), key=lambda i: -int(ranks[i]))  # the best one on top
    for i in order:
        heights = [_height(one, trials[i].parameters[key]) for key, one in study.parameters.items()]
        heights.append(0.5 if high == low else (float(values[i]) - low) / (high - low))
        parts.append(_trial_line(trials[i], study.metric, across.tolist(), heights, int(ranks[i])))
    return picture(*size, "Parameters and value of each trial", "".join(parts))


def _trial_line(
    trial: TrialView, metric: str, across: Sequence[float], heights: Sequence[float], rank: int
) -> str:
    bottom, top = _TALL - 24, 34
    points = " ".join(
        f"{x:.1f},{bottom - (bottom - top) * part:.1f}"
        for x, part in zip(across, heights, strict=True)
    )
    style = (
        f'stroke="{colour(1)}" stroke-width="2.4"'
        if rank == 0
        else f'stroke="{colour(0)}" stroke-width="1.2" opacity="{max(0.75 - 0.06 * rank, 0.12):.2f}"'
    )
    parameters = ", ".join(f"{key} = {_text(value)}" for key, value in trial.parameters.items())
    label = clean(f"trial {trial.number}: {metric} {trial.value:.5g}, {parameters}")
    return f'<g><title>{label}</title><polyline points="{points}" fill="none" {style}/></g>'


def _ends(one: ParameterRange) -> tuple[str, str]:
    if one.type == "categorical":
        return _text(one.choices[0]), _text(one.choices[-1])
    return f"{one.low:.4g}", f"{one.high:.4g}"


def _height(one: ParameterRange, value: Parameter) -> float:
    """Return where a value stands on its axis, from 0 at the bottom to 1."""
    if one.type == "categorical":
        same = [(type(choice), choice) for choice in one.choices].index((type(value), value))
        return same / max(len(one.choices) - 1, 1) if len(one.choices) > 1 else 0.5
    low, high, at = float(one.low or 0.0), float(one.high or 0.0), float(value)
    if one.log:
        low, high, at = np.log(low), np.log(high), np.log(at)
    return float(min(max((at - low) / (high - low), 0.0), 1.0))


def _trials_section(view: SearchView) -> Section:
    shown = view.trials[-TRIALS:]
    heads = (
        TableColumn("Trial", "n"),
        TableColumn("Job", "n"),
        TableColumn("State", "tight"),
        TableColumn(view.study.metric, "n"),
        TableColumn("Step", "n", less=True),
        *(TableColumn(key, "n") for key in view.study.parameters),
        TableColumn("Why", "why", less=True),
    )
    rows = [_trial_row(trial) for trial in reversed(shown)]
    cut = f"The newest {len(shown):,} of {counted(len(view.trials), 'trial')}."
    body = join(
        note(cut) if len(shown) < len(view.trials) else None,
        tables.table("trials", "Trials of the search", heads, rows),
    )
    return Section("trials", "Trials", body, FAST)


def _trial_row(trial: TrialView) -> Sequence[TableCell]:
    return (
        TableCell(trial.number, trial.number),
        TableCell(link(f"/jobs/{trial.job}", str(trial.job)), trial.job),
        TableCell(trial.state),
        TableCell(DASH if trial.value is None else f"{trial.value:.5g}", trial.value),
        TableCell(DASH if trial.step is None else f"{trial.step:,}", trial.step),
        *(
            TableCell(_text(value), value if isinstance(value, float | int) else None)
            for value in trial.parameters.values()
        ),
        TableCell(trial.reason or DASH),
    )
