"""``fairlead agent``: the agent of a node."""

import asyncio
import logging
import os
import re
import socket
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.agent_group import fork_each
from fairlead.cli.announcements import announce
from fairlead.cli.config_files import naming_fields, read_config_file
from fairlead.cli.inside_job import InsideJob
from fairlead.cli.isolation_options import (
    IsolationFile,
    IsolationOptions,
    check_token_file,
    isolation_of,
)
from fairlead.cli.option_records import takes_records
from fairlead.cli.slurm_end import slurm_end_s
from fairlead.cli.token_files import read_token
from fairlead.cluster.agent.agent import Agent
from fairlead.cluster.agent.devices import NodeDevices, device_types, find_devices
from fairlead.cluster.agent.health import HealthOptions
from fairlead.cluster.agent.inside_job import check_outside_jobs
from fairlead.cluster.agent.machine import run_directory
from fairlead.cluster.agent.options import AgentOptions
from fairlead.cluster.agent.server_client import RefusedError
from fairlead.cluster.agent.stop_agent import stop_agent
from fairlead.cluster.agent.zygote import missing
from fairlead.cluster.log_lines import log_with_times
from fairlead.errors import ConfigError
from fairlead.model.duration_text import read_duration

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MODULES = re.compile(r"[A-Za-z_][\w.]*(,[A-Za-z_][\w.]*)*")


