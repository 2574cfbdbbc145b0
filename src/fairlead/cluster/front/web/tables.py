"""Tables of jobs, nodes, tenants and starts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    JobView,
    NodeView,
    StintView,
    TenantView,
)
from fairlead.cluster.front.web.markup import (
    Child,
    Html,
    ago,
    count,
    duration,
    join,
    link,
    name,
    percent,
    tag,
)
from fairlead.cluster.front.web.layout import (
    button,
    note,
    scroll,
)
from fairlead.analysis.report.metric_catalogue import DASH

JOB_COLOURS = 12  # classes j0 to j11 of the style
STATES = {
    "running": "good", "finishing": "good", "waiting": "cool", "preempted": "cool",
    "paused": "warn", "completed": "quiet", "dropped": "bad", "killed": "bad", "cancelled": "quiet",
    "up": "good", "drained": "warn", "lost": "bad", "never seen": "quiet",
    "suspect": "warn", "unhealthy": "bad",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell."""

    shown: Child
    value: str | float | None = None  # by which the column is sorted, where not by what is shown
    kind: str = ""  # class: n = number, name, why, tight
    header: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column."""

    title: str
    kind: str = ""
    about: str = ""
    less: bool = False  # left out on a narrow screen


def table(
    id_: str,
    caption: str,
    heads: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    foot: Html | None = None,
) -> Html:
    """A table that sorts by its headings."""
    head = tag("tr", *map(_head, heads))
    body = (tag("tr", *map(_cell, heads, row)) for row in rows)
    inner = (
        tag("caption", caption, class_="visually-hidden"),
        tag("thead", head),
        tag("tbody", *body),
        foot,
    )
    return scroll(caption, tag("table", *inner, class_="sortable", id=id_))


def _head(column: Column) -> Html:
    press = tag("button", column.title, type="button", title=column.about or None)
    return tag("th", press, scope="col", class_=_class(column.kind, column))


def _cell(column: Column, cell: Cell) -> Html:
    element = "th" if cell.header else "td"
    return tag(
        element,
        cell.shown,
        data_v=cell.value,
        class_=_class(cell.kind or column.kind, column),
        scope="row" if cell.header else None,
    )


def _class(kind: str, column: Column) -> str | None:
    return " ".join(word for word in (kind, "less" if column.less else "") if word) or None


def state(word: str) -> Html:
    """The state of a job or node."""
    return tag("span", word, class_=f"state {STATES.get(word, 'quiet')}")


def job_link(job: int, words: str = "") -> Html:
    """A link to a job's page."""
    return link(f"/jobs/{job}", words or str(job))


def place(job: JobView) -> Html:
    """Where a job runs."""
    if not job.node:
        return Html(DASH)
    devices = ", ".join(map(str, job.devices))
    return join(name(job.node), tag("small", " ", name(job.accelerator), f" {devices}".rstrip()))


def left_s(job: JobView) -> float | None:
    """Seconds to its end if it keeps its devices; None if it does not run or its rate is not known."""
    rate = job.measured_rate if job.measured_rate is not None else job.rates.get(job.accelerator)
    if job.state != "running" or not rate or rate <= 0:
        return None
    return max(job.total_steps - job.steps, 0.0) / rate


def progress(job: JobView) -> Html:
    """Steps done of all, as a bar with words."""
    done, total = count(job.steps), count(job.total_steps)
    part = min(max(job.steps / job.total_steps, 0.0), 1.0) if job.total_steps > 0 else 0.0
    bar = tag("progress", value=f"{part:.4f}", max="1", aria_label=f"job {job.id}: {part:.0%} done")
    return join(bar, tag("small", f"{done} of {total} ({100 * part:.0f} %)"))


_JOB_COLUMNS = (
    Column("Job", "n"),
    Column("Name", "name"),
    Column("Tenant", "tight", less=True),
    Column("State", "tight"),
    Column("Runs on", "tight", less=True),
    Column("Progress", "n", "by the part of its steps that is done"),
    Column("Left", "n", "if it keeps the devices that it has"),
    Column("Why", "why", less=True),
)


def jobs_table(jobs: Sequence[JobView], id_: str = "jobs-table", none: str = "No jobs.") -> Html:
    """Jobs, one a row."""
    if not jobs:
        return note(none)
    return table(id_, "Jobs", _JOB_COLUMNS, map(_job_row, jobs))


def _job_row(job: JobView) -> list[Cell]:
    left = left_s(job)
    part = job.steps / job.total_steps if job.total_steps else 0.0
    return [
        Cell(job_link(job.id), job.id),
        Cell(tag("a", name(job.name or job.family), href=f"/jobs/{job.id}", tabindex="-1")),
        Cell(name(job.tenant)),
        Cell(state(job.state)),
        Cell(place(job)),
        Cell(progress(job), f"{part:.6f}"),
        Cell(duration(left), "" if left is None else f"{left:.0f}"),
        Cell(job.reason),
    ]


_NODE_COLUMNS = (
    Column("Node", "name"),
    Column("Type", "tight"),
    Column("State", "tight"),
    Column("Host", "name", less=True),
    Column("Seen", "n", "seconds since its agent last reported", less=True),
    Column("Held", "n"),
    Column("Devices"),
    Column("Change"),
)


def nodes_table(nodes: Sequence[NodeView], caller: Caller) -> Html:
    """Nodes, one a row, with the jobs on each device."""
    if not nodes:
        return note("No node fits this filter.")
    heads = _NODE_COLUMNS if caller.role == "admin" else _NODE_COLUMNS[:-1]
    return table("nodes-table", "Nodes", heads, (_node_row(node) for node in nodes))


