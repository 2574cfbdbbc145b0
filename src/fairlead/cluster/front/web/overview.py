"""The cluster on one screen."""

from collections.abc import Iterable
from typing import get_args

from fairlead.analysis.report.markup import Html, join, tag
from fairlead.analysis.report.metric_catalogue import counted
from fairlead.analysis.report.svg import colour
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.web import charts, tables
from fairlead.cluster.front.web.layout import (
    FAST,
    SLOW,
    Page,
    Section,
    columns,
    figure,
    note,
    old_state,
)
from fairlead.cluster.front.web.markup import breakable, link, name
from fairlead.cluster.front.web.page_request import PageRequest
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    JobState,
    JobView,
    NodeView,
    Sample,
    StatusView,
    TenantView,
    failing_saves,
)
from fairlead.cluster.store.rows import OPEN_STATES
from fairlead.model.duration_text import DASH, duration

QUEUE = 40  # jobs shown here
CELLS = 400  # devices up to which each is a field with its job's number
SPANS = {"hour": 3600.0, "6h": 21600.0, "day": 86400.0, "all": float("inf")}  # s
_WINDOW_LABELS = {"hour": "1 h", "6h": "6 h", "day": "24 h", "all": "all"}


def overview(facade: Facade, ask: PageRequest) -> Page:
    """The page at ``/``."""
    status = facade.status(ask.caller)
    sections: list[Section] = []
    if ask.wants(FAST):
        jobs = facade.jobs(ask.caller, state="open", limit=QUEUE)
        sections += [summary(status), queue(jobs, _visible(status, ask.caller))]
    if ask.wants(SLOW):
        span = ask.query.get("span", "")
        span = span if span in SPANS else "hour"
        since_s = max(status.now_s - SPANS[span], 0.0)
        samples = facade.samples(ask.caller, since_s)
        sections += [pictures(status, samples, span), by_tenant(status)]
        sections.append(devices(facade.nodes(ask.caller)))
    about = f"{status.policy}, round {status.round}, {counted(_open(status), 'job')} in the system"
    return Page("Cluster", about, sections, here="/")


def summary(status: StatusView) -> Section:
    """Policy, round, solve, devices and jobs in figures; a warning when old shares hold."""
    ends = status.round_ends_in_s
    cards = [
        _card(
            "Policy",
            tag("span", breakable(status.policy), class_="long"),
            f"profile {status.profile}",
        ),
        _card(
            f"Round of {status.round_s:g} s",
            f"{status.round:,}" if status.round >= 0 else "none yet",
            "not under way" if ends is None else f"ends in {duration(max(ends, 0.0))}",
        ),
        _card("Jobs", f"{_open(status):,} in the system", _job_states(status)),
        *(
            _devices_card(accelerator, *found)
            for accelerator, found in sorted(status.devices.items())
        ),
        _card("Last solve", duration(status.solve_s), f"round decided in {_decided(status)}"),
        _card("Time since the first start", duration(status.now_s), f"Fairlead {status.version}"),
        _card("Last backup", _backup(status.backup_age_s), "of the state; see fairlead backup"),
    ]
    inner = join(
        old_state([status.age_s]),
        _banner("Halted: ", status.halted),
        _banner("Nothing is written down: ", status.unwritable),
        _banner("Jobs cannot start: ", status.checkpoints_trouble),
        _banner("Checkpoints are not saved: ", failing_saves(status)),
        _warning(status.solve),
        tag("dl", *cards, class_="cards"),
    )
    return Section("summary", "Cluster", inner, FAST)


def _job_states(status: StatusView) -> str:
    late = status.n_past_deadline
    return _states(status.jobs) + (f"; {late:,} past the deadline" if late else "")


def _backup(age_s: float | None) -> str:
    return "none known" if age_s is None else f"{duration(age_s)} ago"


def _card(title: str, value: object, more: object) -> Html:
    return tag("div", tag("dt", title), tag("dd", value, tag("small", more)))


def _devices_card(accelerator: str, every: int, working: int, allocated: int) -> Html:
    words = f"{every} in all, {working} working"
    if working < every:
        words += f", {every - working} not in use"
    bar = tag(
        "progress",
        value=allocated,
        max=max(every, 1),
        aria_label=f"{accelerator}: {allocated} of {every} held",
    )
    return tag(
        "div",
        tag("dt", name(accelerator)),
        tag("dd", f"{allocated} held", bar, tag("small", words)),
    )


def _decided(status: StatusView) -> str:
    return DASH if status.decide_s is None else f"{1000 * status.decide_s:,.0f} ms"


