"""A whole live cluster on this machine: a server and agents, as processes that end with it."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.cluster.http_client import Client
from fairlead.errors import ConfigError, FairleadError

READY_S = 120.0  # for a server to listen: the first start of all compiles
NODES_S = 30.0  # for the agents to register
END_S = 20.0  # for a process to end after SIGTERM, and again after the second one
_PARENT_DIES = 1  # prctl(2): PR_SET_PDEATHSIG


@dataclass
class LocalCluster:
    """``start`` it, and ``stop`` it whatever happens. All its files are in one directory.

    nodes: name -> its options for ``fairlead agent``; serve: more options of ``fairlead serve``.
    """

    directory: Path
    nodes: Mapping[str, Sequence[str]]
    serve: tuple[str, ...] = ()
    url: str = ""  # for people and tools
    agent_address: str = ""
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        """The state directory of the server."""
        return self.directory / "server"

    @property
    def token_file(self) -> Path:
        """With the token of the user admin."""
        return self.state / "admin.token"

    def client(self) -> Client:
        """For the HTTP API, as admin. Close it."""
        return Client(self.url, self.token_file.read_text().strip())

    def start(self) -> None:
        """Start server and agents; returns when all nodes are up. Raises FairleadError with what a process
        said that did not come up."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._run("server", ("serve", "--state", str(self.state), *self.serve))
        self._await(lambda: "agents: " in self.said("server"), "server", READY_S)
        lines = self.said("server").splitlines()
        told = dict(line.partition(": ")[::2] for line in lines if ": " in line)
        self.url, self.agent_address = told["people and tools"], told["agents"]
        for node, options in self.nodes.items():
            where = ("--server", self.agent_address, "--node", node)
            files = ("--state", str(self.directory / node))
            token = ("--token-file", str(self.state / "agent.token"))
            self._run(node, ("agent", *where, *files, *token, *options))
        for node in self.nodes:
            self._await(lambda: "is part of the cluster" in self.said(node), node, NODES_S)  # noqa: B023

    def stop(self) -> None:
        """End the agents, which end their jobs, then the server. What hangs is killed."""
        agents = [self.processes[node] for node in self.nodes if node in self.processes]
        server = [p for name, p in self.processes.items() if name == "server"]
        for group in (agents, server):
            for patience_s, number in (
                (END_S, signal.SIGTERM),
                (END_S, signal.SIGTERM),  # an agent's second one kills its jobs
                (END_S, signal.SIGKILL),
            ):
                if _ended(group, number, patience_s):
                    break

    def broken(self) -> str:
        """The name of a process that has ended by itself, "" = none."""
        return next((name for name, p in self.processes.items() if p.poll() is not None), "")

    def said(self, name: str) -> str:
        """The output of a process so far."""
        try:
            return self._log(name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _run(self, name: str, arguments: Sequence[str]) -> None:
        with self._log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                (sys.executable, "-m", "fairlead", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we tell them in the right order
                preexec_fn=_end_with_parent,
            )

    def _await(self, holds: Callable[[], bool], name: str, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        while not holds():
            if self.processes[name].poll() is not None:
                last = self.said(name).strip().splitlines()[-1:] or ["(no output)"]
                kind = ConfigError if self.processes[name].returncode == 2 else FairleadError
                raise kind(f"{name} did not start: {last[0].removeprefix('fairlead: ')}")
            if time.monotonic() > until:
                raise FairleadError(
                    f"{name} did not start within {limit_s:.0f} s; {self._log(name)}"
                )
            time.sleep(0.02)


def _ended(group: "list[subprocess.Popen[bytes]]", number: signal.Signals, limit_s: float) -> bool:
    """Have all of these ended, within so many seconds of a signal?"""
    for process in group:
        if process.poll() is None:
            process.send_signal(number)
    until = time.monotonic() + limit_s
    for process in group:
        try:
            process.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            return False
    return True


def _end_with_parent() -> None:
    """In the child: SIGTERM when the parent is killed, so that nothing is left behind."""
    ctypes.CDLL(None).prctl(_PARENT_DIES, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == 1:  # too late: it has gone already
        os._exit(1)
