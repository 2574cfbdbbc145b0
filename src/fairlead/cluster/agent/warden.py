"""The process that ends the ranks of a node when its spawner dies and nobody starts another.

It does nothing but read what the spawner tells it, so that little can end it, and it needs no file: what the
spawner says of its starts is all that it has to know. Where the spawner stands still, and its agent with it,
so that nobody ends an attempt whose lease is over, it does so. When the spawner dies it takes that one's
locks, as the next spawner would, and ends what is left. Where the next spawner was faster, it waits until
that one has done so. What has no time left is killed in either case: the server counts on it.
"""

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from fairlead.cluster.agent import locks, proc
from fairlead.cluster.agent.exit_times import (
    PIPE_BYTES,
    SET_PIPE_SIZE,
    ExitTimes,
    ExitWatch,
    ProcessKey,
)
from fairlead.cluster.agent.machine import AgentFiles
from fairlead.cluster.agent.proc import kill_exactly
from fairlead.cluster.agent.spawner_messages import SpawnerFrames, framed
from fairlead.cluster.agent.survivors import (
    AttemptRecord,
    boot_id,
    end_survivors,
    find_survivors,
    read_records,
)
from fairlead.cluster.agent.termination import Terminations

# Behind the end of a lease: first that is the agent's business, then the spawner's
WARDEN_SLACK_S = 0.6
_KILL_SLACK_S = 0.3  # behind the time at which the spawner was to kill
_KILL_INTERVAL_S = 1.0  # an attempt may have grown meanwhile
_POLL_S = 0.05
_REPOLL_DELAY_S = 0.2  # a process that was being started shows what it belongs to after that
_RESTART_DELAY_S = 1.0  # between starts of one that does not stay
_IGNORED_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


