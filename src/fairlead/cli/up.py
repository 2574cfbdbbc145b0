"""``fairlead up``: a whole cluster on this machine, in the foreground."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli import interrupts
from fairlead.cli.announcements import announce
from fairlead.cli.inside_job import InsideJob
from fairlead.cli.round_option import LiveRoundOption
from fairlead.cli.slurm_allocation import SlurmAllocation, read_allocation
from fairlead.cluster.agent.devices import device_types
from fairlead.cluster.agent.inside_job import check_outside_jobs
from fairlead.cluster.end_signals import end_signals, ignore_end_signals
from fairlead.cluster.local import LocalCluster
from fairlead.errors import ConfigError, FairleadError
from fairlead.model import jit

PORT = 8470
LEAVE_S = 60.0  # for the other agents to leave once one has, as the Slurm job ends
PREFORK = "numpy,fairlead.client.iterator"
DEFAULT_DIRECTORY = Path("~/.local/state/fairlead/up")


def up(
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Eight jobs on simulated devices, a live table, a report."),
    ] = False,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE=N,...|nvml",
            help="Devices of this machine, simulated where there are none.",
            show_default="nvml",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help=f"Directory of everything (default: {DEFAULT_DIRECTORY}; of the demo: a temporary one).",
        ),
    ] = None,
    policy: Annotated[str, typer.Option(help="See `fairlead policies`.")] = "",
    round_s: LiveRoundOption = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="For people and tools (HTTP); 0 = any.", show_default="8470; of the demo: any"
        ),
    ] = None,
    prefork: Annotated[
        str | None,
        typer.Option(
            metavar="MODULES",
            help="Imported once, for jobs with `prefork = true`.",
            show_default=PREFORK,
        ),
    ] = None,
    slurm: Annotated[
        bool,
        typer.Option(
            "--slurm",
            help="In a Slurm job: an agent on each of its nodes, until the job ends.",
        ),
    ] = False,
    inside_job: InsideJob = False,
) -> None:
    """Start a server and an agent for this machine, and run them until Ctrl-C.

    With --demo: a server and two agents, which share out four simulated devices among eight jobs in under a
    minute. Everything is ended, and what was temporary removed, also on Ctrl-C.
    """
    if demo:
        for option, given in (("--devices", devices), ("--prefork", prefork)):
            if given is not None:
                raise ConfigError(f"{option}: the demo has devices and jobs of its own")
        if slurm:
            raise ConfigError("--slurm: the demo runs on this machine alone")
        _demo(state, policy, round_s, port)
        return
    allocation = read_allocation(os.environ) if slurm else None
    types = device_types(devices or "nvml")  # before a server has been started for it
    check_outside_jobs("up", inside_job)
    forked = ("--prefork", PREFORK if prefork is None else prefork)
    serve = (
        "--port",
        str(PORT if port is None else port),
        "--agent-port",
        "0",
        "--policy",
        policy,
        *(() if round_s is None else ("--round", str(round_s))),
        "--compile-in-background",
    )
    directory = (state or DEFAULT_DIRECTORY.expanduser()).absolute()
    if allocation is None:
        made = LocalCluster(directory, _nodes(types, forked), serve, report=_print_reason)
    else:
        made = _cluster_of(allocation, directory, types=types, forked=forked, serve=serve)
    with _running(made) as cluster:
        _print_addresses(cluster)
        announce(f"files: {directory}\nCtrl-C ends it; jobs save first")
        while not (name := cluster.broken()):
            time.sleep(0.5)
        if allocation is None or not _is_over(cluster):
            raise FairleadError(f"{name} ended by itself; see {directory / name}.log")
        announce("the Slurm job is about to end; jobs have saved")


def _nodes(types: list[str], forked: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """This machine as nodes, one of each type, with the options of their agents."""
    host = socket.gethostname()
    return {
        host if len(types) == 1 else f"{host}-{one.partition('=')[0]}": ("--devices", one, *forked)
        for one in types
    }


def _cluster_of(
    allocation: SlurmAllocation,
    directory: Path,
    *,
    types: list[str],
    forked: tuple[str, ...],
    serve: tuple[str, ...],
) -> LocalCluster:
    """The cluster of a Slurm job: the server here, an agent on each node, its state on the node."""
    if len(types) != 1:
        raise ConfigError(f"--devices: with --slurm one type, got {','.join(types)}")
    # A name that nobody knows before: others could make it their own, and with it what jobs run
    state = Path(tempfile.gettempdir()) / f"fairlead-slurm-{allocation.job}-{secrets.token_hex(8)}"
    options = {
        allocation.name(node): ("--devices", types[0], *forked, "--state", str(state / node))
        for node in allocation.nodes
    }
    return LocalCluster(
        directory,
        options,
        (*serve, "--host", allocation.address),
        remote={allocation.name(node): allocation.step(node) for node in allocation.nodes},
        report=_print_reason,
    )


def _is_over(cluster: LocalCluster) -> bool:
    """Return whether all agents leave as the Slurm job ends, and not one alone."""
    until = time.monotonic() + LEAVE_S
    while not (left := cluster.has_been_left()) and time.monotonic() < until:
        time.sleep(0.5)
    return left


def _demo(state: Path | None, policy: str, round_s: str | None, port: int | None) -> None:
    from fairlead.cli.demo_screen import Screen, report
    from fairlead.cli.replay import replay
    from fairlead.cluster.demo.jobs import (
        NODES,
        POLICY,
        ROUND_S,
    )
    from fairlead.cluster.demo.run import play

    if state is not None and (state / "server").exists():
        raise ConfigError(f"--state {state}: there is a cluster already; the demo needs a new one")
    nodes = {
        name: ("--devices", devices, "--simulated-devices", "--prefork", PREFORK)
        for name, devices in NODES.items()
    }
    serve = (
        *("--port", str(port or 0), "--agent-port", "0", "--heartbeat", "0.3", "--lease", "5"),
        *("--policy", policy or POLICY, "--round", str(ROUND_S if round_s is None else round_s)),
        "--compile-in-background",
    )
    with _directory(state) as directory:
        with _running(LocalCluster(directory, nodes, serve, report=_print_reason)) as cluster:
            _print_addresses(cluster)
            with cluster.client() as client, Screen() as screen:
                summary = play(client, directory / "checkpoints", screen.watch, cluster.broken)
        report(summary)
        jit.interpret_while(os.getpid())  # the server has gone, perhaps before all were compiled
        replay(cluster.state)
        if state is not None:
            print(f"journal: {cluster.state}/state.db\ncheck it: fairlead replay {cluster.state}")
        else:
            print("With --state DIR the cluster's files are kept: fairlead replay DIR/server")


@contextlib.contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    """The given directory, or a temporary one that is removed after the block."""
    if given is not None:
        yield given.absolute()
        return
    made = Path(tempfile.mkdtemp(prefix="fairlead-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def _running(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Start the cluster, and stop it after the block whatever happens; it is the last thing that this process
    does. SIGTERM and SIGHUP are like Ctrl-C; further ones while the cluster stops are ignored."""
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        lost = interrupts.take_lost()
        if interrupted and not lost:
            return  # the first one is on its way to the end of the block, which none may cut short
        interrupted = True
        raise KeyboardInterrupt

    for number in end_signals():
        signal.signal(number, interrupt)
    try:
        cluster.start()
        yield cluster
        if interrupted:  # some code had caught it
            raise KeyboardInterrupt
    finally:
        ignore_end_signals()
        cluster.stop()


def _print_reason(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_addresses(cluster: LocalCluster) -> None:
    announce(f"page and API: {cluster.url}\ntoken of user admin: {cluster.token_file}")
