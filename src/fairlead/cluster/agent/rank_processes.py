"""The processes of an attempt, and what they have said of parking."""

import signal
import socket
import time
from dataclasses import dataclass, field

from fairlead.cluster.agent import proc, termination
from fairlead.cluster.agent.pending_exec import PendingExec
from fairlead.cluster.agent.zygote import Zygote


@dataclass
class RankParking:
    """The words of an attempt's ranks about parking."""

    sockets: dict[int, socket.socket] = field(default_factory=dict)  # rank -> our end of its socket
    released: set[int] = field(default_factory=set)  # ranks that need no device any more
    parked: set[int] = field(default_factory=set)  # ranks of which nothing runs
    is_over: bool = False  # the attempt is over, and its ranks are parked

    def open(self, rank: int) -> socket.socket:
        """Make the socket of a rank. Returns the rank's end. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.sockets[rank] = ours
        return theirs


@dataclass
class RankProcesses:
    """The processes of an attempt, from their birth on."""

    zygote: Zygote | None = None  # that its ranks are forked from
    forking: dict[int, float] = field(default_factory=dict)  # rank -> until when
    pending_exec: dict[int, PendingExec] = field(
        default_factory=dict
    )  # rank -> its process before exec
    unstarted: set[int] = field(default_factory=set)  # ranks whose program never ran
    has_failed: bool = False  # has a rank ended with another code than 0?
    leaders: dict[int, int] = field(default_factory=dict)  # pid -> rank, of those that live
    sessions: set[int] = field(default_factory=set)
    born: list[tuple[int, int]] = field(default_factory=list)  # (pid, start time)
    saving: dict[int, list[proc.Process]] = field(
        default_factory=dict
    )  # leader -> what of its group is to save before the rest is told to end
    terminated: set[int] = field(default_factory=set)  # pids of leaders whose ranks got SIGTERM
    stopped: frozenset[proc.Process] = frozenset()  # what stood still when it was parked as it was
    parking: RankParking = field(default_factory=RankParking)

    @property
    def are_over(self) -> bool:
        """Return whether none lives, and none is being forked."""
        return not self.leaders and not self.forking

    @property
    def are_late(self) -> bool:
        """Return whether one should have been forked by now."""
        return bool(self.forking) and min(self.forking.values()) < time.monotonic()

    def give_up_forks(self) -> list[int]:
        """Return the ranks that were to be forked, and are not any more."""
        ranks, self.forking = list(self.forking), {}
        return ranks

    @property
    def have_begun(self) -> bool:
        """Return whether the programs of all ranks run."""
        return not (self.forking or self.pending_exec or self.unstarted)

    def set_pid(self, rank: int, pid: int) -> None:
        """The rank is this process, the leader of its session."""
        self.leaders[pid] = rank
        self.sessions.add(pid)
        found = proc.process(pid)
        self.born.append((pid, found.start_time if found else 0))

    def end(self, pid: int, code: int) -> int:
        """A leader has ended, with this exit code. Returns its rank."""
        self.has_failed |= code != 0
        return self.leaders.pop(pid)

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
        """Return whether the leader of a rank is to be told to end once others have saved."""
        return any(all(one.pid != pid for one in first) for pid, first in self.saving.items())
