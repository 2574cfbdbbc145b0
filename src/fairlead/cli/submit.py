"""``fairlead submit``: jobs from files, or a command."""

import contextlib
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from fairlead.cli.lazy_commands import AFTER_DASHES
from fairlead.cli.server_options import JsonOption, asks_server
from fairlead.cli.terminal_views import print_json
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.api_models import JobView
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import (
    SPECS,
    check_spec,
    read_spec,
)
from fairlead.errors import ConfigError, FairleadError, InputError, UnreachableError

ENDED = ("completed", "dropped", "killed", "cancelled")
POLL_S = 0.5  # between two looks at a job
MAX_IMPORTS = 1_000  # specs in one request
SCANNED_OPTIONS = 20  # jobs of which it is told at once that they cannot run now


@asks_server
def submit(
    client: Client,
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(metavar="JOB.toml... | -- CMD ARGS...", help="Files, or a command."),
    ],
    steps: Annotated[
        int | None,
        typer.Option("--steps", help="Steps in all; with --unmanaged: seconds of work at rate 1."),
    ] = None,
    family: Annotated[
        str | None, typer.Option("--family", help="Its row of the throughput table.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option("--devices", metavar="N", help="One rank each. Default: 1.")
    ] = None,
    weight: Annotated[float | None, typer.Option("--weight", help="Default: 1.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="For people.")] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option("--rate", metavar="TYPE=N", help="Steps/s on a type; may be repeated."),
    ] = None,
    unmanaged: Annotated[
        bool | None,
        typer.Option("--unmanaged", help="It has no iterator: SIGTERM to stop."),
    ] = None,
    keeps_progress: Annotated[
        bool | None,
        typer.Option(
            "--keeps-progress",
            help="With --unmanaged: it goes on where it was stopped by its own means.",
        ),
    ] = None,
    progress_url: Annotated[
        str | None,
        typer.Option(
            "--progress-url",
            metavar="URL",
            help="With --unmanaged: it answers there how far it is, as http://127.0.0.1:{port}/.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Variable for it; may be repeated."),
    ] = None,
    slo: Annotated[
        float | None, typer.Option("--deadline", metavar="SECONDS", help="To be done within.")
    ] = None,
    cwd: Annotated[
        Path | None,
        typer.Option(
            "--cwd", metavar="DIR", help="Where it runs. Default: here, or as in the file."
        ),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option("--python", metavar="PATH", help="The interpreter to run it with."),
    ] = None,
    venv: Annotated[
        Path | None, typer.Option("--venv", metavar="DIR", help="The virtual environment to use.")
    ] = None,
    conda: Annotated[
        str | None,
        typer.Option("--conda", metavar="NAME", help="The conda environment, by name or prefix."),
    ] = None,
    container: Annotated[
        str | None,
        typer.Option(
            "--container", metavar="COMMAND", help="Run it by, as 'podman run {options} IMAGE'."
        ),
    ] = None,
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option("--checkpoint-dir", metavar="DIR", help="Default: the agent chooses."),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace", metavar="SECONDS", help="To stop before it is killed. Default: 30."
        ),
    ] = None,
    finish_grace: Annotated[
        float | None,
        typer.Option(
            "--finish-grace",
            metavar="SECONDS",
            help="The same once all steps are done. Default: as --grace.",
        ),
    ] = None,
    prefork: Annotated[
        bool | None,
        typer.Option("--prefork", help="Start from the agent's prepared process."),
    ] = None,
    auto_prefork: Annotated[
        bool,
        typer.Option("--auto-prefork", help="From one with what the script imports."),
    ] = False,
    log_bytes: Annotated[
        int | None,
        typer.Option("--log-bytes", metavar="N", help="Newest output kept. Default: 10,000,000."),
    ] = None,
    max_retries: Annotated[
        int | None,
        typer.Option(
            "--max-retries",
            metavar="N",
            help="Failures in a row it is tried again after. Default: 5.",
        ),
    ] = None,
    retry_on: Annotated[
        list[int] | None,
        typer.Option("--retry-on", metavar="CODE", help="Only after this exit code (repeatable)."),
    ] = None,
    no_retry_on: Annotated[
        list[int] | None,
        typer.Option("--no-retry-on", metavar="CODE", help="Not after this one (repeatable)."),
    ] = None,
    start_timeout: Annotated[
        float | None,
        typer.Option(
            "--start-timeout",
            metavar="SECONDS",
            help="To its first step; then it is ended as failed. 0: never. Default: by what is usual.",
        ),
    ] = None,
    stall_timeout: Annotated[
        float | None,
        typer.Option(
            "--stall-timeout",
            metavar="SECONDS",
            help="The same between two steps.",
        ),
    ] = None,
    on_stall: Annotated[
        str | None,
        typer.Option(
            "--on-stall", metavar="restart|report", help="What is done. Default: restart."
        ),
    ] = None,
    tenant: Annotated[
        str, typer.Option("--tenant", help="For admins: on behalf of this tenant.")
    ] = "",
    key: Annotated[
        str,
        typer.Option("--key", help="The same key again submits nothing and prints the same ids."),
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Until all have ended.")] = False,
    json: JsonOption = False,
) -> None:
    """Submit jobs.

    A job is a TOML or JSON file, or the command behind --. Options count for all the jobs and come
    before what the files say. With --wait the exit code is 1 unless every job completes.
    """
    given: dict[str, Any] = {
        "total_steps": steps,
        "family": family,
        "scale_factor": devices,
        "weight": weight,
        "name": name,
        "rates": _pairs("--rate", rate, float),
        "unmanaged": unmanaged,
        "keeps_progress": keeps_progress,
        "progress_url": progress_url,
        "slo_s": slo,
        "cwd": None if cwd is None else str(cwd.resolve()),
        "python": None if python is None else str(python.absolute()),  # not what it is a link to
        "venv": None if venv is None else str(venv.absolute()),
        "conda": conda,
        "container": None if container is None else _split("--container", container),
        "checkpoint_dir": None if checkpoint_dir is None else str(checkpoint_dir.resolve()),
        "grace_s": grace,
        "finish_grace_s": finish_grace,
        "prefork": "auto" if auto_prefork else prefork,
        "log_bytes": log_bytes,
        "max_retries": max_retries,
        "retry_on": tuple(retry_on) if retry_on else None,
        "no_retry_on": tuple(no_retry_on) if no_retry_on else None,
        "start_timeout_s": start_timeout,
        "stall_timeout_s": stall_timeout,
        "on_stall": on_stall,
    }
    given = {field: value for field, value in given.items() if value is not None}
    specs = _specs(words, context.meta.get(AFTER_DASHES, []), given, _pairs("--env", env, str))
    command = context.meta.get(AFTER_DASHES, [])
    with _named([] if command else words):
        ids = client.submit(specs, tenant, key)
    if json:
        print_json({"ids": ids})
    else:
        print("\n".join(f"job {job}" for job in ids), flush=True)
    _tell_stuck(client, ids[:SCANNED_OPTIONS])
    if wait:
        _wait(client, ids)


