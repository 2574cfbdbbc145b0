"""The page that asks what would be if."""

import re
from collections.abc import Sequence
from typing import Any

from fairlead.analysis.report.markup import Html, join, tag
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.web import tables
from fairlead.cluster.front.web.forecasts import Forecasts
from fairlead.cluster.front.web.layout import (
    Page,
    Section,
    columns,
    note,
)
from fairlead.cluster.front.web.lists import text_field
from fairlead.cluster.front.web.markup import percent
from fairlead.cluster.front.web.page_request import PageRequest
from fairlead.cluster.front.web.tables import TableCell, TableColumn
from fairlead.cluster.protocol.api_models import (
    Comparison,
    ForecastSummary,
    WhatIf,
)
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import ACCELERATOR, make_spec
from fairlead.errors import InputError
from fairlead.model.duration_text import DASH, duration
from fairlead.model.toml import parse_sent_toml

CHANGED = 100  # jobs shown
_DEVICES = re.compile(r"\s*([^=\s]+)\s*=\s*([0-9]{1,5})\s*")
_EXAMPLE = 'command = ["python", "train.py"]\ntotal_steps = 10000\nscale_factor = 1\nrates = { v100 = 10.0 }'


def what_if_page(
    forecasts: Forecasts, policies: Sequence[str], _facade: Facade, ask: PageRequest
) -> Page:
    """The page at ``/what-if``: the form and, where it was sent, the answer or what is wrong with it."""
    sections = []
    if ask.form:
        try:
            sections.append(answer(forecasts.compare(ask.caller, question(ask.form))))
        except InputError as wrong:
            body = tag("p", str(wrong), role="alert", class_="banner bad")
            sections.append(Section("answer", "This cannot be asked", body))
    sections.append(form(ask, policies))
    about = "The live state run forward with and without a change; nothing is touched"
    return Page("What if", about, sections, here="/what-if")


def question(form: Any) -> WhatIf:
    """The question in a form's fields; InputError says which of them is wrong."""
    return WhatIf(
        add_jobs=_jobs(form.get("job", "")),
        add_nodes=_nodes(form.get("add_nodes", "")),
        remove_nodes=tuple(form.get("remove_nodes", "").replace(",", " ").split()),
        policy=form.get("policy", "").strip(),
    )


def _jobs(text: str) -> tuple[JobSpec, ...]:
    """One job's fields, or several below ``[[jobs]]``, as TOML."""
    if not text.strip():
        return ()
    content = parse_sent_toml(text, "job", InputError)
    tables_ = content.get("jobs", [content])
    if not isinstance(tables_, list):
        raise InputError("job: [[jobs]] has two brackets on each side")
    return tuple(make_spec(fields, f"job {i}") for i, fields in enumerate(tables_, 1))


def _nodes(text: str) -> dict[str, int]:
    """``v100=4, k80=2``: a node of each type with so many devices."""
    found = {}
    for part in filter(str.strip, text.split(",")):
        match = _DEVICES.fullmatch(part)
        if not match or not ACCELERATOR.fullmatch(match[1]) or not int(match[2]):
            raise InputError(
                f"add nodes: expected TYPE=DEVICES, as in v100=4, got {part.strip()[:60]!r}"
            )
        found[match[1]] = int(match[2])
    return found


def form(ask: PageRequest, policies: Sequence[str]) -> Section:
    """Return the form of questions; it keeps what was written."""
    given = {name: value.replace("\r\n", "\n") for name, value in ask.form.items()}
    names = (tag("option", value=name) for name in policies)
    job = tag(
        "textarea", given.get("job", ""), name="job", spellcheck="false", placeholder=_EXAMPLE
    )
    nodes = (
        text_field("add_nodes", "Add nodes, as v100=4, k80=2", given.get("add_nodes", "")),
        text_field("remove_nodes", "Remove nodes, by their names", given.get("remove_nodes", "")),
        text_field("policy", "Change the policy to", given.get("policy", ""), list="policies"),
        tag("datalist", *names, id="policies"),
        tag("button", "Ask", type="submit", name="ask", value="1", class_="main"),
    )
    written = tag("label", tag("span", "Add a job (TOML; several as [[jobs]])"), job)
    inner = columns(tag("div", written), tag("div", *nodes))
    asked = tag("form", inner, method="post", action="/what-if", class_="ask")
    words = note(
        "The live state is run forward in the simulator, as it is and as asked. Nothing is changed."
    )
    return Section("ask", "What if", join(words, asked))


