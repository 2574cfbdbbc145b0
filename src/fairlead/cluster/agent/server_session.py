"""The conversation of an agent with its server, for as long as the agent runs."""

import asyncio
import contextlib
import logging
import time

from fairlead.cluster.agent.backoff import Backoff
from fairlead.cluster.agent.health import ClockSkew
from fairlead.cluster.agent.machine import AgentFiles, remove_old
from fairlead.cluster.agent.node import NodeController
from fairlead.cluster.agent.node_reports import NodeReports
from fairlead.cluster.agent.node_token import NodeToken
from fairlead.cluster.agent.options import AgentOptions
from fairlead.cluster.agent.output_sender import OutputSender
from fairlead.cluster.agent.position_memory import PositionMemory
from fairlead.cluster.agent.report_pace import ReportPace
from fairlead.cluster.agent.server_client import (
    AgentClient,
    MalformedError,
    RefusedError,
    RegisterAgainError,
    ServerUnreachableError,
    TooLargeError,
    UnknownTokenError,
)
from fairlead.cluster.agent.start_trials import StartTrials
from fairlead.cluster.protocol.messages import Orders, WatchRequest, Welcome
from fairlead.cluster.shortage import Shortage
from fairlead.errors import FairleadError

_LOGS_S = 0.5  # between looks at the output of ranks
_SEND_TIMEOUT_S = 2.0  # for the server to take output; files may grow meanwhile
_LAST_REPORT_TIMEOUT_S = 2.0  # for the last report

_log = logging.getLogger(__name__)


