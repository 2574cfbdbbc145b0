"""A node as the driver knows it."""

from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from fairlead.cluster.front.messages import PublishedNode
from fairlead.cluster.protocol.messages import (
    Assignment,
    AttemptStatus,
    NodeReport,
    Orders,
    Register,
    StartCheck,
)

Start: TypeAlias = tuple[int, int]  # (job, attempt): one start of a job
_NONE = Orders(seq=0, wanted=())
_REPORT = msgspec.msgpack.Decoder(NodeReport)


@dataclass(frozen=True, slots=True)
class Inherited:
    """A start of an earlier incarnation of a node that may still run there."""

    incarnation: str
    until: float  # monotonic; nothing of it lives behind that


@dataclass(slots=True)
class LiveNode:
    """A node. ``seen`` and ``lease_until`` are 0 before the first report to this server, and as the front
    told them."""

    name: str
    accelerator: str
    devices: int
    host: str = ""
    simulated_devices: bool = False
    drained: bool = False
    lost: bool = False
    suspect: bool = False  # silent for longer than it should be
    left_s: float = 0.0  # wall clock; when its agent ended in order, 0 = it did not
    problems: tuple[str, ...] = ()  # what its agent's own checks find, a sentence each
    dead: tuple[int, ...] = ()  # devices that its agent finds do not work any more
    checked: int = 0  # number of its newest test start
    check_problem: str = ""  # why that failed
    check: StartCheck | None = None  # that it is to make
    well_from: float = 0.0  # monotonic; it was not well, and is not trusted again before
    cordoned: str = ""  # why the server itself gives it no jobs; "" = it does
    waits_until: float = 0.0  # monotonic; before, what is not known here may still run on it
    waits_for: str = ""  # why that is so
    broke: float = 0.0  # when a connection of its agent broke last
    in_force: int = -1  # the newest orders that the front is known to go by
    state_since: float = 0.0  # monotonic; in the state that was noted last
    noted: str = ""  # that state
    incarnation: str = ""  # "" = has not registered with this server
    last_incarnation: str = ""  # known from an earlier run of the server
    machine: str = ""  # the kernel and process table of that incarnation; "" = not known
    superseded: dict[str, None] = field(default_factory=dict)  # earlier incarnations, oldest first
    inherited: dict[Start, Inherited] = field(default_factory=dict)
    granted: set[Start] = field(default_factory=set)  # starts that ever got a lease
    registration: int = 0  # how often it has registered with this server
    settled: int = 0  # the registration of which the front has told what was granted before
    seq: int = -1  # of its newest report
    seen: float = 0.0
    lease_until: float = 0.0  # every lease that it was granted is over by then
    orders: Orders = _NONE  # as published
    decisive: int = 0  # the newest orders in which something was wanted or no longer wanted
    followed: int = -1  # the newest orders that it says it follows
    # Until they are published:
    wanted: dict[int, Assignment] = field(default_factory=dict)
    forget: set[Start] = field(default_factory=set)
    reasons: dict[int, str] = field(default_factory=dict)
    changed: bool = False  # something is wanted, or no longer wanted
    forgets: bool = False  # ends are booked
    told: PublishedNode | None = None  # as the front has it
    _holds: dict[Start, AttemptStatus] = field(default_factory=dict)
    _unread: msgspec.Raw | None = None  # its newest report

    @property
    def holds(self) -> dict[Start, AttemptStatus]:
        """What it said last that it holds. For whoever has the lock of the fleet."""
        if self._unread is not None:
            report = _REPORT.decode(self._unread)
            self.holds = {(held.job, held.attempt): held for held in report.holds}
        return self._holds

    @holds.setter
    def holds(self, holds: dict[Start, AttemptStatus]) -> None:
        self._holds, self._unread = holds, None

    def said(self, report: msgspec.Raw) -> None:
        """It reports this; read when somebody asks."""
        self._unread = report

    @property
    def quiet_since(self) -> float:
        """Since when it has neither been heard of nor had a lease."""
        return max(self.seen, self.lease_until)

    @property
    def registered(self) -> bool:
        """Has it spoken to this server, and is it not lost?"""
        return bool(self.incarnation) and not self.lost


def has_cleared(node: LiveNode, message: Register, incarnation: str) -> bool:
    """Has the agent that registers made sure that nothing of this incarnation of the node lives? It can only
    where it sees the processes: on the machine on which that one registered."""
    same_machine = node.machine == message.machine != ""
    return same_machine and incarnation in message.cleared
