"""An attempt as the spawner has it: its processes, its locks, its record on disk."""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from fairlead.cluster.agent import locks, proc, termination
from fairlead.cluster.agent.device_locks import DeviceLocks
from fairlead.cluster.agent.os_users import become
from fairlead.cluster.agent.pending_exec import PendingExec, fork_rank
from fairlead.cluster.agent.spawner_messages import EndAttempt, Exited, Launch, RankLaunch
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
from fairlead.cluster.shortage import is_shortage

_LARGEST_PID = 1 << 22  # that Linux gives
EXPIRY_SLACK_S = 0.3  # behind the end of a lease: that is the agent's business first
_ORPHAN_POLL_S = 0.005  # between looks for what an attempt has left behind
_FORK_S = 120.0  # for a rank to be forked, imports of the zygote included

Key = tuple[int, int]  # (job, attempt)


@dataclass(frozen=True)
class SpawnerStorage:
    """Folder in which a spawner keeps what outlives it."""

    state: Path  # of the agent: lock files of jobs, and of seats on devices
    attempt_records: tuple[
        Path, ...
    ]  # folders with a record of each attempt: below the state, and on the machine
    devices: DeviceLocks


class NotStartedError(Exception):
    """A rank cannot be started, whenever it is tried; the sentence says why."""


@dataclass
class DeviceClaim:
    """The devices of an attempt here: held, or waited for."""

    job: int
    devices: frozenset[int]  # of all its ranks here
    locks: dict[int | None, int] | None = None  # lock of each device; None = it waits for them
    retry_s: float = 0.0  # not before this time
    waits_for: str = ""  # as the agent was told
    search_s: float | None = None  # when to look for who holds its devices; None = nobody does
    free_s: float = 0.0  # when the devices were free

    def lock_files(self, storage: SpawnerStorage) -> dict[Path, int]:
        """Lock file -> its device, of those that it needs."""
        folder = storage.state / "locks"
        files = {file: d for d in self.devices for file in locks.slot_files(folder, d)}
        return files | {storage.devices.path(device): device for device in self.devices}

    def take(self, storage: SpawnerStorage) -> str:
        """Take the locks; "" = done, else why not. Raises OSError."""
        locked = locks.lock_slots(storage.state / "locks", self.job, self.devices)
        if locked is None:
            return "what ran there before has not ended"
        try:
            taken = storage.devices.take(self.devices)
        except OSError:
            locks.release(locked.values())
            raise
        if taken is not None:
            locks.release(locked.values())
            return f"device {taken} is in use by another agent of this machine, or what it left"
        self.locks, self.free_s = locked, time.monotonic()
        return ""

    def unlock_devices(self, storage: SpawnerStorage) -> None:
        """Close the locks; ranks that live keep theirs."""
        if self.locks is not None:
            locks.release(self.locks.values())
            storage.devices.unlock_devices(self.devices)
            self.locks = None

    def locks_of(self, rank: RankLaunch, storage: SpawnerStorage) -> list[int]:
        """Descriptors of the locks that a rank inherits."""
        assert self.locks is not None
        mine = [self.locks[device] for device in (None, *rank.devices)]
        return [*mine, *(storage.devices.descriptor(device) for device in rank.devices)]


