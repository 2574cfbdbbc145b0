"""An attempt as the spawner has it: its processes, its locks, its record on disk."""

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from fairlead.client.parking import VARIABLE as PARKING_VARIABLE
from fairlead.client.parking import ParkingDescriptors
from fairlead.cluster.agent import proc, termination
from fairlead.cluster.agent.device_claim import DeviceClaim, SpawnerStorage
from fairlead.cluster.agent.os_users import become
from fairlead.cluster.agent.pending_exec import fork_rank
from fairlead.cluster.agent.rank_processes import RankProcesses
from fairlead.cluster.agent.spawner_messages import (
    EndAttempt,
    Exited,
    Inspected,
    Launch,
    RankLaunch,
    Started,
)
from fairlead.cluster.agent.survivors import (
    AttemptRecord,
    boot_id,
    write_record,
)
from fairlead.cluster.agent.untrusted_files import read_regular
from fairlead.cluster.agent.warden import Watched
from fairlead.cluster.agent.zygote import (
    Fork,
)
from fairlead.cluster.shortage import is_shortage

_LARGEST_PID = 1 << 22  # that Linux gives
EXPIRY_SLACK_S = 0.3  # behind the end of a lease: that is the agent's business first
_ORPHAN_POLL_S = 0.005  # between looks for what an attempt has left behind
_FORK_S = 5.0  # for a rank to be forked by a prepared process
_IMPORT_S = 120.0  # the same by one that has not imported everything yet

Key = tuple[int, int]  # (job, attempt)


class NotStartedError(Exception):
    """A rank cannot be started, whenever it is tried; the sentence says why."""


@dataclass
class EndingTimes:
    """The times at which an attempt is ended, and how."""

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
        """Return whether it is time for SIGKILL."""
        return self.kill_s is not None and self.kill_s <= now

    def is_expired(self, now: float) -> bool:
        """Return whether its lease was over by now (monotonic). Then whoever stirred first has ended it: the
        spawner, or the warden."""
        return self.expired or self.is_expired_for_warden(now)

    def is_expired_for_warden(self, now: float) -> bool:
        """Return whether the warden may have ended it by now, before the spawner did."""
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

    @property
    def is_whole(self) -> bool:
        """Whether the programs of all its ranks run, but for those that have come to their end, and it is not
        ended yet."""
        processes = self.processes
        run = processes.have_begun and bool(processes.leaders) and not processes.has_failed
        return self.claim.locks is not None and run and self.ending.kill_s is None

    def may_share_devices(self, other: "SpawnedAttempt") -> bool:
        """Return whether their devices are different, or to be shared. A job never runs beside itself."""
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

    def started(self, *, resumed: bool) -> Started:
        """Return what is told of its begin. resumed: its ranks were parked, and go on just now."""
        job, attempt = self.key
        pids, free_s = self.processes.pids, self.claim.free_s
        resumed_s = time.monotonic() if resumed else None
        return Started(job=job, attempt=attempt, free_s=free_s, pids=pids, resumed_s=resumed_s)

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
        """Return whether a process with its tag may be its own: anybody can read the tag and show it, but not
        as another user. Behind ``--launch-with`` an engine may have given its processes other users."""
        user = self.launch.user
        if user is None or not self.launch.no_new_privs:
            return True
        owner = proc.owner_of(pid)
        return owner is None or owner.uid == user.uid

    def watched(self, storage: SpawnerStorage) -> Watched:
        """Return the record and the deadlines of the attempt, for the warden."""
        record = self._as_record(storage)
        if self.ending.terminated:
            record = msgspec.structs.replace(record, terminated=True)
        return Watched(record=record, until_s=self.ending.until_s, kill_s=self.ending.kill_s)

    def _as_record(self, storage: SpawnerStorage) -> AttemptRecord:
        launch = self.launch
        # What is parked shall do nothing more, not even end in order: its job may run elsewhere.
        is_parked = self.processes.parking.is_over
        return AttemptRecord(
            job=launch.job,
            attempt=launch.attempt,
            token=launch.token,
            grace_s=0.0 if is_parked else launch.grace_s,
            terminated=is_parked,
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
        theirs = self.processes.parking.open(rank.rank) if self.launch.parks else None
        try:
            if self.processes.zygote is None or not self._fork(rank, log, theirs, storage):
                self._exec(rank, log, theirs, storage)
        finally:
            if theirs is not None:
                theirs.close()

    def _exec(
        self, rank: RankLaunch, log: int, theirs: socket.socket | None, storage: SpawnerStorage
    ) -> None:
        """theirs: the rank's end of the socket for parking, None = it is not parked."""
        inherited, env = self.claim.locks_of(rank, storage), rank.env
        if theirs is not None:
            job_lock, *others = inherited
            parking = ParkingDescriptors(theirs.fileno(), (job_lock,), tuple(others))
            env = {**env, PARKING_VARIABLE: str(parking)}
            inherited = [*inherited, theirs.fileno()]
        try:
            pending_exec = fork_rank(
                rank.argv,
                env,
                rank.cwd,
                output=log,
                keep=inherited,
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

    def note_end(self) -> None:
        """Note that all its ranks have ended, if they have."""
        if self.processes.are_over:
            self.ending.dead_s = time.monotonic()

    def inspect(self) -> Inspected:
        """Have the ranks write down where they stand (``ask_for_stacks``). Returns what is told of that."""
        signalled = self.ask_for_stacks()
        job, number = self.key
        return Inspected(job=job, attempt=number, pids=self.processes.pids, signalled=signalled)

    def _fork(
        self, rank: RankLaunch, log: int, theirs: socket.socket | None, storage: SpawnerStorage
    ) -> bool:
        """From the prepared process, if it takes the rank."""
        zygote = self.processes.zygote
        if zygote is None or not rank.forkable:
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
            parks=theirs is not None,
        )
        descriptors = [log, *self.claim.locks_of(rank, storage)]
        if not zygote.fork(
            request, descriptors if theirs is None else [*descriptors, theirs.fileno()]
        ):
            return False
        self.processes.forking[rank.rank] = time.monotonic() + (
            _FORK_S if zygote.ready else _IMPORT_S
        )
        return True

    @property
    def can_begin_again(self) -> bool:
        """Return whether a prepared process was asked for its ranks, and none of them has begun."""
        begun = self.processes.born or self.processes.unstarted or self.ending.kill_s is not None
        return bool(self.processes.forking) and not begun

    def begin_again(self, storage: SpawnerStorage) -> None:
        """None of its ranks has begun, and none will: it is to be launched anew."""
        self.claim.unlock_devices(storage)
        self.claim.retry_s = 0.0
        self.processes = RankProcesses()

    def take_over(self, parked: "SpawnedAttempt") -> None:
        """The ranks of a parked attempt are this one's: their processes, and what limits them."""
        self.remove_group()
        self.launch = msgspec.structs.replace(self.launch, group=parked.launch.group)
        theirs = parked.processes
        self.processes.sessions |= theirs.sessions
        self.processes.born += theirs.born
        self.processes.parking = theirs.parking
        self.processes.parking.is_over = False
        for pid, rank in theirs.leaders.items():
            self.processes.leaders[pid] = rank
        if self.ending.terminated:
            self.processes.terminate(spares_finished=True)


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