def _banner(about: str, why: str, tone: str = "bad") -> Html | None:
    return (
        tag("p", tag("strong", about), why, role="status", class_=f"banner {tone}") if why else None
    )


def _warning(solve: str) -> Html | None:
    """A banner where the last solve did not give new shares."""
    if solve == "ok":
        return None
    return _banner("Solve ", solve, "cool" if solve.startswith("under way") else "bad")


def _open(status: StatusView) -> int:
    return sum(status.jobs.get(word, 0) for word in OPEN_STATES)


def _states(jobs: dict[str, int]) -> str:
    known = [word for word in get_args(JobState) if jobs.get(word)]
    return ", ".join(f"{jobs[word]:,} {word}" for word in known) or "none yet"


def _visible(status: StatusView, caller: Caller) -> int:
    """Jobs in the system that the caller may see."""
    if caller.role == "admin":
        return _open(status)
    return sum(tenant.jobs for tenant in status.tenants if tenant.name == caller.tenant)


def queue(jobs: list[JobView], several: int) -> Section:
    """The first of so many jobs that have not ended."""
    every = link("/jobs", "All jobs")
    more = None
    if several > len(jobs):
        more = note(f"The first {len(jobs)} of {several:,} that have not ended. ", every)
    shown = tables.jobs_table(jobs, "queue-table", "No job is in the system.")
    return Section("queue", "Queue", join(shown, more), FAST, tools=every)


def pictures(status: StatusView, samples: list[Sample], span: str) -> Section:
    """Devices over time; shares, fairness and lost work by tenant."""
    tenants = _in_order(status.tenants)
    accelerators = enumerate(charts.accelerators(samples))
    choice = tag("span", *_choices(span), role="group", aria_label="Time shown")
    over_time = join(
        _legend(
            [
                *((colour(i), accelerator) for i, accelerator in accelerators),
                ("", "dashed: all that work"),
            ]
        ),
        charts.devices_over_time(samples, status.now_s),
        tag("p", "The last ", choice, class_="note"),
    )
    shares = join(
        _legend(
            [("#a9b4be", "promised, by the weights of jobs now"), (colour(0), "received so far")]
        ),
        charts.shares(tenants),
    )
    rho = "Finish-time fairness: mean rho of ended jobs; above 1 is worse than alone"
    truncated = len(tenants) > charts.TENANTS
    more = note(f"The first {charts.TENANTS} of {len(tenants)} tenants.") if truncated else None
    shown = columns(
        figure("Devices held over time", over_time),
        figure("Share of device time by tenant", shares),
        figure(rho, charts.fairness(tenants)),
        figure("Device time lost to work done again and overhead", charts.lost_work(tenants)),
    )
    return Section("pictures", "Use and shares", join(shown, more), SLOW)


def _in_order(tenants: Iterable[TenantView]) -> list[TenantView]:
    return sorted(tenants, key=lambda t: (-t.share_promised, -t.share_received, t.name))


def _choices(span: str) -> Iterable[Html]:
    for key, words in _WINDOW_LABELS.items():
        chosen = "true" if key == span else None
        yield join(link(f"/?span={key}#pictures", words, aria_current=chosen), " ")


def _legend(entries: Iterable[tuple[str, str]]) -> Html:
    """Return the legend of colours; an entry without a colour is a remark."""
    items = (tag("li", _patch(fill), name(words)) for fill, words in entries)
    return tag("ul", *items, class_="legend")


def _patch(fill: str) -> Html | None:
    box = tag("rect", width=12, height=10, fill=fill)
    return tag("svg", box, viewBox="0 0 12 10", aria_hidden="true") if fill else None


def by_tenant(status: StatusView) -> Section:
    """The section of the tenants: jobs, shares and losses of each."""
    tenants = _in_order(status.tenants)
    table = tables.tenants_table(tenants) if tenants else note("No tenant has jobs yet.")
    return Section("tenants", "Tenants", table, SLOW)


def devices(nodes: list[NodeView]) -> Section:
    """Return the section that shows what each device does."""
    every = link("/nodes", "All nodes")
    if not nodes:
        return Section("devices", "Devices", note("No node has registered yet."), SLOW)
    if sum(node.devices for node in nodes) <= CELLS:
        return Section("devices", "Devices", tables.node_cards(nodes), SLOW, tools=every)
    words = note(
        "A square is a device: grey free, blue held, green shared by two jobs, orange not in use."
    )
    picture = tag("div", charts.occupancy(nodes), class_="scroll", tabindex="0", role="region",
                  aria_label="Devices")  # fmt: skip
    return Section("devices", "Devices", join(words, picture), SLOW, tools=every)