@dataclass
class RankProcesses:
    """The processes of an attempt, from their birth on."""

    zygote: Zygote | None = None  # that its ranks are forked from
    forking: dict[int, float] = field(default_factory=dict)  # rank -> until when
    pending_exec: dict[int, PendingExec] = field(
        default_factory=dict
    )  # rank -> its process before exec
    unstarted: set[int] = field(default_factory=set)  # ranks whose program never ran
    leaders: dict[int, int] = field(default_factory=dict)  # pid -> rank, of those that live
    sessions: set[int] = field(default_factory=set)
    born: list[tuple[int, int]] = field(default_factory=list)  # (pid, start time)
    saving: dict[int, list[proc.Process]] = field(
        default_factory=dict
    )  # leader -> what of its group is to save before the rest is told to end
    terminated: set[int] = field(default_factory=set)  # pids of leaders whose ranks got SIGTERM

    @property
    def are_over(self) -> bool:
        """Whether none lives, and none is being forked."""
        return not self.leaders and not self.forking

    @property
    def are_late(self) -> bool:
        """Whether one should have been forked by now."""
        return bool(self.forking) and min(self.forking.values()) < time.monotonic()

    @property
    def have_begun(self) -> bool:
        """Whether the programs of all ranks run."""
        return not (self.forking or self.pending_exec or self.unstarted)

    def set_pid(self, rank: int, pid: int) -> None:
        """The rank is this process, the leader of its session."""
        self.leaders[pid] = rank
        self.sessions.add(pid)
        found = proc.process(pid)
        self.born.append((pid, found.start_time if found else 0))

    @property
    def pids(self) -> dict[int, int]:
        """Rank -> its process, of those that live."""
        return {rank: pid for pid, rank in self.leaders.items()}

    def key_of(self, pid: int) -> tuple[int, int]:
        """The pid and the start time of a rank's leader, the newest with this pid."""
        return next(key for key in reversed(self.born) if key[0] == pid)

    def kill(self) -> None:
        """The process groups of all ranks that live."""
        for leader in self.leaders:
            proc.kill_group(leader, signal.SIGKILL)

    def begin_to_end(self, terminate: bool, spares_finished: bool) -> None:
        """SIGTERM, see ``terminate``. Or only SIGCONT, to ranks that hear of it otherwise, once they are not
        stopped."""
        if terminate:
            self.terminate(spares_finished)
        else:
            for leader in self.leaders:
                proc.kill_group(leader, signal.SIGCONT)

    def terminate(self, spares_finished: bool) -> None:
        """SIGTERM to all ranks that live: to what can save, or else to the whole process group.
        spares_finished: not to ranks whose loop is over."""
        for leader, tree in termination.trees_of(self.leaders).items():
            if first := termination.savers(tree):
                self.terminated.add(leader)
                self.saving[leader] = first
                for one in first:
                    proc.kill_exactly(one, signal.SIGTERM)
            elif not (spares_finished and termination.has_begun(tree)):
                if tree:  # else it has ended by itself, and is not waited for yet
                    self.terminated.add(leader)
                proc.kill_group(leader, signal.SIGTERM)

    def terminate_rest(self) -> None:
        """SIGTERM to the groups of ranks in which all that could save have ended."""
        for leader, first in list(self.saving.items()):
            if leader in self.leaders and termination.still_alive(first):
                continue
            del self.saving[leader]
            if leader in self.leaders:
                proc.kill_group(leader, signal.SIGTERM)

    @property
    def rest_waits(self) -> bool:
        """Whether the leader of a rank is to be told to end once others have saved."""
        return any(all(one.pid != pid for one in first) for pid, first in self.saving.items())


@dataclass
class EndingTimes:
    """How and when an attempt is ended."""

    terminated: bool = False
    kill_s: float | None = None  # when to send SIGKILL
    until_s: float | None = None  # when the lease is over
    expired: bool = False  # was it ended at the end of its lease?
    dead_s: float | None = None  # when it was known that the last rank had ended
    gone_s: float = 0.0  # when the last process had ended, as far as anybody saw

    def kill_by(self, kill_s: float) -> None:
        """Send SIGKILL then, if not earlier."""
        self.kill_s = kill_s if self.kill_s is None else min(kill_s, self.kill_s)

    def must_kill(self, now: float) -> bool:
        """Whether it is time for SIGKILL."""
        return self.kill_s is not None and self.kill_s <= now

    def is_expired(self, now: float) -> bool:
        """Whether its lease was over by now (monotonic). Then whoever stirred first has ended it: the
        spawner, or the warden."""
        return self.expired or self.is_expired_for_warden(now)

    def is_expired_for_warden(self, now: float) -> bool:
        """Whether the warden may have ended it by now, before the spawner did."""
        return self.until_s is not None and self.until_s <= now


