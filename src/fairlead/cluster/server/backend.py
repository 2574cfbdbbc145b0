"""The live backend: the clock is real, and rounds are run by agents.

``next`` and ``perform`` are called by the driver's thread alone. Whatever comes from outside (agents,
people, the solver) is a callable in the inbox. A batch of it is handled, then committed as one, and only
then published: what an agent is ordered or a person is told is durable (group commit).
"""

import itertools
import queue
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

import numpy as np

from fairlead.cluster.protocol.api_models import ENDED_STATES, JobState
from fairlead.cluster.protocol.messages import (
    EXPIRED,
    LEAVES,
    ORPHANED,
    AttemptStatus,
)
from fairlead.cluster.server.attempts import (
    Attempt,
    JobRegistry,
    as_known,
    others_of,
    ranks_on,
)
from fairlead.cluster.server.fleet import Fleet, LiveNode
from fairlead.cluster.server.precedence import MAX_WAITING, Yielder
from fairlead.cluster.server.restored import WHY as RESTORED_WHY
from fairlead.cluster.store.rows import (
    ON_DEVICES,
    AttemptRow,
    JobRow,
)
from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    Command,
    EndJobs,
    EndRound,
    JobEnd,
    Solve,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsCancelled,
    JobsDropped,
    JobsPaused,
    JobsReweighted,
    NodeLost,
    NodeRecovered,
    NodesAvoided,
    ProgressCorrected,
    RequirementsChanged,
    RoundEnded,
    RoundOutcome,
    Stalled,
)

MAX_ROUND_S = 5  # times its length a round may last, for jobs that still start
STALL_S = 1.0  # nothing runs and jobs wait: tell the core after so long
POLL_S = 0.5  # between looks for lost nodes
REASON = 4000  # characters of one
BATCH = 1000  # callables from the inbox that are committed together
PACE_S = 0.02  # and at least so long apart: the first is not held up, what follows at once is
_END: dict[int, str] = {
    JobEnd.COMPLETED: "completed",
    JobEnd.DROPPED: "dropped",
    JobEnd.KILLED: "killed",
    JobEnd.CANCELLED: "cancelled",
}


@dataclass(slots=True)
class LiveRound:
    """The round in force."""

    number: int
    started_s: float
    length_s: float
    units: Ints  # (units, width) job ids, -1 = none
    starts: dict[int, Attempt]  # job -> its start in this round
    ended: dict[int, "EndedAttempt"] = field(default_factory=dict)  # of those starts that are over

    @property
    def end_s(self) -> float:
        """When it is over at the latest."""
        return self.started_s + self.length_s


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """How a start came out, for the report of its round."""

    time_s: float
    outcome: RoundOutcome
    completed: bool


