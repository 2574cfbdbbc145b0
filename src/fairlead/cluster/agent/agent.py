"""The agent: it registers its node, reports what it holds, and follows its orders."""

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from fairlead.cluster.agent import locks, proc
from fairlead.cluster.agent.client_files import offer_client
from fairlead.cluster.agent.health import HealthChecks
from fairlead.cluster.agent.inside_job import check_other_node
from fairlead.cluster.agent.job_folders import open_state
from fairlead.cluster.agent.launch import LaunchSite, logs_path
from fairlead.cluster.agent.logs import Logs
from fairlead.cluster.agent.machine import AgentFiles, record_of
from fairlead.cluster.agent.node import NodeController
from fairlead.cluster.agent.node_reports import NodeReports
from fairlead.cluster.agent.node_token import NodeToken
from fairlead.cluster.agent.options import AgentOptions
from fairlead.cluster.agent.output_sender import OutputSender
from fairlead.cluster.agent.position_memory import PositionMemory
from fairlead.cluster.agent.rank_server import RankConnections, RankServer
from fairlead.cluster.agent.report_pace import ReportPace
from fairlead.cluster.agent.server_client import AgentClient
from fairlead.cluster.agent.server_session import ServerSession
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_watch import SpawnerWatch
from fairlead.cluster.agent.start_trials import StartTrials
from fairlead.cluster.agent.state_directory import StateLock, identity_of, make_again
from fairlead.cluster.agent.stop_signals import StopSignals
from fairlead.cluster.agent.untrusted_files import make_folder
from fairlead.cluster.agent.user_rights import check_reach, problems_of_directory
from fairlead.cluster.end_signals import EndSignals
from fairlead.cluster.shortage import Shortage
from fairlead.errors import ConfigError

_TICK_S = 0.1  # between looks at the leases
_STALL_S = 1.0  # without one: what has happened meanwhile has to be heard first
_CATCH_UP_S = 2.0  # for that, at the most
_SPAWNER_POLL_S = 1.0  # between looks whether the spawner answers
_PROGRESS_S = 1.0  # between looks at what jobs without the iterator say of their progress
END_MARGIN_S = 10.0  # beside the grace of jobs, before the node is taken away
_EXTRA_S = 15.0  # beyond the grace of jobs, for the spawner to bury them
_TOUCH_INTERVAL_S = 3600.0  # between marks that the files on this machine are in use

_log = logging.getLogger(__name__)
_shortage = Shortage()