@dataclass
class SpawnedAttempt:
    """An attempt as the spawner has it: ``claim.take`` its devices, then ``start`` each rank."""

    launch: Launch
    claim: DeviceClaim = field(init=False)
    processes: RankProcesses = field(default_factory=RankProcesses)
    ending: EndingTimes = field(default_factory=EndingTimes)

    def __post_init__(self) -> None:
        devices = frozenset(device for rank in self.launch.ranks for device in rank.devices)
        self.claim = DeviceClaim(self.launch.job, devices)

    @property
    def key(self) -> Key:
        """(job, attempt)."""
        return self.launch.job, self.launch.attempt

    @property
    def tag(self) -> str:
        """Return the tag that the processes of the attempt show."""
        return proc.token_tag(self.launch.token)

    def may_share_devices(self, other: "SpawnedAttempt") -> bool:
        """Whether their devices are different, or to be shared. A job never runs beside itself."""
        if other.launch.job == self.launch.job:
            return False
        company = other.key in self.launch.colocated or self.key in other.launch.colocated
        return company or not other.claim.devices & self.claim.devices

    def due(self) -> Iterator[float]:
        """When there is something to do for it (monotonic)."""
        if self.claim.locks is None:
            yield self.claim.retry_s
        if self.ending.kill_s is not None and self.processes.leaders:
            yield self.ending.kill_s
        if self.ending.until_s is not None:
            yield self.ending.until_s + EXPIRY_SLACK_S
        if self.ending.dead_s is not None:
            yield time.monotonic() + _ORPHAN_POLL_S
        if self.processes.rest_waits:
            yield time.monotonic() + termination.POLL_S
        yield from self.processes.forking.values()
        yield from (pending_exec.until_s for pending_exec in self.processes.pending_exec.values())

    def make_group(self) -> None:
        """Make the group that limits what it may use, if it has one. Raises OSError."""
        if self.launch.group is not None:
            self.launch.group.make()

    def remove_group(self) -> None:
        """Remove the group, in which nothing is left."""
        if self.launch.group is not None:
            self.launch.group.remove()

    def kill(self) -> None:
        """SIGKILL to all that is known to be its, and all that is in its group."""
        self.processes.kill()
        if self.launch.group is not None:
            self.launch.group.kill()

    @property
    def exceeded(self) -> str:
        """Return the limit that the kernel has ended its processes for, in half a sentence; "" = none."""
        return "" if self.launch.group is None else self.launch.group.exceeded

    def kill_left(self) -> bool:
        """Kill what its ranks, which have ended, have left in its group. Returns whether there was any."""
        if self.launch.group is None or not self.launch.group.is_populated:
            return False
        self.launch.group.kill()
        return True

    def order_to_end(self, kill_after_s: float) -> EndAttempt:
        """Return the order to end that the agent would give: SIGTERM now, SIGKILL later. Ranks whose loop is
        over come to their end meanwhile; those of unmanaged jobs have none."""
        job, attempt = self.key
        return EndAttempt(
            job=job,
            attempt=attempt,
            terminate=True,
            kill_after_s=kill_after_s,
            spares_finished=True,
        )

    def exited(self, pid: int, rank: int, code: int, at_s: float, *, leaving: bool) -> Exited:
        """Return what is told of the end of a rank. pid: of its leader; leaving: whether the spawner does."""
        job, attempt = self.key
        by_warden = self.ending.is_expired_for_warden(at_s)
        return Exited(
            job=job,
            attempt=attempt,
            rank=rank,
            code=code,
            expired=self.ending.is_expired(at_s),
            leaving=leaving,
            terminated=by_warden or pid in self.processes.terminated,
            exceeded=self.exceeded,
            at_s=at_s,
        )

    def may_be_of(self, pid: int) -> bool:
        """Whether a process with its tag may be its own: anybody can read the tag and show it, but not as
        another user. Behind ``--launch-with`` an engine may have given its processes other users."""
        user = self.launch.user
        if user is None or not self.launch.no_new_privs:
            return True
        owner = proc.owner_of(pid)
        return owner is None or owner.uid == user.uid

    def watched(self, storage: SpawnerStorage) -> Watched:
        """Return the record and the deadlines of the attempt, for the warden."""
        record = msgspec.structs.replace(
            self._as_record(storage), terminated=self.ending.terminated
        )
        return Watched(record=record, until_s=self.ending.until_s, kill_s=self.ending.kill_s)

    def _as_record(self, storage: SpawnerStorage) -> AttemptRecord:
        launch = self.launch
        return AttemptRecord(
            job=launch.job,
            attempt=launch.attempt,
            token=launch.token,
            grace_s=launch.grace_s,
            leaders=tuple(self.processes.born),
            boot=boot_id(),
            locks=tuple(str(storage.devices.path(device)) for device in sorted(self.claim.devices)),
        )

    def record(self, storage: SpawnerStorage) -> None:
        """Write down what there is. Raises OSError only before there is a process."""
        record = self._as_record(storage)
        try:
            for folder in storage.attempt_records:
                write_record(folder, record)
        except OSError:
            if not self.processes.born:
                raise  # later the token that is on disk already must do

    def start(self, rank: RankLaunch, log: int, storage: SpawnerStorage) -> None:
        """Fork it or exec it. Raises NotStartedError, and OSError where something has run out before there is
        a rank."""
        if self.processes.zygote is not None and self._fork(
            rank, log, self.processes.zygote, storage
        ):
            return
        try:
            pending_exec = fork_rank(
                rank.argv,
                rank.env,
                rank.cwd,
                output=log,
                keep=self.claim.locks_of(rank, storage),
                limit_s=self.launch.start_limit_s,
                prepare=self._prepare,
            )
        except OSError as problem:
            if not self.processes.born and (is_shortage(problem) or problem.errno == errno.EAGAIN):
                raise  # EAGAIN: of processes
            text = f"{rank.argv[0]!r} cannot be started: {problem.strerror}"
            raise NotStartedError(f"rank {rank.rank}: {text}") from None
        self.processes.pending_exec[rank.rank] = pending_exec
        self.set_pid(rank.rank, pending_exec.pid)

    def _prepare(self) -> None:
        """In the process of a rank, before it touches anything of its job. Raises OSError."""
        if self.launch.group is not None:
            self.launch.group.enter()
        if self.launch.user is not None:
            become(self.launch.user, no_new_privs=self.launch.no_new_privs)

    def set_pid(self, rank: int, pid: int) -> None:
        """The rank is this process, the leader of its session."""
        self.processes.set_pid(rank, pid)
        if self.ending.terminated:
            self.processes.terminated.add(pid)
            proc.kill_group(pid, signal.SIGTERM)

    def ask_for_stacks(self) -> tuple[int, ...]:
        """Signal the ranks that have said which signal they write their stacks on, and that still catch it:
        of any other process the signal would be the end. Returns these ranks."""
        text = []
        for rank in self.launch.ranks:
            pid, number = _listener(rank.stacks)
            found = proc.process(pid) if pid else None
            mine = found is not None and (
                found.session in self.processes.sessions or proc.tag_of(pid) == self.tag
            )
            if mine and proc.has_handler(pid, number):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
                    text.append(rank.rank)
        return tuple(text)

    def _fork(self, rank: RankLaunch, log: int, zygote: Zygote, storage: SpawnerStorage) -> bool:
        if not rank.forkable:
            return False
        job, attempt = self.key
        request = Fork(
            job=job,
            attempt=attempt,
            rank=rank.rank,
            argv=rank.argv,
            env=rank.env,
            cwd=rank.cwd,
            group=self.launch.group,
        )
        if not zygote.fork(request, [log, *self.claim.locks_of(rank, storage)]):
            return False
        self.processes.forking[rank.rank] = time.monotonic() + _FORK_S
        return True


def owner_of(one: proc.Process, running: Sequence[SpawnedAttempt]) -> SpawnedAttempt | None:
    """The attempt that a process belongs to: by its session, its tag, or those of its parents."""
    above: proc.Process | None = one
    while above is not None and above.pid not in (0, 1, os.getpid()):
        tag, session = proc.tag_of(above.pid), above.session
        for attempt in running:
            has_tag = tag == attempt.tag and attempt.may_be_of(above.pid)
            if session in attempt.processes.sessions or has_tag:
                return attempt
        above = proc.process(above.parent)
    return None


def _listener(path: str) -> tuple[int, int]:
    """(pid, signal) of the process that writes its stacks to a file, (0, 0) = there is none."""
    try:
        line, _, _ = read_regular(Path(path), 64, of_folder=True).partition(b"\n")
        pid, number = map(int, line.decode("ascii").split())
    except (OSError, ValueError):
        return 0, 0
    known = 0 < pid <= _LARGEST_PID and signal.SIGRTMIN < number <= signal.SIGRTMAX
    return (pid, number) if known else (0, 0)
