"""What a node holds, and how it follows its orders."""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from fairlead.client.messages import (
    Adapt,
    FromAgent,
    FromRank,
    Grant,
    Hello,
    Loaded,
    Progress,
    RankEnded,
    RankRefused,
    StopRank,
)
from fairlead.client.rank_environment import EXIT_MAY_NOT_RUN
from fairlead.cluster.agent.addresses import RankZeroAddress, give_addresses
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.inspection import Inspector
from fairlead.cluster.agent.launch import (
    LaunchSite,
    check,
    failure_path,
    log_path,
    progress_path,
)
from fairlead.cluster.agent.launching import prepare_launch
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.agent.logs import Logs
from fairlead.cluster.agent.progress_reader import ProgressReader
from fairlead.cluster.agent.rank_failures import exit_failure, read_report
from fairlead.cluster.agent.rank_server import Key, RankServer
from fairlead.cluster.agent.report_limits import SendableCheck
from fairlead.cluster.agent.script_imports import ScriptImports
from fairlead.cluster.agent.spawner_deaths import SpawnerDeaths
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_messages import (
    EndAttempt,
    Exited,
    Failed,
    FromSpawner,
    Gone,
    Inspected,
    Pong,
    Prepare,
    Ready,
    Started,
    Until,
    Waits,
)
from fairlead.cluster.agent.survivors import make_token
from fairlead.cluster.protocol.messages import (
    EXPIRED,
    LEAVES,
    ORPHANED,
    Assignment,
    AttemptStatus,
    Failure,
    Orders,
    Welcome,
)
from fairlead.errors import ConfigError

_STUCK_S = 300.0  # a start that cannot begin for so long says something about the node
_LAST_WORD_S = 1.0  # for what a rank that has ended has said to be read
_OBSTRUCTED_S = 10.0  # the same where it is known to be the node: a moment may pass
_log = logging.getLogger(__name__)