class Agent:
    """``run`` until a signal comes."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._state_lock = StateLock(options.state)
        self._token = NodeToken(options.state, options.token)
        self._client = AgentClient(
            options.server, self._token.current, options.ca, devices=len(options.devices.indices)
        )
        self._spawner = SpawnerLink(options.state, options.prefork, options.devices)
        self._record: AgentFiles | None = None  # of this run, on this machine
        self._logs = Logs(options.state)
        self._pace = ReportPace()
        connections = RankConnections()
        self._node = NodeController(
            options.state,
            self._spawner,
            self._logs,
            connections,
            park_bytes=options.park_bytes,
            changed=self._pace.wake,
            ask=self._pace.ask,
        )
        self._ranks = RankServer(
            options.state,
            self._node.rank_messages,
            connections,
            for_all=bool(options.isolation.run_as),
        )
        self._spawner_watch = SpawnerWatch(
            self._spawner,
            options.state,
            self._node.attempts.running_jobs,
            self._pace.wake,
            answered=self._node.attempts.confirm_leases,
        )
        self._health = HealthChecks(
            options.health,
            options.devices,
            self._folders,
            self._node.problems,
            of_jobs=self._directories_of_jobs,
            on_job_directories=self._node.report_directories,
        )
        self._trials = StartTrials(options.state, self._node.rank_trial, self._pace.wake)
        self._signals = StopSignals(self._node.ending.kill_all)
        self._memory = PositionMemory(options.state)

    def _directories_of_jobs(self) -> dict[Path, Callable[[], list[str]]]:
        """Return the directories that jobs save to, each with its check."""
        found = self._node.attempts.checkpoint_directories()
        isolation = self._options.isolation
        return {
            path: partial(problems_of_directory, isolation, path, a) for path, a in found.items()
        }

    def _folders(self) -> set[Path]:
        """Return the folders in which starts need space. Sets aside whatever is in place of the output's, as
        an attempt would, and makes folders again that somebody removed."""
        state, output = self._options.state, logs_path(self._options.state)
        with contextlib.suppress(OSError, ConfigError):
            make_folder(output)
            if self._options.isolation.run_as:
                self._open_state()
        if self._record is None:
            return {state, output}
        with contextlib.suppress(
            OSError, ConfigError
        ):  # what is not there is a problem of the node
            make_again(state)
            self._record.make_again()
        return {state, output, state / "starts", state / "locks", self._record.attempt_records}

    async def run(self) -> None:
        """Raises RefusedError where the server will not have this agent, ConfigError where another agent
        has the state directory."""
        with EndSignals(self._signals.receive):
            await self._run()

    async def _run(self) -> None:
        proc.check_subreaper()
        self._state_lock.take()
        self._options.isolation.groups.open()  # before there is another process of this agent
        if self._options.isolation.run_as:
            os.umask(0o077)  # whatever is made from here on is the agent's alone
            self._open_state()
            for problem in check_reach(self._options.isolation, self._options.state):
                _log.warning(problem)
        incarnation = f"{identity_of(self._options.state)}.{secrets.token_hex(8)}"
        record = record_of(self._options.node, self._options.server, incarnation)
        check_other_node(record, self._options.state)
        mine = record.make()
        self._record = self._spawner.record = record
        try:
            self._spawner.adopt()
            await self._spawner.start()
            if not await self._spawner_is_ready():
                return
            self._options.isolation.groups.remove_left()
            await self._ranks.open()
            await self._serve(record)
        finally:
            await self._ranks.close()
            await self._spawner.close()
            record.forget()
            locks.release([mine])
            self._state_lock.release()

    def _open_state(self) -> None:
        """Raises ConfigError."""
        try:
            open_state(self._options.state)
        except OSError as problem:
            raise ConfigError(f"--state {self._options.state}: {problem.strerror}") from None

    async def _spawner_is_ready(self) -> bool:
        """Wait until nothing is left of earlier agents. False: this one is to leave before that, and its
        spawner ends that work by itself."""
        ready = asyncio.ensure_future(self._spawner.ready())
        leave = asyncio.ensure_future(self._signals.leave.wait())
        await asyncio.wait([ready, leave], return_when=asyncio.FIRST_COMPLETED)
        leave.cancel()
        if not ready.done():
            ready.cancel()
            return False
        if survivors := ready.result():
            _log.warning("ended %d process(es) that an earlier agent left behind", survivors)
        return True

    async def _serve(self, record: AgentFiles) -> None:
        self._open_node(record.incarnation)
        self._memory.read()
        session = self._session(record)
        self._logs.remove_old()
        self._logs.inherit()
        try:
            async with self._client:
                await self._until_first_ends(session, record)
        finally:
            self._memory.write()

    def _open_node(self, incarnation: str) -> None:
        options = self._options
        place = LaunchSite(
            state=options.state,
            host=options.host,
            socket_path=self._ranks.path,
            devices=options.devices,
            client=str(offer_client(options.state)),
            isolation=options.isolation,
        )
        self._node.open(place, incarnation)
        self._health.usage.leaders = self._node.spawner_events.leaders

    def _session(self, record: AgentFiles) -> ServerSession:
        reports = NodeReports(
            self._options,
            record.incarnation,
            self._node,
            spawner=self._spawner,
            spawner_watch=self._spawner_watch,
            health=self._health,
            trials=self._trials,
            memory=self._memory,
            has_untold_metrics=self._logs.has_untold_metrics,
        )
        return ServerSession(
            self._options,
            self._client,
            reports,
            self._node,
            pace=self._pace,
            clock=self._health.clock,
            memory=self._memory,
            trials=self._trials,
            output=OutputSender(self._options.node, self._client, reports, self._logs),
            record=record,
            cleared=self._spawner.cleared,
            token=self._token,
        )

    async def _until_first_ends(self, session: ServerSession, record: AgentFiles) -> None:
        """Run all tasks of the agent until it is to leave or one of them fails; then end in order."""
        loops: tuple[Awaitable[object], ...] = (
            session.talk(),
            session.watch(),
            session.send_logs(),
            self._watch_attempts(),
            self._watch_spawner(),
            self._watch_ranks(),
            _touch(record),
            self._memory.write_changes(),
            self._health.run(self._pace.wake),
            self._health.usage.run(),
            self._spawner.listen(
                self._node.spawner_events.handle, self._node.spawner_events.handle_loss
            ),
            self._signals.leave.wait(),
            self._leave_in_time(),
        )
        tasks = [asyncio.ensure_future(loop) for loop in loops]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._end_all()
            await session.farewell(in_order=self._is_told_to_end())
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _leave_in_time(self) -> None:
        """Wait until the node is about to be taken away, if anybody knows when: its jobs need their grace to
        save."""
        ends_s = self._options.ends_s
        if ends_s is None:
            await asyncio.Event().wait()
            return
        while (left_s := ends_s - time.time()) > self._node.attempts.longest_grace_s + END_MARGIN_S:
            await asyncio.sleep(min(left_s, _PROGRESS_S))
        _log.warning("this node is given back in %.0f s: its jobs save, and go elsewhere", left_s)
        self._signals.leave.set()

    def _is_told_to_end(self) -> bool:
        """Return whether a person, or a service manager, wants this agent to end. A signal also comes where
        its parent was killed."""
        parent = self._options.parent
        return self._signals.leave.is_set() and parent in (None, os.getppid())

    async def _watch_attempts(self) -> None:
        polled_s = time.monotonic()
        while True:
            if time.monotonic() - polled_s > _STALL_S:  # this agent stood still
                await self._spawner.catch_up(_CATCH_UP_S)
            with _shortage.outlasts():
                self._node.poll()
            polled_s = time.monotonic()
            await asyncio.sleep(_TICK_S)

    async def _watch_spawner(self) -> None:
        while True:
            with _shortage.outlasts():
                await self._spawner_watch.poll(time.monotonic())
            await asyncio.sleep(_SPAWNER_POLL_S)

    async def _watch_ranks(self) -> None:
        while True:
            with _shortage.outlasts():
                self._node.poll_progress()
                self._state_lock.hold_again()
                self._token.keep_again()
                await self._ranks.open_again()
            await asyncio.sleep(_PROGRESS_S)

    async def _end_all(self) -> None:
        """Let all jobs save and end. What does not is killed after its grace, by the spawner."""
        deadline = time.monotonic() + self._node.orders.leave() + _EXTRA_S
        while self._node.attempts.busy and time.monotonic() < deadline:
            await asyncio.sleep(0.02)


async def _touch(record: AgentFiles) -> None:
    while True:
        record.touch()
        await asyncio.sleep(_TOUCH_INTERVAL_S)