class Watched(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An attempt, as it is now. Times are monotonic."""

    record: AttemptRecord
    until_s: float | None = None  # the end of its lease
    kill_s: float | None = None  # when it is to be killed: it is being ended

    def end_s(self, now: float) -> float:
        """When it is to be killed, if it is told to end now."""
        grace_s = self.record.grace_s
        lease_s = [] if self.until_s is None else [self.until_s + grace_s]
        kill_s = [] if self.kill_s is None else [self.kill_s]
        return min([now + grace_s, *lease_s, *kill_s])

    @property
    def overdue_s(self) -> float | None:
        """When the spawner stands still, if it has done nothing more about the attempt; None = never."""
        if self.kill_s is not None:
            return self.kill_s + _KILL_SLACK_S
        return None if self.until_s is None else self.until_s + WARDEN_SLACK_S

    def expired(self, until_s: float) -> "Watched":
        """Return the record after the SIGTERM for the end of its lease."""
        record = msgspec.structs.replace(self.record, terminated=True)
        return Watched(record=record, kill_s=until_s + self.record.grace_s)


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing is left of an attempt."""

    job: int
    attempt: int


class Farewell(msgspec.Struct, frozen=True, tag=True):
    """The spawner ends in order, and leaves nothing behind."""


FromWarden: TypeAlias = Watched | AttemptEnded | Farewell


class WardenLink:
    """The spawner's side: it starts the process, and another when that one dies."""

    def __init__(self, state: Path, record: AgentFiles) -> None:
        """state, record: of the agent."""
        self._state = state
        self._record = record
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._exits = ExitTimes()
        self._next_s = 0.0  # no start before

    @property
    def pid(self) -> int:
        """0 = it does not run."""
        return 0 if self._process is None else self._process.pid

    @property
    def due_s(self) -> float | None:
        """When it is to be started; None: it runs."""
        return self._next_s if self._process is None else None

    def keep(self, watched: Iterable[Watched]) -> None:
        """Start it, unless it runs or has just been started, and tell it of all attempts that there are."""
        if self._process is not None and self._process.returncode is not None:
            self.reap()
        now = time.monotonic()
        if self._process is not None or now < self._next_s:
            return
        self._next_s = now + _RESTART_DELAY_S
        with contextlib.suppress(OSError):  # no memory, no process: tried again
            self._start()
        for one in watched:
            self.send(one)

    def exit_s(self, process: ProcessKey) -> float:
        """When a process ended of whose end the spawner hears now, monotonic."""
        return self._exits.of(process)

    def _start(self) -> None:
        """Raises OSError."""
        exits = self._exits.open()
        try:
            self._start_with(exits)
        except OSError:
            self._exits.close()
            raise
        finally:
            os.close(exits)

    def _start_with(self, exits: int) -> None:
        """Raises OSError."""
        theirs, ours = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", __name__),
                    *(str(theirs), str(exits), str(self._state), str(self._record.path)),
                ],
                pass_fds=[theirs, exits],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        with contextlib.suppress(OSError):
            fcntl.fcntl(ours, SET_PIPE_SIZE, PIPE_BYTES)
        os.set_blocking(ours, False)
        self._pipe = ours

    def send(self, message: FromWarden) -> None:
        """Never blocks. One that does not hear is killed, and replaced by ``keep``."""
        if self._process is None:
            return
        data = framed(message)
        try:
            written = os.write(self._pipe, data) == len(data)
        except OSError:  # it has died, or has been standing still for long
            written = False
        if not written:
            self._process.kill()

    def reap(self) -> None:
        """It has ended."""
        if self._process is not None:
            self._process.wait()
            os.close(self._pipe)
            self._exits.close()
            self._process = None

    def dismiss(self) -> None:
        """Nothing is left to watch: it ends."""
        self.send(Farewell())
        if self._process is not None:
            try:
                self._process.wait(_RESTART_DELAY_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self.reap()


class Warden:
    """``run`` until the spawner has ended, and nothing is left of what it started."""

    def __init__(self, pipe: int, exits: ExitWatch, state: Path, record: AgentFiles) -> None:
        """pipe: what the spawner says; it alone has the other end. state, record: of the agent."""
        self._pipe = pipe
        self._exits = exits
        self._locks = (state / "spawner.lock", record.path / "spawner.lock")
        self._folders = (state / "starts", record.attempt_records)
        self._run = record.incarnation
        self._watched: dict[tuple[int, int], Watched] = {}
        self._killed_s: dict[tuple[int, int], float] = {}  # when, of attempts that were late
        self._terminations = Terminations()  # of attempts whose leases are over

    def run(self) -> None:
        """Blocks."""
        with contextlib.suppress(OSError):
            boot_id()  # later there may be no file descriptor left for it
        if self._listen():
            return
        ends = self._ends(time.monotonic())
        while (locks_taken := self._take_locks()) is None:
            if not self._kill_late(ends):
                return  # the next spawner has ended them
            time.sleep(_POLL_S)
        self._end(ends)
        locks.release(locks_taken)

    def _ends(self, now: float) -> dict[str, float]:
        """Token of each attempt -> when it is to be killed."""
        return {one.record.token: one.end_s(now) for one in self._watched.values()}

    def _take_locks(self) -> list[int] | None:
        """Descriptors of the locks; None: another has one of them."""
        locks_taken: list[int] = []
        for path in self._locks:
            try:
                lock = locks.take(path)
            except (
                OSError
            ):  # its directory is gone, or nothing can be written there: nobody can have it
                continue
            if lock is None:
                locks.release(locks_taken)
                return None
            locks_taken.append(lock)
        return locks_taken

    def _kill_late(self, ends: dict[str, float]) -> bool:
        """Kill processes that another ends and that are late. Returns whether any is left."""
        found = find_survivors(one.record for one in self._watched.values())
        for process, record in found.items():
            if ends[record.token] <= time.monotonic():
                kill_exactly(process, signal.SIGKILL)
        return bool(found)

    def _end(self, ends: dict[str, float]) -> None:
        """All that the spawner told of, and what it was to end for those before it. The locks are ours."""
        now = time.monotonic()
        records = {r.token: r for folder in self._folders for r in read_records(folder, keep=True)}
        for one in self._watched.values():
            left_s = max(0.0, ends[one.record.token] - now)
            records[one.record.token] = msgspec.structs.replace(one.record, grace_s=left_s)
        for (
            folder
        ) in self._folders:  # the second time there is nothing but the folder's records to remove
            end_survivors(folder, records.values(), self._run)
            time.sleep(_REPOLL_DELAY_S)

    def _listen(self) -> bool:
        """Listen until the spawner has ended. Returns whether it ended in order."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            frames = SpawnerFrames()
            while True:
                ready = {key.fd for key, _ in selector.select(self._timeout_s())}
                for descriptor in ready - {self._pipe}:
                    selector.unregister(descriptor)
                    self._exits.ended(descriptor)
                # What the spawner has said is read first: only where it says nothing more it stands still.
                if self._pipe not in ready:
                    self._terminations.go_on()
                    self._end_overdue()
                    continue
                if not (data := os.read(self._pipe, 1 << 16)):
                    return False
                for body in frames.feed(data):
                    match msgspec.msgpack.decode(body, type=FromWarden):
                        case Watched() as watched:
                            self._watch(watched, selector)
                        case AttemptEnded(job=job, attempt=attempt):
                            self._watched.pop((job, attempt), None)
                            self._killed_s.pop((job, attempt), None)
                        case Farewell():
                            return True

    def _watch(self, watched: Watched, selector: selectors.BaseSelector) -> None:
        self._watched[watched.record.job, watched.record.attempt] = watched
        for descriptor in self._exits.begin(watched.record.leaders):
            selector.register(descriptor, selectors.EVENT_READ)

    # --- while the spawner lives -----------------------------------------------------------------
    def _timeout_s(self) -> float | None:
        """Seconds until an attempt is overdue, if nothing more is said of it; None: none will be."""
        due = [one for key in self._watched if (one := self._due_s(key)) is not None]
        if self._terminations.pending:
            due.append(time.monotonic() + _POLL_S)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _due_s(self, key: tuple[int, int]) -> float | None:
        overdue_s = self._watched[key].overdue_s
        if overdue_s is None or key not in self._killed_s:
            return overdue_s
        return max(overdue_s, self._killed_s[key] + _KILL_INTERVAL_S)

    def _end_overdue(self) -> None:
        """End the attempts that the spawner should have ended by now."""
        now = time.monotonic()
        keys = [
            key for key in self._watched if (due := self._due_s(key)) is not None and due <= now
        ]
        found = find_survivors(self._watched[key].record for key in keys)
        for key in keys:
            one = self._watched[key]
            expires = one.kill_s is None
            mine = [
                process for process, record in found.items() if record.token == one.record.token
            ]
            if not expires:
                for process in mine:
                    kill_exactly(process, signal.SIGKILL)
            elif not one.record.terminated:  # scripts take a second SIGTERM for haste
                self._terminations.begin(mine)
            if one.until_s is not None and expires:
                self._watched[key] = one.expired(one.until_s)
            else:
                self._killed_s[key] = now


def end_stopped_wardens(state: Path, records: Iterable[Path]) -> None:
    """Kill wardens of earlier spawners, which nobody hears of any more, where a signal has stopped them: the
    others end by themselves. state: of the agent; records: of its runs on this machine."""
    places, mine = {str(state), *map(str, records)}, set(proc.children())
    for one in proc.processes():
        if one.state not in proc.STOPPED or one.pid in mine:
            continue
        words: list[str] = []
        with contextlib.suppress(OSError):  # it has ended
            words = (
                Path(f"/proc/{one.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            )
        if words[1:3] == ["-m", __spec__.name] and not places.isdisjoint(words[3:]):
            kill_exactly(one, signal.SIGKILL)


def main() -> None:
    """``python -m fairlead.cluster.agent.warden INPUT OUTPUT STATE RECORD``: descriptors and paths."""
    for number in (
        _IGNORED_SIGNALS
    ):  # of a service manager, for example, that stops the agent with all that it has started
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # needs a privilege
        Path("/proc/self/oom_score_adj").write_text("-1000")
    messages, exits, state, record = sys.argv[1:5]
    Warden(int(messages), ExitWatch(int(exits)), Path(state), AgentFiles(Path(record))).run()


if __name__ == "__main__":
    main()
