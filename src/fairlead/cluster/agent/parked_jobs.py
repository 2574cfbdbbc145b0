"""The jobs that are parked on a node: within a limit of its memory, and for as long as that is of use."""

import resource
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from fairlead.cluster.agent import proc
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.rank_server import Key
from fairlead.cluster.agent.spawner_link import SpawnerLink
from fairlead.cluster.agent.spawner_messages import EndParked
from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.messages import Assignment, ParkedAttempt, Rank

DEFAULT_SHARE = 0.25  # of the machine's memory


@dataclass(frozen=True, slots=True)
class ParkedJob:
    """An attempt whose ranks here are parked."""

    key: Key
    token: str
    ranks: tuple[Rank, ...]
    memory_bytes: int
    since_s: float  # monotonic
    is_suspended: bool  # programs without the iterator, as they are
    has_ended: bool = False  # and nothing is left of them: the ranks here have come to their end


class ParkedJobs:
    """The agent's; ``changed`` is called when there is news for the server."""

    def __init__(
        self, spawner: SpawnerLink, limit_bytes: int | None, changed: Callable[[], None]
    ) -> None:
        """limit_bytes: of memory that all of them may take; 0 = nothing is parked, None = a quarter of the
        machine's."""
        self._spawner = spawner
        self._limit_bytes = (
            int(psutil.virtual_memory().total * DEFAULT_SHARE)
            if limit_bytes is None
            else limit_bytes
        )
        self._changed = changed
        self._by_key: dict[Key, ParkedJob] = {}  # in the order in which they were parked
        self._ending: set[Key] = set()

    def may_park(self, attempt: NodeAttempt, reason: str) -> bool:
        """Return whether an attempt that is told to stop for this reason may be parked."""
        trains = attempt.steps.loaded is not None and not attempt.finishing
        return (
            self._limit_bytes > 0
            and attempt.assignment.park
            and reason == AttemptEnd.PREEMPTED
            and trains
        )

    def may_suspend(self, attempt: NodeAttempt, reason: str, pids: Collection[int]) -> bool:
        """Return whether an attempt without the iterator that is told to stop for this reason may be parked
        as it is: what its ranks use, of these pids, is within the limit, beside all such that are parked."""
        runs = attempt.state == "running" and not attempt.assignment.colocated
        if not (attempt.assignment.suspend and reason == AttemptEnd.PREEMPTED and runs and pids):
            return False
        parked = sum(one.memory_bytes for one in self._kept if one.is_suspended)
        return parked + _memory_of(pids) <= self._limit_bytes

    def may_leave_parked(self, attempt: NodeAttempt, reason: str) -> bool:
        """Return whether an attempt that is told to stop for this reason may have the program parked again
        that it was to go on with: it is about to, or has, and this agent has not heard of that. There was
        room for it, and its devices are where they were."""
        resumes = (
            attempt.launched and attempt.state == "starting" and attempt.assignment.resumes > 0
        )
        return attempt.assignment.suspend and reason == AttemptEnd.PREEMPTED and resumes

    @property
    def _kept(self) -> list[ParkedJob]:
        return [one for key, one in self._by_key.items() if key not in self._ending]

    def add(self, attempt: NodeAttempt, pids: Mapping[int, int]) -> None:
        """The ranks of an attempt are parked. Over the limit those that were parked first are ended, but no
        programs without the iterator: what they have done is nowhere else. pids: rank -> its process."""
        self._by_key[attempt.key] = ParkedJob(
            key=attempt.key,
            token=attempt.token,
            ranks=attempt.assignment.ranks,
            memory_bytes=_memory_of(set(pids.values())),
            since_s=time.monotonic(),
            is_suspended=attempt.assignment.unmanaged,
        )
        kept = self._kept
        total = sum(one.memory_bytes for one in kept)
        for one in kept:
            if total <= self._limit_bytes:
                break
            if not one.is_suspended:
                total -= one.memory_bytes
                self._end(one.key)
        self._changed()

    def add_ended(self, attempt: NodeAttempt) -> None:
        """The ranks here of a gang of programs have come to their end. Where those elsewhere are parked, what
        goes on with them has nothing to do here."""
        self._by_key[attempt.key] = ParkedJob(
            key=attempt.key,
            token=attempt.token,
            ranks=attempt.assignment.ranks,
            memory_bytes=0,
            since_s=time.monotonic(),
            is_suspended=True,
            has_ended=True,
        )
        self._changed()

    def remove(self, key: Key) -> None:
        """Its processes have ended, or go on."""
        self._ending.discard(key)
        if self._by_key.pop(key, None) is not None:
            self._changed()

    def clear(self) -> None:
        """Whoever owned the processes has died, and they with it."""
        self._by_key = {key: one for key, one in self._by_key.items() if one.has_ended}
        self._ending.clear()
        self._changed()

    def goes_on_as(self, assignment: Assignment) -> ParkedJob | None:
        """Return the parked ranks that go on as this attempt; None = there are none. A program without the
        iterator may be parked as of an attempt before the one that is to be resumed: where that never began,
        it has stood still since."""
        mine = [one for one in self._kept if one.key[0] == assignment.job]
        last = max(mine, key=lambda one: one.key, default=None)
        if last is None or last.key[1] == assignment.resumes:
            return last
        stood = assignment.suspend and last.is_suspended and last.key[1] < assignment.resumes
        return last if stood else None

    def end(self, keys: Collection[Key]) -> None:
        """They are of no use any more."""
        for key in keys:
            if key in self._by_key:
                self._end(key)

    def _end(self, key: Key) -> None:
        if self._by_key[key].has_ended:
            self.remove(key)
        elif key not in self._ending:
            self._ending.add(key)
            self._spawner.send(EndParked(job=key[0], attempt=key[1]))

    def report(self) -> tuple[ParkedAttempt, ...]:
        """Return what the server is told of them."""
        now = time.monotonic()
        return tuple(
            ParkedAttempt(
                job=one.key[0],
                attempt=one.key[1],
                ranks=one.ranks,
                memory_bytes=one.memory_bytes,
                age_s=max(now - one.since_s, 0.0),
            )
            for one in self._kept
        )


def _memory_of(leaders: Collection[int]) -> int:
    """Bytes of memory that the processes of these sessions have in use, and those that they have started."""
    return sum(_pages(one.pid) for one in proc.below(leaders)) * resource.getpagesize()


def _pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
