"""Tables of jobs, nodes, tenants and starts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fairlead.analysis.report.markup import Child, Html, join, tag
from fairlead.cluster.front.web.layout import (
    button,
    note,
    scroll,
)
from fairlead.cluster.front.web.markup import count, link, name, percent
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    DeadlineState,
    JobView,
    NodeView,
    TenantView,
    parked_text,
)
from fairlead.cluster.protocol.deadlines import deadline_cell
from fairlead.model.duration_text import DASH, ago, duration

JOB_COLOURS = 12  # classes j0 to j11 of the style
STATES = {
    "running": "good", "finishing": "good", "waiting": "cool", "preempted": "cool",
    "paused": "warn", "completed": "quiet", "dropped": "bad", "killed": "bad", "cancelled": "quiet",
    "up": "good", "drained": "warn", "lost": "bad", "never seen": "quiet", "offline": "quiet",
    "suspect": "warn", "unhealthy": "bad",
}  # fmt: skip
_DEADLINE_TONES: dict[DeadlineState, str] = {
    "past": "bad", "missed": "bad", "out of reach": "bad", "forecast late": "warn", "at risk": "warn",
    "met": "good",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell: what it shows, and the value it is sorted by."""

    shown: Child
    value: str | float | None = None  # by which the column is sorted, where not by what is shown
    kind: str = ""  # class: n = number, name, why, tight
    header: bool = False


@dataclass(frozen=True, slots=True)
class TableColumn:
    """The head of a column."""

    title: str
    kind: str = ""
    about: str = ""
    less: bool = False  # left out on a narrow screen
    sort: str = ""  # what the server calls the order by this column; "" = it cannot sort by it


@dataclass(frozen=True, slots=True)
class TableOrder:
    """The order in which the server has sorted a table of which it shows a part."""

    sort: str  # of the column
    descending: bool
    address: Callable[
        [str], str
    ]  # of the same list in another order: a column's, "-" before it = descending


def table(
    id_: str,
    caption: str,
    heads: Sequence[TableColumn],
    rows: Iterable[Sequence[TableCell]],
    foot: Html | None = None,
) -> Html:
    """A table that sorts by its headings, in the browser."""
    head = tag("tr", *(_head(column, None) for column in heads))
    body = (tag("tr", *map(_cell, heads, row)) for row in rows)
    inner = (
        tag("caption", caption, class_="visually-hidden"),
        tag("thead", head),
        tag("tbody", *body),
        foot,
    )
    return scroll(caption, tag("table", *inner, class_="sortable", id=id_))


