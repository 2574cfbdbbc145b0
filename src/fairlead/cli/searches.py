"""Commands about searches: ``search``, ``searches``, ``search-status``."""

import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from fairlead.cli.server_options import JsonOption, asks_server
from fairlead.cli.submit_options import TenantOption, check_tenant_and_key
from fairlead.cli.terminal_views import print_json, show, table
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.read_study import read_study, text_of
from fairlead.cluster.protocol.study import SearchView, StudySpec, TrialView
from fairlead.errors import ConfigError, FairleadError, InputError, UnreachableError
from fairlead.model.duration_text import DASH, ago, duration
from fairlead.model.toml_lines import naming_lines

POLL_S = 0.5  # between two looks at a search
SearchArgument = Annotated[int, typer.Argument(metavar="SEARCH", min=0, help="Id of the search.")]


@asks_server
def search(
    client: Client,
    file: Annotated[
        Path, typer.Argument(metavar="STUDY.toml", help="What to search, TOML or JSON.")
    ],
    tenant: TenantOption = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="The same key again begins nothing and prints the same id."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended.")] = False,
    json: JsonOption = False,
) -> None:
    """Search for good parameters of a job.

    The file names the parameters and their ranges, the metric that the job reports with fairlead.report(),
    and the job. Trials are jobs. With --wait the exit code is 1 where no trial has a value in the end.
    """
    check_tenant_and_key(tenant, key, what="a search")
    if key and " " in key:
        raise ConfigError(f"--key: must be of printable ASCII characters, got {key!r}")
    study = read_study(file)
    if not study.job.cwd:
        job = msgspec.structs.replace(study.job, cwd=str(Path.cwd()))
        study = msgspec.structs.replace(study, job=job)
    number = _begun(client, file, study, tenant or "", key or "")
    if not wait:
        if json:
            print_json({"id": number})
        else:
            print(f"search {number}", flush=True)
        return
    print(f"search {number}", file=sys.stderr, flush=True)
    view = _ended(client, number)
    if json:
        print_json(view)
    else:
        show(search_report(view, client.status().now_s))
    if view.best is None:
        raise FairleadError(f"search {number}: no trial has a value: {view.reason}")


def _begun(client: Client, file: Path, study: StudySpec, tenant: str, key: str) -> int:
    """Begin the search. What the server says of the study names its file and line."""
    with naming_lines(file):
        try:
            return client.search(study, tenant, key)
        except InputError as problem:
            field = str(problem).partition(":")[0]
            if field in StudySpec.__struct_fields__:
                raise InputError(f"{file}: {problem}") from None
            raise


def _ended(client: Client, number: int) -> SearchView:
    """The search once it has ended. A server that cannot be reached is asked again."""
    away = False
    while True:
        try:
            view = client.search_status(number)
            away = False
            if view.state != "running":
                return view
        except UnreachableError as problem:
            if not away:
                print(f"fairlead: {problem}; still waiting", file=sys.stderr)
            away = True
        time.sleep(POLL_S)


@asks_server
def searches(client: Client, json: JsonOption = False) -> None:
    """List searches and their best trials."""
    found = client.searches()
    if json:
        print_json(found)
        return
    if not found:
        print("no searches")
        return
    now_s = client.status().now_s
    rows = [
        (
            view.id,
            view.name,
            view.user,
            view.state,
            f"{_over(view):,}/{view.study.trials:,}",
            view.study.metric,
            DASH if view.best is None else f"{view.best.value:.6g}",
            DASH if view.best is None else view.best.number,
            ago(view.started_s, now_s),
            view.reason or view.waiting_reason,
        )
        for view in found
    ]
    show(table(">search name user state >trials metric >best >trial >started why", rows))


@asks_server
def search_status(client: Client, search: SearchArgument, json: JsonOption = False) -> None:
    """Show a search with its trials."""
    view = client.search_status(search)
    if json:
        print_json(view)
    else:
        show(search_report(view, client.status().now_s))


def search_report(view: SearchView, now_s: float) -> RenderableType:
    """The search, its best trial, and a table of all of them."""
    study = view.study
    until_s = now_s if view.ended_s is None else view.ended_s
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(view.counts.items()))
    lines = [
        f"Search {view.id} {view.name} of {view.user} ({view.tenant}): {study.direction} {study.metric}, "
        f"{study.sampler}, at most {study.trials:,} trials, {study.parallel:,} at once",
        f"{view.state.capitalize()}{': ' * bool(view.reason)}{view.reason}, after "
        f"{duration(until_s - view.started_s)}; {counts or 'no trials yet'}",
    ]
    if view.waiting_reason:
        lines.append(f"No trial begins for now: {view.waiting_reason}")
    if view.best is not None:
        lines.append(
            f"Best: trial {view.best.number} (job {view.best.job}), {study.metric} {view.best.value:.6g}: "
            + ", ".join(f"{name} = {_shown(view.best, name)}" for name in study.parameters)
        )
    columns = ">trial >job state >" + study.metric + " >step "
    columns += " ".join(f">{name}" for name in study.parameters) + " why"
    rows = [
        (
            trial.number,
            trial.job,
            trial.state,
            DASH if trial.value is None else f"{trial.value:.6g}",
            DASH if trial.step is None else f"{trial.step:,}",
            *(_shown(trial, name) for name in study.parameters),
            trial.reason,
        )
        for trial in view.trials
    ]
    return Group(*map(Text, lines), *([table(columns, rows)] if rows else []))


def _shown(trial: TrialView, name: str) -> str:
    value = trial.parameters[name]
    return f"{value:.5g}" if isinstance(value, float) else text_of(value)


def _over(view: SearchView) -> int:
    return sum(count for state, count in view.counts.items() if state != "running")
