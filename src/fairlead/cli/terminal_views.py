"""Tables and sentences about the live cluster for the terminal."""

import time
from collections.abc import Iterable, Sequence

import msgspec
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlead.cli.terminal_text import HarmlessConsole, harmless_json
from fairlead.cluster.protocol.api_models import (
    AGENTS_USER,
    Comparison,
    ForecastSummary,
    JobView,
    NodeView,
    StatusView,
    failing_saves,
    parked_text,
)
from fairlead.cluster.protocol.deadlines import deadline_cell
from fairlead.cluster.protocol.engine_views import EngineView
from fairlead.cluster.protocol.plausible import one_line
from fairlead.model.duration_text import DASH, duration

MIN_LAST_COLUMN = (
    40  # columns of a terminal for the last column of a table, however wide the others are
)
LONGEST_NAME = 40  # columns of a terminal for the name of a job
WIDTH_WITHOUT_TERMINAL = 160  # columns where the output is no terminal


def console() -> Console:
    """A console that shows names as they are: no markup, no emoji."""
    made = HarmlessConsole(highlight=False, markup=False, emoji=False)
    if made.is_terminal:
        return made
    return HarmlessConsole(highlight=False, markup=False, emoji=False, width=WIDTH_WITHOUT_TERMINAL)


def local_time(time_s: float) -> str:
    """A time, in seconds since 1970, to the minute, where this machine is."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))


def show(*parts: RenderableType) -> None:
    """Print them one below the other."""
    console().print(*parts, sep="\n", soft_wrap=False)


def show_age(ages_s: Iterable[float | None]) -> None:
    """Print a line on what follows where it is older than it should be."""
    if old := old_state(ages_s):
        show(Text(old))


def show_trouble(status: StatusView) -> None:
    """Print a line on what follows where the server is halted or cannot write its state, or jobs wait for
    the storage of their checkpoints."""
    for line in _trouble(status):
        show(Text(line))


def _trouble(status: StatusView) -> list[str]:
    return [
        *([f"HALTED: {status.halted}"] if status.halted else []),
        *([f"NOTHING IS WRITTEN DOWN: {status.unwritable}"] if status.unwritable else []),
        *(
            [f"JOBS CANNOT START: {status.checkpoints_trouble}"]
            if status.checkpoints_trouble
            else []
        ),
        *([f"CHECKPOINTS ARE NOT SAVED: {failing}"] if (failing := failing_saves(status)) else []),
    ]


def print_json(content: object) -> None:
    """One JSON value on standard output."""
    print(harmless_json(msgspec.json.encode(content).decode()))


def old_state(ages_s: Iterable[float | None]) -> str:
    """A line on what is shown where it is older than it should be; "" = it is new."""
    oldest = max((age_s for age_s in ages_s if age_s is not None), default=None)
    if oldest is None:
        return ""
    return f"The scheduler has not answered for {duration(oldest)}: this is the state before that."


def table(columns: str, rows: Iterable[Sequence[object]]) -> Table:
    """A table; columns: their names, ``>`` before those that are aligned to the right."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns.split():
        right = name.startswith(">")
        made.add_column(
            name.lstrip(">").replace("_", " "),
            justify="right" if right else "left",
            overflow="fold",
        )
    for row in rows:
        made.add_row(*(Text(one_line(str(cell))) for cell in row))
    return made


def where(job: JobView) -> str:
    """Node, type and devices that a job holds."""
    if not job.node:
        return DASH
    return f"{job.node} {job.accelerator}:{','.join(map(str, job.devices))}"