def _node_row(node: NodeView) -> list[Cell]:
    held = sum(map(bool, node.jobs))
    kind = join(name(node.accelerator), tag("small", " by configuration") if node.fake else None)
    seen = node.last_seen_s
    return [
        Cell(name(node.name)),
        Cell(kind),
        Cell(_node_state(node)),
        Cell(name(node.host)),
        Cell(duration(seen), "" if seen is None else f"{seen:.1f}"),
        Cell(f"{held} of {node.devices}", held),
        Cell(cells(node), held),
        Cell(node_buttons(node), node.state),
    ]


def _node_state(node: NodeView) -> Html:
    """The state, with the reason for it and how long it has lasted."""
    if not node.reason:
        return state(node.state)
    since = "" if node.state_since_s is None else f", for {duration(node.state_since_s)}"
    return join(state(node.state), tag("small", f" {node.reason}{since}"))


def node_buttons(node: NodeView) -> Html:
    """What an administrator may do with a node."""
    if node.state in ("drained", "unhealthy"):
        return button("/nodes/undrain", "Use again", node=node.name)
    ask = f"Drain {node.name}? Its jobs go elsewhere."
    return button("/nodes/drain", "Drain", ask, node=node.name)


def cells(node: NodeView) -> Html:
    """The devices of a node, each with the jobs that hold it."""
    items = (_device(device, node) for device in range(node.devices))
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
    Column("Tenant", "name"),
    Column("Jobs", "n"),
    Column("Running", "n", less=True),
    Column("Done", "n", less=True),
    Column("Devices", "n", "held now"),
    Column("Promised", "n", "of all device time, by the weights of the jobs in the system"),
    Column("Received", "n", "of all device time handed out so far"),
    Column("Device time", "n", less=True),
    Column("Lost", "n", "device time: work done again, and overhead"),
    Column(
        "Rho", "n", "finish-time fairness of its ended jobs, on average; above 1: worse than alone"
    ),
)


def tenants_table(tenants: Sequence[TenantView]) -> Html:
    """Tenants, one a row."""
    return table("tenants-table", "Tenants", _TENANT_COLUMNS, map(_tenant_row, tenants))


def _tenant_row(tenant: TenantView) -> list[Cell]:
    rho = tenant.mean_rho
    return [
        Cell(name(tenant.name)),
        Cell(tenant.jobs),
        Cell(tenant.running),
        Cell(tenant.done),
        Cell(tenant.devices),
        Cell(percent(tenant.share_promised), tenant.share_promised),
        Cell(percent(tenant.share_received), tenant.share_received),
        Cell(duration(tenant.device_s), f"{tenant.device_s:.1f}"),
        Cell(duration(tenant.lost_device_s), f"{tenant.lost_device_s:.1f}"),
        Cell(DASH if rho is None else f"{rho:.2f}", "" if rho is None else rho),
    ]


_STINT_COLUMNS = (
    Column("Start", "n"),
    Column("On", "tight"),
    Column("Began", "n"),
    Column("Took", "n"),
    Column("Steps", "n", "done in this start"),
    Column("Handover", "n", "from the order until the devices are free of who had them"),
    Column("Started", "n", "from there to the first word of the process"),
    Column("Loaded", "n", "its checkpoint"),
    Column("Saved", "n", "the newest checkpoint"),
    Column("Stopped", "n", "from the order to stop to the end of the last process"),
    Column("Lost steps", "n", "to be done again"),
    Column("Ended because", "why"),
)


def stints_table(stints: Sequence[StintView], now_s: float) -> Html:
    """What each start of a job cost, newest first, with the sums."""
    rows = (_stint_row(stint, now_s) for stint in reversed(stints))
    return table("stints-table", "Starts of the job", _STINT_COLUMNS, rows, _sums(stints))


def _stint_row(stint: StintView, now_s: float) -> list[Cell]:
    ended = now_s if stint.ended_s is None else stint.ended_s
    where = join(name(stint.node), tag("small", " ", name(stint.accelerator)))
    took = ended - stint.began_s
    steps = max(stint.to_step - stint.from_step, 0.0)
    return [
        Cell(stint.epoch),
        Cell(where),
        Cell(ago(stint.began_s, now_s), f"{stint.began_s:.1f}"),
        Cell(duration(took), f"{took:.1f}"),
        Cell(count(steps), steps),
        *(_part(value) for value in _parts(stint)),
        Cell(count(stint.lost_steps), stint.lost_steps),
        Cell(stint.why or "runs"),
    ]


def _parts(stint: StintView) -> tuple[float, ...]:
    return (stint.wait_s, stint.start_s, stint.load_s, stint.save_s, stint.stop_s)


def _part(seconds: float) -> Cell:
    """A part of the cost; -1 = not known."""
    known = seconds >= 0
    return Cell(duration(seconds) if known else DASH, f"{seconds:.3f}" if known else "")


def _sums(stints: Sequence[StintView]) -> Html:
    parts = [
        sum(max(part, 0.0) for part in column) for column in zip(*map(_parts, stints), strict=True)
    ]
    lost = sum(stint.lost_steps for stint in stints)
    told = (tag("td", duration(part), class_="n") for part in parts)
    cells = (tag("td", "Sum", colspan="5"), *told, tag("td", count(lost), class_="n"), tag("td"))
    return tag("tfoot", tag("tr", *cells))
