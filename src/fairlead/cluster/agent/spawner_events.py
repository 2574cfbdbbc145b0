"""The effects on attempts of the spawner's messages about them, and of its own death."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from fairlead.client.messages import RankRefused
from fairlead.client.rank_environment import EXIT_MAY_NOT_RUN
from fairlead.cluster.agent.attempt_ending import AttemptEnding
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.counted_steps import counted_steps
from fairlead.cluster.agent.inspection import Inspector
from fairlead.cluster.agent.launch import checkpoint_path, failure_path, stacks_path
from fairlead.cluster.agent.logs import Logs
from fairlead.cluster.agent.node_attempts import NodeAttempts
from fairlead.cluster.agent.parked_jobs import ParkedJobs
from fairlead.cluster.agent.progress_reader import ProgressReader
from fairlead.cluster.agent.rank_failures import exit_failure, read_report
from fairlead.cluster.agent.rank_server import Key, RankConnections
from fairlead.cluster.agent.spawner_deaths import SpawnerDeaths
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_messages import (
    Exited,
    Failed,
    FromSpawner,
    Gone,
    Inspected,
    Parked,
    Pong,
    Ready,
    Released,
    Started,
    Unparked,
    Waits,
)
from fairlead.cluster.agent.suspension import Suspension
from fairlead.cluster.agent.untrusted_files import size_of
from fairlead.cluster.protocol.messages import (
    EXPIRED,
    ORPHANED,
    SPAWNER_STALLED,
    Failure,
    SpawnerDeath,
)

_DRAIN_TIMEOUT_S = 1.0  # for what a rank that has ended has said to be read
_log = logging.getLogger(__name__)


class SpawnerEvents:
    """``changed`` is called when there is news for the server."""

    def __init__(
        self,
        state: Path,
        attempts: NodeAttempts,
        *,
        spawner: SpawnerLink,
        ending: AttemptEnding,
        ranks: RankConnections,
        logs: Logs,
        progress: ProgressReader,
        inspector: Inspector,
        parked: ParkedJobs,
        suspension: Suspension,
        changed: Callable[[], None],
    ) -> None:
        """state: of the agent."""
        self._state = state
        self._attempts = attempts
        self._spawner = spawner
        self._ending = ending
        self._ranks = ranks
        self._logs = logs
        self._progress = progress
        self._inspector = inspector
        self._parked = parked
        self._suspension = suspension
        self._changed = changed
        self._deaths = SpawnerDeaths()
        self._orphaned: set[Key] = set()  # attempts of a spawner that died
        self._leaders: dict[int, tuple[Key, int]] = {}  # pid -> attempt and rank, of those that run

    async def handle(self, message: FromSpawner) -> None:
        """Apply a message of the spawner about an attempt."""
        if isinstance(message, Ready | Pong):
            if isinstance(message, Ready):
                self._end_orphaned()
            return
        if isinstance(message, Unparked):
            self._parked.remove((message.job, message.attempt))
            self._suspension.forget((message.job, message.attempt))
            return
        attempt = self._attempts.get((message.job, message.attempt))
        if attempt is None or attempt.ended:
            return
        if isinstance(message, Exited) and message.rank == 0 and attempt.hears_rank_0:
            await self._hear_out(attempt, message)
        now = time.monotonic()
        at_s = message.at_s if isinstance(message, Exited | Gone) else now
        if isinstance(message, Exited | Gone | Failed):
            # First: an attempt that has no lease any more is not blamed for its end. Others may have ended in
            # time, which is heard next.
            self._ending.expire(attempt, at_s)
        match message:
            case Inspected():
                self._inspector.receive(message)
                return
            case Started():
                self._leaders |= {pid: (attempt.key, r) for r, pid in message.pids.items()}
                attempt.started(message.free_s)
                self._parked.remove((message.job, attempt.assignment.resumes))
                if message.resumed_s is not None:
                    attempt.note_ended_before(message.pids.keys(), message.resumed_s)
                    self._suspension.resumed(attempt, message.resumed_s)
            case Released():
                attempt.release(message.at_s)
            case Parked():
                self._parked.add(attempt, message.pids)
                self._suspension.parked(attempt)
            case Waits():
                attempt.waits(message.reason, now, obstacle=message.obstacle)
                if message.obstacle:
                    _log.warning("job %d cannot start yet: %s", message.job, message.reason)
            case Failed():
                end = attempt.ended_for if message.began else attempt.failed
                end(message.rank, message.reason, now)
            case Exited():
                self._forget_leaders(attempt.key, message.rank)
                self._exited(attempt, message)
            case Gone():
                self._forget_leaders(attempt.key)
                attempt.record_exit(at_s)
                if attempt.stop_order.released_s is None:  # else its program may be parked
                    self._logs.program_ended(*attempt.files_key)
                self._attempts.keep_end(attempt)
                if attempt.is_through:
                    self._parked.add_ended(attempt)
                self._progress.forget(attempt.key)
                self._refuse_rank(attempt)
        self._changed()

    def leaders(self) -> dict[int, tuple[Key, int]]:
        """Return pid -> attempt and rank, of ranks that run."""
        return self._leaders

    def _forget_leaders(self, key: Key, rank: int | None = None) -> None:
        """They are known to have ended. rank: None = all."""
        for pid, (its, r) in list(self._leaders.items()):
            if its == key and rank in (None, r):
                del self._leaders[pid]

    def _exited(self, attempt: NodeAttempt, end: Exited) -> None:
        now = end.at_s
        if end.expired:
            # Where the agent has had it extended, the spawner has not heard that, nor its warden.
            attempt.stop(SPAWNER_STALLED if attempt.lease.left_s(end.at_s) > 0.0 else EXPIRED, now)
        elif end.leaving:  # somebody has told it to end, and not this agent
            attempt.stop(ORPHANED, now)
        elif may_have_expired(attempt, end) and attempt.reported_lease.is_short(end.at_s):
            attempt.stop(EXPIRED, now)
        if attempt.may_report_progress:
            self._progress.poll_last(attempt, now)
        attempt.note_termination(end.code, terminated=end.terminated)
        failure = self._failure(attempt, end)
        self._note_left_loop(attempt, end)
        began = self._has_begun(attempt, end.rank)
        if attempt.exited(end.rank, end.code, failure, now, began=began):
            # Rank 0 tells the others in their loops; before that none hears of it.
            unheard = attempt.hears_rank_0 and attempt.steps.loaded is None
            self._ending.end(attempt, terminate=attempt.assignment.unmanaged or unheard)

    async def _hear_out(self, attempt: NodeAttempt, end: Exited) -> None:
        """Take over all that rank 0, which has ended, has said and counted, unless it had said so itself."""
        if attempt.steps.has_told_its_end and not may_have_expired(attempt, end):
            return
        await self._ranks.drain(attempt.key, _DRAIN_TIMEOUT_S)
        if attempt.steps.loaded is None or attempt.steps.has_told_its_end:
            return
        folder = checkpoint_path(self._state, attempt.assignment)
        step = await counted_steps(folder, attempt.assignment.job, attempt.steps.loaded)
        attempt.counted(step, end.at_s)

    def _has_begun(self, attempt: NodeAttempt, rank: int) -> bool:
        """Return whether a rank came to its loop, or may have: one that goes on did so before."""
        stacks = stacks_path(self._state, *attempt.files_key, rank)
        return attempt.assignment.resumes > 0 or size_of(stacks) > 0

    def _refuse_rank(self, attempt: NodeAttempt) -> None:
        """Refuse a rank that reports for an attempt that is over. It is not one of our processes and could
        not be ended: for example a container of a daemon whose command was killed. It may not go on."""
        self._ranks.send(attempt.key, RankRefused(reason="this attempt of the job is over"))

    def _failure(self, attempt: NodeAttempt, end: Exited) -> Failure | None:
        """Return how a rank ended, None: well."""
        rank, code = end.rank, end.code
        if not code:
            return None
        report = read_report(failure_path(self._state, *attempt.files_key, rank))
        if report is not None and report.left >= 0:  # it ended badly after that
            report = None
        output, lost = self._logs.tail(*attempt.key, rank)
        return exit_failure(
            rank,
            code,
            report,
            output,
            world_size=attempt.assignment.world_size,
            checkpoints=str(checkpoint_path(self._state, attempt.assignment)),
            memory_ran_out=attempt.exits.memory_ran_out,
            output_lost=lost,
            exceeded=end.exceeded,
            terminated=end.terminated or attempt.stop_order.given,
        )

    def _note_left_loop(self, attempt: NodeAttempt, end: Exited) -> None:
        """Note at which step a rank of a gang has left its loop by itself, and ended well."""
        if end.code or attempt.assignment.unmanaged or attempt.assignment.world_size == 1:
            return
        report = read_report(failure_path(self._state, *attempt.files_key, end.rank))
        if report is not None and report.left >= 0:
            attempt.exits.note_left_loop(end.rank, report.left)

    # --- its death -------------------------------------------------------------------------------
    async def handle_loss(self, ended: dict[int, int], heard_s: float) -> None:
        """The spawner was killed. The next one ends its ranks, and says when. ended: pids and exit codes of
        what it had not waited for; heard_s: when it was last heard of, monotonic."""
        now = time.monotonic()
        death, replaced = self._induced_death(now), self._spawner.replacement
        # Where another has killed it, the warden may have ended them since.
        for pid in ended.keys() & (replaced.ended if replaced is not None else ()):
            self._ended_unheard(pid, ended[pid], heard_s)
        self._leaders.clear()
        self._parked.clear()
        self._suspension.clear()
        for attempt in self._attempts:
            if attempt.launched and not attempt.ended:
                was_there = death is not None and attempt.key[0] in death.jobs
                attempt.stop_order.spawner_death = death if was_there else None
                if not attempt.has_ended_in_time:
                    attempt.stop(ORPHANED, now)
                self._orphaned.add(attempt.key)
        self._changed()

    def _ended_unheard(self, pid: int, code: int, heard_s: float) -> None:
        """A rank had ended while its spawner stood still, before this agent killed that: by itself, unless
        its lease was over by then, as far as the warden had heard."""
        key, rank = self._leaders.get(pid, ((-1, -1), -1))
        attempt, replaced = self._attempts.get(key), self._spawner.replacement
        if attempt is None or attempt.ended or replaced is None:
            return
        if attempt.lease.confirmed <= replaced.at_s:
            return
        job, number = key
        told = attempt.stop_order.given
        end = Exited(job=job, attempt=number, rank=rank, code=code, terminated=told, at_s=heard_s)
        self._exited(attempt, end)

    def _induced_death(self, now: float) -> SpawnerDeath | None:
        """Its death, if somebody has brought that about: by killing it, or by stopping it."""
        replacement = self._spawner.replacement
        if replacement is None:
            return self._deaths.note(self._attempts.running_jobs(), now)
        if replacement.jobs_when_stopped is None:
            return None
        return self._deaths.note(replacement.jobs_when_stopped, now)

    def problem(self, now: float) -> str:
        """Return the problem of the node that the spawner's deaths show, "" = none."""
        return self._deaths.problem(now)

    def _end_orphaned(self) -> None:
        for key in self._orphaned:
            if (attempt := self._attempts.get(key)) is not None:
                ended = attempt.has_ended_in_time
                attempt.record_exit(attempt.exits.ended_s if ended else time.monotonic())
                self._attempts.keep_end(attempt)
        self._orphaned.clear()
        self._changed()


def may_have_expired(attempt: NodeAttempt, end: Exited) -> bool:
    """Return whether this rank may have ended because, as far as it knew, its lease was over."""
    code = end.code in (0, EXIT_MAY_NOT_RUN)
    told = attempt.steps.end_reason not in ("", EXPIRED)  # it has said why its loop is over
    return code and end.rank == 0 and attempt.hears_rank_0 and not (attempt.finishing or told)