_SUMMARY = (
    TableColumn("Forecast"),
    TableColumn("Now", "n"),
    TableColumn("Then", "n"),
    TableColumn("Change", "n"),
)
_CHANGED = (
    TableColumn("Job", "n"),
    TableColumn("Now", "n"),
    TableColumn("Then", "n"),
    TableColumn("Change", "n"),
)


def answer(found: Comparison) -> Section:
    """Return the section with both forecasts, and the jobs for which they differ."""
    shown = found.changed[:CHANGED]
    notes = (tag("p", words, class_="banner cool") for words in found.notes)
    rows = (_changed(*change) for change in shown)
    changed = (
        tables.table("changed-table", "Jobs that change most", _CHANGED, rows)
        if shown
        else note("No job would finish at another time.")
    )
    truncated = (
        note(f"The {CHANGED} of {len(found.changed):,} that change most.")
        if len(found.changed) > CHANGED
        else None
    )
    summary = tables.table(
        "outlook-table", "Outlook", _SUMMARY, _summary_rows(found.now, found.then)
    )
    basis = note(f"{found.basis}.") if found.basis else None
    body = join(*notes, columns(tag("div", summary), tag("div", changed, truncated)), basis)
    return Section("answer", "Answer", body)


def _summary_rows(now: ForecastSummary, then: ForecastSummary) -> list[list[TableCell]]:
    times = (
        ("All jobs done in", now.makespan_s, then.makespan_s),
        ("Mean time to the end of a job that ends", now.mean_left_s, then.mean_left_s),
    )
    rows = [[TableCell(words), *_times(a, b)] for words, a, b in times]
    if now.is_partial or then.is_partial:  # so it is not about all jobs
        rows[0] = [TableCell("All jobs done in"), *map(_all_done, (now, then)), TableCell(DASH)]
    a, b = now.utilization, then.utilization
    rows.append(
        [
            TableCell("Devices in use"),
            TableCell(percent(a), a),
            TableCell(percent(b), b),
            TableCell(_signed(100 * (b - a))),
        ]
    )
    counts = (
        ("Jobs done within the horizon", now.n_finished, then.n_finished),
        ("Jobs of which no end is forecast", now.n_no_end, then.n_no_end),
        (
            "Jobs without devices that they can run on",
            now.n_without_devices,
            then.n_without_devices,
        ),
        ("Paused jobs", now.n_paused, then.n_paused),
    )
    rows += [
        [TableCell(words), TableCell(a), TableCell(b), TableCell(f"{b - a:+d}")]
        for words, a, b in counts
        if a or b
    ]
    return rows


def _all_done(forecast: ForecastSummary) -> TableCell:
    return TableCell(forecast.all_done_words, forecast.makespan_s)


def _signed(points: float) -> str:
    return f"{points:+.1f} points"


def _times(now_s: float, then_s: float) -> list[TableCell]:
    change = then_s - now_s
    words = (
        f"{duration(abs(change))} {'later' if change > 0 else 'sooner'}"
        if abs(change) >= 0.05
        else DASH
    )
    return [
        TableCell(duration(now_s), now_s),
        TableCell(duration(then_s), then_s),
        TableCell(words, change),
    ]


def _changed(job: int, now_s: float, then_s: float) -> list[TableCell]:
    shown: Html | str = tables.job_link(job) if job >= 0 else "new"
    return [TableCell(shown, job), *_times(now_s, then_s)]
