"""The cluster that is hurt: a server and agents with fake devices, as processes of their own."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from fairlead.cluster.agent.machine import OVERRIDE
from fairlead.cluster.chaos.disk import (
    SmallDisk,
    children,
    command_of,
    who_mentions,
)
from fairlead.cluster.chaos.proxy import Loop, Proxy
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.api_models import NodeView
from fairlead.cluster.readiness import ReadyPipe
from fairlead.errors import CheckError, FairleadError

NODES = {"node-a": "v100=2", "node-b": "v100=2", "node-c": "k80=2"}
ROUND_S = 1.0
LEASE_S = 3.0  # unless it is chosen
PYTHON = "chaos-python"  # a command that is found on the PATH of agents
AGENT_DISK = 128  # megabytes; agents with less than 64 free call their node unhealthy
HEALTH_S = 1.0  # between the checks that agents make of themselves
SOLVE_S = 2.0  # limit of a solve
READY_S = 180.0  # for agents to be there on a busy machine
SERVER_S = 1800.0  # for a server, which may compile kernels; one that has ended is not waited for
END_S = 60.0  # to end after SIGTERM
MTBF_H = 50 / 3600  # of a node: checkpoints are saved often
_SERVE = (
    *("--round", f"{ROUND_S:g}", "--heartbeat", "0.3"),
    *("--solve-limit", f"{SOLVE_S:g}", "--mtbf", f"{MTBF_H:g}"),
)
_Process = subprocess.Popen[bytes]


class ChaosCluster:
    """``start``, hurt, ``stop``, ``clean_up``. All below one folder, whose name marks the processes."""

    def __init__(self, directory: Path, rng: random.Random, lease_s: float = LEASE_S) -> None:
        self.directory = directory
        self.lease_s = lease_s
        self.submitting = threading.Lock()  # held by whoever submits, or wants nothing submitted
        self.dead: set[str] = set()  # nodes that stay dead
        self.disks = {node: SmallDisk(directory / f"disk-{node}", AGENT_DISK) for node in NODES}
        self.agent_states = {node: self.disks[node].folder / f"agent-{node}" for node in NODES}
        self.state = SmallDisk(directory / "server", 64)
        self.checkpoints = SmallDisk(directory / "checkpoints", 192)
        self.control = directory / "control"
        self.ledger = directory / "ledger"
        self.url = ""
        self.port = 0  # where the server listens for agents
        self.proxies: dict[str, Proxy] = {}
        self.processes: dict[str, _Process] = {}  # "server" or a node
        self.run = directory / "run"  # of the agents' records on this machine
        self._twins = 0
        self._loop = Loop()
        self._rng = rng

    def start(self) -> None:
        """Server first, then the agents behind their proxies; waits until all nodes are there."""
        for folder in (self.control, self.ledger, self.bin):
            folder.mkdir(parents=True)
        python = self.bin / PYTHON
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o700)
        for disk in self.all_disks():
            disk.mount()
        self._loop.start()
        self.start_server()
        for node in NODES:
            self.proxies[node] = Proxy(self.port, random.Random(self._rng.random()))
            self._loop.do(self.proxies[node].open())
            self.start_agent(node)
        self.await_nodes(READY_S)

    @property
    def bin(self) -> Path:
        """On the PATH of agents."""
        return self.directory / "bin"

    def all_disks(self) -> list[SmallDisk]:
        """Of the server's state, the checkpoints, and the agents'."""
        return [self.state, self.checkpoints, *self.disks.values()]

    # --- processes -------------------------------------------------------------------------------

    def start_server(self) -> None:
        """Start it on the ports that it had, and wait until it listens."""
        log = self.directory / "server.log"
        said = log.stat().st_size if log.exists() else 0
        port = self.url.rpartition(":")[2] or "0"
        state = ("--state", str(self.state.folder / "state"))
        where = ("--port", port, "--agent-port", str(self.port))
        lease = ("--lease", f"{self.lease_s:g}")
        pipe = ReadyPipe()
        call = ("serve", *state, *where, *lease, *_SERVE, *pipe.arguments)
        ready = pipe.wait(self._run("server", *call, fds=pipe.fds), SERVER_S)
        if ready is None:
            text = log.read_bytes()[said:].decode(errors="replace")
            raise CheckError(f"the server did not start: {text.strip()[-500:]}")
        self.url = ready.url
        self.port = int(ready.agents.rpartition(":")[2])

    def start_agent(
        self, node: str, *, state: Path | None = None, env: dict[str, str] | None = None
    ) -> _Process:
        """Start it; it registers in its own time. state: another directory than the node's; env: variables
        that are not as usual."""
        folder = state or self.agent_states[node]
        return self._run(
            node,
            *("agent", "--server", f"127.0.0.1:{self.proxies[node].port}", "--node", node),
            *("--devices", NODES[node], "--state", str(folder)),
            *(
                "--token-file",
                str(self.state.folder / "state" / "agent.token"),
                "--simulated-devices",
            ),
            *("--prefork", "fairlead.client.lease", "--health-interval", f"{HEALTH_S:g}"),
            env=env,
        )

    def _run(
        self,
        name: str,
        *arguments: str,
        env: dict[str, str] | None = None,
        fds: tuple[int, ...] = (),
    ) -> _Process:
        call = (sys.executable, "-m", "fairlead.cluster.chaos.entry", str(self.control), *arguments)
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                call,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environment() | (env or {}),
                pass_fds=fds,
            )
        self.processes[name] = process
        return process

    def _environment(self) -> dict[str, str]:
        path = f"{self.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return os.environ | {"PATH": path, OVERRIDE: str(self.run)}

    def start_twin(self, node: str) -> tuple[_Process, Path]:
        """A second agent of the node's name, with a state directory of its own."""
        self._twins += 1
        folder = self.directory / f"twin-{self._twins}" / f"agent-{node}"
        first = self.processes[node]
        twin = self.start_agent(node, state=folder)
        self.processes[node] = first
        return twin, folder

    def kill(self, name: str) -> None:
        """SIGKILL to the server or an agent."""
        process = self.processes[name]
        process.kill()
        process.wait()

    def signal(self, pids: list[int], number: signal.Signals) -> None:
        """To processes of this cluster; those that have ended meanwhile do not matter."""
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def part(self, name: str, word: str) -> list[int]:
        """Children of the server or an agent, and theirs, with this word in their command."""
        todo, found = children(self.processes[name].pid), []
        while todo:
            pid = todo.pop()
            todo.extend(children(pid))
            if word in command_of(pid):
                found.append(pid)
        return found

    # --- network ---------------------------------------------------------------------------------

    def cut(self, node: str) -> None:
        """Break off the connections of an agent."""
        self._loop.do(self.proxies[node].cut())

    # --- looking ---------------------------------------------------------------------------------

    def client(self) -> Client:
        """The admin's. Close it."""
        token = (self.state.folder / "state" / "admin.token").read_text().strip()
        return Client(self.url, token, timeout_s=10.0)

    def await_nodes(self, limit_s: float) -> None:
        """Until the server answers and no node is lost. Raises CheckError."""
        until = time.monotonic() + limit_s
        while (left := self.missing()) and time.monotonic() < until:
            time.sleep(0.1)
        if left:
            raise CheckError(f"not there again after {limit_s:.0f} s: {left}")

    def missing(self) -> str:
        """What of the cluster is not there, "" = nothing."""
        try:
            with self.client() as client:
                nodes = {node.name: node for node in client.nodes()}
                self._use_again(client, nodes.values())
        except FairleadError as problem:
            return str(problem)
        names = [name for name in NODES if name not in self.dead]
        bad = [f"{name} is not known" for name in names if name not in nodes]
        bad += [
            f"{name} is {node.state} ({node.reason})"
            for name, node in nodes.items()
            if name in names and node.state not in ("up", "drained")
        ]
        return ", ".join(bad)

    def _use_again(self, client: Client, nodes: Iterable[NodeView]) -> None:
        """As an operator does with nodes that were cordoned for what was done to them here."""
        for node in nodes:
            if node.state == "unhealthy":
                client.undrain(node.name)

    # --- the end ---------------------------------------------------------------------------------

    def stop(self) -> list[str]:
        """SIGTERM to all, agents first; what is wrong with how they ended."""
        wrong = []
        for names in ([n for n in self.processes if n != "server"], ["server"]):
            names = [name for name in names if name not in self.dead]
            for name in names:
                self.processes[name].terminate()
            for name in names:
                try:
                    code = self.processes[name].wait(END_S)
                except subprocess.TimeoutExpired:
                    wrong.append(f"{name} did not end on SIGTERM within {END_S:.0f} s")
                    continue
                if code:
                    wrong.append(f"{name} ended with exit code {code}")
        return wrong

    def orphans(self) -> list[int]:
        """Processes of this cluster that live."""
        return who_mentions(f"{self.directory}/")

    def clean_up(self) -> None:
        """End whatever is left, and the proxies."""
        for name in self.processes:
            if self.processes[name].poll() is None:
                self.kill(name)
        self.signal(self.orphans(), signal.SIGKILL)
        for proxy in self.proxies.values():
            self._loop.do(proxy.close())
        self.proxies.clear()
        self._loop.stop()