class LiveBackend:
    """See the module. ``cluster`` is set by the engine before the first event."""

    cluster: Cluster

    def __init__(
        self,
        book: JobRegistry,
        fleet: Fleet,
        now_s: Callable[[], float],
        commit: Callable[[], None],
        ask: Callable[[Solve], None],
        checkpoint_s: Callable[[Attempt], float],
        rate: Callable[[JobRow, str], float],
        at_end: Callable[[JobRow, float], None],
        at_stop: Callable[[Attempt, str], None],
    ) -> None:
        """commit: make durable what was handled, then publish it; ask: hand a problem to the solver;
        rate: steps/s believed of a job on an accelerator type; at_end: told of jobs that complete, before
        the core is; at_stop: of starts that are over, and of why they failed, if they did."""
        self.book = book
        self.fleet = fleet
        self.now_s = now_s
        self.commit = commit
        self.ask = ask
        self.checkpoint_s = checkpoint_s
        self.rate = rate
        self.at_end = at_end
        self.at_stop = at_stop
        self.precedence = Yielder()  # over questions, while a round is reported and published
        self.inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.events: deque[Event] = deque()
        self.round: LiveRound | None = None
        self.checkpoints = ""  # directory of those of all jobs; "" = each agent its own
        self.early_s = float("inf")  # a round of this age ends where devices are free and jobs wait
        self.has_room: Callable[[], bool] = bool  # are there such devices and jobs?
        self.chance = False  # has something happened since it was asked last?
        self._asked_s = 0.0  # when that was
        self.adapted: set[int] = set()  # jobs whose batch size the core does not know yet
        self.retries: RetriesLike = NoRetries()
        self.learn_batch: Callable[[JobRow], None] = _know_already
        self.learn_costs: Callable[[LiveRound, float], Event | None] = _know_costs
        self.heeds_costs: Callable[[], bool] = (
            bool  # do rounds leave jobs alone that cost too much?
        )
        self.watch_nodes: Callable[[], None] = _hurry  # twice a second: states of nodes
        self.decided: Callable[[Collection[int], bool], None] = _take_no_note  # on a round
        self.obstructed: Callable[[str, int, str], None] = _let_wait  # node, job, its obstacle
        self.close_nodes: Callable[[], None] = _hurry  # before a decision: of nodes not to be used
        self.detained: Callable[[int], bool] = (
            _nobody  # may it run where nothing is placed any more?
        )
        self.corrections: dict[int, float] = {}  # job -> steps that count, to be told to the core
        self.lost_nodes: set[str] = set()  # out of service, as the core has been told
        self.noticed: set[str] = set()  # nodes whose reports brought something new
        self.pace_s = PACE_S
        self._said: deque[str] = deque()  # by the network's thread: as ``noticed``
        self._nudged = False  # will the driver look there?
        self.settled_s = (
            0.0  # before this time nodes may still come back from a restart of the server
        )
        self.wanted: Callable[[], bool] = bool  # does the engine want to take over?
        self.ready = False  # is there a core to be driven?
        self.solving = False
        self._idle_since: float | None = None
        self._looked_s = 0.0
        self._collected_s = 0.0  # of the monotonic clock

    # --- what happened ---------------------------------------------------------------------------

    def next(self) -> Event | None:
        """The next event; None when the engine wants to take over."""
        while True:
            if self.ready and self.events:
                event = self._still(self.events.popleft())
                if event is not None:
                    return event
                continue
            self.commit()
            self.precedence.give_back()
            if self.wanted():
                return None
            self._collect()

    def _still(self, event: Event) -> Event | None:
        """What is left of an event, for jobs may have ended since somebody asked for it."""
        match event:
            case JobsCancelled() | JobsDropped():
                jobs = tuple(job for job in event.jobs if self._is_open(job))
                return replace(event, jobs=jobs) if jobs else None
            case NodesAvoided():
                return event if self._is_open(event.job) else None
            case JobsPaused() | JobsReweighted() | RequirementsChanged():
                good = np.array([self._is_open(job) for job in event.jobs.tolist()], np.bool_)
                if good.all():
                    return event
                columns = [f.name for f in fields(event) if f.name not in ("time_s", "paused")]
                kept = {name: getattr(event, name)[good] for name in columns}
                return replace(event, **kept) if good.any() else None
            case NodeLost() | NodeRecovered():  # a node that has just come: told once it is known
                return event if event.node in {n.name for n in self.cluster.nodes} else None
        return event

    def _is_open(self, job: int) -> bool:
        row = self.book.jobs.get(job)
        return row is not None and row.open

    def notice(self, node: str) -> None:
        """Called by the network's thread: a node has something new to say."""
        self._said.append(node)
        if not self._nudged:  # once for all that comes until then: each waking of a thread costs
            self._nudged = True
            self.inbox.put(self._listen)

    def _listen(self) -> None:
        self._nudged = False  # first: what is said from here on nudges again
        while self._said:
            self.noticed.add(self._said.popleft())

    def _collect(self) -> None:
        """Wait for something to happen, and turn it into events."""
        try:
            first = self.inbox.get(timeout=self._patience_s())
            self._linger()
            first()
            for _ in range(BATCH):
                self.inbox.get_nowait()()
        except queue.Empty:
            pass
        noticed, self.noticed = self.noticed, set()
        if len(noticed) >= MAX_WAITING:
            self.precedence.take()
        for node in noticed:
            self._fold(node)
        if self.ready:
            self._look()

    def _linger(self) -> None:
        """Let more come where much happens, to be committed and published as one."""
        wait_s = self._collected_s + self.pace_s - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        self._collected_s = time.monotonic()

    def _patience_s(self) -> float:
        """How long nothing needs to be looked at: until the end of the round, at most half a second."""
        if self.round is None:
            return 0.2
        left_s = self.round.end_s - self.now_s()
        return min(left_s, 0.5) if left_s > 0 else 0.02

    def _look(self) -> None:
        """What time alone brings: lost nodes, the end of the round, a stall, another try."""
        now = self.now_s()
        self.retries.look(now)
        if now - self._looked_s >= POLL_S:
            self._looked_s = now
            for name in self.fleet.silent(self.death_s):
                self.lose(name, "node lost")
            self.watch_nodes()
        if self.round is None:
            self._tell_corrections(now)
            self.retries.hold(now)
            self._look_idle(now)
            return
        over = now >= self.round.end_s and not self._begins(self.round, now)
        if over or self._may_end(self.round, now):
            self.end_round(now)

    def _begins(self, current: LiveRound, now: float) -> bool:
        """Is a start of the round young? Where starts take longer than rounds, jobs that take turns would
        never train otherwise."""
        limit_s = MAX_ROUND_S * current.length_s
        if now >= current.started_s + limit_s:
            return False
        return any(
            job not in current.ended and start.is_young(now, limit_s)
            for job, start in current.starts.items()
        )

    def _may_end(self, current: LiveRound, now: float) -> bool:
        """Before its time: when all of it has ended, or when jobs wait that could run on free devices. Jobs
        that go on do not notice, and neither do young starts, unless the policy would take their devices."""
        lasted_s = now - current.started_s
        if len(current.ended) == len(current.starts):
            return True
        wait_s = min(self.early_s, 1.0)  # it takes milliseconds to find out
        if not self.chance or lasted_s < self.early_s or now - self._asked_s < wait_s:
            return False
        self._asked_s = now
        self.chance = self.has_room()
        return self.chance and (self.heeds_costs() or not self._begins(current, now))

    def death_s(self, node: LiveNode) -> float:
        """Seconds behind the end of its leases after which no rank of a silent node lives."""
        starts = self.book.on_node.get(node.name, {}).values()
        return self.fleet.silence_s + max((s.row.spec.longest_grace_s for s in starts), default=0.0)

    def _look_idle(self, now: float) -> None:
        waits = any(
            row.state in ("waiting", "preempted") and row.retry_s is None
            for row in self.book.jobs.values()
        )
        if self.solving or self.events or not waits:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= STALL_S:
            self._idle_since = now + 30.0 - STALL_S  # again, but not all the time
            self.events.append(Stalled(now))

    # --- the end of a round ------------------------------------------------------------------------

    def end_round(self, now: float) -> None:
        """Report the round in force, if any. After a restart of the server nodes get time to come back."""
        if self.round is None or (now < self.settled_s and self._expects_nodes()):
            return
        self.precedence.take()
        self.fleet.round_ended()
        self.close_nodes()
        nodes = {node for start in self.round.starts.values() for node in start.nodes}
        for node in sorted(nodes):
            self._fold(node)  # progress alone is no news, so it has not been taken over yet
        current, self.round = self.round, None
        self.retries.hold(now)
        report = self._report(current, now)
        self._tell_adaptations(now)
        self._tell_corrections(now)
        if (costs := self.learn_costs(current, now)) is not None:
            self.events.append(costs)
        self.events.append(report)

    def _expects_nodes(self) -> bool:
        assert self.round is not None
        nodes = {node for start in self.round.starts.values() for node in start.nodes}
        return any(n in self.fleet.nodes and not self.fleet.nodes[n].registered for n in nodes)

    def _report(self, current: LiveRound, now: float) -> RoundEnded:
        shape = current.units.shape
        steps: Floats = np.zeros(shape)
        outcome: Ints = np.full(shape, int(RoundOutcome.RAN), np.int64)
        finish_s: Floats = np.full(shape[0], now)
        restart_s: Floats = np.zeros(shape[0])
        for u, unit in enumerate(current.units.tolist()):
            members = [job for job in unit if job >= 0]
            over = [current.ended[job] for job in members if job in current.ended]
            if over and len(over) == len(members):
                finish_s[u] = min(max(end.time_s for end in over), now)
            self._charge(members, float(finish_s[u]) - current.started_s, current)
            booked = all(end.outcome is RoundOutcome.RAN for end in over)
            for k, job in enumerate(members):
                restart_s[u] = max(restart_s[u], self._starting_s(current, job, now))
                if job in current.ended:
                    outcome[u, k] = int(current.ended[job].outcome)
                steps[u, k] = self._count(current, job, booked)
        return RoundEnded(now, current.number, steps, finish_s, outcome, restart_s)

    def _charge(self, members: list[int], lasted_s: float, current: LiveRound) -> None:
        """Device time goes to the account of its tenant; a packed pair shares it."""
        for job in members:
            row = current.starts[job].row
            device_s = max(lasted_s, 0.0) * row.spec.scale_factor / len(members)
            row.device_s += device_s
            self.book.sums(row.tenant).device_s += device_s

    def _lost_device_s(self, start: Attempt, seconds: float) -> None:
        row = start.row
        more = seconds * row.spec.scale_factor
        row.lost_device_s += more
        self.book.sums(row.tenant).lost_device_s += more

    def _starting_s(self, current: LiveRound, job: int, now: float) -> float:
        """Seconds of the round until training began."""
        start = current.starts[job]
        trained_s = start.stint.trained_s
        if trained_s is not None and trained_s <= current.started_s:
            return 0.0
        until = trained_s if trained_s is not None else now
        return float(min(until, now) - current.started_s)

    def _count(self, current: LiveRound, job: int, booked: bool) -> float:
        """Steps of a member that count in this round; of one that runs on, those that it will have told of
        by and by. What is not booked with the unit, and steps that were lost, are told as corrections."""
        start = current.starts[job]
        row = start.row
        end = current.ended.get(job)
        if end is not None and end.completed:
            self.adapted.discard(job)
            counts = (
                row.acknowledged_total
            )  # what it may have changed at the last does not matter any more
        elif end is not None:
            counts = row.countable(row.steps)
        else:
            counts = start.expected(self.fleet.monotonic())
        before = row.credited
        if end is None:
            row.steps = start.done()
        if end is not None and end.completed:
            row.steps = row.total_steps
        row.credited = counts
        self.book.dirty_jobs.add(job)
        if not booked or counts < before:
            self.corrections[job] = counts
            return 0.0
        return float(counts - before)

    def tell_corrections(self) -> None:
        """Before the core may go by the steps of a job that ran outside of the rounds."""
        self._tell_corrections(self.now_s())

    def _tell_corrections(self, now: float) -> None:
        told, self.corrections = self.corrections, {}
        told = {job: steps for job, steps in told.items() if job in self.book.jobs}
        if told:
            jobs = np.array(list(told), np.int64)
            self.events.append(ProgressCorrected(now, jobs, np.array(list(told.values()))))

    def correct(self, row: JobRow, steps: float, completed: bool = False) -> None:
        """So many steps are done of a job, whatever was counted before."""
        counts = steps if completed else row.countable(steps)
        if counts != row.credited:
            self.corrections[row.id] = counts
        row.steps, row.credited = steps, counts
        self.book.dirty_jobs.add(row.id)

    # --- what agents say ---------------------------------------------------------------------------

    def hear(self, node: str) -> None:
        """Take over the last that a node said, before it is forgotten."""
        self._fold(node)

    def _fold(self, node: str) -> None:
        """Take over what a node holds into the starts that it is part of."""
        holds, here = self.fleet.holds(node), self.book.on_node.get(node, {})
        for key, one in holds.items():
            if one.state == "ended" and key not in here:
                self.fleet.forget(node, key)  # it was booked long ago
        for start in list(here.values()):
            if node in start.gone or not start.ordered:
                continue
            held = holds.get(start.key)
            if held is not None:
                self._heard(start, node, held)
            elif self.fleet.never_began(node, start.key):
                start.gone.add(node)
            if node in start.gone and len(start.gone) == len(start.nodes):
                self._ended(start)

    def _heard(self, start: Attempt, node: str, held: AttemptStatus) -> None:
        before = start.held.get(node)
        if before is not None and before.state != "ended" and held.state == "ended":
            del start.held[node]  # in the order in which they end: the first one is to blame
        held = start.held[node] = held if before is None else as_known(held, before)
        if node == start.first_node:
            start.heard = self.fleet.nodes[node].seen
        row = start.row
        if held.loaded_step >= 0 and node == start.first_node and row.spec.unmanaged:
            self._told(start, held)
        elif held.loaded_step >= 0 and start.stint.trained_s is None and node == start.first_node:
            start.stint.trained_s = self._began_to_train_s(start, held)
            row.reason = ""  # whatever went wrong before
            self.retries.trains(start)
            self.book.dirty_stints[start.key] = start.stint
            self._loaded(start, held)
        if start.finishing and start.finishing_since is None:
            start.finishing_since = self.now_s()
            if row.state == "running" and not start.stopping:
                row.state = "finishing"
                self.book.dirty_jobs.add(row.id)
            self.order(start)  # the other nodes now know that it is
        if held.saved_step > row.saved_step:
            row.saved_step = held.saved_step
        if held.save_s >= 0:
            row.save_s = held.save_s
        if held.batch and held.batch != row.batch:
            row.batch, row.total_steps = held.batch, float(held.total_steps)
            self.adapted.add(row.id)
            self.book.dirty_jobs.add(row.id)
        if held.address and (before is None or before.address != held.address):
            self.order(start)  # the other nodes now know where rank 0 is
        self._heard_stall(start, node, held)
        if held.obstacle != ("" if before is None else before.obstacle):
            self.obstructed(node, row.id, held.obstacle)
        if held.state == "ended":
            start.gone.add(node)
            if start.broken:
                for other in start.nodes:
                    self.fleet.revoke(other, *start.key, held.reason or "other ranks ended")

    def _began_to_train_s(self, start: Attempt, held: AttemptStatus) -> float:
        """When training began: the report may have come late, from an agent that was away."""
        ago_s = max(held.ran_s, 0.0) + max(self.fleet.monotonic() - start.heard, 0.0)
        return max(self.now_s() - ago_s, start.stint.since_s)

    def _heard_stall(self, start: Attempt, node: str, held: AttemptStatus) -> None:
        """A start makes no progress, or does again; its other nodes are asked where their ranks stand."""
        row, first = start.row, node == start.first_node
        if first and start.stalled != bool(held.stall):
            start.stalled = bool(held.stall)
            self.order(start)
        told = [h.stall for h in start.held.values() if h.stall] if start.stalled else []
        stall = "; ".join(told)[:REASON]
        if stall == row.stall or held.state == "ended":
            return
        row.stall = stall
        stacks = [h.stacks for h in start.held.values() if h.stacks and stall]
        start.stint.traceback = "\n\n".join(stacks)
        self.book.dirty_jobs.add(row.id)
        self.book.dirty_stints[start.key] = start.stint

    def _loaded(self, start: Attempt, held: AttemptStatus) -> None:
        """Training goes on from a checkpoint: what was done beyond it is lost, and done again. Only now is
        that known, for the newest checkpoint may be one that nobody could tell of, or damaged. The job
        counts its steps itself; what was heard of them counts where it cannot (its folder was removed)."""
        row = start.row
        if row.started_s is None:
            row.started_s = self.now_s()
        step = float(held.loaded_step)
        start.stint.from_step = step
        more = max(row.reached_step - step, held.lost_steps - row.lost_steps)
        if more > 0:
            self._lose_steps(start, more)
        row.reached_step, row.saved_step = step, held.loaded_step
        self.correct(row, step)

    def _told(self, start: Attempt, held: AttemptStatus) -> None:
        """A job without the iterator says how far it is: from its first word on its steps count, not its
        time; what an earlier start did beyond that is lost."""
        row, stint = start.row, start.stint
        if held.saved_step >= 0:
            row.tells_saved = True
        if start.told:
            return
        start.told = row.tells_steps = True
        if row.started_s is None:
            row.started_s = self.now_s()
        step = float(held.loaded_step)
        if row.reached_step > step:
            self._lose_steps(start, row.reached_step - step)
        stint.from_step = row.reached_step = step
        row.saved_step = min(row.saved_step, held.loaded_step)
        self.correct(row, float(held.step))
        self.book.dirty_stints[start.key] = stint

    def _lose_steps(self, start: Attempt, steps: float) -> None:
        row = start.row
        done = (
            row.steps + row.lost_steps + steps
        )  # in all its device time so far, wherever that was
        row.lost_steps += steps
        start.stint.lost_steps += steps
        self._lost_device_s(start, row.run_s * steps / done if done > 0 else 0.0)
        self.book.dirty_jobs.add(start.row.id)
        self.book.dirty_stints[start.key] = start.stint

    def _tell_adaptations(self, now: float) -> None:
        """Jobs that train on with another batch size; their steps are those of the report that follows."""
        adapted, self.adapted = self.adapted, set()
        rows = [self.book.jobs[job] for job in sorted(adapted) if job in self.book.jobs]
        rows = [row for row in rows if row.open]
        if not rows:
            return
        for row in rows:
            self.learn_batch(row)
            row.acknowledged_total = row.total_steps
        self.events.append(
            RequirementsChanged(
                now,
                np.array([row.id for row in rows], np.int64),
                np.array([row.batch for row in rows], np.int64),
                np.array([row.total_steps for row in rows], np.float64),
                np.array([row.credited for row in rows], np.float64),
            )
        )

    def _ended(self, start: Attempt) -> None:
        """All ranks of a start are gone: book it."""
        now, row = self.now_s(), start.row
        failure, completed = start.failure(), start.completed()
        row.reached_step = max(row.reached_step, start.reached())
        keeps = (
            row.total_steps if completed else start.survives()
        )  # it may need fewer than announced
        timed = row.starts_over and not start.tells  # else the next start says what it goes on from
        if timed and not completed and (over := start.progress()) > 0:
            self._lose_steps(start, over)
        self._measure(start)
        self._write_stint(start, now, keeps, failure, completed)
        self.book.drop(start)
        for node in start.nodes:
            self.fleet.forget(
                node, start.key
            )  # not before: a restarted server asks what came of it
            self.fleet.revoke(node, *start.key, start.stint.why)
        row.stall = ""
        if failure:
            row.failures += 1
            row.reason = f"failed: {failure}"
        self.at_stop(start, failure)
        if completed and row.state not in ENDED_STATES:
            self.at_end(row, now)
        current = self.round
        if current is not None and current.starts.get(row.id) is start:
            lost = (
                start.lost or start.interrupted or (failure and not self._packed(current, row.id))
            )
            # What fails alone is judged here, not by the core; that of a pair must learn of it.
            outcome = (
                RoundOutcome.LOST if lost else RoundOutcome.FAILED if failure else RoundOutcome.RAN
            )
            current.ended[row.id] = EndedAttempt(now, outcome, completed)
            row.steps = keeps
            self.chance = True
            self.book.dirty_jobs.add(row.id)
        elif row.state not in ENDED_STATES:
            self._ended_late(start, now, keeps, completed)

    def _packed(self, current: LiveRound, job: int) -> bool:
        """Does a job share its devices with another in this round?"""
        return bool((current.units[(current.units == job).any(axis=1)] >= 0).sum() > 1)

    def _ended_late(self, start: Attempt, now: float, keeps: float, completed: bool) -> None:
        """A start that was told to stop is over; the next one of its job, if any, may begin."""
        row = start.row
        self.correct(row, row.acknowledged_total if completed else keeps, completed)
        row.steps = keeps
        following = self.book.newest(row.id)
        if following is None:
            if row.state in ON_DEVICES:  # it ran on, outside of the rounds
                row.state, self.chance = row.off_devices, True
                self.book.dirty_jobs.add(row.id)
            return
        if not completed:
            following.from_step = following.stint.from_step = keeps
            self.book.dirty_stints[following.key] = following.stint
            self.order(following)
            return
        current = self.round
        self._write_stint(following, now, keeps, "", True)
        self.book.drop(following)
        if current is not None and current.starts.get(row.id) is following:
            current.ended[row.id] = EndedAttempt(now, RoundOutcome.RAN, True)

    def _measure(self, start: Attempt) -> None:
        measured, row = start.measured(), start.row
        if measured is None:
            return
        if row.measured_on == start.stint.accelerator and row.measured_rate is not None:
            measured = (measured + row.measured_rate) / 2  # Gavel's blend: half of it is new
        row.measured_rate, row.measured_on = measured, start.stint.accelerator

    def _write_stint(
        self, start: Attempt, now: float, step: float, failure: str, completed: bool
    ) -> None:
        stint, row, leader = start.stint, start.row, start.leader
        stint.ended_s, stint.to_step = now, step
        if start.ordered:
            stint.reached_step = max(start.done(), step)
        if not start.ordered:
            stint.from_step = step
        stint.why = (
            "completed"
            if completed
            else "node lost"
            if start.lost
            else start.held[start.first_node].reason
            if start.interrupted and start.first_node in start.held
            else f"failed: {failure}"
            if failure
            else start.stopping or "ended"
        )
        if leader is not None and not start.cut_short:
            stint.wait_s, stint.start_s, stint.load_s = leader.wait_s, leader.start_s, leader.load_s
            stint.save_s, stint.stop_s = leader.save_s, leader.stop_s
            parts = (leader.start_s, leader.load_s, leader.stop_s)
            overhead_s = sum(max(part, 0.0) for part in parts)
            row.overhead_s += overhead_s + max(leader.wait_s, 0.0)
            self._lost_device_s(start, overhead_s)
        if start.ordered:
            row.run_s += now - stint.since_s
            row.preemptions += start.stopping in ("preempted", "moved")

    # --- what the core wants -------------------------------------------------------------------------

    def perform(self, command: Command) -> None:
        """Make a command so, from the next commit on."""
        match command:
            case StartRound():
                self._start_round(command)
            case Solve():
                self.solving = True
                self.ask(command)
            case EndRound():
                self.end_round(self.now_s())
                if self.round is not None:  # nodes are still coming back: at the first chance
                    self.round.length_s = 0.0
            case EndJobs():
                self._end_jobs(command)

    def _start_round(self, command: StartRound) -> None:
        starts: dict[int, Attempt] = {}
        kinds, places = self.cluster.device_type[command.devices], self._place(command.devices)
        bounds = itertools.pairwise(command.first.tolist())
        for unit, (first, behind) in zip(command.job_groups.tolist(), bounds, strict=True):
            placement = _by_node(places[first:behind])
            accelerator = self.cluster.accelerators[kinds[first]]
            members = [job for job in unit if job >= 0]
            for job in members:
                starts[job] = self._run(job, placement, accelerator, command.time_s)
            for job in members:
                self._share(starts[job], others_of(starts, members, job))
        self.decided(starts, self.solving)
        self._stop_others(starts)
        self._set_states(starts)
        self.round, self.chance = None, bool(self.events)  # what is told only now may be new jobs
        if starts:
            self.round = LiveRound(
                command.round, command.time_s, command.length_s, command.job_groups, starts
            )

    def _stop_others(self, starts: dict[int, Attempt]) -> None:
        """Stop what has no place in a round. Detained jobs run on outside of it, and so do those let go that
        the core has not decided on: it takes their devices for free, and may just have given them away."""
        taken = {(n, d) for s in starts.values() for n, ds in s.placement().items() for d in ds}
        for job in [job for job in self.book.live if job not in starts]:
            paused = self.book.jobs[job].state == "paused"
            runs_on = self.detained(job) and not paused and not self._uses(job, taken)
            self._stop(job, "paused" if paused else "preempted", ordered=not runs_on)

    def _uses(self, job: int, taken: set[tuple[str, int]]) -> bool:
        """Does a start of a job that has not been told to stop use one of these devices?"""
        return any(
            (node, device) in taken
            for start in self.book.live[job]
            if not start.stopping
            for node, devices in start.placement().items()
            for device in devices
        )

    def _share(self, start: Attempt, beside: tuple[tuple[int, int], ...]) -> None:
        """What a start does beside another job is not its rate: up to then it is measured."""
        if beside and not start.packed:
            self._measure(start)
        company = not set(beside) <= set(start.beside)
        start.shares(beside)
        if company:  # its nodes have to know whom they may let onto its devices
            self.order(start)

    def resume_round(self, command: StartRound, starts: dict[int, Attempt]) -> dict[int, Attempt]:
        """After a restart of the server: the round goes on, with what of it had ended already."""
        self.round = LiveRound(
            command.round, command.time_s, command.length_s, command.job_groups, starts
        )
        for unit in command.job_groups.tolist():
            members = [job for job in unit if job in starts]
            for job in members:
                starts[job].shares(others_of(starts, members, job))
        for job, start in starts.items():
            ended_s, why = start.stint.ended_s, start.stint.why
            if ended_s is not None:
                failed = why.startswith("failed")
                lost = why in ("node lost", EXPIRED, LEAVES, ORPHANED)
                lost = lost or (failed and not self._packed(self.round, job))
                outcome = (
                    RoundOutcome.LOST
                    if lost
                    else RoundOutcome.FAILED
                    if failed
                    else RoundOutcome.RAN
                )
                self.round.ended[job] = EndedAttempt(ended_s, outcome, why == "completed")
        return starts

    def _place(self, devices: Ints) -> list[tuple[str, int]]:
        """Of each device the name of its node, and its index there."""
        nodes = self.cluster.device_node[devices]
        index = devices - np.searchsorted(self.cluster.device_node, nodes)
        names = [self.cluster.nodes[node].name for node in nodes.tolist()]
        return list(zip(names, index.tolist(), strict=True))

    def _run(
        self, job: int, placement: dict[str, tuple[int, ...]], accelerator: str, now: float
    ) -> Attempt:
        """The start of a job on these devices: the one that runs there already, or a new one."""
        current = self.book.newest(job)
        goes_on = current is not None and not current.stopping and not current.lost
        if current is not None and goes_on and current.placement() == placement:
            return current
        self._stop(job, "moved")
        row = self.book.jobs[job]
        row.epoch += 1
        stint = AttemptRow(
            job=job,
            epoch=row.epoch,
            node=",".join(placement),
            accelerator=accelerator,
            devices=tuple(d for devices in placement.values() for d in devices),
            nodes=tuple(node for node, devices in placement.items() for _ in devices),
            began_s=now,
            ordered=False,
            from_step=row.steps,
        )
        start = Attempt(row, stint, ranks_on(placement), self.rate(row, accelerator), row.steps)
        self.book.add(start)
        self.order(start)
        return start

    def order(self, start: Attempt) -> None:
        """Order a start of its nodes, unless an earlier one of the job is not over yet."""
        if (
            start.stopping
            or start.lost
            or start.broken
            or self.book.live[start.row.id][0] is not start
        ):
            return
        if not start.ordered:
            self._first_order(start)
        for node in start.nodes:
            if node not in start.gone:
                self.fleet.want(
                    node, start.assignment(node, self.checkpoint_s(start), self.checkpoints)
                )

    def _first_order(self, start: Attempt) -> None:
        """From now on it is one that a process may run of."""
        start.ordered = start.stint.ordered = True
        start.stint.ordered_s = self.now_s()
        start.row.starts += 1
        if start.row.reason.startswith(RESTORED_WHY):
            start.row.reason = ""
        self.book.dirty_stints[start.key] = start.stint
        self.book.dirty_jobs.add(start.row.id)
        self.retries.began(start)

    def goes_on(self, job: int) -> bool:
        """Does a detained job run on, outside of the rounds?"""
        start = self.book.newest(job)
        runs = start is not None and start.ordered and not start.stopping and not start.lost
        return runs and self.detained(job)

    def stop(self, job: int, reason: str) -> None:
        """Tell all starts of a job to stop."""
        self._stop(job, reason)

    def _stop(self, job: int, reason: str, ordered: bool = True) -> None:
        """Tell all starts of a job to stop. ordered: also those that their nodes know of."""
        for start in list(self.book.live.get(job, ())):
            if start.stopping or start.lost or (start.ordered and not ordered):
                continue
            start.stopping = reason
            if not start.ordered:
                self._write_stint(start, self.now_s(), start.row.steps, "", False)
                self.book.drop(start)
                continue
            for node in start.nodes:
                self.fleet.revoke(node, job, start.stint.epoch, reason)

    def _set_states(self, starts: dict[int, Attempt]) -> None:
        for job, row in self.book.jobs.items():
            if row.reason_node and not self.detained(job):
                # It is where it is for what was decided now, not for what became of a node before.
                row.reason = row.reason_node = ""
                self.book.dirty_jobs.add(job)
            if job in starts:
                state: JobState = "finishing" if starts[job].finishing else "running"
            else:
                on_devices = row.state in ON_DEVICES and not self.goes_on(job)
                state = row.off_devices if on_devices else row.state
            if row.state != state:
                row.state = state
                self.book.dirty_jobs.add(job)

    def _end_jobs(self, command: EndJobs) -> None:
        for job, end, end_s in zip(
            command.jobs.tolist(), command.end.tolist(), command.end_s.tolist(), strict=True
        ):
            row = self.book.jobs[job]
            row.state = _END[end]  # type: ignore[assignment]
            row.ended_s = end_s
            if end == JobEnd.COMPLETED:
                row.reason = ""
            sums = self.book.sums(row.tenant)
            sums.done += end == JobEnd.COMPLETED
            if row.rho is not None and end == JobEnd.COMPLETED:
                sums.rho_sum += row.rho
                sums.rho_count += 1
            self.corrections.pop(job, None)
            self.book.close(job)
            self._stop(job, row.state)

    # --- nodes ---------------------------------------------------------------------------------------

    def lose(self, name: str, reason: str) -> None:
        """A node is gone, and with it whatever ran there."""
        self.hear(name)
        self.fleet.lose(name)
        self.abandon(name, list(self.book.on_node.get(name, {}).values()), reason)
        self.disable(name)

    def abandon(self, name: str, starts: list[Attempt], reason: str) -> None:
        """These starts no longer exist on a node; on their other nodes they must stop."""
        self.doom(starts, reason, name)
        for start in starts:
            self.part_over(name, start)

    def part_over(self, name: str, start: Attempt) -> None:
        """Nothing of a start is on this node, and nothing will be."""
        start.gone.add(name)
        if len(start.gone) == len(start.nodes):
            self._ended(start)

    def doom(self, starts: list[Attempt], reason: str, node: str) -> None:
        """These starts cannot go on, though parts of them may still run: all of them must stop.
        node: what the reason is about."""
        for start in starts:
            start.lost = True
            for other in start.nodes:
                self.fleet.revoke(other, start.row.id, start.stint.epoch, reason)
            start.row.reason, start.row.reason_node = reason, node

    def disable(self, name: str) -> None:
        """The core may no longer use a node."""
        if name not in self.lost_nodes:
            self.lost_nodes.add(name)
            self.events.append(NodeLost(self.now_s(), name))

    def put_back(self, name: str) -> None:
        """The core may use a node again."""
        if name in self.lost_nodes:
            self.lost_nodes.discard(name)
            self.chance = True
            self.events.append(NodeRecovered(self.now_s(), name))

    def forget_reasons(self, node: str) -> None:
        """Whatever was the matter with a node is so no longer."""
        for row in self.book.jobs.values():
            if row.reason_node == node:
                row.reason = row.reason_node = ""
                self.book.dirty_jobs.add(row.id)


def _by_node(places: list[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Node -> indices of its devices."""
    placement: dict[str, tuple[int, ...]] = {}
    for node, index in places:
        placement[node] = (*placement.get(node, ()), index)
    return placement


class RetriesLike(Protocol):
    """What is done about starts that fail: see ``retries``."""

    def trains(self, start: Attempt) -> None: ...
    def began(self, start: Attempt) -> None: ...
    def look(self, now: float) -> None: ...
    def hold(self, now: float) -> None: ...


class NoRetries:
    """Nothing is done."""

    def trains(self, start: Attempt) -> None:
        """Passed over."""

    def began(self, start: Attempt) -> None:
        """Passed over."""

    def look(self, now: float) -> None:
        """Nothing is due."""

    def hold(self, now: float) -> None:
        """Nobody is held back."""


def _know_already(row: JobRow) -> None:
    del row


def _know_costs(current: LiveRound, now: float) -> None:
    del current, now


def _take_no_note(jobs: Collection[int], solving: bool) -> None:
    del jobs, solving


def _nobody(job: int) -> bool:
    del job
    return False


def _let_wait(node: str, job: int, obstacle: str) -> None:
    del node, job, obstacle


def _hurry() -> None:
    pass
