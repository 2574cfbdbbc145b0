"""Commands about jobs: ``jobs``, ``logs``, ``cancel``, ``pause``, ``resume``, ``explain``."""

import itertools
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, NamedTuple

import typer

from fairlead.cli.job_history import attempt_history
from fairlead.cli.server_options import (
    ActionResult,
    JobArgument,
    JobsArgument,
    JsonOption,
    asks_server,
    each,
    raise_first,
    try_each,
)
from fairlead.cli.terminal_text import TerminalFilter
from fairlead.cli.terminal_views import (
    console,
    job_lines,
    print_json,
    show,
    show_age,
    show_trouble,
)
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.api_models import ENDED_STATES, JobView
from fairlead.errors import ConfigError, InputError, UnreachableError

LIMIT = 100  # jobs shown at once
FOLLOW_POLL_S = 0.5  # between two looks at a log
KINDS = ("job", "array", "search")
STATES = ("open", "waiting", "running", "finishing", "preempted", "paused", *ENDED_STATES)


@asks_server
def jobs(
    client: Client,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="STATE", help=f"One of {', '.join(STATES)}. Default: open."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Those that have ended, too.")] = False,
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant's.")] = "",
    mine: Annotated[
        bool, typer.Option("--mine", help="Only those that you have submitted.")
    ] = False,
    array: Annotated[
        int | None,
        typer.Option("--array", metavar="ID", min=0, help="Only the tasks of this array."),
    ] = None,
    after: Annotated[
        int, typer.Option("--after", metavar="JOB", help="Only those with larger ids.")
    ] = -1,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            max=10**9,
            help=f"So many at most; 0 = all. Default: {LIMIT}, with --json all.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List jobs that have not ended.

    Names are cut to 40 columns, on a terminal reasons to its width; `fairlead explain` has the whole.
    """
    if state is not None and state not in STATES:
        raise ConfigError(f"--state: expected one of {', '.join(STATES)}, got {state!r}")
    if state is not None and every:
        raise ConfigError("--state and --all: give one of them")
    state = "" if every else state or "open"
    most = limit if limit is not None else 0 if json else LIMIT
    user = client.me().user if mine else ""
    listed = client.all_jobs(state, tenant, after, array)
    wanted = (job for job in listed if user in ("", job.user))
    found = list(itertools.islice(wanted, most or None))
    if json:
        print_json(found)
        return
    show_trouble(client.status())
    if not found:
        such = "such " * bool(mine or tenant or after >= 0 or array is not None)
        print(f"no {such}jobs are {state}" if state else f"no {such}jobs")
        return
    show_age(job.age_s for job in found)
    screen = console()
    print("\n".join(job_lines(found, screen.width if screen.is_terminal else None)))
    if most and next(wanted, None) is not None:
        print(f"There are more: --after {found[-1].id}, or --limit 0 for all.")


@asks_server
def logs(
    client: Client,
    job: JobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
) -> None:
    """Print a job's output. On a terminal, escape sequences other than colours are left out."""
    if not sys.stdout.isatty():
        _print_logs(client, job, str, follow=follow)
        return
    terminal = TerminalFilter()
    try:
        _print_logs(client, job, terminal.feed, follow=follow)
    finally:  # Ctrl-C ends --follow
        sys.stdout.write(terminal.end())
        sys.stdout.flush()


def _print_logs(client: Client, job: int, show: Callable[[str], str], *, follow: bool) -> None:
    cursor, printed = "", 0
    while True:
        try:
            view = client.job(job)  # asked first: where it has ended, what follows is all of it
            ended = view.state in ENDED_STATES
            cursor, more = _print_log(client, job, cursor, show)
            printed += more
        except UnreachableError:
            if not follow or not cursor:
                raise
            ended = False
        if ended or not follow:
            break
        time.sleep(FOLLOW_POLL_S)
    if not printed:
        print(_no_output(view), file=sys.stderr)


def _no_output(job: JobView) -> str:
    """Why nothing was printed."""
    if job.state not in ENDED_STATES:
        return f"job {job.id} is {job.state}: it has written nothing yet"
    return f"job {job.id} is {job.state}: it wrote nothing, or its output is kept no longer (--keep-logs)"


def _print_log(
    client: Client, job: int, cursor: str, show: Callable[[str], str]
) -> tuple[str, int]:
    """Print what is new, as ``show`` makes it. Returns the cursor behind it and how many characters came."""
    came = 0
    while True:
        text, cursor = client.log(job, cursor)
        if not text:
            return cursor, came
        came += len(text)
        sys.stdout.write(show(text))
        sys.stdout.flush()


class JobName(NamedTuple):
    """A job, all tasks of an array, or a search, as a command's argument names it."""

    id: int
    kind: str  # one of KINDS


def _job_name(text: str) -> JobName:
    found = re.fullmatch(r"(?:(array|search):)?([0-9]{1,16})", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is neither the id of a job nor array:ID nor search:ID")
    return JobName(int(found[2]), found[1] or "job")


@asks_server
def cancel(
    client: Client,
    jobs: Annotated[
        list[JobName],
        typer.Argument(
            metavar="JOB...",
            parser=_job_name,
            help="Ids of jobs; array:ID: all tasks of an array that have not ended; search:ID: a search and "
            "its trials.",
        ),
    ],
) -> None:
    """End jobs for good."""
    refused: list[InputError] = []
    for kind in KINDS:  # jobs first: an array may have some of them
        named = [job.id for job in jobs if job.kind == kind]
        refused += try_each(named, partial(_cancel, client, kind))
    raise_first(refused)


def _cancel(client: Client, kind: str, number: int) -> ActionResult:
    if kind == "array":
        ended = client.cancel_array(number)
        return ActionResult(f"array {number} cancelled: {len(ended):,} jobs")
    if kind == "search":
        client.stop_search(number)
        return ActionResult(f"search {number} stopped")
    client.cancel(number)
    return ActionResult(f"job {number} cancelled")


@asks_server
def pause(client: Client, jobs: JobsArgument) -> None:
    """Take jobs off their devices until they are resumed."""
    each("job", jobs, client.pause, "paused")


@asks_server
def resume(
    client: Client,
    jobs: JobsArgument,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Also jobs that wait for their checkpoints: begin with what is there, or anew.",
        ),
    ] = False,
) -> None:
    """Let paused jobs run again."""
    each("job", jobs, lambda job: client.resume(job, accept_loss=accept_loss), "resumed")


@asks_server
def explain(client: Client, job: JobArgument, json: JsonOption = False) -> None:
    """Tell a job's story.

    Why it is where it is or why not now, what its starts and preemptions cost, and when it is expected
    to end.
    """
    explanation = client.explain(job)
    if json:
        print_json(explanation)
    else:
        show(attempt_history(explanation, client.status().now_s))