class ServerSession:
    """``talk``, ``watch`` and ``send_logs`` run for ever, ``farewell`` at the end."""

    def __init__(
        self,
        options: AgentOptions,
        client: AgentClient,
        reports: NodeReports,
        node: NodeController,
        *,
        pace: ReportPace,
        clock: ClockSkew,
        memory: PositionMemory,
        trials: StartTrials,
        output: OutputSender,
        record: AgentFiles,
        cleared: tuple[str, ...],
        token: NodeToken,
    ) -> None:
        """record: of this run of the agent, on this machine; cleared: incarnations of earlier agents of the
        node of which nothing lives."""
        self._options = options
        self._client = client
        self._reports = reports
        self._node = node
        self._pace = pace
        self._clock = clock
        self._memory = memory
        self._halted = ""  # why the server gives no orders
        self._trials = trials
        self._output = output
        self._record = record
        self._cleared = cleared
        self._token = token
        self._registered = asyncio.Event()
        self._shortage = Shortage()

    async def talk(self) -> None:
        """Register and report. Raises RefusedError where the server will not have this agent, unless jobs run
        here."""
        backoff = Backoff()
        while True:
            try:
                await self._register()
                backoff.reset()
                while True:
                    await self._report_once(backoff)
            except RegisterAgainError as problem:
                _log.info("registering again: %s", problem)
            except (ServerUnreachableError, TooLargeError) as problem:
                await self._refused(problem, backoff)
            except RefusedError as problem:
                if isinstance(problem, UnknownTokenError) and self._token.disown():
                    _log.warning("the server does not know this node's token: enrolling again")
                    self._client.use(self._token.current)
                    continue
                if not self._node.attempts.busy:
                    raise
                await self._refused(problem, backoff)

    async def _refused(self, problem: FairleadError, backoff: Backoff) -> None:
        """Say so, wait, and tell less where that may help. No answer of a server ends jobs that run."""
        backoff.complain(problem)
        if isinstance(problem, MalformedError):  # a server of another version
            self._node.attempts.sendable.details = False
        elif isinstance(problem, TooLargeError):
            self._node.attempts.sendable.halve_limit()
        await backoff.sleep()

    async def _register(self) -> None:
        await self._output.send_of_ended(self._pace)
        asked = time.monotonic()
        welcome: Welcome = await self._client.register(self._reports.registration())
        if welcome.token:
            self._token.keep(welcome.token)
        self._note_halt(welcome.orders)
        if (
            not welcome.orders.halted
        ):  # else it has taken nothing in, and the next one has to be told
            self._forget_predecessors()
        if welcome.wait_s > 0:
            _log.warning(
                "no jobs for %.0f s: the agent that had this name before may still run some",
                welcome.wait_s,
            )
        _log.info("node %s is part of the cluster at %s", self._options.node, self._options.server)
        self._pace.set_heartbeat(welcome.heartbeat_s)
        self._clock.learn(welcome.wall_s, time.monotonic() - asked)
        self._node.attempts.sendable.reset()
        with self._shortage.outlasts():
            self._node.orders.welcome(welcome)
        self._registered.set()

    def _forget_predecessors(self) -> None:
        """The server knows now of what earlier agents nothing lives."""
        for before in self._record.predecessors():
            if before.incarnation in self._cleared:
                before.forget()
        remove_old(self._record)

    async def _report_once(self, backoff: Backoff) -> None:
        await self._pace.await_due()
        try:
            await self._report()
            backoff.reset()
        except (ServerUnreachableError, TooLargeError, MalformedError) as problem:
            self._pace.wake()
            await self._refused(problem, backoff)
        await self._pace.wait_gap()

    async def _report(self, *, is_last: bool = False) -> None:
        await self._output.send_of_ended(self._pace)
        waiting = self._pace.begin()
        asked = time.monotonic()
        try:
            orders = await self._client.report(self._reports.next(is_last=is_last))
        except BaseException:
            self._pace.failed(waiting)
            raise
        self._clock.learn(orders.wall_s, time.monotonic() - asked)
        self._follow(orders, asked)
        self._trials.begin(orders.check)
        self._pace.answered(waiting, orders)

    def _follow(self, orders: Orders, asked: float | None) -> None:
        before = self._node.orders.seq
        with self._shortage.outlasts():
            self._node.orders.follow(orders, asked)
        news = self._node.orders.seq > before
        self._memory.update(orders.position, urgent=news)
        self._note_halt(orders)
        if news:
            self._pace.skip_gap()  # others are told once this node has said that it follows

    def _note_halt(self, orders: Orders) -> None:
        why = orders.halted
        self._memory.disown_run(orders.halted_run)
        if why and not self._halted:
            _log.warning("the server gives no orders, and all stays as it is: %s", why)
        elif self._halted and not why:
            _log.info("the server gives orders again")
        self._halted = why

    async def watch(self) -> None:
        """Orders as they are pushed."""
        request = WatchRequest(node=self._options.node, incarnation=self._reports.incarnation)
        backoff = Backoff()
        while True:
            await self._registered.wait()
            try:
                async for orders in self._client.watch(request):
                    backoff.reset()
                    self._follow(orders, None)
            except (ServerUnreachableError, RegisterAgainError, RefusedError, TooLargeError):
                self._pace.wake()  # the next report finds out which it is
            await backoff.sleep()

    async def send_logs(self) -> None:
        """Tell first, then cut, so that what is cut has been told where the server keeps up."""
        while True:
            done = True
            if self._registered.is_set():
                with (
                    self._shortage.outlasts(),
                    contextlib.suppress(
                        ServerUnreachableError, RegisterAgainError, TooLargeError, TimeoutError
                    ),
                ):
                    async with asyncio.timeout(_SEND_TIMEOUT_S):
                        done = await self._output.send()
                        if self._reports.new_ends:  # one may have waited for that
                            self._pace.wake()
            with self._shortage.outlasts():
                self._output.tidy()
            await asyncio.sleep(_LOGS_S if done else 0.0)

    async def farewell(self, *, in_order: bool) -> None:
        """The server shall hear at once how its jobs ended, and that it ends in order; their leases, and its
        silence, would tell it later. in_order: whether it was told to end; else its silence is to be told."""
        self._reports.leaving = in_order and not self._node.attempts.busy
        with contextlib.suppress(
            TimeoutError, ServerUnreachableError, RegisterAgainError, RefusedError, TooLargeError
        ):
            async with asyncio.timeout(_LAST_REPORT_TIMEOUT_S):
                await self._output.send()
                await self._report(is_last=True)
