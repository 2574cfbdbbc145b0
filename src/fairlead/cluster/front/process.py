"""The front's process: an event loop for agents (gRPC), people (HTTP) and the driver (a socket)."""

import asyncio
import contextlib
import gc
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, cast

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from fairlead.cluster.front.audit import AuditTrail, audited
from fairlead.cluster.front.audit_writer import AuditWriter
from fairlead.cluster.front.broken_requests import BrokenRequests
from fairlead.cluster.front.http_app import create_app
from fairlead.cluster.front.leases import LeaseTable
from fairlead.cluster.front.logs import LogService
from fairlead.cluster.front.messages import (
    CallAnswer,
    Configure,
    EnrolledNodes,
    FrontFrames,
    FrontListening,
    FrontRefused,
    LossQuery,
    NodeRemoved,
    PublishedNode,
    PublishedNodeView,
    PublishedOrders,
    PublishedPosition,
    PublishedSettings,
    PublishedStatus,
    Reported,
    SchedulingHalted,
    StopFront,
    ToDriver,
    ToFront,
    UserList,
)
from fairlead.cluster.front.metrics import FrontCounters
from fairlead.cluster.front.order_pusher import OrderPusher
from fairlead.cluster.front.outbox import Outbox
from fairlead.cluster.front.relay import REGISTER
from fairlead.cluster.front.remote import (
    DriverCalls,
    RemoteFacade,
    facade_of,
)
from fairlead.cluster.front.request_timeout import FrontLoop, TimedH11Protocol
from fairlead.cluster.front.transport import AgentServer, Tls
from fairlead.cluster.front.web import add_pages
from fairlead.cluster.log_lines import log_with_times
from fairlead.cluster.protocol.access import Caller, TokenKind
from fairlead.cluster.protocol.messages import (
    LogChunk,
    LogOffset,
    MetricChunk,
    NodeReport,
    Orders,
    Register,
    WatchRequest,
    Welcome,
)
from fairlead.cluster.store.audit_log import AuditLog
from fairlead.errors import FairleadError

SWITCH_S = (
    0.0005  # requests of people are answered on other threads: leases shall not wait for them
)
# Thresholds of the search for cyclic garbage. What a call leaves is found while it is young; to look at all
# that is known of 5,000 nodes takes a quarter of a second, in which no lease is renewed, and finds nothing.
COLLECT = (1_000, 20, 10_000)
TICK_S = 0.25
# Connections that are accepted before anything else has its turn: a storm of them must not keep leases from
# being renewed
_ACCEPTED_AT_ONCE = 32
_WAITING = 2048  # connections that wait for that
MAX_HEADERS = 1 << 15  # bytes of the head of a request
CHUNK = 1 << 18  # bytes that are sent at once
GATHER_S = 0.01  # between two times that reports are passed on
REGISTER_S = 60.0  # for the driver to make a registration durable
_decoder = msgspec.msgpack.Decoder(ToFront)
_log = logging.getLogger(__name__)


def run(fd: int) -> None:
    """Run the front until the driver ends it or itself. fd: of the socket to the driver."""
    log_with_times(logging.WARNING)
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()  # what was imported
    gc.set_threshold(*COLLECT)
    with asyncio.Runner(loop_factory=FrontLoop) as runner:
        runner.run(_run(socket.socket(fileno=fd)))