@contextlib.contextmanager
def _named(files: list[str]) -> Iterator[None]:
    """What the server says of the job at a position is said of its file. files: () = it is a command."""
    try:
        yield
    except InputError as problem:
        found = re.fullmatch(rf"(?:job|{SPECS}\[(\d+)\]): (.*)", str(problem), re.DOTALL)
        if found is None or int(found[1] or 0) >= len(files):
            raise
        raise InputError(f"{files[int(found[1] or 0)]}: {found[2]}") from None


def _specs(
    words: list[str], command: list[str], given: dict[str, Any], env: dict[str, str] | None
) -> list[JobSpec]:
    files = words[: len(words) - len(command)]
    if command and files:
        raise ConfigError(
            f"give files or a command behind --, not both: {files[0]!r} stands before it"
        )
    if not command:
        if len(files) > MAX_IMPORTS:
            raise ConfigError(f"at most {MAX_IMPORTS:,} files at once, got {len(files):,}")
        return [_merged(read_spec(file), given, env, file) for file in files]
    if "total_steps" not in given:
        raise ConfigError("--steps: how many steps is the command's job? It is needed to plan")
    spec = JobSpec(command=tuple(command), total_steps=1)
    return [_merged(spec, given, env, "job")]


def _merged(
    spec: JobSpec, given: dict[str, Any], env: dict[str, str] | None, where: str
) -> JobSpec:
    fields = dict(given)
    fields["env"] = {**spec.env, **(env or {})}
    if not spec.cwd:
        fields.setdefault("cwd", str(Path.cwd()))
    merged = msgspec.structs.replace(spec, **fields)
    check_spec(merged, where)
    return merged


def _split(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as problem:
        raise ConfigError(f"{option}: {problem} in {text!r}") from None


def _pairs(option: str, texts: list[str] | None, kind: type) -> dict[str, Any] | None:
    if texts is None:
        return None
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            if not name or not equals:
                raise ValueError
            pairs[name] = kind(value)
        except ValueError:
            example = "v100=10" if kind is float else "SEED=1"
            raise ConfigError(
                f"{option}: expected NAME=VALUE, for example {example}, got {text!r}"
            ) from None
    return pairs


def _tell_stuck(client: Client, ids: list[int]) -> None:
    """Say of each job that the cluster has no place for why it waits. They are submitted all the same."""
    with contextlib.suppress(FairleadError):
        for job in ids:
            view = client.job(job)
            if view.state == "waiting" and view.reason:
                print(f"fairlead: job {job} waits: {view.reason}", file=sys.stderr)


def _wait(client: Client, ids: list[int]) -> None:
    """Until all have ended; a server that is away for a while is waited for."""
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
            if view.state in ENDED:
                return view
        except UnreachableError as problem:
            if not away:
                print(f"fairlead: {problem}; still waiting", file=sys.stderr)
            away = True
        time.sleep(POLL_S)
