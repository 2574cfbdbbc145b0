"""A start as the spawner has it: its processes, its locks, its record on disk."""

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from fairlead.cluster.agent import locks, proc
from fairlead.cluster.agent.device_locks import DeviceLocks
from fairlead.cluster.agent.newborn import Newborn, give_birth
from fairlead.cluster.agent.spawner_messages import EndAttempt, Launch, RankLaunch
from fairlead.cluster.agent.survivors import (
    AttemptRecord,
    boot_id,
    write_record,
)
from fairlead.cluster.agent.untrusted_files import read_regular
from fairlead.cluster.agent.warden import Watched
from fairlead.cluster.agent.zygote import (
    Fork,
    Zygote,
)

_LARGEST_PID = 1 << 22  # that Linux gives
_FORK_S = 120.0  # for a rank to be forked, imports of the zygote included

Key = tuple[int, int]  # (job, attempt)


@dataclass(frozen=True)
class Ground:
    """Where a spawner keeps what outlives it."""

    state: Path  # of the agent: lock files of jobs, and of seats on devices
    starts: tuple[
        Path, ...
    ]  # folders with a record of each start: below the state, and on the machine
    devices: DeviceLocks


class NotStartedError(Exception):
    """A rank cannot be started, whenever it is tried; the sentence says why."""


