"""The file of ``fairlead serve --engine-config``: which nodes an engine may start, and how."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from fairlead.cluster.autoscaling.command import CommandLauncher
from fairlead.cluster.autoscaling.launcher import AgentCommand, Launcher, LauncherSetup, NodeType
from fairlead.cluster.autoscaling.local_processes import PROGRAM, LocalLauncher
from fairlead.cluster.autoscaling.ray_engine import RayLauncher
from fairlead.cluster.autoscaling.slurm import SlurmLauncher
from fairlead.cluster.protocol.conversion_errors import describe_error
from fairlead.cluster.protocol.read_job_spec import ACCELERATOR
from fairlead.errors import ConfigError
from fairlead.model.duration_text import read_duration
from fairlead.model.toml import read_toml
from fairlead.model.toml_lines import naming_lines

EngineName = Literal["local", "slurm", "ray", "command"]
ENGINES: tuple[EngineName, ...] = ("local", "slurm", "ray", "command")
_SBATCH = ("partition", "account", "qos", "constraint", "gres")
# Options of sbatch that say what a node is, and what Fairlead knows it by; sbatch takes them cut short, too
_SET_HERE = (
    *("--job-name", "--nodes", "--ntasks", "--time", "--time-min", "--array", "--output", "--wrap"),
    *(
        "--requeue",
        "--test-only",
        "--parsable",
        "--wait",
        "--version",
        "--help",
        "--usage",
        "--quiet",
    ),
)
_SET_HERE_SHORT = "JNntaoWVhQ"
SHORTEST_S = 60.0  # walltime of a node of Slurm
_BY_COMMAND = ("start", "stop")
_BY_RAY = ("num_cpus", "num_gpus", "resources")


class _TypeTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A table ``[types.TYPE]``."""

    devices: int
    maximum: int
    minimum: int = 0
    walltime: str
    agent_options: list[str] = []
    setup: str = ""
    state_dir: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = ""
    options: list[str] = []
    num_cpus: float | None = None
    num_gpus: float = 0.0
    resources: dict[str, float] = {}
    start: str = ""
    stop: str = ""


