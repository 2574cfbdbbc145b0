"""`fairlead serve`: the driver's process, which starts the front for agents (gRPC) and people (HTTP)."""

import asyncio
import contextlib
import gc
import logging
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.cluster.end_signals import EndSignals
from fairlead.cluster.front.messages import Configure, EnrolledNodes, PublishedSettings, UserList
from fairlead.cluster.front.relay import CallService
from fairlead.cluster.front.transport import Tls
from fairlead.cluster.log_lines import log_with_times
from fairlead.cluster.server.durable_answers import WrittenJobs
from fairlead.cluster.server.front_supervisor import FrontSupervisor
from fairlead.cluster.server.notice_source import ServiceNotices
from fairlead.cluster.server.options import LiveOptions
from fairlead.cluster.server.runtime_options import Reread, RuntimeOptions, set_log_level
from fairlead.cluster.server.runtime_reload import RuntimeReload
from fairlead.cluster.server.scaled_cluster import autoscaler_of
from fairlead.cluster.server.service import Service
from fairlead.cluster.server.webhook import WebhookSender
from fairlead.cluster.store.audit_log import DEFAULT_LIMITS, AuditLimits, AuditLog, local_entry
from fairlead.cluster.store.rows import NodeRow, UserRow
from fairlead.cluster.store.tokens import read_node_key
from fairlead.errors import ConfigError, StoreError
from fairlead.policies import registry

SWITCH_S = 0.001  # the driver shares the interpreter with questions, and lets go of it at every row it writes
BACKLOG = 2048
COLLECT = (50_000, 20, 20)  # thresholds of the search for cyclic garbage


FREE_TRIES, FREE_POLL_S = 20, 0.1  # looks at a port that is to be free, and seconds between two
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """Addresses on which a server listens. Port 0: any that is free."""

    host: str = "127.0.0.1"
    http_port: int = 8470
    agent_port: int = 8471
    tls: Tls | None = None
    open_metrics: bool = False
    new_tokens: bool = False
    users: Mapping[str, str] = field(
        default_factory=dict
    )  # user -> tenant, of who shall have a token
    audit: AuditLimits = DEFAULT_LIMITS


class Server:
    """A running server, on the event loop that it was started on."""

    def __init__(
        self,
        directory: Path,
        options: LiveOptions,
        listening: Listening,
        reread: Reread | None = None,
    ) -> None:
        """reread: reads the configuration file again, None = there is none."""
        self.runtime = RuntimeReload(directory, options.runtime, reread, self._take_over)
        self.service = Service(
            directory,
            options,
            users_changed=self._send_users,
            nodes_known=self._send_nodes,
            send_to_front=self._send_to_front,
            failed=self._fail_soon,
            reload=self.runtime.reload,
        )
        self.listening = listening
        self.directory = directory
        parts = self.service.engine.parts
        self.call_service = CallService(
            self.service,
            self._send_to_front,
            wait=parts.precedence.wait,
            wait_until_written=WrittenJobs(
                self.service.engine.state, lambda: parts.inbox.is_idle
            ).wait,
        )
        self.front = FrontSupervisor(
            directory, self.service.engine.state.fleet, self.call_service.take
        )
        self.webhook = _sender(self.service)
        self.engine = options.engine
        self.url = ""
        self.agent_address = ""
        self.new_tokens: dict[str, str] = {}  # user -> token, of users that this start has added
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None
        self._http: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self, accepted: Callable[[], None] = lambda: None) -> None:
        """Recover, drive and listen. accepted: called once ports and state directory are ours, before what
        takes long."""
        loop = self._loop = asyncio.get_running_loop()
        service, where = self.service, self.listening
        self._http = _bind(where.host, where.http_port)
        try:
            await _check_free(where.host, where.agent_port)
        except BaseException:
            self._http.close()
            raise
        self.front.prepare(self._http)  # it gets ready while this process recovers
        try:
            await loop.run_in_executor(None, service.start, accepted)
        except BaseException:
            await self._stop_front()
            raise
        self.runtime.apply()
        try:
            # Before the front listens: whoever comes with one of them is known.
            self.new_tokens = await loop.run_in_executor(None, self._first_tokens)
            port = await asyncio.wrap_future(self.front.begin(self._configure(self._http)))
            if self.webhook is not None:
                self.webhook.start()
        except BaseException:
            await self.stop()
            raise
        scheme = "https" if where.tls else "http"
        self.url = f"{scheme}://{_address(where.host, self._http.getsockname()[1])}"
        self.agent_address = _address(where.host, port)

    def _first_tokens(self) -> dict[str, str]:
        """The tokens that nobody has yet, which the audit log then tells of: it is whoever started the server
        that gets them."""
        accounts = self.service.accounts
        for sentence in accounts.of_other_tenants(self.listening.users):
            _log.warning(sentence)
        tokens = accounts.first_tokens(self.listening.new_tokens)
        tokens |= accounts.missing_tokens(self.listening.users)
        log = AuditLog(self.directory, self.listening.audit)
        entries = [local_entry("add_user", f"user {user}") for user in tokens]
        if entries:
            log.append(entries)
        try:
            log.check()
        except StoreError as problem:
            _log.warning("%s: whatever is asked to be changed is refused until it can", problem)
        return tokens

    def _configure(self, http: socket.socket) -> Configure:
        where, options = self.listening, self.service.engine.state.options
        return Configure(
            directory=str(self.directory),
            host=where.host,
            agent_port=where.agent_port,
            http_fd=http.fileno(),
            tls_key="" if where.tls is None else str(where.tls.key),
            tls_certificate="" if where.tls is None else str(where.tls.certificate),
            open_metrics=where.open_metrics,
            lease_s=options.lease_s,
            rate_bound=options.rate_bound,
            heartbeat_s=options.heartbeat_s,
            policies=tuple(entry.name for entry in registry.describe()),
            audit=where.audit,
        )

    def _take_over(self, runtime: RuntimeOptions) -> None:
        """These options hold from now on."""
        set_log_level(runtime.log_level)
        self.service.take_over(runtime)
        self.front.send(
            PublishedSettings(
                prices=runtime.prices,
                log_level=runtime.log_level,
                tenant_output_bytes=runtime.tenant_output_bytes,
            )
        )

    def _send_to_front(self, message: object) -> None:
        self.front.send(message)  # type: ignore[arg-type]

    def _send_users(self, rows: list[UserRow]) -> None:
        key = read_node_key(self.service.store)
        self.front.send(UserList(rows=tuple(rows), node_key=key))

    def _send_nodes(self, rows: list[NodeRow]) -> None:
        self.front.send(EnrolledNodes(rows=tuple(rows)))

    def _fail_soon(self, problem: BaseException) -> None:
        """The driver cannot go on (its thread)."""
        if self._loop is not None:
            _call_soon(self._loop, self._fail, problem)

    def _fail(self, problem: BaseException) -> None:
        self.failure = problem
        self.ended.set()

    def start_engine(self) -> None:
        """Begin to ask the engine for nodes, if there is one: once the tokens are written."""
        if self.engine is not None:
            self.service.autoscaler = autoscaler_of(
                self.engine, self.service, self.directory, self.agent_address
            )
            self.service.autoscaler.start()

    async def stop(self) -> None:
        """Stop listening, commit, and let go of the state directory. Jobs go on under their agents."""
        if self.service.autoscaler is not None:
            await asyncio.get_running_loop().run_in_executor(None, self.service.autoscaler.close)
        await self._stop_front()
        loop = asyncio.get_running_loop()
        if self.webhook is not None:
            await loop.run_in_executor(None, self.webhook.close)
        await loop.run_in_executor(None, self.service.stop)
        self.call_service.close()

    async def _stop_front(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.front.stop)
        if self._http is not None:
            self._http.close()


