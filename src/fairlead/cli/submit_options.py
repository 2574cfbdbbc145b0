"""Options of ``fairlead submit``: the fields of a job that its file may leave out."""

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from fairlead.errors import ConfigError
from fairlead.model.option_text import split_option

T = TypeVar("T")
_FIELD = re.compile(r"(\w+)\.?([^:\s]*)(?=: )")  # field, and what of it, as in rates.v100
_PAIR = re.compile(r"(\w+) and (\w+)(?= are both given)")


@dataclass(frozen=True, kw_only=True)
class WorkOptions:
    """The options that describe a job and its work."""

    total_steps: Annotated[
        int | None,
        typer.Option("--steps", help="Steps in all; with --unmanaged: seconds of work at rate 1."),
    ] = None
    family: Annotated[
        str | None, typer.Option("--family", help="Its row of the throughput table.")
    ] = None
    scale_factor: Annotated[
        int | None, typer.Option("--devices", metavar="N", help="One rank each. Default: 1.")
    ] = None
    devices: Annotated[
        str | None,
        typer.Option(
            "--elastic",
            metavar="N,N,...",
            help="Numbers of devices that it may have, as the policy decides; --rate is on --devices, by "
            "default the least.",
        ),
    ] = None
    weight: Annotated[float | None, typer.Option("--weight", help="Default: 1.")] = None
    name: Annotated[str | None, typer.Option("--name", help="For people.")] = None
    rates: Annotated[
        list[str] | None,
        typer.Option("--rate", metavar="TYPE=N", help="Steps/s on a type; may be repeated."),
    ] = None
    unmanaged: Annotated[
        bool | None,
        typer.Option("--unmanaged", help="It has no iterator: SIGTERM to stop."),
    ] = None
    keeps_progress: Annotated[
        bool | None,
        typer.Option(
            "--keeps-progress",
            help="With --unmanaged: it goes on where it was stopped by its own means.",
        ),
    ] = None
    progress_url: Annotated[
        str | None,
        typer.Option(
            "--progress-url",
            metavar="URL",
            help="With --unmanaged: it answers there how far it is, as http://127.0.0.1:{port}/.",
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Variable for it; may be repeated."),
    ] = None
    slo_s: Annotated[
        float | None, typer.Option("--deadline", metavar="SECONDS", help="To be done within.")
    ] = None
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            metavar="ok:JOB|any:JOB",
            help="Not before this job has completed (ok), or has ended in any way (any). Several: ok:12,13, "
            "or repeated. ok:array:ID: every task of an array.",
        ),
    ] = None
    array: Annotated[
        str | None,
        typer.Option(
            "--array",
            metavar="INDICES[%LIMIT]",
            help="One job for each index, as 0-99%10 or 0-9:3,20,30: the variable FAIRLEAD_ARRAY_INDEX. "
            "%LIMIT: so many of them at once.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """The options of how its command is run on a node."""

    cwd: Annotated[
        str | None,
        typer.Option(
            "--cwd", metavar="DIR", help="Where it runs. Default: here, or as in the file."
        ),
    ] = None
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PATH", help="The interpreter to run it with."),
    ] = None
    venv: Annotated[
        str | None, typer.Option("--venv", metavar="DIR", help="The virtual environment to use.")
    ] = None
    conda: Annotated[
        str | None,
        typer.Option("--conda", metavar="NAME", help="The conda environment, by name or prefix."),
    ] = None
    container: Annotated[
        str | None,
        typer.Option(
            "--container", metavar="COMMAND", help="Run it by, as 'podman run {options} IMAGE'."
        ),
    ] = None
    checkpoint_dir: Annotated[
        str | None,
        typer.Option("--checkpoint-dir", metavar="DIR", help="Default: the agent chooses."),
    ] = None
    grace_s: Annotated[
        float | None,
        typer.Option(
            "--grace", metavar="SECONDS", help="To stop before it is killed. Default: 30."
        ),
    ] = None
    finish_grace_s: Annotated[
        float | None,
        typer.Option(
            "--finish-grace",
            metavar="SECONDS",
            help="The same once all steps are done. Default: as --grace.",
        ),
    ] = None
    prefork: Annotated[
        bool | None,
        typer.Option("--prefork", help="Start from the agent's prepared process."),
    ] = None
    auto_prefork: Annotated[
        bool,
        typer.Option("--auto-prefork", help="From one with what the script imports."),
    ] = False
    park: Annotated[
        bool | None,
        typer.Option(
            "--park/--no-park",
            help="Keep its process in its node's memory when it is preempted. Default: yes.",
        ),
    ] = None
    standby: Annotated[
        bool | None,
        typer.Option(
            "--standby/--no-standby",
            help="When it moves, start it there while it still trains; it waits before its loop. "
            "Default: no.",
        ),
    ] = None
    park_stopped: Annotated[
        bool,
        typer.Option(
            "--park-stopped",
            help="Keep a program without the iterator there, too: stopped (SIGSTOP) as it is.",
        ),
    ] = False
    log_bytes: Annotated[
        int | None,
        typer.Option("--log-bytes", metavar="N", help="Newest output kept. Default: 10,000,000."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class FailureOptions:
    """The options of a job that fails or stalls."""

    max_retries: Annotated[
        int | None,
        typer.Option(
            "--max-retries",
            metavar="N",
            help="Failures in a row it is tried again after. Default: 5.",
        ),
    ] = None
    retry_on: Annotated[
        list[int] | None,
        typer.Option("--retry-on", metavar="CODE", help="Only after this exit code (repeatable)."),
    ] = None
    no_retry_on: Annotated[
        list[int] | None,
        typer.Option("--no-retry-on", metavar="CODE", help="Not after this one (repeatable)."),
    ] = None
    start_timeout_s: Annotated[
        float | None,
        typer.Option(
            "--start-timeout",
            metavar="SECONDS",
            help="To its first step; then it is ended as failed. 0: never. Default: by what is usual.",
        ),
    ] = None
    stall_timeout_s: Annotated[
        float | None,
        typer.Option(
            "--stall-timeout",
            metavar="SECONDS",
            help="The same between two steps.",
        ),
    ] = None
    on_stall: Annotated[
        str | None,
        typer.Option(
            "--on-stall", metavar="restart|report", help="What is done. Default: restart."
        ),
    ] = None


TenantOption = Annotated[
    str | None, typer.Option("--tenant", help="For admins: on behalf of this tenant.")
]


def check_tenant_and_key(tenant: str | None, key: str | None, *, what: str) -> None:
    """Raises ConfigError for those that are empty, and for a key that cannot be sent. what: is begun with
    them, "a search"."""
    if tenant == "":
        raise ConfigError("--tenant: must not be empty; leave it out for your own")
    if key == "":
        raise ConfigError(f"--key: must not be empty; leave it out for {what} without one")
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigError(f"--key: must be of printable ASCII characters, got {key!r}")


def given_fields(
    work: WorkOptions, start: StartOptions, failure: FailureOptions
) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields of a ``JobSpec`` that the options give, and the variables of its environment, which are
    added to those of its file. Raises ConfigError."""
    fields = asdict(work) | asdict(start) | asdict(failure)
    variables = _values("--env", fields.pop("env"), str, "SEED=1")
    fields["after"] = _dependencies(work.after or ())
    fields["rates"] = _values("--rate", work.rates, float, "v100=10") or None
    fields["prefork"] = "auto" if fields.pop("auto_prefork") else start.prefork
    fields["park"] = "stop" if fields.pop("park_stopped") else start.park
    if start.park_stopped and start.park is False:
        raise ConfigError("--no-park and --park-stopped exclude each other")
    # Paths are those of the nodes: nothing here is touched, for it may hang, or be something else.
    for name, path in (("cwd", start.cwd), ("checkpoint_dir", start.checkpoint_dir)):
        fields[name] = None if path is None else os.path.abspath(path)
    for name, path in (("python", start.python), ("venv", start.venv)):
        fields[name] = None if path is None else str(Path(path).absolute())
    if start.container is not None:
        fields["container"] = _words("--container", start.container)
    if work.devices is not None:
        fields["devices"] = _numbers("--elastic", work.devices)
        fields["scale_factor"] = fields["scale_factor"] or min(fields["devices"])
    for name in ("retry_on", "no_retry_on"):
        fields[name] = tuple(fields[name]) if fields[name] else None
    return {name: value for name, value in fields.items() if value is not None}, variables


def _numbers(option: str, text: str) -> tuple[int, ...]:
    """The numbers of ``4,1,2``, ascending. Raises ConfigError."""
    try:
        return tuple(sorted({int(one) for one in text.split(",")}))
    except ValueError:
        raise ConfigError(f"{option}: expected numbers as 1,2,4, got {text!r}") from None


def _dependencies(texts: Iterable[str]) -> tuple[str, ...] | None:
    """Return the items of ``--after``: ``ok:12,13`` is ``ok:12`` and ``ok:13``. None = there are none."""
    found: list[str] = []
    for text in texts:
        condition = ""
        for part in text.split(","):
            before, colon, job = part.rpartition(":")
            condition = before if colon else condition
            found.append(f"{condition}:{job}" if condition else part)
    return tuple(found) or None


def _words(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as problem:
        raise ConfigError(f"{option}: {problem} in {text!r}") from None


def _values(
    option: str, texts: Iterable[str] | None, read: Callable[[str], T], example: str
) -> dict[str, T]:
    """Values by name. Raises ConfigError, also where a name is given twice."""
    found: dict[str, T] = {}
    for count, text in enumerate(texts or (), start=1):
        name, value = split_option(text)
        try:
            if not name or value is None:
                raise ValueError
            found[name] = read(value)
        except ValueError:
            raise ConfigError(
                f"{option}: expected NAME=VALUE, for example {example}, got {text!r}"
            ) from None
        if len(found) < count:
            raise ConfigError(f"{option}: {name} is given twice")
    return found


def option_names() -> dict[str, str]:
    """Field of a ``JobSpec`` -> the option that gives it."""
    hints: dict[str, Any] = {}
    for record in (WorkOptions, StartOptions, FailureOptions):
        hints |= get_type_hints(record, include_extras=True)
    # Typer keeps the first name of an annotation as its default.
    return {field: str(hint.__metadata__[0].default) for field, hint in hints.items()}


def by_option(problem: str, given: Collection[str]) -> str:
    """Return the problem of a field with the option in its place; "" where no option gave the field.
    problem: begins with the field; given: fields that options gave."""
    names = {field: name for field, name in option_names().items() if field in given}
    if problem.startswith("park: 'stop'") and "park" in names:
        names["park"] = "--park-stopped"
    if pair := _PAIR.match(problem):
        if not any(field in names for field in pair.groups()):
            return ""
        return (
            " and ".join(names.get(field, field) for field in pair.groups()) + problem[pair.end() :]
        )
    found = _FIELD.match(problem)
    if found is None or found[1] not in names:
        return ""
    return f"{names[found[1]]}{' ' * bool(found[2])}{found[2]}{problem[found.end() :]}"
