"""Options of an agent that keep jobs apart."""

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fairlead.cluster.agent.cgroups import DeviceLimits, NodeGroups
from fairlead.cluster.agent.isolation import Isolation
from fairlead.cluster.agent.os_users import DEFAULT, RunAs
from fairlead.cluster.protocol.runtime import OWNER_PLACEHOLDERS, PLACEHOLDERS, container_error
from fairlead.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class IsolationOptions:
    """The options that keep the jobs of a node apart from its agent, and from each other."""

    run_as: Annotated[
        str | None,
        typer.Option(
            "--run-as",
            metavar="USER|KEY=USER,...",
            help="Run jobs as this OS user, or as those of a table by tenant and user, as "
            "tenant:apes=apes,user:ann=ann,default=nobody. The agent must be root's (default: as the agent's "
            "own user, so that jobs can read its token).",
        ),
    ] = None
    launch_with: Annotated[
        str | None,
        typer.Option(
            "--launch-with",
            metavar="CMD",
            help="Put this command before that of each rank, as 'apptainer exec --nv {options} IMAGE'; "
            "placeholders as in a job's container, and {user}, {tenant} and {job}.",
        ),
    ] = None
    memory_per_device: Annotated[
        float | None,
        typer.Option(
            "--memory-per-device",
            metavar="GB",
            help="Memory (10^9 bytes) that a job may use for each device that it holds here; one that "
            "uses more is ended. Needs cgroup v2 (default: no limit).",
        ),
    ] = None
    cpus_per_device: Annotated[
        float | None,
        typer.Option(
            "--cpus-per-device",
            metavar="N",
            help="Processors' time that a job may use for each device that it holds here. Needs cgroup v2 "
            "(default: no limit).",
        ),
    ] = None
    cgroup: Annotated[
        Path | None,
        typer.Option(
            "--cgroup",
            metavar="DIR",
            help="The group (cgroup v2) in which each job gets one of its own (default: the agent's).",
        ),
    ] = None


class IsolationFile(msgspec.Struct, forbid_unknown_fields=True):
    """The same in the configuration file."""

    run_as: str | dict[str, str] = ""
    launch_with: str | list[str] = ""
    memory_per_device: float | None = None
    cpus_per_device: float | None = None
    cgroup: str = ""


def isolation_of(given: IsolationOptions, file: IsolationFile, node: str) -> Isolation:
    """The options of the command line; those it leaves out are as in the file. Raises ConfigError."""
    table = RunAs(_table(file.run_as if given.run_as is None else given.run_as))
    table.check()
    limits = DeviceLimits(
        memory_gb=_limit("--memory-per-device", given.memory_per_device, file.memory_per_device),
        cpus=_limit("--cpus-per-device", given.cpus_per_device, file.cpus_per_device),
    )
    base = given.cgroup or (Path(file.cgroup) if file.cgroup else None)
    if base is not None and not limits:
        raise ConfigError("--cgroup: needs --memory-per-device or --cpus-per-device")
    words = _words(file.launch_with if given.launch_with is None else given.launch_with)
    return Isolation(table, words, NodeGroups(limits, node, base))


def _words(given: str | list[str]) -> tuple[str, ...]:
    """The words of --launch-with. Its program is looked for now: later a job's PATH would count."""
    try:
        words = shlex.split(given) if isinstance(given, str) else given
    except ValueError as problem:
        raise ConfigError(f"--launch-with: {problem} in {given!r}") from None
    if not words:
        return ()
    if wrong := container_error(tuple(words), True, PLACEHOLDERS | OWNER_PLACEHOLDERS):
        raise ConfigError(f"--launch-with: {wrong}")
    if (program := shutil.which(words[0])) is None:
        raise ConfigError(f"--launch-with: command not found: {words[0]!r}")
    return (os.path.abspath(program), *words[1:])


def _limit(option: str, given: float | None, in_file: float | None) -> float:
    """0 = none."""
    value = in_file if given is None else given
    if value is None:
        return 0.0
    if not 0.01 <= value <= 1e6:
        raise ConfigError(f"{option}: must be from 0.01 to 1000000, got {value:g}")
    return value


def check_token_file(path: Path | str | None, isolation: Isolation) -> None:
    """Raises ConfigError for a token that jobs which run as others could read."""
    if not path or not isolation.run_as:
        return
    try:
        found = Path(path).stat()
    except OSError:
        return  # whoever reads it says so
    if found.st_mode & 0o077 or found.st_uid != 0:
        raise ConfigError(
            f"--token-file {path}: others than root may read it (mode {found.st_mode & 0o777:03o}, owner "
            f"{found.st_uid}), and so may jobs that run as others (--run-as): chown root, chmod 600"
        )


def _table(given: str | dict[str, str]) -> dict[str, str]:
    if not isinstance(given, str):
        return given
    if "=" not in given:
        return {DEFAULT: given} if given else {}
    table: dict[str, str] = {}
    for part in given.split(","):
        key, equals, name = (word.strip() for word in part.partition("="))
        if not (key and equals and name) or key in table:
            raise ConfigError(
                f"--run-as: expected KEY=USER, each key once, got {part!r} in {given!r}"
            )
        table[key] = name
    return table
