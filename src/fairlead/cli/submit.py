"""``fairlead submit``: jobs from files, or a command."""

import contextlib
import itertools
import re
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from fairlead.cli.lazy_commands import AFTER_DASHES
from fairlead.cli.option_records import takes_records
from fairlead.cli.server_options import JsonOption, asks_server
from fairlead.cli.submit_options import (
    FailureOptions,
    StartOptions,
    TenantOption,
    WorkOptions,
    by_option,
    check_tenant_and_key,
    given_fields,
)
from fairlead.cli.terminal_views import print_json
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.api_models import ENDED_STATES, JobView
from fairlead.cluster.protocol.arrays import parse_array
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.plausible import one_line
from fairlead.cluster.protocol.read_job_spec import (
    SPECS,
    check_spec,
    read_spec,
)
from fairlead.errors import ConfigError, FairleadError, InputError, UnreachableError

POLL_S = 0.5  # between two looks at a job
MAX_SPECS = 1_000  # specs in one request
MAX_REPORTED_WAITING = 20  # jobs for which a line says at once why they wait


@asks_server
@takes_records
def submit(
    client: Client,
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(metavar="JOB.toml... | -- CMD ARGS...", help="Files, or a command."),
    ],
    work: WorkOptions,
    start: StartOptions,
    failure: FailureOptions,
    tenant: TenantOption = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="The same key again submits nothing and prints the same ids."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until all have ended.")] = False,
    json: JsonOption = False,
) -> None:
    """Submit jobs.

    A job is a TOML or JSON file, or the command after --. Options count for all the jobs and come
    before what the files say. With --wait the exit code is 1 unless every job completes.
    """
    check_tenant_and_key(tenant, key, what="a submission")
    command = context.meta.get(AFTER_DASHES, [])
    if work.array == "":
        raise ConfigError("--array: must not be empty; leave it out for a single job")
    given, variables = given_fields(work, start, failure)
    specs = _specs(words, command, given, variables)
    with _named([] if command else words, {*given, *(["env"] if variables else [])}):
        ids = client.submit(specs, tenant or "", key or "")
    if json:
        print_json({"ids": ids})
    else:
        print("\n".join(_accepted(specs, ids)), flush=True)
    first_ids = [tasks[0] for tasks in _ids_of(specs, ids)]
    _report_waiting(client, first_ids[:MAX_REPORTED_WAITING])
    if wait:
        _wait(client, ids)


def _ids_of(specs: list[JobSpec], ids: list[int]) -> Iterator[list[int]]:
    """Yield the ids of each of the specs: several for an array."""
    rest = iter(ids)
    for spec in specs:
        tasks = len(parse_array(spec.array).indices) if spec.array else 1
        yield list(itertools.islice(rest, tasks))


def _accepted(specs: list[JobSpec], ids: list[int]) -> Iterator[str]:
    """Yield a line for each job or array that was submitted."""
    for spec, found in zip(specs, _ids_of(specs, ids), strict=True):
        is_array, first = bool(spec.array), found[0]
        yield f"array {first}: jobs {first} to {found[-1]}" if is_array else f"job {first}"


@contextlib.contextmanager
def _named(files: list[str], given: Collection[str]) -> Iterator[None]:
    """Name the option, or else the file, in errors that the server reports for a position. files: () = the
    job is a command; given: fields that options gave."""
    try:
        yield
    except InputError as problem:
        found = re.fullmatch(rf"(?:job|{SPECS}\[(\d+)\]): (.*)", str(problem), re.DOTALL)
        if found is None:
            raise
        told = re.sub(rf"\b{SPECS}\[(\d+)\]", lambda one: _name(files, int(one[1])), found[2])
        if sentence := by_option(told, given):
            raise InputError(sentence) from None
        if int(found[1] or 0) >= len(files):
            raise
        raise InputError(f"{files[int(found[1] or 0)]}: {told}") from None


def _name(files: list[str], position: int) -> str:
    """Return a name for a job of this submission: its file if it has one, else its position."""
    return files[position] if position < len(files) else f"{SPECS}[{position}]"


def _specs(
    words: list[str], command: list[str], given: dict[str, Any], env: dict[str, str]
) -> list[JobSpec]:
    files = words[: len(words) - len(command)]
    if command and files:
        raise ConfigError(
            f"give files or a command after --, not both: {files[0]!r} stands before it"
        )
    if not command:
        if len(files) > MAX_SPECS:
            raise ConfigError(f"at most {MAX_SPECS:,} files at once, got {len(files):,}")
        return [_merged(read_spec(file), given, env, file) for file in files]
    if "total_steps" not in given:
        raise ConfigError("--steps: how many steps is the command's job? It is needed to plan")
    spec = JobSpec(command=tuple(command), total_steps=1)
    return [_merged(spec, given, env, "job")]


def _merged(spec: JobSpec, given: dict[str, Any], env: dict[str, str], where: str) -> JobSpec:
    fields = dict(given)
    fields["env"] = {**spec.env, **env}
    if not spec.cwd:
        fields.setdefault("cwd", str(Path.cwd()))
    merged = msgspec.structs.replace(spec, **fields)
    try:
        check_spec(merged, where)
    except InputError as problem:
        mine = {*given, *(["env"] if env else [])}
        sentence = by_option(str(problem).removeprefix(f"{where}: "), mine)
        raise InputError(sentence or str(problem)) from None
    return merged


def _report_waiting(client: Client, ids: list[int]) -> None:
    """Print why each job waits that cannot run now. They are submitted all the same."""
    with contextlib.suppress(FairleadError):
        for job in ids:
            view = client.job(job)
            if view.state == "waiting" and view.reason:
                verb = "" if view.reason.startswith("waits") else "waits: "
                print(f"fairlead: job {job} {verb}{one_line(view.reason)}", file=sys.stderr)
            elif view.state == "dropped":  # for a job that had failed already
                print(f"fairlead: job {job} was dropped: {one_line(view.reason)}", file=sys.stderr)


def _wait(client: Client, ids: list[int]) -> None:
    """Return when all jobs have ended; a server that cannot be reached is asked again. Raises FairleadError
    where a job did not complete."""
    failed: list[JobView] = []
    for job in ids:
        view = _ended(client, job)
        print(f"job {job} {view.state}", file=sys.stderr)
        if view.state != "completed":
            failed.append(view)
    if failed:
        first = failed[0]
        raise FairleadError(
            f"job {first.id}: {first.state}: {first.reason or 'no reason was given'}"
        )


def _ended(client: Client, job: int) -> JobView:
    away = False
    while True:
        try:
            view = client.job(job)
            away = False
            if view.state in ENDED_STATES:
                return view
        except UnreachableError as problem:
            if not away:
                print(f"fairlead: {problem}; still waiting", file=sys.stderr)
            away = True
        time.sleep(POLL_S)