def job_lines(jobs: Iterable[JobView], width: int | None = None) -> list[str]:
    """A heading and one line for each job, its name cut to ``LONGEST_NAME``. How it stands to its deadline is
    told where one of them has one. width: of the terminal, to which the reason, which comes last, is cut;
    None = it is not."""
    listed = list(jobs)
    dated = any(job.deadline_left_s is not None for job in listed)
    rows = [
        (
            str(job.id),
            _brief(job.name or job.family) or DASH,
            job.user,
            job.tenant,
            str(job.scale_factor),
            f"{job.weight:g}",
            job.state,
            where(job),
            _percent(job.steps, job.total_steps),
            DASH if job.measured_rate is None else f"{job.measured_rate:.3g}",
            str(job.starts),
            str(job.failures),
            duration(job.queued_s),
            *([deadline_cell(job)] if dated else []),
            job.reason or _lost(job),
        )
        for job in listed
    ]
    columns = (
        ">job name user tenant >devices >weight state where >done >steps/s "
        f">starts >failures >queued {'deadline ' * dated}why"
    )
    return text_table(columns, rows, width)


def _brief(name: str) -> str:
    """A name as it is shown in a table of which every row would be as wide as the longest one."""
    name = one_line(name)
    return name if cell_len(name) <= LONGEST_NAME else f"{set_cell_size(name, LONGEST_NAME - 3)}..."