def _sender(service: Service) -> WebhookSender | None:
    webhook, notices = (
        service.engine.state.options.webhook,
        service.engine.parts.attempts.notices,
    )
    if webhook is None or notices is None:
        return None
    return WebhookSender(webhook, ServiceNotices(service, notices))


async def serve(
    directory: Path,
    options: LiveOptions,
    listening: Listening,
    ready: Callable[[Server], None],
    accepted: Callable[[], None] = lambda: None,
    reread: Reread | None = None,
) -> None:
    """Run a server until SIGTERM, SIGINT or SIGHUP, or until it cannot go on (that problem is raised).
    accepted: as of ``Server.start``. reread: reads its configuration file again, which SIGHUP asks for then;
    None = there is none."""
    log_with_times(logging.WARNING)
    sys.setswitchinterval(SWITCH_S)
    server = Server(directory, options, listening, reread)
    with EndSignals(server.ended.set):
        if reread is not None:
            server.runtime.heed_hangup(asyncio.get_running_loop())
        await server.start(accepted)
        freeze_garbage()
        try:
            ready(server)
            if server.new_tokens:
                loop = asyncio.get_running_loop()
                delivered = server.service.accounts.tokens_delivered
                await loop.run_in_executor(None, delivered, list(server.new_tokens))
            server.start_engine()
            await server.ended.wait()
        finally:
            await server.stop()
    if server.failure is not None:
        raise server.failure


def freeze_garbage() -> None:
    """Freeze what has been loaded, and look for cyclic garbage seldom. Little of what comes is cyclic:
    looking for that in all jobs and starts, as often as Python does, took a tenth of a round."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def _call_soon(loop: asyncio.AbstractEventLoop, do: Callable[..., None], *given: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended: there is nobody to tell
        loop.call_soon_threadsafe(do, *given)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)  # who comes while the front is started anew waits
    except OSError as problem:
        sock.close()
        raise ConfigError(f"{host}:{port}: cannot listen there ({problem.strerror})") from None
    return sock


async def _check_free(host: str, port: int) -> None:
    """Raises ConfigError where another process has a port that the front shall listen on. The front of a
    server that was killed may have it for a moment longer."""
    for left in reversed(range(FREE_TRIES)):
        try:
            _bind(host, port).close()
            return
        except ConfigError:
            if not left:
                raise
        await asyncio.sleep(FREE_POLL_S)
