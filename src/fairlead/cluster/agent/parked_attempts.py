"""Attempts that are over but for their processes: these are parked, see ``fairlead.client.parking``."""

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

from fairlead.client.parking import MAX_LOCKS, PARKED, RELEASED, resume_order
from fairlead.cluster.agent import locks
from fairlead.cluster.agent.device_claim import SpawnerStorage
from fairlead.cluster.agent.running_attempts import EndingTimes, Key, SpawnedAttempt
from fairlead.cluster.agent.spawner_messages import (
    AgentSocket,
    EndParked,
    Gone,
    Parked,
    RankLaunch,
    Released,
    Suspend,
    Unparked,
)
from fairlead.cluster.agent.survivors import remove_record
from fairlead.cluster.agent.suspended import (
    continue_processes,
    has_lost,
    kill_processes,
    stop_processes,
)
from fairlead.cluster.agent.warden import AttemptEnded, WardenLink

_KILL_AGAIN_S = 1.0  # a group may have grown while it was killed
_WORD_BYTES = 64
_OF_ATTEMPT = "FAIRLEAD_"  # how the variables begin that another attempt of a job has others of
_OF_PROCESS = ("FAIRLEAD_RANK_SYNC", "FAIRLEAD_PARKING")  # and of these those that it has not


class ParkedAttempts:
    """The spawner's, at most one of each job. ``freed`` is called when devices are free."""

    def __init__(
        self,
        storage: SpawnerStorage,
        *,
        selector: selectors.BaseSelector,
        agent: AgentSocket,
        warden: WardenLink,
        running: dict[Key, SpawnedAttempt],
        freed: Callable[[], None],
    ) -> None:
        """running: the attempts that are not over, of which this takes out what is parked."""
        self._storage = storage
        self._selector = selector
        self._agent = agent
        self._warden = warden
        self._running = running
        self._freed = freed
        self._by_job: dict[int, SpawnedAttempt] = {}
        self._is_closed = False  # nobody will have anything go on any more

    def __iter__(self) -> Iterator[SpawnedAttempt]:
        return iter(list(self._by_job.values()))

    def __bool__(self) -> bool:
        return bool(self._by_job)

    def due(self) -> Iterator[float]:
        """When there is something to do (monotonic)."""
        for attempt in self._by_job.values():
            if attempt.ending.kill_s is not None:
                yield attempt.ending.kill_s

    def listen(self, attempt: SpawnedAttempt) -> None:
        """Hear what the ranks of an attempt say of parking."""
        for rank, ours in attempt.processes.parking.sockets.items():
            handle = partial(self._hear, attempt, rank)
            if ours.fileno() in self._selector.get_map():
                self._selector.modify(ours, selectors.EVENT_READ, handle)
            else:
                self._selector.register(ours, selectors.EVENT_READ, handle)

    def hang_up(self, attempt: SpawnedAttempt) -> None:
        """Close the sockets of its ranks, on which those end that wait there."""
        sockets = attempt.processes.parking.sockets
        for rank in list(sockets):
            self._close(attempt, rank)

    def _close(self, attempt: SpawnedAttempt, rank: int) -> None:
        ours = attempt.processes.parking.sockets.pop(rank)
        self._selector.unregister(ours)
        ours.close()

    def _hear(self, attempt: SpawnedAttempt, rank: int) -> None:
        parking = attempt.processes.parking
        if rank not in parking.sockets:
            return
        try:
            word = parking.sockets[rank].recv(_WORD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if attempt.key not in self._running or word not in (RELEASED, PARKED):
            self._close(attempt, rank)
            return
        (parking.released if word == RELEASED else parking.parked).add(rank)
        ranks = {one.rank for one in attempt.launch.ranks}
        if parking.released >= ranks and not attempt.claim.given_back:
            attempt.claim.give_back(self._storage)
            self._freed()
            job, number = attempt.key
            self._agent.send(Released(job=job, attempt=number, at_s=time.monotonic()))
        if parking.parked >= ranks and attempt.claim.given_back:
            self._park(attempt)

    def _park(self, attempt: SpawnedAttempt) -> None:
        """All ranks of an attempt are parked: it is over."""
        job, number = attempt.key
        now = time.monotonic()
        pids = attempt.processes.pids
        self._agent.send(Parked(job=job, attempt=number, pids=pids))
        for rank, pid in pids.items():
            self._agent.send(attempt.exited(pid, rank, 0, now, leaving=False))
        attempt.claim.give_up(self._storage)
        attempt.ending = EndingTimes()
        attempt.processes.parking.released.clear()
        attempt.processes.parking.parked.clear()
        attempt.processes.parking.is_over = True
        for leader in pids.values():
            _signal_group(leader, signal.SIGSTOP)
        del self._running[attempt.key]
        self._by_job[job] = attempt
        attempt.record(self._storage)
        self._warden.send(attempt.watched(self._storage))
        self._freed()
        self._agent.send(Gone(job=job, attempt=number, at_s=now))
        if self._is_closed:
            self._end(attempt)

    def suspend(self, order: Suspend) -> bool:
        """Park the ranks of an attempt, programs without the iterator, as they are, but for those that have
        come to their end. Returns whether they are; if not they run on."""
        job, number = order.job, order.attempt
        attempt = self._running.get((job, number))
        if attempt is None or not (attempt.launch.suspends and attempt.is_whole):
            return False
        attempt.processes.stopped = stop_processes(attempt)
        if not attempt.processes.stopped:
            return False
        attempt.claim.suspend(self._storage)
        # It has not come to its end, though it is told of with an exit.
        attempt.processes.terminated.update(attempt.processes.leaders)
        self._agent.send(Released(job=job, attempt=number, at_s=time.monotonic()))
        self._park(attempt)
        return True

    def take(self, attempt: SpawnedAttempt) -> str:
        """Take the locks of the devices of an attempt; where processes are to go on that stand still, those
        that they have inherited. Returns "", or why they cannot be taken. Raises OSError."""
        before = self._by_job.get(attempt.launch.job)
        if before is None or before.claim.inherited is None:
            return attempt.claim.take(self._storage)
        return attempt.claim.retake(before.claim.inherited, self._storage)

    def allows(self, attempt: SpawnedAttempt) -> bool:
        """Return whether an attempt may begin: of its job nothing is parked but what it goes on with. What
        else is parked of it is killed first."""
        before = self._by_job.get(attempt.launch.job)
        if before is None or self._fits(attempt, before):
            return True
        self._end(before)
        return False

    def _fits(self, attempt: SpawnedAttempt, before: SpawnedAttempt) -> bool:
        numbers = [[one.rank for one in x.launch.ranks] for x in (attempt, before)]
        if before.claim.inherited is not None:  # they know their devices by their environment
            devices = [[one.devices for one in x.launch.ranks] for x in (attempt, before)]
            if devices[0] != devices[1] or attempt.launch.colocated:
                return False
            if has_lost(before.processes.stopped):  # not of a rank: that is heard of
                return False
        return (
            before.launch.attempt == attempt.launch.resumes
            and before.launch.token == attempt.launch.token
            and before.ending.kill_s is None
            and numbers[0] == numbers[1]
            and bool(before.processes.leaders)  # where one has ended since, all are ended
        )

    def resume(self, attempt: SpawnedAttempt, logs: list[int]) -> bool:
        """Let the ranks of what is parked go on as an attempt that has its devices. logs: of its ranks.
        Returns whether they do; if not they are killed."""
        before = self._by_job.get(attempt.launch.job)
        if before is None or not self._fits(attempt, before):
            return False
        if before.claim.inherited is not None:
            continue_processes(before)
            attempt.claim.retaken = False
            before.claim.drop_inherited()
        elif not self._send_orders(attempt, before, logs):
            self._end(before)
            return False
        for leader in before.processes.leaders:
            _signal_group(leader, signal.SIGCONT)
        del self._by_job[attempt.launch.job]
        attempt.take_over(before)
        attempt.record(self._storage)
        self._warden.send(attempt.watched(self._storage))
        self._forget(before)
        self.listen(attempt)
        return True

    def _send_orders(
        self, attempt: SpawnedAttempt, before: SpawnedAttempt, logs: list[int]
    ) -> bool:
        """Tell parked ranks to go on as an attempt. Returns whether all could be told."""
        sockets = before.processes.parking.sockets
        for rank, log in zip(attempt.launch.ranks, logs, strict=True):
            job_lock, *others = attempt.claim.locks_of(rank, self._storage)
            try:
                order = resume_order(_variables(rank), job_locks=1)
                socket.send_fds(sockets[rank.rank], [order], [log, job_lock, *others[:MAX_LOCKS]])
            except (OSError, KeyError):
                return False
        return True

    def end(self, order: EndParked) -> None:
        """Kill what is parked of an attempt, if it still is."""
        before = self._by_job.get(order.job)
        if before is not None and before.launch.attempt == order.attempt:
            self._end(before)

    def end_all(self) -> None:
        """Kill all, and what will be parked from now on."""
        self._is_closed = True
        for attempt in self:
            self._end(attempt)

    def _end(self, attempt: SpawnedAttempt) -> None:
        """It was stopped when it was parked, and shall not run again: its job may run elsewhere."""
        if attempt.ending.kill_s is None:
            self.hang_up(attempt)
            kill_processes(attempt)  # before its ranks die, below which they are found
            attempt.kill()
            attempt.ending.kill_by(time.monotonic() + _KILL_AGAIN_S)

    def kill_late(self, now: float) -> None:
        """Kill once more what has not died yet."""
        for attempt in self._by_job.values():
            if attempt.ending.must_kill(now):
                attempt.kill()
                attempt.ending.kill_s = now + _KILL_AGAIN_S

    def reaped(self, attempt: SpawnedAttempt, pid: int) -> None:
        """A rank of a parked attempt has ended; the others have nothing to go on with."""
        del attempt.processes.leaders[pid]
        self._end(attempt)
        if not attempt.processes.leaders:
            del self._by_job[attempt.launch.job]
            attempt.kill_left()
            kill_processes(attempt)
            if attempt.claim.inherited is not None:
                locks.forget_job(self._storage.state / "locks", attempt.launch.job)
                attempt.claim.drop_inherited()
            attempt.remove_group()
            self._forget(attempt)
            self._freed()
            job, number = attempt.key
            self._agent.send(Unparked(job=job, attempt=number))

    def _forget(self, attempt: SpawnedAttempt) -> None:
        """Nothing of it is left under its number."""
        for folder in self._storage.attempt_records:
            remove_record(folder, *attempt.key)
        self._warden.send(AttemptEnded(job=attempt.launch.job, attempt=attempt.launch.attempt))


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.killpg(leader, number)


def _variables(rank: RankLaunch) -> dict[str, str]:
    """Return the variables of a rank that tell of its attempt."""
    return {
        name: value
        for name, value in rank.env.items()
        if name.startswith(_OF_ATTEMPT) and not name.startswith(_OF_PROCESS)
    }
