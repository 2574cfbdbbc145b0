"""A server in the test's own process, and real agents that speak to it."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from fairlead.cluster.front.transport import MAX_MESSAGE_BYTES, AgentServer
from fairlead.cluster.protocol.access import Caller, TokenKind
from fairlead.cluster.protocol.messages import (
    Assignment,
    AttemptStatus,
    LogChunk,
    LogOffset,
    MetricChunk,
    NodeReport,
    Orders,
    Rank,
    Register,
    StartCheck,
    WatchRequest,
    Welcome,
)
from fairlead.errors import ConfigError, StaleError, StoreError

WAIT_S = 120.0  # for a slow machine
TOKEN = "secret-of-the-agents"
RANK = Path(__file__).with_name("rank.py")
_MAIN = "from fairlead.cli.main import main; main()"
Key = tuple[int, int]


class Server:
    """Does as a test says: ``order`` what a node shall hold, ``until`` it says that it does."""

    def __init__(self, lease_s: float = 60.0, largest: int = MAX_MESSAGE_BYTES) -> None:
        """largest: bytes of a message that it takes."""
        self.lease_s = lease_s
        self.grants = True
        self.is_away = False  # is it about to come up, and answers no call?
        self.takes_metrics = True
        self.answers_metrics = asyncio.Event()  # else it does not answer, for as long as that
        self.answers_metrics.set()
        self.heartbeat_s = 0.2
        self.gap_s = 0.0
        self.ahead_s = 0.0  # its clock
        self.reports = 0
        self.refuses: Callable[[NodeReport], bool] = lambda _: False  # as malformed
        self.refused = 0
        self.newest: NodeReport | None = None
        self.check: StartCheck | None = None  # that the agent is to make
        self.registered: list[Register] = []
        self.tokens: dict[str, str] = {}  # node -> its own
        self.enrolled: list[bool] = []  # of each registration: did it come without that?
        self.statuses: dict[Key, AttemptStatus] = {}
        self.output: dict[tuple[int, int, int], bytes] = {}
        self.metric_lines: dict[tuple[int, int], bytes] = {}
        self.offsets: dict[tuple[int, int, int], list[int]] = {}
        self._ends: dict[tuple[int, int, int], int] = {}  # offset wanted next
        self.orders = Orders(seq=0, desired=())
        self.address = ""
        self._agents = AgentServer(self, largest=largest)
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> "Server":
        await self._agents.start()
        self.address = self._agents.address
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._agents.stop(0.0)

    async def order(self, *wanted: Assignment, reasons: dict[int, str] | None = None) -> None:
        """All that the node shall hold from now on; ended starts are booked."""
        self.orders = Orders(
            seq=self.orders.seq + 1,
            desired=wanted,
            forget=tuple(key for key, status in self.statuses.items() if status.state == "ended"),
            reasons=reasons or {},
        )
        await self._wake()

    async def until(self, wanted: Callable[[], Any]) -> Any:
        """What ``desired`` returns as soon as that is true."""
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(wanted)
        return wanted()

    async def until_state(self, key: Key, state: str) -> AttemptStatus:
        await self.until(lambda: key in self.statuses and self.statuses[key].state == state)
        return self.statuses[key]

    async def until_output(self, job: int, text: str, rank: int = 0, attempt: int = 1) -> str:
        def found() -> bool:
            return text in self.output.get((job, attempt, rank), b"").decode()

        await self.until(found)
        return self.output[job, attempt, rank].decode()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # --- calls of agents -------------------------------------------------------------------------
    def authenticate(self, token: str) -> Caller | None:
        if token == TOKEN:
            return Caller(user="agent", tenant="", role="agent")
        owner = (node for node, own in self.tokens.items() if own == token)
        return next((Caller(f"node {node}", "", "agent", node) for node in owner), None)

    def needs_own_token(self, node: str) -> bool:
        return node in self.tokens

    def _check_here(self) -> None:
        if self.is_away:
            raise StoreError("away")

    async def register(self, message: Register, *, token: TokenKind) -> Welcome:
        self._check_here()
        self.registered.append(message)
        enrols = token == "enrolment"
        self.enrolled.append(enrols)
        await self._wake()
        own = f"{TOKEN}-{message.node}-{len(self.registered)}" if enrols else ""
        if own:
            self.tokens[message.node] = own
        return Welcome(
            heartbeat_s=self.heartbeat_s,
            lease_s=self.lease_s,
            rate_bound=0.01,
            orders=self.orders,
            wall_s=time.time() + self.ahead_s,
            token=own,
        )

    async def report(self, message: NodeReport) -> Orders:
        self._check_here()
        if not self.registered or message.incarnation != self.registered[-1].incarnation:
            raise StaleError(f"node {message.node!r}: register again")
        if self.refuses(message):
            self.refused += 1
            raise ConfigError("Report: is not understood")
        self.statuses = {(h.job, h.attempt): h for h in message.holds}
        self.reports += 1
        self.newest = message
        await self._wake()
        leases = {h.job: self.lease_s for h in message.holds} if self.grants else {}
        return msgspec.structs.replace(
            self.orders,
            leases=leases,
            heartbeat_s=self.heartbeat_s,
            gap_s=self.gap_s,
            check=self.check,
            wall_s=time.time() + self.ahead_s,
        )

    async def log(self, message: LogChunk) -> LogOffset:
        key = message.job, message.attempt, message.rank
        self.offsets.setdefault(key, []).append(message.offset)
        end = max(self._ends.get(key, 0), message.offset)
        self.output[key] = self.output.get(key, b"") + message.data[end - message.offset :]
        self._ends[key] = max(end, message.offset + len(message.data))
        await self._wake()
        return LogOffset(offset=self._ends[key])

    async def metrics(self, message: MetricChunk) -> LogOffset:
        if not self.takes_metrics:
            raise StoreError("full")
        await self.answers_metrics.wait()
        key = message.job, message.attempt
        kept = self.metric_lines.get(key, b"")
        self.metric_lines[key] = kept + message.data[len(kept) - message.offset :]
        await self._wake()
        return LogOffset(offset=len(self.metric_lines[key]))

    async def watch(self, message: WatchRequest) -> AsyncGenerator[Orders, None]:
        sent = -1
        while True:
            async with self._changed:
                while self.orders.seq <= sent:
                    await self._changed.wait()
            sent = self.orders.seq
            yield self.orders


def job(number: int = 1, attempt: int = 1, **changes: Any) -> Assignment:
    """A job of one rank on device 0 that trains until it is told to stop."""
    given: dict[str, Any] = {
        "job": number,
        "attempt": attempt,
        "command": (sys.executable, str(RANK)),
        "env": {},
        "cwd": "",
        "checkpoint_dir": "",
        "ranks": (Rank(rank=0, devices=(0,)),),
        "world_size": 1,
        "total_steps": 1_000_000,
        "grace_s": 10.0,
    }
    return Assignment(**(given | changes))


def plain(number: int, *command: str, **changes: Any) -> Assignment:
    """A job without iterator."""
    return job(number, command=command, unmanaged=True, **changes)


class RunningAgent:
    """An agent as a user starts it."""

    def __init__(self, server: Server, state: Path, *more: str) -> None:
        self.state = state
        token = state.with_name(f"{state.name}.token")
        token.touch(mode=0o600)
        token.write_text(TOKEN + "\n")
        command = f"--server {server.address} --node n1 --state {state} --token-file {token}"
        self._arguments = [*command.split(), "--host", "127.0.0.1"]
        self._arguments += [*(() if "--devices" in more else ("--devices", "v100=2")), *more]
        self._arguments += ["--simulated-devices"]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def spawner(self) -> psutil.Process:
        return _running(psutil.Process(self.pid).children(), "fairlead.cluster.agent.spawner")

    @property
    def warden(self) -> psutil.Process:
        return _running(self.spawner.children(), "fairlead.cluster.agent.warden")

    @property
    def own(self) -> set[int]:
        """Pids of all that belongs to the agent when no job runs."""
        return {self.pid, self.spawner.pid, self.warden.pid}

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, "agent", "--inside-job", *self._arguments],
            env=os.environ | {"AGENT_SECRET": "never shown"},
            start_new_session=True,
        )

    async def wait(self) -> int:
        assert self.process is not None
        async with asyncio.timeout(WAIT_S):
            while (code := self.process.poll()) is None:
                await asyncio.sleep(0.02)
        return code

    async def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.wait()


@contextlib.asynccontextmanager
async def cluster(
    state: Path, *more: str, lease_s: float = 60.0, largest: int = MAX_MESSAGE_BYTES
) -> AsyncIterator[tuple[Server, RunningAgent]]:
    """A server with one agent; nothing of it is left afterwards."""
    async with Server(lease_s, largest) as server:
        agent = RunningAgent(server, state, *more)
        agent.start()
        try:
            await server.until(lambda: server.registered)
            yield server, agent
        finally:
            await agent.stop()
            assert await gone(lambda: not processes_of(state))


def _running(processes: list[psutil.Process], module: str) -> psutil.Process:
    """The one that runs a module. Raises psutil.NoSuchProcess where none does, or it has just ended."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if module in process.cmdline():
                return process
    raise psutil.NoSuchProcess(0, msg=f"no {module}")


def processes_of(state: Path) -> list[psutil.Process]:
    """All living processes that name the state directory in their command or their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            told = [*process.cmdline(), *process.environ().values()]
            if any(str(state) in text for text in told):
                found.append(process)
    return found


def kill_with_spawner(agent: RunningAgent) -> None:
    """Both at once, so that neither sees the other die: the warden acts."""
    spawner = agent.spawner
    os.kill(spawner.pid, signal.SIGSTOP)
    os.kill(agent.pid, signal.SIGKILL)
    os.kill(spawner.pid, signal.SIGKILL)


def lives(process: psutil.Process) -> bool:
    """Whether it has not ended; a zombie has."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


async def gone(done: Callable[[], bool]) -> bool:
    """Is it so within a while?"""
    deadline = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True
