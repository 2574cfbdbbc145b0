"""The pages of all jobs and of all nodes."""

from collections.abc import Iterable, Sequence
from typing import get_args

from fairlead.analysis.report.markup import Html, join, tag
from fairlead.analysis.report.metric_catalogue import counted
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.web import tables
from fairlead.cluster.front.web.layout import (
    FAST,
    Page,
    Section,
    note,
    old_state,
)
from fairlead.cluster.front.web.markup import address, link
from fairlead.cluster.front.web.page_request import PageRequest
from fairlead.cluster.protocol.api_models import JobState, NodeView
from fairlead.cluster.protocol.node_states import NODE_STATES
from fairlead.errors import InputError

JOBS, NODES = 100, 100  # a page
_JOB_STATES = ("open", *get_args(JobState))


def jobs_page(facade: Facade, ask: PageRequest) -> Page:
    """The page at ``/jobs``: those after ``after``, by state, tenant and array."""
    state, tenant = (
        _one_of("state", ask.query.get("state", ""), _JOB_STATES),
        ask.query.get("tenant", ""),
    )
    after, number = ask.number("after", -1), ask.number("array", -1)
    array = None if number < 0 else number
    found = facade.jobs(ask.caller, state, tenant, after, JOBS + 1, array)
    shown = found[:JOBS]
    fields = [choice("state", "State", _JOB_STATES, state)]
    if ask.caller.role == "admin":
        fields.append(text_field("tenant", "Tenant", tenant))
    fields.append(text_field("array", "Array", "" if array is None else str(array)))
    turns = []
    if after >= 0:
        turns.append(link(address("/jobs", state=state, tenant=tenant, array=array), "First page"))
    if len(found) > JOBS:
        last = shown[-1].id
        further = address("/jobs", state=state, tenant=tenant, array=array, after=last)
        turns.append(link(further, "Next page", rel="next"))
    old = old_state(job.age_s for job in shown)
    table = join(old, tables.jobs_table(shown, none="No job fits this filter."), _pages(turns))
    return _listed("Jobs", "/jobs", fields, table, ask)


def nodes_page(facade: Facade, ask: PageRequest) -> Page:
    """The page at ``/nodes``, by state and accelerator type."""
    state = _one_of("state", ask.query.get("state", ""), NODE_STATES)
    accelerator = ask.query.get("type", "")
    every = facade.nodes(ask.caller)
    fits = [n for n in every if state in ("", n.state) and accelerator in ("", n.accelerator)]
    first = max(ask.number("from", 0), 0)
    accelerators = sorted({node.accelerator for node in every})
    fields = [
        choice("state", "State", NODE_STATES, state),
        choice("type", "Type", accelerators, accelerator),
    ]
    table = join(
        old_state(node.age_s for node in every),
        note(_counted(every, fits)),
        tables.nodes_table(fits[first : first + NODES], ask.caller),
        _pages(_turns(first, len(fits), state, accelerator)),
    )
    return _listed("Nodes", "/nodes", fields, table, ask)


def _listed(title: str, here: str, fields: Iterable[Html], table: Html, ask: PageRequest) -> Page:
    """The filter stays as it is while the table below is fetched again."""
    go = tag("button", "Filter", type="submit")
    form = tag("form", *fields, go, method="get", action=here, class_="filter")
    sections = [Section("filter", title, form)] if ask.wants("") else []
    if ask.wants(FAST):
        sections.append(Section("list", f"{title} found", table, FAST))
    return Page(title, f"{title} of the cluster", sections, here=here)


def _counted(every: Sequence[NodeView], fits: Sequence[NodeView]) -> str:
    allocated = sum(sum(map(bool, node.jobs)) for node in fits)
    devices = sum(node.devices for node in fits)
    shown = f"{len(fits):,} of {counted(len(every), 'node')}"
    return f"{shown}; {allocated:,} of {counted(devices, 'device')} held."


def _turns(first: int, several: int, state: str, accelerator: str) -> list[Html]:
    turns = []
    for start, words in ((first - NODES, "Previous page"), (first + NODES, "Next page")):
        if -NODES < start < several:
            where = {"state": state, "type": accelerator, "from": max(start, 0)}
            turns.append(link(address("/nodes", **where), words))
    return turns


def _pages(turns: Sequence[Html]) -> Html | None:
    return tag("nav", *turns, class_="pages", aria_label="Further pages") if turns else None


def _one_of(field: str, word: str, known: Sequence[str]) -> str:
    if word and word not in known:
        raise InputError(f"{field}: {word[:40]!r} is not one of {', '.join(known)}")
    return word


def choice(field: str, title: str, known: Iterable[str], chosen: str) -> Html:
    """A list to choose from; the first choice is everything."""
    options = [tag("option", "all", value="")]
    options += [tag("option", word, value=word, selected=word == chosen) for word in known]
    return tag("label", tag("span", title), tag("select", *options, name=field))


def text_field(field: str, title: str, value: str, **attributes: str | bool | None) -> Html:
    """A line to write in."""
    box = tag("input", type="text", name=field, value=value, autocomplete="off", **attributes)
    return tag("label", tag("span", title), box)
