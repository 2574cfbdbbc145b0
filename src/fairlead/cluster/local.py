"""A whole live cluster on this machine: a server and agents, as processes that end with it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

from fairlead.cluster.end_signals import end_signals
from fairlead.cluster.http_client import Client
from fairlead.cluster.readiness import ReadyPipe
from fairlead.errors import ConfigError, FairleadError
from fairlead.model.child_signals import end_with_parent
from fairlead.model.jit import COMPILING

READY_S = (
    1800.0  # for a server to listen: the first start of all compiles, on any machine; one that has
)
# ended is not waited for
NODES_S = 30.0  # for the agents to register
END_S = 20.0  # for a process to end after SIGTERM, and again after the second one


@dataclass
class LocalCluster:
    """``start`` it, and ``stop`` it whatever happens. All its files are in one directory.

    nodes: name -> its options for ``fairlead agent``; serve: more options of ``fairlead serve``; remote: name
    -> the words before the command of a node's agent, which run it on another machine.
    """

    directory: Path
    nodes: Mapping[str, Sequence[str]]
    serve: tuple[str, ...] = ()
    remote: Mapping[str, Sequence[str]] = field(default_factory=dict)
    url: str = ""  # for people and tools
    agent_address: str = ""
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    report: Callable[[str], None] = lambda _: None  # is told why the start takes long

    @property
    def state(self) -> Path:
        """The state directory of the server."""
        return self.directory / "server"

    @property
    def token_file(self) -> Path:
        """Return the file with the token of the user admin."""
        return self.state / "admin.token"

    def client(self) -> Client:
        """Return a client of the HTTP API, as admin. The caller closes it."""
        return Client(self.url, self.token_file.read_text().strip())

    def start(self) -> None:
        """Start server and agents; returns when all nodes are up. Raises FairleadError with what a process
        said that did not come up."""
        self.start_server()
        for node, options in self.nodes.items():
            where = ("--server", self.agent_address, "--node", node)
            files: tuple[str, ...] = ("--state", str(self.directory / node))
            files += ("--token-file", str(self.state / "agent.token"))
            before = self.remote.get(node, ())  # that machine's files are its own
            self._run(node, ("agent", *where, *(() if before else files), *options), before=before)
        with self.client() as client:
            for node in self.nodes:
                self._await_node(client, node)

    def start_server(self) -> None:
        """Start the server, also after it has died: on the ports that it had then, unless ``serve`` has
        others. Returns when it listens."""
        self.directory.mkdir(parents=True, exist_ok=True)
        pipe = ReadyPipe()
        ports: tuple[str, ...] = ()
        if self.url and not {"--port", "--agent-port"}.intersection(self.serve):
            port, agent_port = (at.rpartition(":")[2] for at in (self.url, self.agent_address))
            ports = ("--port", port, "--agent-port", agent_port)
        serve = ("serve", "--state", str(self.state), *pipe.arguments, *self.serve, *ports)
        server = self._run("server", serve, pipe.fds)
        tell_why = _Once(lambda: self.output("server"), self.report)
        ready = pipe.wait(server, READY_S, tell_why)
        tell_why()
        if ready is None:
            self._fail("server", READY_S)
        self.url, self.agent_address = ready.url, ready.agents

    def stop(self) -> None:
        """End the agents, which end their jobs, then the server. What hangs is killed."""
        agents = [self.processes[node] for node in self.nodes if node in self.processes]
        server = [p for name, p in self.processes.items() if name == "server"]
        for group in (agents, server):
            for timeout_s, number in (
                (END_S, signal.SIGTERM),
                (END_S, signal.SIGTERM),  # an agent's second one kills its jobs
                (END_S, signal.SIGKILL),
            ):
                if _ended(group, number, timeout_s):
                    break

    def has_been_left(self) -> bool:
        """Return whether all agents have ended in order, as they do before their nodes are taken away."""
        return all(self.processes[node].poll() == 0 for node in self.nodes)

    def broken(self) -> str:
        """The name of a process that has ended by itself, "" = none."""
        return next((name for name, p in self.processes.items() if p.poll() is not None), "")

    def output(self, name: str) -> str:
        """The output of a process so far."""
        try:
            return self._log(name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _run(
        self,
        name: str,
        arguments: Sequence[str],
        fds: tuple[int, ...] = (),
        before: Sequence[str] = (),
    ) -> "subprocess.Popen[bytes]":
        """before: words before the command; the agent's token is in its environment then."""
        environment = dict(os.environ)
        if before:
            environment["FAIRLEAD_AGENT_TOKEN"] = (self.state / "agent.token").read_text().strip()
        with self._log(name).open("wb") as log, _interrupts_wait() as mask:
            process = self.processes[name] = subprocess.Popen(
                # Within a job too: it ends with us in any case, and who starts us has been told.
                (*before, sys.executable, "-m", "fairlead", *arguments, "--inside-job"),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we tell them in the right order
                preexec_fn=partial(_begin, mask, os.getpid()),
                pass_fds=fds,
            )
        return process

    def _await_node(self, client: Client, node: str) -> None:
        """Wait until an agent has registered."""
        until = time.monotonic() + NODES_S
        while not any(one.name == node and one.last_seen_s is not None for one in client.nodes()):
            if self.processes[node].poll() is not None or time.monotonic() > until:
                self._fail(node, NODES_S)
            time.sleep(0.02)

    def _fail(self, name: str, limit_s: float) -> NoReturn:
        """Raise why a process did not come up within its time."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # it may be about to end
            self.processes[name].wait(1.0)
        if self.processes[name].poll() is None:
            raise FairleadError(f"{name} did not start within {limit_s:.0f} s; {self._log(name)}")
        last = self.output(name).strip().splitlines()[-1:] or ["(no output)"]
        kind = ConfigError if self.processes[name].returncode == 2 else FairleadError
        raise kind(f"{name} did not start: {last[0].removeprefix('fairlead: ')}")


class _Once:
    """Passes on, once, the line by which a server says that it compiles kernels."""

    def __init__(self, output: Callable[[], str], report: Callable[[str], None]) -> None:
        self._output, self._report = output, report
        self._reported = False

    def __call__(self) -> None:
        lines = [] if self._reported else self._output().splitlines()
        for line in lines:
            if COMPILING in line and not self._reported:
                self._reported = True
                self._report(line.removeprefix("fairlead: "))


def _ended(group: "list[subprocess.Popen[bytes]]", number: signal.Signals, limit_s: float) -> bool:
    """Return whether all of these have ended within so many seconds of a signal."""
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


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[set[int]]:
    """A signal that comes in the block is received after it: a process that has been forked, and of which
    nobody knows yet, would not be ended by ``stop``. Gives the mask that its program is to have."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, end_signals())
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(mask: set[int], parent: int) -> None:
    """In the child: SIGTERM when the parent is killed, so that nothing is left behind."""
    end_with_parent(parent, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