class NodeController:
    """The starts of a node. ``changed`` is called when there is news for the server, ``ask`` waits until
    the server has answered to all that the node holds now."""

    def __init__(
        self,
        spawner: SpawnerLink,
        logs: Logs,
        changed: Callable[[], None],
        ask: Callable[[], Awaitable[None]],
    ) -> None:
        self._spawner = spawner
        self._logs = logs
        self._changed = changed
        self._ask = ask
        self._starts: dict[Key, NodeAttempt] = {}
        self._newest: dict[int, int] = {}  # job -> highest attempt ever held
        self._launching: dict[Key, asyncio.Task[None]] = {}  # starts whose orders are being made
        self._spawner_deaths = SpawnerDeaths()
        self._orphaned: set[Key] = set()  # starts of a spawner that died
        self._leaving = False
        self._inspector = Inspector()
        self._inspections: dict[Key, asyncio.Task[None]] = {}
        self._progress = ProgressReader()
        self._imports = ScriptImports(lambda modules: spawner.send(Prepare(modules=modules)))
        self._lease_s = 0.0
        self._rate_bound = 0.0
        self.sendable = SendableCheck()
        self.orders_seq = -1
        self.run = ""  # incarnation of the agent
        self.place: LaunchSite | None = None
        self.ranks: RankServer | None = None

    def holds(self) -> tuple[AttemptStatus, ...]:
        """All starts."""
        now = time.monotonic()
        return self.sendable(start.held(now) for start in self._starts.values())

    @property
    def busy(self) -> bool:
        """Is there a start that has not ended?"""
        return any(not start.ended for start in self._starts.values())

    def checkpoint_directories(self) -> set[Path]:
        """Where jobs that were named a directory save. They may be absent, or hang."""
        named = {s.assignment.checkpoint_dir for s in self._starts.values() if not s.ended}
        return {Path(name) for name in named if name}

    def tell_directories(self, problems: Mapping[Path, str]) -> None:
        """What is wrong with the directories that jobs save to, by directory: the server shall know."""
        for start in self._starts.values():
            problem = problems.get(Path(start.assignment.checkpoint_dir), "")
            if start.directory_problem != problem:
                start.directory_problem = problem
                self._changed()

    def troubles(self) -> list[str]:
        """What keeps this agent from doing what it is told to."""
        now = time.monotonic()
        found = [*filter(None, [self._spawner_deaths.problem(now)])]
        starting = [s for s in self._starts.values() if s.state == "starting"]
        waits = [
            s
            for s in starting
            if s.wait.lasts_s(now) > (_OBSTRUCTED_S if s.wait.obstacle else _STUCK_S)
        ]
        return found + [f"job {s.key[0]} cannot start: {s.reason}" for s in waits]

    # --- the server ------------------------------------------------------------------------------
    def welcome(self, welcome: Welcome) -> None:
        """Registered: the orders of this server count from here."""
        self._lease_s, self._rate_bound = welcome.lease_s, welcome.rate_bound
        self.orders_seq = -1
        self.follow(welcome.orders, None)

    def follow(self, orders: Orders, asked: float | None) -> None:
        """Hold what is wanted, and nothing else. asked: when the report that this answers was sent."""
        if asked is not None:
            self._extend(orders, asked)
        if orders.seq >= self.orders_seq:
            if orders.seq > self.orders_seq:
                self._changed()
            self.orders_seq = orders.seq
            self._forget(orders.forget)
            self._reconcile(orders)
        self._launch_all()

    def _extend(self, orders: Orders, asked: float) -> None:
        for assignment in orders.wanted:
            start = self._starts.get((assignment.job, assignment.attempt))
            seconds = orders.leases.get(assignment.job)
            if start is not None and seconds is not None:
                start.lease.extend(asked, seconds, self._rate_bound)
                self._tell_until(start)

    def _tell_until(self, start: NodeAttempt) -> None:
        """The spawner ends what has no lease, should this process hang."""
        if start.launched and not start.ended:
            job, attempt = start.key
            self._spawner.send(Until(job=job, attempt=attempt, until_s=start.lease.until))

    def _forget(self, keys: tuple[Key, ...]) -> None:
        for key in keys:
            start = self._starts.get(key)
            if start is not None and start.ended:
                del self._starts[key]
                self.sendable.forget(key)
                self._logs.forget(*key, time.monotonic())

    def _reconcile(self, orders: Orders) -> None:
        wanted = {(a.job, a.attempt): a for a in orders.wanted}
        for key, start in list(self._starts.items()):
            if key not in wanted:
                self._stop(start, orders.reasons.get(key[0], "preempted"))
        for key, assignment in wanted.items():
            if key in self._starts:
                self._update(self._starts[key], assignment)
            elif not self._leaving and assignment.attempt > self._newest.get(assignment.job, -1):
                self._hold(assignment)

    def _update(self, start: NodeAttempt, new: Assignment) -> None:
        """What may still change in an assignment."""
        start.assignment = msgspec.structs.replace(
            start.assignment,
            master=new.master,
            checkpoint_s=new.checkpoint_s,
            finishing=new.finishing,
            inspect=new.inspect,
            beside=new.beside,
        )

    def _hold(self, assignment: Assignment) -> None:
        """A new start. It is launched when the server, hearing of it, has granted its lease."""
        now = time.monotonic()
        start = NodeAttempt(assignment, make_token(self.run), NodeLease(self._lease_s), now)
        self._starts[start.key] = start
        self._newest[assignment.job] = assignment.attempt
        assert self.place is not None
        try:
            check(assignment, self.place.devices)
            start.addresses = give_addresses(assignment, self.place.host, self._ports())
        except ConfigError as problem:
            start.failed(-1, str(problem), now)
            start.gone(now)
        self._logs.follow(assignment)
        self._changed()

    def _ports(self) -> set[int]:
        """Those that starts on this node were given."""
        held = [start for start in self._starts.values() if not start.ended]
        return {port for start in held for port in start.addresses.ports}

    def _launch_all(self) -> None:
        for start in list(self._starts.values()):
            if start.state == "starting" and not start.launched and start.lease.granted:
                self._launch(start)

    def _launch(self, start: NodeAttempt) -> None:
        told = start.assignment.master
        if start.assignment.world_size > 1 and start.addresses.here is None and not told:
            return  # rank 0's node has not said yet where it is
        if start.key not in self._launching:
            self._launching[start.key] = asyncio.create_task(self._begin(start, told))

    async def _begin(self, start: NodeAttempt, told: str) -> None:
        assert self.place is not None
        found, why = None, ""
        try:
            master = start.addresses.here or RankZeroAddress.parse(told, start.assignment.job)
            found = await prepare_launch(self.place, start, master)
        except ConfigError as problem:
            why = str(problem)
        except Exception as problem:  # of whatever a job names: its fault, and no end of the agent
            _log.exception("job %d cannot be started", start.assignment.job)
            why = f"cannot be started: {type(problem).__name__}: {problem}"
        finally:
            del self._launching[start.key]
        now = time.monotonic()
        if start.state != "starting" or self._leaving:
            return  # it was told to stop meanwhile
        if found is None:
            self._give_up(start, why, now)
        elif start.lease.left_s(now) > 0.0:
            modules = self._imports.of(found.script)
            order = msgspec.structs.replace(found.order, modules=modules)
            start.launched = self._spawner.send(order)
            self._tell_until(start)

    def _give_up(self, start: NodeAttempt, why: str, now: float) -> None:
        start.failed(-1, why, now)
        start.gone(now)
        self._changed()

    # --- the end ---------------------------------------------------------------------------------
    def _stop(self, start: NodeAttempt, reason: str) -> None:
        if start.state in ("stopping", "ended"):
            return
        now = time.monotonic()
        start.stop(reason, now)
        if not start.launched:
            start.gone(now)
        elif start.speaks:
            told = self.ranks is not None and self.ranks.tell(start.key, StopRank(reason=reason))
            # After its loop a script that does not ask goes on for its grace, and may come to its end.
            self._end(start, terminate=not told and not start.finishing)
        else:
            self._end(start, terminate=start.assignment.unmanaged)
        self._changed()

    def _end(self, start: NodeAttempt, terminate: bool) -> None:
        job, attempt = start.key
        grace_s = start.grace_s
        self._spawner.send(
            EndAttempt(job=job, attempt=attempt, terminate=terminate, kill_after_s=grace_s)
        )

    def expire(self) -> None:
        """Stop what has no lease any more."""
        now = time.monotonic()
        for start in self._starts.values():
            if start.launched and start.lease.left_s(now) <= 0.0:
                self._stop(start, EXPIRED)

    def watch_stalls(self) -> None:
        """Look at starts whose steps do not come along, and end those that are not to go on."""
        now = time.monotonic()
        for start in self._starts.values():
            if start.launched and start.watched and start.key not in self._inspections:
                self._watch(start, now)

    def _watch(self, start: NodeAttempt, now: float) -> None:
        if start.stall.over(start.assignment, now):
            start.stalled(now)
            self._kill(start)
            self._changed()
        elif start.stall.due(start.assignment, now):
            self._inspections[start.key] = asyncio.create_task(self._look(start))
        elif start.stall.clear(start.assignment):
            self._changed()

    async def _look(self, start: NodeAttempt) -> None:
        """Find out where its ranks stand."""
        assert self.place is not None
        state, ranks = self.place.state, [rank.rank for rank in start.assignment.ranks]
        files = {r: failure_path(state, *start.key, r).with_suffix(".stacks") for r in ranks}
        try:
            stacks = await self._inspector.look(start, self._spawner, files)
        finally:
            self._inspections.pop(start.key, None)
        if start.watched and start.stall.looked(stacks, start.assignment, time.monotonic()):
            self._changed()

    def look_at_progress(self) -> None:
        """Take over what jobs without the iterator say of theirs."""
        now = time.monotonic()
        for start in self._starts.values():
            if start.may_tell and start.state in ("running", "stopping"):
                self._take_progress(start, now)

    def _take_progress(self, start: NodeAttempt, now: float, *, last: bool = False) -> None:
        assert self.place is not None
        path = progress_path(self.place.state, *start.key)
        log = log_path(self.place.state, *start.key, 0)
        before = start.steps.is_told
        if not last:
            self._progress.look(start, path, log, now)
        elif not start.assignment.progress_url:
            self._progress.read(start, path, log, now)
        if start.steps.is_told and not before:
            self._changed()

    def _kill(self, start: NodeAttempt) -> None:
        job, attempt = start.key
        self._spawner.send(EndAttempt(job=job, attempt=attempt, terminate=False, kill_after_s=0.0))

    def leave(self) -> float:
        """The agent is told to end: stop everything, start nothing. Returns the longest grace, seconds."""
        self._leaving = True
        for start in self._starts.values():
            self._stop(start, LEAVES)
        return max((s.grace_s for s in self._starts.values()), default=0.0)

    def kill(self) -> None:
        """Do not wait for anybody."""
        for start in self._starts.values():
            if not start.ended:
                self._kill(start)

    # --- the spawner -----------------------------------------------------------------------------
    async def hear_spawner(self, message: FromSpawner) -> None:
        """What has become of a start."""
        if isinstance(message, Ready | Pong):
            if isinstance(message, Ready):
                self._bury_orphaned()
            return
        start = self._starts.get((message.job, message.attempt))
        if start is None or start.ended:
            return
        if isinstance(message, Exited) and self._may_have_expired(start, message):
            assert self.ranks is not None
            await self.ranks.heard_out(start.key, _LAST_WORD_S)
        self.expire()  # first: a start that has no lease any more is not blamed for its end
        now = time.monotonic()
        match message:
            case Inspected():
                self._inspector.told(message)
                return
            case Started():
                start.started(message.free_s)
            case Waits():
                start.waits(message.reason, now, obstacle=message.obstacle)
                if message.obstacle:
                    _log.warning("job %d cannot start yet: %s", message.job, message.reason)
            case Failed():
                end = start.ended_for if message.began else start.failed
                end(message.rank, message.reason, now)
            case Exited():
                if message.expired or (
                    self._may_have_expired(start, message)
                    and start.told_lease.is_short(message.at_s)
                ):
                    start.stop(EXPIRED, now)
                if start.may_tell:  # what it said as it ended
                    self._take_progress(start, now, last=True)
                failure = self._failure(start, message.rank, message.code)
                if start.exited(message.rank, message.code, failure, now):
                    self._end(start, terminate=start.assignment.unmanaged)
            case Gone():
                start.gone(now)
                self._progress.forget(start.key)
                self._disown(start)
        self._changed()

    def _may_have_expired(self, start: NodeAttempt, end: Exited) -> bool:
        """May this rank have ended because its lease was over, as far as it knew?"""
        code = end.code in (0, EXIT_MAY_NOT_RUN)
        return code and end.rank == 0 and start.speaks and not start.finishing

    def _disown(self, start: NodeAttempt) -> None:
        """Who still speaks for a start that is over is none of our processes, and could not be ended: a
        container of a daemon, whose command was killed. It may not go on."""
        if self.ranks is not None:
            self.ranks.tell(start.key, RankRefused(reason="this start of the job is over"))

    def _failure(self, start: NodeAttempt, rank: int, code: int) -> Failure | None:
        """How a rank ended, None: well."""
        if not code:
            return None
        assert self.place is not None
        report = read_report(failure_path(self.place.state, *start.key, rank))
        output, lost = self._logs.tail(*start.key, rank)
        world_size = start.assignment.world_size
        ran_out = start.exits.memory_ran_out
        return exit_failure(
            rank,
            code,
            report,
            output,
            world_size=world_size,
            memory_ran_out=ran_out,
            output_lost=lost,
        )

    async def lose_spawner(self) -> None:
        """It was killed. The next one ends its ranks, and says when."""
        now, death = time.monotonic(), None
        if not self._spawner.replaced:
            running = [start.key[0] for start in self._starts.values() if start.may_run]
            death = self._spawner_deaths.note(running, now)
        for start in self._starts.values():
            if start.launched and not start.ended:
                start.stop_order.spawner_death = death if start.may_run else None
                start.stop(ORPHANED, now)
                self._orphaned.add(start.key)
        self._changed()

    def _bury_orphaned(self) -> None:
        for key in self._orphaned:
            if key in self._starts:
                self._starts[key].gone(time.monotonic())
        self._orphaned.clear()
        self._changed()

    # --- ranks -----------------------------------------------------------------------------------
    def admit(self, hello: Hello) -> str:
        """See RankHandler, as for the following."""
        start = self._starts.get((hello.job, hello.attempt))
        if start is None or start.ended or not start.launched:
            return f"job {hello.job} does not run here as attempt {hello.attempt}"
        if not hmac.compare_digest(hello.token.encode(), start.token.encode()):
            return f"job {hello.job}: wrong token"
        return (
            "" if start.speaks else f"job {hello.job}: its rank 0 is not here, or it is unmanaged"
        )

    def greet(self, key: Key) -> list[FromAgent]:
        """Its lease; and if it was told to stop before it could hear, that too."""
        start = self._starts[key]
        answers: list[FromAgent] = [self._grant(start)]
        if start.stop_order.reason and isinstance(answers[0], Grant):
            answers.append(StopRank(reason=start.stop_order.reason))
        return answers

    def hear(self, key: Key, message: FromRank) -> None:
        """Progress, and the news that the server shall hear of at once."""
        start = self._starts.get(key)
        if start is None:
            return
        now = time.monotonic()
        match message:
            case Hello():
                start.times.speaks(now)
            case Loaded():
                start.loaded(message, now)
            case Adapt():
                start.steps.adapt(message)
            case Progress():
                start.progress(message, now)
            case RankEnded():
                start.progress(message, now)
                if not message.completed and _ends_with_its_lease(start, message, now):
                    start.stop(EXPIRED, now)
        if not isinstance(message, Progress | Hello):
            self._changed()

    async def renew(self, key: Key) -> FromAgent:
        """What is left of our own lease, after asking for more when that is little."""
        start = self._starts.get(key)
        if start is None:
            return StopRank(reason=EXPIRED)
        if start.lease.is_short(time.monotonic()):
            await self._ask()
        return self._grant(start)

    def _grant(self, start: NodeAttempt) -> FromAgent:
        left_s = start.lease.left_s(time.monotonic())
        if left_s <= 0.0:
            self._stop(start, EXPIRED)
            return StopRank(reason=EXPIRED)
        start.told_lease.tell(time.monotonic(), left_s)
        return Grant(lease_s=left_s, checkpoint_s=start.assignment.checkpoint_s)


def _ends_with_its_lease(start: NodeAttempt, end: RankEnded, now: float) -> bool:
    """Does rank 0 end because its lease is over, as far as it knows? It comes to that before its agent does,
    and long before where the agent was away for a while, or slow to answer."""
    if end.reason:
        return end.reason == EXPIRED
    return start.lease.is_short(now) or start.told_lease.is_short(now)