async def _run(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    link = FrontLink(loop)
    await loop.create_unix_connection(lambda: link, sock=sock)
    configure = await link.first
    front = Front(configure, link)
    link.take = front.take
    try:
        await front.start()
    except FairleadError as problem:
        link.send(FrontRefused(sentence=str(problem)))
        link.flush()
    else:
        await front.serve()
    link.close()
    await link.ended


class FrontLink(asyncio.Protocol):
    """The front's end of the socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.first: asyncio.Future[Configure] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._backlog: list[Any] = []
        self._take: Any = None
        self._frames = FrontFrames()
        self._outbox = Outbox()
        self._paused = False
        self._scheduled: asyncio.Handle | None = None
        self._flushed = 0.0  # when, by the loop's clock
        self._transport: asyncio.Transport | None = None

    @property
    def take(self) -> Any:
        """Given what the driver says, once it is set."""
        return self._take

    @take.setter
    def take(self, take: Any) -> None:
        self._take = take
        for message in self._backlog:
            take(message)
        self._backlog.clear()

    def send(self, message: ToDriver) -> None:
        """To the driver, from the event loop's thread. Reports that follow each other closely go together: to
        wake the driver for each costs both as much as the report itself."""
        self._outbox.put(message)
        if not isinstance(message, Reported):
            self._schedule(0.0)
        elif self._scheduled is None:
            self._schedule(self._flushed + GATHER_S)

    def _schedule(self, at: float) -> None:
        if self._scheduled is not None:
            self._scheduled.cancel()
        self._scheduled = self._loop.call_at(at, self.flush)

    def send_from_thread(self, message: ToDriver) -> None:
        """Send to the driver, from another thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.send, message)

    def flush(self) -> None:
        """Send what waits, unless the driver stands still: then its newest states wait here."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        self._flushed = self._loop.time()
        while not self._paused and self._transport and (data := self._outbox.take(CHUNK)):
            self._transport.write(data)

    def close(self) -> None:
        """Send the rest, and end."""
        if self._transport is not None:
            self._transport.close()

    # --- of asyncio.Protocol -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=CHUNK)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Something arrived."""
        for body in self._frames.feed(data):
            message = _decoder.decode(body)
            if isinstance(message, Configure):
                self.first.set_result(message)
            elif self._take is None:
                self._backlog.append(message)
            else:
                self._take(message)

    def pause_writing(self) -> None:
        """The driver does not read."""
        self._paused = True

    def resume_writing(self) -> None:
        """It reads again."""
        self._paused = False
        self.flush()

    def connection_lost(self, _problem: Exception | None) -> None:
        """The driver has ended, or this side has closed. Without a driver there is nothing to serve."""
        self._transport = None
        if not self.ended.done():
            self.ended.set_result(None)
        if self._take is not None or not self.first.done():
            os._exit(0 if self.first.done() else 1)


