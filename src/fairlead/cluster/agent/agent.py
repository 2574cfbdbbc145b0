"""The agent: it registers its node, reports what it holds, and follows its orders."""

import asyncio
import contextlib
import logging
import random
import secrets
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import fairlead
from fairlead.cluster.agent import locks
from fairlead.cluster.agent.client_files import offer_client
from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.health import (
    CheckResult,
    HealthChecks,
    HealthOptions,
    HealthReport,
    try_start,
)
from fairlead.cluster.agent.heartbeat import until_heartbeat_s
from fairlead.cluster.agent.launch import LaunchSite, logs_path
from fairlead.cluster.agent.logs import Logs
from fairlead.cluster.agent.machine import (
    AgentFiles,
    machine_identity,
    record_of,
    remove_old,
)
from fairlead.cluster.agent.node import NodeController
from fairlead.cluster.agent.rank_failures import one_line
from fairlead.cluster.agent.rank_server import RankServer
from fairlead.cluster.agent.runtimes import agents_environment
from fairlead.cluster.agent.server_client import (
    AgentClient,
    MalformedError,
    RefusedError,
    RegisterAgainError,
    ServerUnreachableError,
    TooLargeError,
)
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_watch import SpawnerWatch
from fairlead.cluster.agent.state_directory import identity_of, take_state
from fairlead.cluster.agent.untrusted_files import make_folder
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    NodeReport,
    Orders,
    Register,
    StartCheck,
    WatchRequest,
    Welcome,
)
from fairlead.cluster.protocol.runtime import Runtime
from fairlead.errors import FairleadError

_LOGS_S = 0.5  # between looks at the output of ranks
_TELL_S = 2.0  # for the server to take output; files may grow meanwhile
_TICK_S = 0.1  # between looks at the leases
_PULSE_S = 1.0  # between looks whether the spawner answers
_PROGRESS_S = 1.0  # between looks at what jobs without the iterator say of their progress
_EXTRA_S = 15.0  # beyond the grace of jobs, for the spawner to bury them
_GAP_S = 0.003  # between reports: what changes meanwhile is told in one
_TOUCH_S = 3600.0  # between marks that the files on this machine are in use
_TOLD = 64  # incarnations of earlier agents that the server is told of
_FAREWELL_S = 2.0  # for the last report

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentOptions:
    """How an agent runs."""

    server: str  # host:port
    node: str
    devices: NodeDevices
    state: Path
    token: str = ""
    ca: Path | None = None
    host: str = "127.0.0.1"  # where ranks of other nodes reach this one's
    prefork: str = ""  # modules, comma-separated
    health: HealthOptions = field(default_factory=HealthOptions)