@dataclass
class SpawnedAttempt:
    """``take_devices``, then ``start`` each rank."""

    launch: Launch
    held: dict[int | None, int] | None = None  # lock of each device; None = it waits for them
    retry_s: float = 0.0  # not before this time
    waits_for: str = ""  # as the agent was told
    look_s: float | None = None  # when to look for who holds its devices; None = nobody does
    zygote: Zygote | None = None  # that its ranks are forked from
    forking: dict[int, float] = field(default_factory=dict)  # rank -> until when
    newborn: dict[int, Newborn] = field(default_factory=dict)  # rank -> its process before exec
    unstarted: set[int] = field(default_factory=set)  # ranks whose program never ran
    leaders: dict[int, int] = field(default_factory=dict)  # pid -> rank, of those that live
    sessions: set[int] = field(default_factory=set)
    born: list[tuple[int, int]] = field(default_factory=list)  # (pid, start time)
    free_s: float = 0.0  # when the devices were free
    terminated: bool = False
    kill_s: float | None = None  # when to send SIGKILL
    until_s: float | None = None  # when the lease is over
    expired: bool = False  # was it ended at the end of its lease?
    dead_s: float | None = None  # when the last rank had ended

    @property
    def key(self) -> Key:
        """(job, attempt)."""
        return self.launch.job, self.launch.attempt

    @property
    def devices(self) -> set[int]:
        """Of all its ranks here."""
        return {device for rank in self.launch.ranks for device in rank.devices}

    def is_expired(self, now: float) -> bool:
        """Was its lease over by now (monotonic)? Then whoever stirred first has ended it: the spawner, or the
        warden."""
        return self.expired or (self.until_s is not None and self.until_s <= now)

    def may_run_beside(self, other: "SpawnedAttempt") -> bool:
        """Are their devices different, or are they to share them? A job never runs beside itself."""
        if other.launch.job == self.launch.job:
            return False
        company = other.key in self.launch.beside or self.key in other.launch.beside
        return company or not other.devices & self.devices

    def lock_files(self, ground: Ground) -> dict[Path, int]:
        """Lock file -> its device, of those that it needs."""
        folder = ground.state / "locks"
        files = {file: d for d in self.devices for file in locks.slot_files(folder, d)}
        return files | {ground.devices.path(device): device for device in self.devices}

    def take_devices(self, ground: Ground) -> str:
        """Take the locks; "" = done, else why not. Raises OSError."""
        held = locks.lock_slots(ground.state / "locks", self.launch.job, self.devices)
        if held is None:
            return "what ran there before has not ended"
        try:
            taken = ground.devices.take(self.devices)
        except OSError:
            locks.release(held.values())
            raise
        if taken is not None:
            locks.release(held.values())
            return f"device {taken} is in use by another agent of this machine, or what it left"
        self.held, self.free_s = held, time.monotonic()
        return ""

    def give_back(self, ground: Ground) -> None:
        """Close the locks; ranks that live keep theirs."""
        if self.held is not None:
            locks.release(self.held.values())
            ground.devices.give_back(self.devices)
            self.held = None

    def order_to_end(self, kill_after_s: float) -> EndAttempt:
        """As the agent would give it: SIGTERM now, SIGKILL then."""
        job, attempt = self.key
        return EndAttempt(job=job, attempt=attempt, terminate=True, kill_after_s=kill_after_s)

    def watched(self, ground: Ground) -> Watched:
        """What there is, for the warden."""
        record = msgspec.structs.replace(self._as_record(ground), terminated=self.terminated)
        return Watched(record=record, until_s=self.until_s, kill_s=self.kill_s)

    def _as_record(self, ground: Ground) -> AttemptRecord:
        launch = self.launch
        return AttemptRecord(
            job=launch.job,
            attempt=launch.attempt,
            token=launch.token,
            grace_s=launch.grace_s,
            leaders=tuple(self.born),
            boot=boot_id(),
            locks=tuple(str(ground.devices.path(device)) for device in sorted(self.devices)),
        )

    def record(self, ground: Ground) -> None:
        """Write down what there is. Raises OSError only before there is a process."""
        record = self._as_record(ground)
        try:
            for folder in ground.starts:
                write_record(folder, record)
        except OSError:
            if not self.born:
                raise  # later the token that is on disk already must do

    def start(self, rank: RankLaunch, log: int, ground: Ground) -> None:
        """Fork it or exec it. Raises NotStartedError."""
        if self.zygote is not None and self._fork(rank, log, self.zygote, ground):
            return
        try:
            newborn = give_birth(
                rank.argv,
                rank.env,
                rank.cwd,
                output=log,
                keep=self._locks_of(rank, ground),
                limit_s=self.launch.start_limit_s,
            )
        except OSError as problem:
            told = f"{rank.argv[0]!r} cannot be started: {problem.strerror}"
            raise NotStartedError(f"rank {rank.rank}: {told}") from None
        self.newborn[rank.rank] = newborn
        self.know(rank.rank, newborn.pid)

    def know(self, rank: int, pid: int) -> None:
        """The rank is this process, the leader of its session."""
        self.leaders[pid] = rank
        self.sessions.add(pid)
        found = proc.process(pid)
        self.born.append((pid, found.start_time if found else 0))
        if self.terminated:
            proc.kill_group(pid, signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """To the process groups of all ranks that live."""
        for leader in self.leaders:
            proc.kill_group(leader, number)

    def ask_for_stacks(self) -> tuple[int, ...]:
        """Signal the ranks that have said which signal they write their stacks on, and that still catch it:
        of any other process the signal would be the end. Returns these ranks."""
        told = []
        for rank in self.launch.ranks:
            pid, number = _listener(rank.stacks)
            found = proc.process(pid) if pid else None
            mine = found is not None and (
                found.session in self.sessions or proc.token_of(pid) == self.launch.token
            )
            if mine and proc.catches(pid, number):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
                    told.append(rank.rank)
        return tuple(told)

    def _fork(self, rank: RankLaunch, log: int, zygote: Zygote, ground: Ground) -> bool:
        if not rank.forkable:
            return False
        job, attempt = self.key
        request = Fork(
            job=job, attempt=attempt, rank=rank.rank, argv=rank.argv, env=rank.env, cwd=rank.cwd
        )
        if not zygote.fork(request, [log, *self._locks_of(rank, ground)]):
            return False
        self.forking[rank.rank] = time.monotonic() + _FORK_S
        return True

    def _locks_of(self, rank: RankLaunch, ground: Ground) -> list[int]:
        assert self.held is not None
        mine = [self.held[device] for device in (None, *rank.devices)]
        return [*mine, *(ground.devices.descriptor(device) for device in rank.devices)]


def owner_of(one: proc.Process, running: Sequence[SpawnedAttempt]) -> SpawnedAttempt | None:
    """The start that a process belongs to: by its session, its token, or those of its parents."""
    above: proc.Process | None = one
    while above is not None and above.pid not in (0, 1, os.getpid()):
        token, session = proc.token_of(above.pid), above.session
        for start in running:
            if session in start.sessions or token == start.launch.token:
                return start
        above = proc.process(above.parent)
    return None


def _listener(path: str) -> tuple[int, int]:
    """(pid, signal) of the process that writes its stacks to a file, (0, 0) = there is none."""
    try:
        line, _, _ = read_regular(Path(path), 64).partition(b"\n")
        pid, number = map(int, line.decode("ascii").split())
    except (OSError, ValueError):
        return 0, 0
    known = 0 < pid <= _LARGEST_PID and signal.SIGRTMIN < number <= signal.SIGRTMAX
    return (pid, number) if known else (0, 0)