class Front:
    """All parts of the front, on its event loop."""

    def __init__(self, configure: Configure, link: FrontLink) -> None:
        self._configure = configure
        self._link = link
        self._table = LeaseTable(
            configure.lease_s,
            configure.rate_bound,
            time.monotonic,
            link.send,
            configure.heartbeat_s,
        )
        self._pushing = OrderPusher(self._table)
        self._table.on_orders = self._pushing.notify
        self._table.is_pushing = self._pushing.is_under_way
        self._calls = DriverCalls(link.send_from_thread)
        self._logs = LogService(Path(configure.directory))
        self._facade = RemoteFacade(self._calls, self._logs, Path(configure.directory), self._table)
        self._counters = FrontCounters()
        self._table.followed_s = self._counters.orders_seconds.observe
        writer = AuditWriter(AuditLog(Path(configure.directory), configure.audit))
        self._trail = AuditTrail(self._make_app(writer), writer)
        self._agents = AgentServer(
            self,
            configure.host,
            configure.agent_port,
            _tls_of(configure),
            audit=self._trail.note_agent,
        )
        self._knows_users = asyncio.Event()
        self._ended = asyncio.Event()

    async def start(self) -> None:
        """Listen, once the driver has said who may call: an agent whose token is not known ends. Raises
        ConfigError where that is not possible."""
        await self._knows_users.wait()
        await self._agents.start()
        self._http = self._make_http()
        sock = socket.socket(fileno=self._configure.http_fd)
        self._serving = asyncio.get_running_loop().create_task(self._http.serve(sockets=[sock]))
        while not self._http.started:
            if self._serving.done():
                raise FairleadError("the HTTP server did not start")
            await asyncio.sleep(0.01)
        sock.listen(_WAITING)  # which uvicorn has set to what it accepts at once
        self._link.send(FrontListening(agent_port=self._agents.port))

    def _make_app(self, writer: AuditWriter) -> ASGIApp:
        configure, facade = self._configure, audited(facade_of(self._facade), writer)
        app = create_app(
            facade,
            self._counters,
            more_metrics=self._facade.driver_metrics,
            open_metrics=configure.open_metrics,
        )
        add_pages(app, facade, configure.policies)
        trusted = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")  # uvicorn's own default
        # the types of uvicorn and Starlette say the same in other words
        return cast(ASGIApp, ProxyHeadersMiddleware(cast(Any, app), trusted_hosts=trusted))

    def _make_http(self) -> uvicorn.Server:
        configure = self._configure
        logging.getLogger("uvicorn.error").addFilter(BrokenRequests())
        return _Uvicorn(
            uvicorn.Config(
                self._trail,
                http=TimedH11Protocol,
                h11_max_incomplete_event_size=MAX_HEADERS,
                proxy_headers=False,  # within ``self._trail``
                backlog=_ACCEPTED_AT_ONCE,
                log_level="error",
                access_log=False,
                server_header=False,
                ssl_keyfile=configure.tls_key or None,
                ssl_certfile=configure.tls_certificate or None,
                timeout_graceful_shutdown=2,
            )
        )

    async def serve(self) -> None:
        """Serve until the driver says that it ends."""
        ticking = asyncio.get_running_loop().create_task(self._tick())
        await self._ended.wait()
        ticking.cancel()
        self._http.should_exit = True
        await self._serving
        await self._agents.stop(0.5)
        self._trail.writer.close()
        self._logs.close()
        self._facade.job_metrics.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._table.poll()
            self._pushing.tick()
            self._trail.tick()

    def take(self, message: Any) -> None:
        """Apply a message of the driver."""
        tokens = self._facade.tokens
        match message:
            case PublishedNode():
                tokens.set_node(message.node, message.token_hash, revoked=message.revoked)
                renewal = self._table.publish(message)
                if renewal is not None:
                    self._link.send(renewal)
            case NodeRemoved():
                tokens.remove_node(message.node)
                self._table.remove(message)
            case PublishedPosition():
                tokens.set_commit(message.position.commit)
                self._table.move(message)
            case SchedulingHalted():
                self._table.halt(message)
            case LossQuery():
                answer = self._table.ask_loss(message)
                if answer is not None:
                    self._link.send(answer)
            case CallAnswer():
                self._calls.answer(message)
            case PublishedStatus() | PublishedNodeView():
                self._facade.shown.take(message)
            case EnrolledNodes():
                for row in message.rows:
                    tokens.set_node(row.name, row.token_hash, revoked=row.revoked)
            case UserList():
                tokens.set_users(message.rows)
                tokens.set_key(message.node_key)
                self._knows_users.set()
            case PublishedSettings():
                self._facade.prices = message.prices
                self._logs.limit.most = message.tenant_output_bytes
                logging.getLogger().setLevel(message.log_level.upper())
            case StopFront():
                self._ended.set()

    # --- transport.AgentHandler ----------------------------------------------------------------------

    def authenticate(self, token: str) -> Caller | None:
        """Return the caller with this token; None if there is none."""
        return self._facade.tokens.find_agent(token)

    def needs_own_token(self, node: str) -> bool:
        """Return whether a node has to come with a token of its own. A server that has halted, because its
        state is older than what nodes know, may not have the newest ones: it lets all go on."""
        return not self._table.halted and self._facade.tokens.is_enrolled(node)

    async def register(self, message: Register, *, token: TokenKind) -> Welcome:
        """A node comes up: the driver decides, and makes it durable."""
        contested = self._table.begin_contest(message)
        number, future = self._calls.begin(REGISTER, message, token)
        try:
            async with asyncio.timeout(REGISTER_S):
                welcome: Welcome = await asyncio.wrap_future(future)
            return self._as_it_is(welcome)
        finally:
            self._calls.forget(number)
            if contested:
                self._table.end_contest(message.node)

    def _as_it_is(self, welcome: Welcome) -> Welcome:
        """The driver may have halted since it answered."""
        if not self._table.halted:
            return welcome
        table = self._table
        orders = Orders(seq=0, desired=(), halted=table.halted, halted_run=table.halted_run)
        return msgspec.structs.replace(welcome, orders=orders)

    async def report(self, message: NodeReport) -> PublishedOrders:
        """Take over what a node reports, and return its orders."""
        began = time.perf_counter()
        orders = self._table.report(message)
        self._facade.usage_history.note(message.node, message.holds)
        if (node := self._table.nodes.get(message.node)) is not None:
            self._pushing.reported(node)
        self._counters.lease_renewals.inc(len(orders.leases))
        self._counters.lease_renewal_seconds.observe(time.perf_counter() - began)
        return msgspec.structs.replace(orders, wall_s=time.time())

    def watch(self, message: WatchRequest) -> AsyncGenerator[PublishedOrders, None]:
        """Orders as they change."""
        return self._pushing.watch(message)

    async def log(self, message: LogChunk) -> LogOffset:
        """Output of a rank."""
        return await self._logs.put(message)

    async def metrics(self, message: MetricChunk) -> LogOffset:
        """Metrics of an attempt."""
        return await self._facade.job_metrics.put(message)


class _Uvicorn(uvicorn.Server):
    """Signals are the parent's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


def _tls_of(configure: Configure) -> Tls | None:
    if not configure.tls_key:
        return None
    return Tls(Path(configure.tls_key), Path(configure.tls_certificate))