def text_table(columns: str, rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """The lines of a table that may be long: a heading, a rule and the rows, each on one line. columns: as
    for ``table``; width: to which the last column is cut, ``MIN_LAST_COLUMN`` at least."""
    rows = [list(map(one_line, row)) for row in rows]
    names = [name.lstrip(">").replace("_", " ") for name in columns.split()]
    right = [name.startswith(">") for name in columns.split()]
    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    room = (
        None
        if width is None
        else max(width - sum(widths[:-1]) - 2 * (len(names) - 1), MIN_LAST_COLUMN)
    )
    lines = []
    for row in (names, *rows):
        cells = [
            " " * (size - cell_len(cell)) + cell
            if to_right
            else cell + " " * (size - cell_len(cell))
            for cell, size, to_right in zip(row[:-1], widths, right, strict=False)
        ]
        last = row[-1] if room is None or cell_len(row[-1]) <= room else f"{row[-1][: room - 3]}..."
        lines.append("  ".join([*cells, last]).rstrip())
    return [lines[0], "-" * min(max(map(len, lines)), width or WIDTH_WITHOUT_TERMINAL), *lines[1:]]


def _lost(job: JobView) -> str:
    """A remark on a job that has been started again without its progress; "" = none."""
    again = job.starts_over and job.starts > 1 and job.ended_s is None
    unless = ", unless it is parked" if job.is_suspended else ""
    return f"starts over whenever it is stopped{unless}" if again else ""


def node_table(nodes: Iterable[NodeView]) -> Table:
    """One node per line."""
    rows = [
        (
            node.name,
            node.state,
            node.accelerator,
            f"{sum(map(bool, node.jobs))}/{node.devices}",
            " ".join("+".join(map(_job, jobs)) or "." for jobs in node.jobs),
            node.host,
            parked_text(node) or DASH,
            node.runs_as.removeprefix(AGENTS_USER) or DASH,
            DASH if node.last_seen_s is None else f"{duration(node.last_seen_s)} ago",
            duration(node.state_since_s),
            node.reason,
        )
        for node in nodes
    ]
    return table(
        "node state type >held jobs_by_device host parked jobs_run_as seen since why", rows
    )


def engine_table(engine: EngineView) -> Table:
    """One accelerator type per line."""
    rows = [
        (
            one.accelerator,
            f"{one.running}",
            f"{one.queued}",
            f"{one.ending}",
            f"{one.minimum}-{one.maximum}",
            f"{one.devices}",
            f"{one.price:.2g}",
            f"{one.asks}",
            f"{one.gives_back}",
            one.why,
        )
        for one in engine.types
    ]
    return table("type >running >queued >ending >nodes >devices >price >asks >gives_back why", rows)


def launch_table(engine: EngineView) -> Table:
    """One node that was asked for per line."""
    rows = [
        (one.node, one.id, one.state, one.accelerator, duration(one.left_s), one.why)
        for one in engine.launches
    ]
    return table("node id state type left why", rows)


def _job(job: int) -> str:
    """An id; those of others, which a user is not shown, are negative."""
    return str(job) if job >= 0 else "*"


def _round(status: StatusView) -> str:
    length = duration(status.round_s)
    if status.round < 0:
        return f"no round yet (they last {length})"
    left, decided = duration(status.round_ends_in_s), duration(status.decide_s)
    return f"round {status.round:,} of {length}, ends in {left} | decided in {decided}"


def status_screen(status: StatusView) -> Group:
    """The cluster in one screen."""
    old = old_state([status.age_s])
    lines = [
        *([old] if old else []),
        *_trouble(status),
        f"Fairlead {status.version}, first started {duration(status.now_s)} ago | policy {status.policy} "
        f"({status.profile} profile)",
        f"{_round(status)} | solved in {duration(status.solve_s)}: {status.solve}",
        "last backup: " + _backup(status.backup_age_s),
        "jobs: " + (", ".join(f"{n:,} {state}" for state, n in status.jobs.items()) or "none"),
        *([f"past their deadline: {late:,}"] if (late := status.n_past_deadline) else []),
        *_runs_as(status),
    ]
    devices = [(name, *numbers) for name, numbers in status.devices.items()]
    tenants = [
        (
            one.name or DASH,
            one.jobs,
            one.running,
            one.done,
            one.devices,
            f"{one.share_promised:.1%}",
            f"{one.share_received:.1%}",
            duration(one.lost_device_s),
            DASH if one.mean_rho is None else f"{one.mean_rho:.2f}",
        )
        for one in status.tenants
    ]
    return Group(
        *map(Text, lines),
        Text(),
        table("type >devices >working >held", devices),
        table("tenant >jobs >running >done >devices >promised >received >lost >rho", tenants),
    )


def _runs_as(status: StatusView) -> list[str]:
    """Return on how many nodes jobs are kept apart from their agent, and on how many not."""
    told = [f"{what} on {count:,}" for what, count in sorted(status.runs_as.items())]
    return [one_line("nodes: " + ", ".join(told))] if told else []


def _backup(age_s: float | None) -> str:
    return "none known; see `fairlead backup`" if age_s is None else f"{duration(age_s)} ago"


def comparison_screen(answer: Comparison) -> Group:
    """The forecast with the changes, next to the one without."""
    now, then = answer.now, answer.then
    whole = [
        ("all done in", now.all_done_words, then.all_done_words),
        ("mean time to the end", now.mean_left_words, then.mean_left_words),
        ("devices in use", f"{now.utilization:.1%}", f"{then.utilization:.1%}"),
    ]
    for what, before, after in absent_jobs(now, then):
        whole.append((what, str(before), str(after)))
    changed = [
        (job, duration(before), duration(after), _difference(before, after))
        for job, before, after in answer.changed
    ]
    parts: list[RenderableType] = [table("what >as_it_is >then", whole)]
    if changed:
        parts.append(Text("The jobs that change most, time to their end:"))
        parts.append(table(">job >as_it_is >then >difference", changed))
    return Group(*parts, *map(Text, answer.notes), *map(Text, filter(None, [answer.basis])))


def absent_jobs(now: ForecastSummary, then: ForecastSummary) -> list[tuple[str, int, int]]:
    """Kinds of jobs without a forecast end, and how many there are now and then; kinds without jobs are left
    out."""
    rows = (
        ("jobs without a forecast", now.n_no_end, then.n_no_end),
        ("jobs without devices", now.n_without_devices, then.n_without_devices),
        ("paused jobs", now.n_paused, then.n_paused),
    )
    return [row for row in rows if any(row[1:])]


def _difference(before: float, after: float) -> str:
    return f"{'+' if after >= before else '-'}{duration(abs(after - before))}"


def _percent(part: float, whole: float) -> str:
    return f"{min(part / whole, 1.0):.0%}" if whole > 0 else DASH