class _EngineFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The file."""

    types: dict[str, _TypeTable]
    server: str = ""
    agent: list[str] = []
    ca: str = ""
    token_file: str = ""
    idle_timeout: str = "10m"
    interval: float = 10.0
    max_queued: int = 4
    dry_run: bool = False
    list: str = ""
    address: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """What the file says."""

    path: Path
    engine: EngineName
    kinds: tuple[NodeType, ...]
    server: str  # host:port for agents, "" = where the server listens
    program: tuple[str, ...]  # that runs ``fairlead`` on nodes
    ca: str
    token_file: str  # with the token with which nodes enrol, "" = that of the server's first start
    idle_s: float  # that a node without jobs is kept, where no job is worth it
    interval_s: float  # between two looks
    max_queued: int  # nodes that are asked for and wait, at most
    dry_run: bool
    list: str  # engine command: prints the nodes that there are
    address: str  # engine ray: of the cluster

    def check(self, host: str) -> None:
        """Raise ConfigError where the engine can start none of these nodes, or they cannot know where the
        server is. host: on which it listens."""
        if not self.server and host in ("", "0.0.0.0", "::"):
            raise ConfigError(
                f"{self.path}: server: is missing: the server listens on all addresses ({host}); say at "
                "which HOST:PORT agents reach it"
            )
        if self.token_file:
            try:
                Path(self.token_file).read_text()
            except (OSError, ValueError) as problem:
                why = problem.strerror if isinstance(problem, OSError) else "is no text"
                raise ConfigError(
                    f"{self.path}: token_file: {self.token_file!r} cannot be read ({why})"
                ) from None
        launcher = self.launcher(cluster="check", directory=Path(), server="localhost:1", token="")
        with naming_lines(self.path):
            try:
                launcher.check(self.kinds)
            except ConfigError as problem:
                of_file = str(problem).startswith(("types.", "address:", "list:"))
                raise ConfigError(f"{self.path}: {problem}" if of_file else str(problem)) from None

    def launcher(self, *, cluster: str, directory: Path, server: str, token: str) -> Launcher:
        """Return the launcher. cluster: name by which the engine tells this cluster's nodes; directory: of
        the server; server: where agents reach it, unless the file says; token: with which nodes enrol."""
        agent = AgentCommand(
            server=self.server or server, token=token, ca=self.ca, program=self.program
        )
        setup = LauncherSetup(cluster=cluster, directory=directory, agent=agent, kinds=self.kinds)
        if self.engine == "slurm":
            return SlurmLauncher(setup)
        if self.engine == "command":
            return CommandLauncher(setup, self.list)
        if self.engine == "ray":
            return RayLauncher(setup, self.address)
        return LocalLauncher(setup)


def read_engine_config(path: Path, engine: EngineName) -> EngineConfig:
    """Raises ConfigError with the file, the line and the field."""
    content = read_toml(path, ConfigError)
    with naming_lines(path):
        try:
            file = msgspec.convert(content, _EngineFile)
        except msgspec.ValidationError as problem:
            raise ConfigError(f"{path}: {describe_error(problem, content, _EngineFile)}") from None
        try:
            return _config(file, engine, path)
        except ConfigError as problem:
            raise ConfigError(f"{path}: {problem}") from None


def _config(file: _EngineFile, engine: EngineName, path: Path) -> EngineConfig:
    if not file.types:
        raise ConfigError("types: must name at least one accelerator type")
    _check_number("interval", file.interval, 0.1, 3600.0)
    _check_number("max_queued", file.max_queued, 1, 10_000)
    if file.list and engine != "command":
        raise ConfigError(f"list: is of engine command, not of {engine}")
    if file.address and engine != "ray":
        raise ConfigError(f"address: is of engine ray, not of {engine}")
    if file.server and not re.fullmatch(r"\S+:\d{1,5}", file.server):
        raise ConfigError(f"server: expected HOST:PORT, got {file.server!r}")
    return EngineConfig(
        path=path,
        engine=engine,
        kinds=tuple(_kind(name, one, engine) for name, one in file.types.items()),
        server=file.server,
        program=tuple(file.agent) or PROGRAM,
        ca=file.ca,
        token_file=file.token_file,
        idle_s=read_duration(file.idle_timeout, "idle_timeout"),
        interval_s=file.interval,
        max_queued=file.max_queued,
        dry_run=file.dry_run,
        list=file.list,
        address=file.address or "auto",
    )


def _kind(name: str, one: _TypeTable, engine: EngineName) -> NodeType:
    where = f"types.{name}"
    if not ACCELERATOR.fullmatch(name):
        raise ConfigError(f"types: {name[:40]!r} is no accelerator type")
    _check_number(f"{where}.devices", one.devices, 1, 1024)
    _check_number(f"{where}.maximum", one.maximum, 1, 100_000)
    _check_number(f"{where}.minimum", one.minimum, 0, one.maximum)
    for field in (*_SBATCH, "options"):
        if getattr(one, field) and engine != "slurm":
            raise ConfigError(f"{where}.{field}: is of engine slurm, not of {engine}")
    for field in _BY_COMMAND:
        if getattr(one, field) and engine != "command":
            raise ConfigError(f"{where}.{field}: is of engine command, not of {engine}")
    for field in _BY_RAY:
        if getattr(one, field) and engine != "ray":
            raise ConfigError(f"{where}.{field}: is of engine ray, not of {engine}")
    if engine == "ray":
        _check_resources(where, one)
    for word in one.options:
        if _is_set_here(word):
            raise ConfigError(f"{where}.options: {word!r} is not for here: Fairlead sets it")
    given = [f"--{field}={getattr(one, field)}" for field in _SBATCH if getattr(one, field)]
    walltime_s = read_duration(one.walltime, f"{where}.walltime")
    if engine == "slurm" and walltime_s < SHORTEST_S:
        raise ConfigError(
            f"{where}.walltime: must be at least 1m, as Slurm counts minutes, got {one.walltime!r}"
        )
    return NodeType(
        accelerator=name,
        devices=one.devices,
        minimum=one.minimum,
        maximum=one.maximum,
        walltime_s=walltime_s,
        agent_options=tuple(one.agent_options),
        setup=one.setup,
        state_dir=one.state_dir,
        submit_options=(*given, *one.options),
        num_cpus=1.0 if one.num_cpus is None else one.num_cpus,
        num_gpus=one.num_gpus,
        resources=one.resources,
        start=one.start,
        stop=one.stop,
    )


def _is_set_here(option: str) -> bool:
    """Return whether an option of sbatch is one that Fairlead gives, or that makes it do something else."""
    if option.startswith("--"):
        given = option.partition("=")[0]
        return any(name.startswith(given) for name in _SET_HERE)
    return option[:1] == "-" and option[1:2] in _SET_HERE_SHORT


def _check_resources(where: str, one: _TypeTable) -> None:
    """Raise ConfigError unless an actor holds something that a node has once."""
    if not one.num_gpus and not one.resources:
        raise ConfigError(f"{where}.resources: is missing; it, or num_gpus, says what a node holds")
    named = {"num_cpus": one.num_cpus or 0.0, "num_gpus": one.num_gpus}
    named |= {f"resources.{name}": value for name, value in one.resources.items()}
    for field, value in named.items():
        _check_number(f"{where}.{field}", value, 0.0, 1e6)


def _check_number(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{field}: must be from {least:g} to {most:g}, got {value:g}")
