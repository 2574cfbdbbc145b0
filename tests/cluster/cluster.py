"""A real live cluster for tests: server and agents as processes, on free ports, in a directory of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.cluster.http_client import Client
from fairlead.cluster.readiness import ReadyPipe

FAIRLEAD = (sys.executable, "-m", "fairlead")
READY_S = 1800.0  # a server that compiles kernels; one that has ended is not waited for
TIMEOUT_S = 180.0  # ends a test that waits for what never comes; on a slow machine all takes long


@dataclass
class Running:
    """A cluster. ``start`` may be called again after ``kill`` or ``stop``: same state, same ports."""

    directory: Path
    options: tuple[str, ...] = ()
    url: str = ""
    agent_address: str = ""
    server: "subprocess.Popen[bytes] | None" = None
    agents: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        """The state directory of the server."""
        return self.directory / "state"

    @property
    def admin_token(self) -> str:
        """Of the user admin."""
        return (self.state / "admin.token").read_text().strip()

    def client(self, token: str | None = None) -> Client:
        """For the HTTP API; the admin's unless a token is given. Close it."""
        return Client(self.url, token or self.admin_token)

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        port = self.url.rpartition(":")[2] or "0"
        agent_port = self.agent_address.rpartition(":")[2] or "0"
        log = self.directory / "server.log"
        message = log.stat().st_size if log.exists() else 0
        pipe = ReadyPipe()
        with log.open("ab") as out:
            self.server = subprocess.Popen(
                (
                    *FAIRLEAD,
                    "serve",
                    "--inside-job",  # these tests may be one
                    "--state",
                    str(self.state),
                    "--port",
                    port,
                    "--agent-port",
                    agent_port,
                    *pipe.arguments,
                    *self.options,
                ),
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=pipe.fds,
            )
        ready = pipe.wait(self.server, READY_S)
        if ready is None:
            _end(self.server)
        assert ready is not None, f"the server did not start: {log.read_text()[message:]}"
        self.url, self.agent_address = ready.url, ready.agents

    def add_agent(
        self, node: str, devices: str, *more: str, environment: dict[str, str] | None = None
    ) -> None:
        """Start an agent with fake devices, ``v100=2``; it registers in its own time."""
        with (self.directory / f"{node}.log").open("ab") as out:
            self.agents[node] = subprocess.Popen(
                (
                    *FAIRLEAD,
                    "agent",
                    "--inside-job",
                    "--server",
                    self.agent_address,
                    "--node",
                    node,
                    "--devices",
                    devices,
                    "--state",
                    str(self.directory / f"agent-{node}"),
                    "--token-file",
                    str(self.state / "agent.token"),
                    *more,
                ),
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )

    def kill(self, node: str = "") -> None:
        """kill -9 the server, or an agent."""
        process = self.agents[node] if node else self.server
        assert process is not None
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """End the agents, then the server; what does not end is killed, and that is an error."""
        processes = [*self.agents.values(), *([self.server] if self.server else [])]
        stubborn = [p.args for p in processes if not _end(p)]
        assert not stubborn, f"did not end on SIGTERM: {stubborn}"

    def log(self) -> str:
        """What the server has printed."""
        return (self.directory / "server.log").read_text()


def _end(process: "subprocess.Popen[bytes]") -> bool:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


@contextmanager
def running(
    directory: Path, options: Sequence[str] = (), agents: dict[str, str] | None = None
) -> Iterator[Running]:
    """A cluster with rounds of a second and short leases, ended at the end. agents: node -> devices."""
    fast = {"--round": "1", "--lease": "4", "--heartbeat": "0.3"}  # each may be given once
    more = [word for pair in fast.items() if pair[0] not in options for word in pair]
    cluster = Running(directory, (*more, *options))
    cluster.start()
    try:
        for node, devices in (agents or {}).items():
            cluster.add_agent(node, devices)
        yield cluster
    finally:
        cluster.stop()


def until(holds: Callable[[], bool], limit_s: float = TIMEOUT_S, what: str = "it") -> None:
    """Wait until something holds. It is looked at less often the longer it takes: most questions go to a
    server, and cost CPU time there and here."""
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        assert waited < limit_s, f"{what} did not come about within {limit_s} s"
        time.sleep(min(max(0.05, waited / 20), 0.25))


def clear(cluster: Running, agents: dict[str, str]) -> None:
    """Make a cluster ready for the next test: no job is open, none is parked, and all agents live. agents:
    node -> devices."""
    for node, devices in agents.items():
        if cluster.agents[node].poll() is not None:
            cluster.add_agent(node, devices)
    with cluster.client() as client:
        for job in client.jobs("open"):
            client.cancel(job.id)
        until(lambda: not client.jobs("open"), what="the end of all jobs")
        until(
            lambda: all(
                n.state == "up" and not n.parked and not any(n.jobs) for n in client.nodes()
            )
        )


def descendants(directory: Path) -> list[int]:
    """Processes that have a path of this directory in their command line or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(directory).encode() + b"/" in text:
            found.append(int(entry.name))
    return found