class Agent:
    """``run`` until a signal comes."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._incarnation = ""  # of the state directory, and of this run
        self._client = AgentClient(
            options.server, options.token, options.ca, devices=len(options.devices.indices)
        )
        self._spawner = SpawnerLink(options.state, options.prefork, options.devices)
        self._record: AgentFiles | None = None  # of this run, on this machine
        self._logs = Logs(options.state)
        self._node = NodeController(self._spawner, self._logs, self._wake, self.ask)
        self._spawner_watch = SpawnerWatch(self._spawner, options.state, self._wake)
        self._ranks = RankServer(options.state, self._node)
        self._health = HealthChecks(
            options.health,
            options.devices,
            self._folders,
            self._node.troubles,
            of_jobs=self._node.checkpoint_directories,
            tell_jobs=self._node.tell_directories,
        )
        self._check = CheckResult()
        self._trial: asyncio.Task[None] | None = None  # the test start under way
        self._checking = 0  # number of the newest test start that was begun
        self._seq = 0
        self._phase = random.random()  # of its heartbeats
        self._heartbeat_at = 0.0  # monotonic seconds of the next
        self._news = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []  # for the answer to the next report
        self._heartbeat_s = 1.0
        self._gap_s = (
            0.0  # between reports, unless there are new orders or somebody waits for an answer
        )
        self._urgent = asyncio.Event()
        self._signals = 0
        self._leave = asyncio.Event()
        self._leaving = False  # all jobs have ended, and the server is to know that it ends
        self._registered = asyncio.Event()

    def _folders(self) -> set[Path]:
        """Where starts need room; what stands in place of the output's is put aside, as a start would do."""
        state, output = self._options.state, logs_path(self._options.state)
        with contextlib.suppress(OSError):
            make_folder(output)
        starts = set() if self._record is None else {state / "starts", self._record.starts}
        return {state, output} | starts

    async def run(self) -> None:
        """Raises RefusedError where the server will not have this agent, ConfigError where another agent
        has the state directory."""
        lock = take_state(self._options.state)
        self._incarnation = f"{identity_of(self._options.state)}.{secrets.token_hex(8)}"
        self._node.run = self._incarnation
        record = record_of(self._options.node, self._options.server, self._incarnation)
        mine = record.make()
        self._record = self._spawner.record = record
        try:
            self._spawner.adopt()
            await self._spawner.start()
            survivors = await self._spawner.ready()
            if survivors:
                _log.warning("ended %d process(es) that an earlier agent left behind", survivors)
            await self._ranks.open()
            await self._serve()
        finally:
            await self._ranks.close()
            await self._spawner.close()
            record.forget()
            locks.release([mine, lock])

    async def _serve(self) -> None:
        options = self._options
        self._node.ranks = self._ranks
        self._node.place = LaunchSite(
            state=options.state,
            host=options.host,
            socket_path=self._ranks.path,
            devices=options.devices,
            client=str(offer_client(options.state)),
        )
        self._logs.remove_old()
        self._watch_signals()
        tasks: list[asyncio.Task[None]] = []
        try:
            async with self._client:
                loops = (
                    self._talk(),
                    self._watch(),
                    self._tell_logs(),
                    self._watch_leases(),
                    self._watch_spawner(),
                    self._watch_progress(),
                    self._touch_record(),
                    self._health.run(self._wake),
                    self._spawner.listen(self._node.hear_spawner, self._node.lose_spawner),
                    self._leave.wait(),
                )
                tasks = [asyncio.ensure_future(loop) for loop in loops]  # type: ignore[arg-type]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    await self._end_all()
                    await self._farewell()
                    for task in tasks:
                        if task.done():
                            task.result()
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._unwatch_signals()

    # --- the server ------------------------------------------------------------------------------
    def _wake(self) -> None:
        self._news.set()

    async def ask(self) -> None:
        """Report at once, and wait for the answer."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self._urgent.set()
        self._wake()
        await answered

    async def _talk(self) -> None:
        """Register and report, for ever."""
        patience = _Patience()
        while True:
            try:
                await self._register()
                patience.reset()
                while True:
                    await self._report_once(patience)
            except RegisterAgainError:
                _log.info("registering again")
            except (ServerUnreachableError, TooLargeError) as problem:
                await self._refused(problem, patience)
            except RefusedError as problem:
                if not self._node.busy:
                    raise
                await self._refused(problem, patience)

    async def _refused(self, problem: FairleadError, patience: "_Patience") -> None:
        """Say so, wait, and tell less where that may help. No answer of a server ends jobs that run."""
        patience.complain(problem)
        if isinstance(problem, MalformedError):  # a server of another version
            self._node.sendable.details = False
        elif isinstance(problem, TooLargeError):
            self._node.sendable.tell_less()
        await patience.sleep()

    async def _register(self) -> None:
        options = self._options
        asked = time.monotonic()
        welcome: Welcome = await self._client.register(
            Register(
                protocol=PROTOCOL,
                version=fairlead.__version__,
                node=options.node,
                incarnation=self._incarnation,
                host=options.host,
                accelerator=options.devices.accelerator,
                devices=len(options.devices.indices),
                simulated_devices=options.devices.simulated_devices,
                holds=self._node.holds(),
                machine=machine_identity(),
                cleared=self._spawner.cleared[-_TOLD:],
            )
        )
        self._forget_predecessors()
        if welcome.wait_s > 0:
            _log.warning(
                "no jobs for %.0f s: the agent that had this name before may still run some",
                welcome.wait_s,
            )
        _log.info("node %s is part of the cluster at %s", options.node, options.server)
        self._heartbeat_s = welcome.heartbeat_s
        self._health.clock.learn(welcome.wall_s, time.monotonic() - asked)
        self._node.sendable.reset()
        self._node.welcome(welcome)
        self._registered.set()

    def _forget_predecessors(self) -> None:
        """The server knows now of what earlier agents nothing lives."""
        assert self._record is not None
        for before in self._record.predecessors():
            if before.incarnation in self._spawner.cleared:
                before.forget()
        remove_old(self._record)

    async def _report_once(self, patience: "_Patience") -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(self._heartbeat_at - time.monotonic(), 0.0)):
                await self._news.wait()
        try:
            await self._report()
            patience.reset()
        except (ServerUnreachableError, TooLargeError, MalformedError) as problem:
            self._wake()
            await self._refused(problem, patience)
        await asyncio.sleep(_GAP_S)
        if self._gap_s > _GAP_S:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._gap_s - _GAP_S):
                    await self._urgent.wait()

    async def _report(self) -> None:
        self._news.clear()
        self._urgent.clear()
        waiting, self._waiting = self._waiting, []
        self._seq += 1
        health, own = self._health.report or HealthReport(), self._spawner_watch.problem
        problems = [*filter(None, [own]), *health.problems]
        asked = time.monotonic()
        try:
            orders = await self._client.report(
                NodeReport(
                    node=self._options.node,
                    incarnation=self._incarnation,
                    seq=self._seq,
                    holds=self._node.holds(),
                    orders_seq=self._node.orders_seq,
                    problems=tuple(map(one_line, problems[:_TOLD])),
                    dead=health.dead,
                    health_known=bool(own) or self._health.report is not None,
                    checked=self._check.number,
                    check_problem=one_line(self._check.problem),
                    leaving=self._leaving,
                )
            )
        except BaseException:
            self._waiting = waiting + self._waiting
            raise
        self._health.clock.learn(orders.wall_s, time.monotonic() - asked)
        self._follow(orders, asked)
        if orders.check is not None and orders.check.number > self._checking:
            self._checking = orders.check.number
            self._trial = asyncio.create_task(self._try_start(orders.check))
        self._heartbeat_s = orders.heartbeat_s or self._heartbeat_s
        self._gap_s = orders.gap_s
        now = time.monotonic()
        self._heartbeat_at = now + until_heartbeat_s(
            heartbeat_s=self._heartbeat_s, phase=self._phase, now=now
        )
        for answered in waiting:
            if not answered.done():
                answered.set_result(None)

    def _follow(self, orders: Orders, asked: float | None) -> None:
        before = self._node.orders_seq
        self._node.follow(orders, asked)
        if self._node.orders_seq > before:
            self._urgent.set()  # others are told once this node has said that it follows

    async def _watch(self) -> None:
        """Orders as they are pushed."""
        request = WatchRequest(node=self._options.node, incarnation=self._incarnation)
        patience = _Patience()
        while True:
            await self._registered.wait()
            try:
                async for orders in self._client.watch(request):
                    patience.reset()
                    self._follow(orders, None)
            except (ServerUnreachableError, RegisterAgainError, RefusedError, TooLargeError):
                self._wake()  # the next report finds out which it is
            await patience.sleep()

    # --- the node --------------------------------------------------------------------------------
    async def _watch_leases(self) -> None:
        while True:
            self._node.expire()
            self._node.watch_stalls()
            await asyncio.sleep(_TICK_S)

    async def _watch_spawner(self) -> None:
        while True:
            await self._spawner_watch.look()
            await asyncio.sleep(_PULSE_S)

    async def _try_start(self, check: StartCheck) -> None:
        """Make a test start, and report what came of it."""
        env, state = agents_environment(Runtime()), self._options.state
        problem = await asyncio.to_thread(try_start, check, env, state)
        self._check = CheckResult(check.number, problem)
        self._wake()

    async def _watch_progress(self) -> None:
        while True:
            self._node.look_at_progress()
            await asyncio.sleep(_PROGRESS_S)

    async def _touch_record(self) -> None:
        while True:
            if self._record is not None:
                self._record.touch()
            await asyncio.sleep(_TOUCH_S)

    async def _tell_logs(self) -> None:
        """Tell first, then cut, so that what is cut has been told where the server keeps up."""
        while True:
            done = True
            if self._registered.is_set():
                with contextlib.suppress(
                    ServerUnreachableError, RegisterAgainError, TooLargeError, TimeoutError
                ):
                    async with asyncio.timeout(_TELL_S):
                        done = await self._logs.tell(
                            self._client, self._options.node, self._incarnation
                        )
            self._logs.tidy(time.monotonic())
            await asyncio.sleep(_LOGS_S if done else 0.0)

    # --- the end ---------------------------------------------------------------------------------
    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)

    def _unwatch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        self._signals += 1
        self._leave.set()
        if self._signals > 1:
            self._node.kill()

    async def _end_all(self) -> None:
        """Let all jobs save and end. What does not is killed after its grace, by the spawner."""
        deadline = time.monotonic() + self._node.leave() + _EXTRA_S
        while self._node.busy and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def _farewell(self) -> None:
        """The server shall hear at once how its jobs ended, and that it ends in order; their leases, and its
        silence, would tell it later."""
        self._leaving = not self._node.busy
        with contextlib.suppress(
            TimeoutError, ServerUnreachableError, RegisterAgainError, RefusedError, TooLargeError
        ):
            async with asyncio.timeout(_FAREWELL_S):
                await self._logs.tell(self._client, self._options.node, self._incarnation)
                await self._report()


class _Patience:
    """Waits longer each time, with jitter, so that agents do not come back all at once."""

    def __init__(self, first_s: float = 0.1, longest_s: float = 3.0) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._next_s = first_s
        self._complained = False

    def reset(self) -> None:
        """All is well."""
        if self._complained:
            _log.info("the server answers again")
        self._next_s, self._complained = self._first_s, False

    def complain(self, problem: Exception) -> None:
        """Once, until all is well."""
        if not self._complained:
            _log.warning("%s; trying again", problem)
        self._complained = True

    async def sleep(self) -> None:
        """0.5 to 1 times the next wait."""
        await asyncio.sleep(self._next_s * random.uniform(0.5, 1.0))
        self._next_s = min(2 * self._next_s, self._longest_s)
