"""`fairlead serve`: one process for agents (gRPC) and people (HTTP), and the driver's thread."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from fairlead.errors import ConfigError
from fairlead.live.access import Caller
from fairlead.live.engine import LiveOptions
from fairlead.live.http import create_app
from fairlead.live.protocol import (
    LogChunk,
    LogWanted,
    Orders,
    Register,
    Report,
    WatchRequest,
    Welcome,
)
from fairlead.live.service import Service
from fairlead.live.transport import AgentServer, Tls
from fairlead.live.web import add_pages

SWITCH_S = 0.0001
YOUNG = 5_000  # new objects that are searched for cycles at once
GARBAGE_S = 600.0  # between two searches of all
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens. Port 0: any that is free."""

    host: str = "127.0.0.1"
    http_port: int = 8470
    agent_port: int = 8471
    tls: Tls | None = None
    open_metrics: bool = False
    new_tokens: bool = False


class Server:
    """A running server, on the event loop that it was started on."""

    def __init__(self, directory: Path, options: LiveOptions, listening: Listening) -> None:
        self.service = Service(directory, options)
        self.listening = listening
        self.directory = directory
        self.agents = AgentServer(
            _Agents(self.service), listening.host, listening.agent_port, listening.tls
        )
        self.url = ""
        self.new_tokens: dict[str, str] = {}  # user -> token, of the very first start
        self._http: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None

    async def start(self) -> None:
        """Recover, drive and listen."""
        loop = asyncio.get_running_loop()
        handler = self.agents.handler
        assert isinstance(handler, _Agents)
        self.service.engine.fleet.wake = lambda names: _soon(loop, handler.woken, names)
        self.service.engine.courtesy.post = lambda do: _soon(loop, do)
        self.service.engine.failed = lambda problem: _soon(loop, self._fail, problem)
        await loop.run_in_executor(None, self.service.start)
        try:
            await self.agents.start()
            await self._listen_http()
            self.new_tokens = await loop.run_in_executor(
                None, self.service.first_tokens, self.listening.new_tokens
            )
        except BaseException:
            await self.stop()
            raise

    async def _listen_http(self) -> None:
        where = self.listening
        app = create_app(self.service, self.service.counters, open_metrics=where.open_metrics)
        add_pages(app, self.service)
        config = uvicorn.Config(
            app,
            host=where.host,
            port=where.http_port,
            log_level="error",
            access_log=False,
            server_header=False,
            ssl_keyfile=None if where.tls is None else str(where.tls.key),
            ssl_certfile=None if where.tls is None else str(where.tls.certificate),
            timeout_graceful_shutdown=2,
        )
        self._http = _Uvicorn(config)
        sock = _bind(where.host, where.http_port)
        port = sock.getsockname()[1]
        self.url = f"http{'s' if where.tls else ''}://{where.host}:{port}"
        self._serving = asyncio.get_running_loop().create_task(self._http.serve(sockets=[sock]))
        while not self._http.started:
            if self._serving.done():
                raise ConfigError(f"{where.host}:{port}: the HTTP server did not start")
            await asyncio.sleep(0.01)

    def _fail(self, problem: BaseException) -> None:
        self.failure = problem
        self.ended.set()

    async def stop(self) -> None:
        """Stop listening, commit, and let go of the state directory. Jobs go on under their agents."""
        if self._http is not None and self._serving is not None:
            self._http.should_exit = True
            await self._serving
        await self.agents.stop(0.5)
        await asyncio.get_running_loop().run_in_executor(None, self.service.stop)


async def serve(
    directory: Path,
    options: LiveOptions,
    listening: Listening,
    ready: Callable[[Server], None],
) -> None:
    """Run a server until SIGTERM or SIGINT, or until it cannot go on (that problem is raised)."""
    server = Server(directory, options, listening)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.ended.set)
    await server.start()
    _tune()
    garbage = loop.create_task(_collect_garbage())
    try:
        ready(server)
        if server.new_tokens:
            await loop.run_in_executor(None, server.service.tokens_are_told)
        await server.ended.wait()
    finally:
        garbage.cancel()
        await server.stop()
    if server.failure is not None:
        raise server.failure


def _tune() -> None:
    """Leases are renewed beside whatever the driver's thread computes: it lets go of the interpreter fifty
    times as often as usual. The search for cycles among all objects, which holds up everything for 0.1 s
    where there are 20,000 jobs, comes at its own times instead of several in a round."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()  # what was imported
    gc.set_threshold(YOUNG, 10, 1_000_000)


async def _collect_garbage() -> None:
    while True:
        await asyncio.sleep(GARBAGE_S)
        gc.collect()


class _Agents:
    """The handler of agents' calls, on the event loop."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._watchers: dict[str, set[asyncio.Event]] = {}

    def authenticate(self, token: str) -> Caller | None:
        return self.service.authenticate(token)

    async def register(self, message: Register) -> Welcome:
        return await asyncio.wrap_future(self.service.register(message))

    async def report(self, message: Report) -> Orders:
        return self.service.report(message)

    async def log(self, message: LogChunk) -> LogWanted:
        return self.service.log_chunk(message)

    async def watch(self, message: WatchRequest) -> AsyncGenerator[Orders, None]:
        event = asyncio.Event()
        watchers = self._watchers.setdefault(message.node, set())
        watchers.add(event)
        try:
            sent = -1
            while True:
                event.clear()
                orders = self.service.engine.fleet.orders(message.node, message.incarnation)
                if orders.seq > sent:
                    sent = orders.seq
                    yield orders
                else:
                    await event.wait()
        finally:
            watchers.discard(event)
            if not watchers:
                self._watchers.pop(message.node, None)

    def woken(self, names: list[str]) -> None:
        """Orders of these nodes are new."""
        for name in names:
            for event in self._watchers.get(name, ()):
                event.set()


class _Uvicorn(uvicorn.Server):
    """Signals are the caller's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


def _soon(loop: asyncio.AbstractEventLoop, do: Callable[..., None], *given: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended: there is nobody to tell
        loop.call_soon_threadsafe(do, *given)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as problem:
        sock.close()
        raise ConfigError(f"{host}:{port}: cannot listen there ({problem.strerror})") from None
    return sock
