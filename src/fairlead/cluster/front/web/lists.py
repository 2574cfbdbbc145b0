"""The page of all nodes, and what it has in common with that of all jobs."""

from collections.abc import Iterable, Sequence

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
from fairlead.cluster.protocol.api_models import NodeView
from fairlead.cluster.protocol.node_states import FAILED, FAILED_STATES, NODE_STATES
from fairlead.errors import InputError

NODES = 100  # a page
_STATES = (FAILED, *NODE_STATES)


def nodes_page(facade: Facade, ask: PageRequest) -> Page:
    """The page at ``/nodes``, by state and accelerator type."""
    state = one_of("state", ask.query.get("state", ""), _STATES)
    accelerator, part = ask.query.get("type", ""), ask.query.get("name", "").strip()
    every = facade.nodes(ask.caller)
    fits = [n for n in every if _is_in(n, state) and accelerator in ("", n.accelerator)]
    fits = [n for n in fits if part.lower() in n.name.lower()]
    first = max(ask.number("from", 0), 0)
    accelerators = sorted({node.accelerator for node in every})
    fields = [
        text_field("name", "Name", part),
        choice("state", "State", _STATES, state),
        choice("type", "Type", accelerators, accelerator),
    ]
    table = join(
        old_state(node.age_s for node in every),
        note(_counted(every, fits)),
        tables.nodes_table(fits[first : first + NODES], ask.caller),
        pages(_turns(first, len(fits), {"name": part, "state": state, "type": accelerator})),
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


def _is_in(node: NodeView, state: str) -> bool:
    return state in ("", node.state) or (state == FAILED and node.state in FAILED_STATES)


def _turns(first: int, several: int, where: dict[str, str]) -> list[Html]:
    turns = []
    for start, words in ((first - NODES, "Previous page"), (first + NODES, "Next page")):
        if -NODES < start < several:
            href = address("/nodes", **where, **{"from": max(start, 0)})
            turns.append(link(href, words))
    return turns


def pages(turns: Sequence[Html]) -> Html | None:
    """Links to further pages of a list."""
    return tag("nav", *turns, class_="pages", aria_label="Further pages") if turns else None


def one_of(field: str, word: str, known: Sequence[str]) -> str:
    """The word, or none; InputError for one that is not known."""
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