def card_table(
    id_: str,
    caption: str,
    heads: Sequence[TableColumn],
    rows: Iterable[Sequence[TableCell]],
    order: TableOrder | None = None,
) -> Html:
    """A table as ``table`` makes it, whose rows are cards on a narrow screen. There the style makes other
    boxes of its elements, so it names their roles."""
    head = tag("tr", *(_head(column, order, role="columnheader") for column in heads), role="row")
    body = (tag("tr", *map(_labelled_cell, heads, row), role="row") for row in rows)
    inner = (
        tag("caption", caption, class_="visually-hidden"),
        tag("thead", head, role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
    )
    classes = "cards-if-narrow" + " sortable" * (order is None)
    return scroll(caption, tag("table", *inner, class_=classes, id=id_, role="table"))


def _head(column: TableColumn, order: TableOrder | None, role: str | None = None) -> Html:
    about, kind = column.about or None, _class(column.kind, column)
    if order is None or not column.sort:
        press = tag("button", column.title, type="button", title=about)
        return tag("th", column.title if order else press, scope="col", class_=kind, role=role)
    chosen = column.sort == order.sort
    further = order.address("-" * (chosen and not order.descending) + column.sort)
    id_ = f"sort-{column.sort}"
    press = link(further, column.title, id=id_, title=about, data_list=True)
    way = "descending" if order.descending else "ascending"
    sorted_ = way if chosen else None
    return tag("th", press, scope="col", class_=kind, aria_sort=sorted_, role=role)


def _labelled_cell(column: TableColumn, cell: TableCell) -> Html:
    """A cell that says what it is where its row is a card."""
    label = None if cell.shown in ("", DASH) else column.title
    return tag(
        "td",
        cell.shown,
        data_v=cell.value,
        data_label=label,
        class_=_class(cell.kind or column.kind, column),
        role="cell",
    )


def _cell(column: TableColumn, cell: TableCell) -> Html:
    element = "th" if cell.header else "td"
    return tag(
        element,
        cell.shown,
        data_v=cell.value,
        class_=_class(cell.kind or column.kind, column),
        scope="row" if cell.header else None,
    )


def _class(kind: str, column: TableColumn) -> str | None:
    return " ".join(word for word in (kind, "less" if column.less else "") if word) or None


def state(word: str) -> Html:
    """The state of a job or node."""
    return tag("span", word, class_=f"state {STATES.get(word, 'quiet')}")


def job_link(job: int, words: str = "") -> Html:
    """A link to a job's page."""
    return link(f"/jobs/{job}", words or str(job))


def place(job: JobView) -> Html:
    """Return the place where a job runs."""
    if not job.node:
        return Html(DASH)
    devices = ", ".join(map(str, job.devices))
    return join(name(job.node), tag("small", " ", name(job.accelerator), f" {devices}".rstrip()))


def left_s(job: JobView) -> float | None:
    """Seconds to its end if it keeps its devices; None if it does not run, or nobody can tell."""
    rate = job.measured_rate if job.measured_rate is not None else job.rates.get(job.accelerator)
    if job.state != "running" or job.no_end or not rate or rate <= 0:
        return None
    return max(job.total_steps - job.steps, 0.0) / rate


def progress(job: JobView) -> Html:
    """Steps done of all, as a bar with words."""
    done, total = count(job.steps), count(job.total_steps)
    part = min(max(job.steps / job.total_steps, 0.0), 1.0) if job.total_steps > 0 else 0.0
    bar = tag("progress", value=f"{part:.4f}", max="1", aria_label=f"job {job.id}: {part:.0%} done")
    return join(bar, tag("small", f"{done} of {total} ({100 * part:.0f} %)"))


_JOB_COLUMNS = (
    TableColumn("Job", "n", sort="id"),
    TableColumn("Name", "name", sort="name"),
    TableColumn("Tenant", "tight", less=True, sort="tenant"),
    TableColumn("State", "tight", sort="state"),
    TableColumn("Runs on", "tight", less=True, sort="place"),
    TableColumn("Progress", "n", "by the part of its steps that is done", sort="progress"),
    TableColumn("Left", "n", "if it keeps the devices that it has", sort="left"),
    TableColumn("Why", "why", less=True, sort="reason"),
)
_DEADLINE = TableColumn("Deadline", "tight", sort="deadline")


def jobs_table(
    jobs: Sequence[JobView],
    id_: str = "jobs-table",
    none: str = "No jobs.",
    order: TableOrder | None = None,
) -> Html:
    """Jobs, one a row. order: in which the server has sorted them, None = the browser shall."""
    if not jobs:
        return note(none)
    sorted_by_deadline = order is not None and order.sort == _DEADLINE.sort
    if all(job.deadline_left_s is None for job in jobs) and not sorted_by_deadline:
        return card_table(id_, "Jobs", _JOB_COLUMNS, map(_job_row, jobs), order=order)
    *columns, last = _JOB_COLUMNS
    heads = (*columns, _DEADLINE, last)
    return card_table(id_, "Jobs", heads, map(_job_row_with_deadline, jobs), order=order)


def _job_row_with_deadline(job: JobView) -> list[TableCell]:
    *cells_, last = _job_row(job)
    left = job.deadline_left_s
    return [*cells_, TableCell(deadline_mark(job), "" if left is None else f"{left:.0f}"), last]


def deadline_mark(job: JobView) -> Html | str:
    """Return how a job stands to its deadline: in words, and those of a deadline in danger in a colour
    too."""
    words = deadline_cell(job)
    tone = _DEADLINE_TONES.get(job.deadline)
    if tone is None or words == DASH:
        return words
    sign = tag("span", "⚠ ", aria_hidden="true") if tone != "good" else None
    return tag("span", sign, words, class_=f"state {tone}")


def _job_row(job: JobView) -> list[TableCell]:
    left = left_s(job)
    part = job.steps / job.total_steps if job.total_steps else 0.0
    return [
        TableCell(job_link(job.id), job.id),
        TableCell(tag("a", name(job.name or job.family), href=f"/jobs/{job.id}", tabindex="-1")),
        TableCell(name(job.tenant)),
        TableCell(state(job.state)),
        TableCell(place(job)),
        TableCell(progress(job), f"{part:.6f}"),
        TableCell(duration(left), "" if left is None else f"{left:.0f}"),
        TableCell(job.reason),
    ]


_NODE_COLUMNS = (
    TableColumn("Node", "name"),
    TableColumn("Type", "name"),
    TableColumn("State", "tight"),
    TableColumn("Host", "name", less=True),
    TableColumn("Seen", "n", "seconds since its agent last reported", less=True),
    TableColumn("Held", "n"),
    TableColumn("Devices"),
    TableColumn("Change"),
)


def nodes_table(nodes: Sequence[NodeView], caller: Caller) -> Html:
    """Nodes, one a row, with the jobs on each device."""
    if not nodes:
        return note("No node fits this filter.")
    heads = _NODE_COLUMNS if caller.role == "admin" else _NODE_COLUMNS[:-1]
    return table("nodes-table", "Nodes", heads, (_node_row(node) for node in nodes))


def _node_row(node: NodeView) -> list[TableCell]:
    allocated = sum(map(bool, node.jobs))
    kind = join(
        name(node.accelerator),
        tag("small", " by configuration") if node.simulated_devices else None,
    )
    seen = node.last_seen_s
    return [
        TableCell(name(node.name)),
        TableCell(kind),
        TableCell(_node_state(node)),
        TableCell(
            join(name(node.host), tag("small", f" {node.runs_as}") if node.runs_as else None)
        ),
        TableCell(duration(seen), "" if seen is None else f"{seen:.1f}"),
        TableCell(
            join(
                f"{allocated} of {node.devices}",
                tag("small", f" {parked} parked") if (parked := parked_text(node)) else None,
            ),
            allocated,
        ),
        TableCell(cells(node), allocated),
        TableCell(node_buttons(node), node.state),
    ]


def _node_state(node: NodeView) -> Html:
    """The state, with the reason for it and how long it has lasted."""
    if not node.reason:
        return state(node.state)
    since = "" if node.state_since_s is None else f", for {duration(node.state_since_s)}"
    return join(state(node.state), tag("small", f" {node.reason}{since}"))


def node_buttons(node: NodeView) -> Html:
    """Return the button by which an administrator drains a node, or has it used again."""
    if node.state in ("drained", "unhealthy"):
        return button("/nodes/undrain", "Use again", node=node.name)
    ask = f"Drain {node.name}? Its jobs go elsewhere."
    return button("/nodes/drain", "Drain", ask, node=node.name)


MOST_DEVICES = 64  # of a node, up to which each is shown


def cells(node: NodeView) -> Html:
    """The devices of a node, each with the jobs that hold it; where they are very many, some that are
    held."""
    shown: Sequence[int] = range(node.devices)
    if node.devices > MOST_DEVICES:
        shown = [device for device, jobs in enumerate(node.jobs) if jobs][:MOST_DEVICES]
    items = [_device(device, node) for device in shown]
    if len(shown) < node.devices:
        items.append(tag("li", f"{node.devices - len(shown):,} more"))
    label = f"devices of {node.name}"
    return tag(
        "ul", *items, class_="cells" if node.state == "up" else "cells off", aria_label=label
    )


def _device(device: int, node: NodeView) -> Html:
    holders = node.jobs[device] if device < len(node.jobs) else ()
    inner = [_holder(job, device) for job in holders] or [
        tag("span", tag("span", f"device {device}: free", class_="visually-hidden"))
    ]
    return tag("li", *inner, class_="cell", title=f"device {device}")


def _holder(job: int, device: int) -> Html:
    """A job on a device; of another tenant's (negative) no more than that there is one."""
    if job < 0:
        return tag("span", "·", class_="hidden-job", title="a job of another tenant")
    label = f"device {device}: job {job}"
    return link(f"/jobs/{job}", job, class_=f"j{job % JOB_COLOURS}", aria_label=label)


def node_cards(nodes: Sequence[NodeView]) -> Html:
    """All nodes of a small cluster."""
    return tag("div", *map(_card, nodes), class_="nodes")


def _card(node: NodeView) -> Html:
    word = state(node.state) if node.state != "up" else None
    title = tag("h3", name(node.name), tag("small", name(node.accelerator)), word)
    return tag("div", title, cells(node), class_="node")


_TENANT_COLUMNS = (
    TableColumn("Tenant", "name"),
    TableColumn("Jobs", "n"),
    TableColumn("Running", "n", less=True),
    TableColumn("Done", "n", less=True),
    TableColumn("Devices", "n", "held now"),
    TableColumn("Promised", "n", "of all device time, by the weights of the jobs in the system"),
    TableColumn("Received", "n", "of all device time handed out so far"),
    TableColumn("Device time", "n", less=True),
    TableColumn("Lost", "n", "device time: work done again, and overhead"),
    TableColumn(
        "Rho", "n", "finish-time fairness of its ended jobs, on average; above 1: worse than alone"
    ),
)


def tenants_table(tenants: Sequence[TenantView]) -> Html:
    """Tenants, one a row."""
    return table("tenants-table", "Tenants", _TENANT_COLUMNS, map(_tenant_row, tenants))


def _tenant_row(tenant: TenantView) -> list[TableCell]:
    rho = tenant.mean_rho
    return [
        TableCell(name(tenant.name)),
        TableCell(tenant.jobs),
        TableCell(tenant.running),
        TableCell(tenant.done),
        TableCell(tenant.devices),
        TableCell(percent(tenant.share_promised), tenant.share_promised),
        TableCell(percent(tenant.share_received), tenant.share_received),
        TableCell(duration(tenant.device_s), f"{tenant.device_s:.1f}"),
        TableCell(duration(tenant.lost_device_s), f"{tenant.lost_device_s:.1f}"),
        TableCell(DASH if rho is None else f"{rho:.2f}", "" if rho is None else rho),
    ]


_ATTEMPT_COLUMNS = (
    TableColumn("Attempt", "n"),
    TableColumn("On", "tight"),
    TableColumn("Began", "n"),
    TableColumn("Took", "n"),
    TableColumn("Steps", "n", "done in this attempt"),
    TableColumn("Handover", "n", "from the order until the devices are free of who had them"),
    TableColumn("Started", "n", "from there to the first word of the process"),
    TableColumn("Loaded", "n", "its checkpoint"),
    TableColumn("Saved", "n", "all its checkpoints, the last one included"),
    TableColumn("Stopped", "n", "from the order to stop to its last process's end, without saving"),
    TableColumn("Lost steps", "n", "to be done again"),
    TableColumn("Ended because", "why"),
)


def attempts_table(attempts: Sequence[AttemptView], now_s: float) -> Html:
    """Return a table of what each attempt of a job cost, newest first, with the sums."""
    rows = (_attempt_row(attempt, now_s) for attempt in reversed(attempts))
    return table("attempts-table", "Attempts of the job", _ATTEMPT_COLUMNS, rows, _totals(attempts))


def _attempt_row(attempt: AttemptView, now_s: float) -> list[TableCell]:
    ended = now_s if attempt.ended_s is None else attempt.ended_s
    where = join(name(attempt.node), tag("small", " ", name(attempt.accelerator)))
    took = ended - attempt.began_s
    steps = max(attempt.to_step, attempt.reached_step) - attempt.from_step
    steps = max(steps, 0.0)
    return [
        TableCell(attempt.attempt),
        TableCell(where),
        TableCell(ago(attempt.began_s, now_s), f"{attempt.began_s:.1f}"),
        TableCell(duration(took), f"{took:.1f}"),
        TableCell("?" if attempt.is_step_unknown else count(steps), steps),
        *(_part(value) for value in attempt.overhead_parts_s),
        TableCell(count(attempt.lost_steps), attempt.lost_steps),
        TableCell(attempt.why or "runs"),
    ]


def _part(seconds: float) -> TableCell:
    """A part of the cost; -1 = not known."""
    known = seconds >= 0
    return TableCell(duration(seconds) if known else DASH, f"{seconds:.3f}" if known else "")


def _totals(attempts: Sequence[AttemptView]) -> Html:
    parts = [
        sum(max(part, 0.0) for part in column)
        for column in zip(*(attempt.overhead_parts_s for attempt in attempts), strict=True)
    ]
    lost = sum(attempt.lost_steps for attempt in attempts)
    text = (tag("td", duration(part), class_="n") for part in parts)
    cells = (tag("td", "Sum", colspan="5"), *text, tag("td", count(lost), class_="n"), tag("td"))
    return tag("tfoot", tag("tr", *cells))