class _File(IsolationFile, forbid_unknown_fields=True):
    """``--config``: the options, by their names on the command line with _ for -."""

    server: str = ""
    node: str = ""
    devices: str = ""
    simulated_devices: bool = False
    state: str = ""
    token_file: str = ""
    ca: str = ""
    host: str = ""
    prefork: str = ""
    park_memory: float | None = None
    health: str = ""
    health_interval: float | None = None
    ends_in: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The options of a node."""

    server: Annotated[
        str | None, typer.Option("--server", metavar="HOST:PORT", help="Where the server listens.")
    ] = None
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NAME", help="Name of this node (default: the host's)."),
    ] = None
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices",
            metavar="TYPE=N,...|nvml",
            help="Devices of this node, as v100=4: checked with NVML; simulated where it finds none. "
            "nvml (default): all that it finds. Each of several types is a node of its own, NODE-TYPE.",
        ),
    ] = None
    simulated_devices: Annotated[
        bool,
        typer.Option(
            "--simulated-devices", help="Simulate the devices, even where there are real ones."
        ),
    ] = False
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="TOML file with any of these options."),
    ] = None
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="For logs, checkpoints and lock files (default: ~/.local/state/fairlead/NODE).",
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The agent's token (default: the variable FAIRLEAD_AGENT_TOKEN).",
        ),
    ] = None
    ca: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="Certificate to trust: speak TLS (PEM)."),
    ] = None
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="ADDR",
            help="Address at which ranks of other nodes reach this one's (default: that of the "
            "interface towards the server).",
        ),
    ] = None
    prefork: Annotated[
        str | None,
        typer.Option(
            "--prefork",
            metavar="MODULES",
            help="Import these once, as numpy,torch, and fork jobs that ask for it: faster starts.",
        ),
    ] = None
    park_memory: Annotated[
        float | None,
        typer.Option(
            "--park-memory",
            metavar="GB",
            help="Memory for jobs that are preempted and kept here (default: a quarter of all); 0: none is.",
        ),
    ] = None
    health: Annotated[
        str | None,
        typer.Option(
            "--health",
            metavar="CMD",
            help="Ask this command whether the node is well: it gets no new jobs while that ends with "
            "another code than 0, or not within 30 s.",
        ),
    ] = None
    health_interval: Annotated[
        float | None,
        typer.Option(
            "--health-interval",
            metavar="S",
            help="Seconds between checks of the node's health (default: 30).",
        ),
    ] = None
    ends_in: Annotated[
        str | None,
        typer.Option(
            "--ends-in",
            metavar="DURATION",
            help="This node is taken away so long from now, as 90m or 12h: its jobs save and leave it in "
            "time, and the cluster forgets it. Default: in a Slurm job, until its end.",
        ),
    ] = None
    inside_job: InsideJob = False
    stop: Annotated[
        bool,
        typer.Option(
            "--stop",
            help="Start nothing: end the agent of this machine that has the --state of this --node, and "
            "wait until it has ended. Jobs save first.",
        ),
    ] = False


@takes_records
def agent(options: NodeOptions, isolation: IsolationOptions) -> None:
    """Hold the devices of this node and run the ranks of jobs on them.

    Runs until SIGTERM or Ctrl-C: jobs save and end. A second signal kills them.
    """
    if options.stop:
        _stop(options)
        return
    given = vars(options) | vars(isolation)
    with (
        nullcontext()
        if options.config is None
        else naming_fields(options.config, lambda name: given.get(name) in (None, False))
    ):
        agents = _agent_options(options, isolation)
    check_outside_jobs("agent", options.inside_job)
    run_directory()  # nothing is announced that cannot be
    log_with_times(logging.INFO)
    parent = os.getpid()
    chosen = agents[0] if len(agents) == 1 else replace(fork_each(agents), parent=parent)
    announce(_description(chosen.node, chosen.devices))
    if not chosen.isolation.run_as:
        announce(
            f"{chosen.isolation.runs_as}, this agent's own user: they can read its tokens, and each other's "
            "files (--run-as)"
        )
    try:
        asyncio.run(Agent(chosen).run())
    except RefusedError as problem:
        raise ConfigError(str(problem)) from None


def _stop(given: NodeOptions) -> None:
    """End the agent that has the state directory. Raises ConfigError where there is no such directory."""
    file = _File() if given.config is None else read_config_file(given.config, _File)
    name = _name(given.node or file.node or socket.gethostname())
    state = _state(given.state or file.state, name)
    if not state.exists():  # one that has ended already is no error, a wrong name is
        raise ConfigError(f"node {name!r}: no agent has ever run in {state}")
    states = [state, *(lock.parent for lock in state.glob("*/agent.lock"))]
    ended = sum(stop_agent(one) for one in states) > 0  # all of them
    print(f"node {name}: {'its agent has ended' if ended else f'no agent runs in {state}'}")


def _agent_options(given: NodeOptions, apart: IsolationOptions) -> list[AgentOptions]:
    """The options of the command line; those it leaves out are as in the file of ``--config``. Of a host with
    devices of several types, those of one agent per type: NODE-TYPE, with its state in DIR/TYPE. Raises
    ConfigError."""
    file = _File() if given.config is None else read_config_file(given.config, _File)
    address = _address(given.server or file.server)
    name = _name(given.node or file.node or socket.gethostname())
    isolation = isolation_of(apart, file, name)
    prefork = _modules(given.prefork or file.prefork)
    if prefork and (isolation.run_as or isolation.launch_with):
        raise ConfigError(
            "--prefork: ranks that run as others (--run-as), or behind another command (--launch-with), are "
            "not forked from the agent's prepared processes; leave one of them out"
        )
    check_token_file(given.token_file or file.token_file, isolation)
    interval_s = file.health_interval if given.health_interval is None else given.health_interval
    simulated = given.simulated_devices or file.simulated_devices
    specs = device_types(given.devices or file.devices, simulated)
    whole = AgentOptions(
        server=address,
        node=name,
        devices=find_devices(specs[0], simulated),
        state=_state(given.state or file.state, name),
        token=_token(given.token_file or file.token_file),
        ca=Path(file.ca) if given.ca is None and file.ca else given.ca,
        host=given.host or file.host or _local_address(address),
        prefork=prefork,
        health=_health(given.health or file.health, interval_s),
        isolation=isolation,
        park_bytes=_park_bytes(
            file.park_memory if given.park_memory is None else given.park_memory
        ),
        ends_s=_ends_s(given.ends_in or file.ends_in),
    )
    if len(specs) == 1:
        return [whole]
    found = []
    for spec in specs:
        devices = find_devices(spec, simulated)
        node = _name(f"{name}-{devices.accelerator}")
        found.append(
            replace(
                whole,
                devices=devices,
                node=node,
                state=whole.state / devices.accelerator,
                isolation=isolation_of(apart, file, node),
            )
        )
    return found


def _description(name: str, found: NodeDevices) -> str:
    what = f"{len(found.indices)} x {found.accelerator}"
    return f"node {name}: {what}" + (
        " (simulated: no hardware behind them)" if found.simulated_devices else ""
    )


def _ends_s(text: str) -> float | None:
    """When the node is taken away, wall clock; None = nobody knows of an end. text: "" = as Slurm says.
    Raises ConfigError."""
    if text:
        return time.time() + read_duration(text, "--ends-in")
    return slurm_end_s(os.environ)


def _park_bytes(park_gb: float | None) -> int | None:
    if park_gb is None:
        return None
    if not 0.0 <= park_gb <= 1e6:
        raise ConfigError(f"--park-memory: must be from 0 to 1,000,000 GB, got {park_gb:g}")
    return round(park_gb * 1e9)


def _health(command: str, interval_s: float | None) -> HealthOptions:
    if interval_s is None:
        return HealthOptions(command)
    if not 0.1 <= interval_s <= 86400.0:
        raise ConfigError(f"--health-interval: must be from 0.1 to 86400 s, got {interval_s:g}")
    return HealthOptions(command, interval_s)


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if (
        not colon
        or not host
        or not port.isascii()
        or not port.isdigit()
        or not 0 < int(port) < 65536
    ):
        got = f"got {text!r}" if text else "and none is given"
        raise ConfigError(f"--server: expected HOST:PORT, {got}")
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(f"--node: expected letters, digits, '.', '_' and '-', got {text!r}")
    return text


def _modules(text: str) -> str:
    if text and not _MODULES.fullmatch(text):
        raise ConfigError(f"--prefork: expected modules as numpy,torch, got {text!r}")
    if gone := missing(text):
        raise ConfigError(f"--prefork: there is no module {gone}")
    return text


def _state(given: Path | str, node: str) -> Path:
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return (Path(given) if given else home / "fairlead" / node).absolute()


def _token(file: Path | str | None) -> str:
    if not file:
        return os.environ.pop("FAIRLEAD_AGENT_TOKEN", "")
    return read_token(Path(file), option="--token-file")


def _local_address(server: str) -> str:
    """The address of the interface on which packets to the server leave."""
    host, _, port = server.rpartition(":")
    try:
        family, kind, *_, target = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
