"""A node as the driver knows it: what it is, who its agent is, what it said, was granted and shall hold."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from fairlead.cluster.front.messages import PublishedNode, Reported
from fairlead.cluster.protocol.messages import (
    Assignment,
    AttemptKey,
    AttemptStatus,
    NodeReport,
    Orders,
    ParkedAttempt,
    Register,
    StartCheck,
)

REMEMBERED = 16  # incarnations of a node that are known to be superseded
_NO_ORDERS = Orders(seq=0, desired=())
_REPORT = msgspec.msgpack.Decoder(NodeReport)


@dataclass(frozen=True, slots=True)
class Inherited:
    """An attempt of an earlier incarnation of a node that may still run there."""

    incarnation: str
    until: float  # monotonic; nothing of it lives after that


@dataclass(slots=True)
class AgentHistory:
    """The agent of a node, and what those before it may have left."""

    incarnation: str = ""  # "" = has not registered with this server
    last_incarnation: str = ""  # known from an earlier run of the server
    machine: str = ""  # the kernel and process table of that incarnation; "" = not known
    superseded: dict[str, None] = field(default_factory=dict)  # earlier incarnations, oldest first
    inherited: dict[AttemptKey, Inherited] = field(default_factory=dict)
    registration: int = 0  # how often it has registered with this server
    settled: int = 0  # the registration of which the front has told what was granted before
    ending: bool = False  # it says that it was told to end, and begins nothing
    left_s: float = 0.0  # wall clock; when it ended in order, 0 = it did not
    # Wall clock; when the node is taken away, as at the end of its allocation. 0 = nobody knows of an end
    ends_s: float = 0.0
    token_hash: bytes = b""  # these two: as in ``NodeRow``
    revoked: bool = False

    @property
    def newest(self) -> str:
        """The incarnation that registered last, with this server or an earlier run of it; "" = none ever."""
        return self.incarnation or self.last_incarnation

    def supersede(self, incarnation: str) -> None:
        """This incarnation is none any more; the oldest of many are forgotten."""
        self.superseded[incarnation] = None
        while len(self.superseded) > REMEMBERED:
            del self.superseded[next(iter(self.superseded))]

    def has_cleared(self, message: Register, incarnation: str) -> bool:
        """Return whether the agent that registers has made sure that nothing of this incarnation of the node
        lives. It can only do so on the machine on which that incarnation registered, whose processes it
        sees."""
        same_machine = self.machine == message.machine != ""
        return same_machine and incarnation in message.cleared

    def drop_cleared(self, message: Register) -> None:
        """Drop the inherited attempts of which the registering agent has made sure that nothing lives."""
        for key, left in list(self.inherited.items()):
            if self.has_cleared(message, left.incarnation):
                del self.inherited[key]

    def prolong(self, later_s: float) -> None:
        """Prolong the time that inherited attempts may live by ``later_s`` seconds."""
        for key, left in self.inherited.items():
            self.inherited[key] = Inherited(left.incarnation, left.until + later_s)

    def drop_expired(self, now: float) -> list[AttemptKey]:
        """Inherited starts that cannot live any more; they are so no longer. now: monotonic."""
        if self.settled < self.registration:  # the front may have renewed more than is known here
            return []
        over = [key for key, left in self.inherited.items() if now > left.until]
        for key in over:
            del self.inherited[key]
        return over


@dataclass(slots=True)
class ObservedState:
    """The state of a node as it said last."""

    seq: int = -1  # of its newest report
    seen: float = 0.0  # monotonic; when that came to the front, 0 = there was none to this server
    followed: int = -1  # the newest orders that it says it follows
    broke: float = 0.0  # monotonic; when a connection of its agent broke last
    _holds: dict[AttemptKey, AttemptStatus] = field(default_factory=dict)
    _parked: dict[AttemptKey, ParkedAttempt] = field(default_factory=dict)
    _unread: msgspec.Raw | None = None  # its newest report

    @property
    def holds(self) -> dict[AttemptKey, AttemptStatus]:
        """Return key -> status of what it said last that it holds. For whoever has the lock of the fleet."""
        self._read()
        return self._holds

    def register(self, message: Register) -> None:
        """Its agent has registered, and says what the node holds."""
        self._take_over(message.holds, message.parked)

    def clear(self) -> None:
        """It holds nothing any more."""
        self._take_over((), ())

    def _take_over(self, holds: Iterable[AttemptStatus], parked: Iterable[ParkedAttempt]) -> None:
        self._holds = {(one.job, one.attempt): one for one in holds}
        self._parked = {(one.job, one.attempt): one for one in parked}
        self._unread = None

    @property
    def parked(self) -> dict[AttemptKey, ParkedAttempt]:
        """Return what it said last that is parked there. For whoever has the lock of the fleet."""
        self._read()
        return self._parked

    def _read(self) -> None:
        if self._unread is not None:
            report = _REPORT.decode(self._unread)
            self._take_over(report.holds, report.parked)

    def receive(self, message: Reported) -> None:
        """A report has come; what the node holds is read when somebody asks for it."""
        self.seq, self.followed = message.seq, max(self.followed, message.followed)
        self._unread = message.report


@dataclass(slots=True)
class NodeHealth:
    """The trust in a node: whether it may be given jobs."""

    problems: tuple[str, ...] = ()  # what its agent's own checks find, a sentence each
    dead: tuple[int, ...] = ()  # devices that its agent finds do not work any more
    checked: int = 0  # number of its newest test start
    check_problem: str = ""  # why that failed
    cordoned: str = ""  # why the server itself gives it no jobs; "" = it does
    well_from: float = 0.0  # monotonic; it was not well, and is not trusted again before
    noted: str = ""  # the state of the node that was noted last
    state_since: float = 0.0  # monotonic; in that state

    def receive(self, message: Reported) -> None:
        """A report has come."""
        if message.health_known:  # else the checks of the agent before this one count
            self.problems, self.dead = message.problems, message.dead
        self.checked, self.check_problem = message.checked, message.check_problem


@dataclass(slots=True)
class NodeLeases:
    """The leases that the front has granted a node, as it told."""

    granted: set[AttemptKey] = field(default_factory=set)  # starts that ever got a lease
    until: float = 0.0  # monotonic; every lease is over by then, 0 = there was none
    in_force: int = -1  # the newest orders that the front is known to go by


@dataclass(slots=True)
class DesiredState:
    """The state that a node shall have: as published, and as it will be."""

    published: Orders = _NO_ORDERS
    decisive: int = 0  # the newest orders in which something was wanted or no longer wanted
    sent: PublishedNode | None = None  # as the front has it
    check: StartCheck | None = None  # a test start that it is to make
    # Until they are published:
    desired: dict[int, Assignment] = field(default_factory=dict)
    forget: set[AttemptKey] = field(default_factory=set)
    reasons: dict[int, str] = field(default_factory=dict)
    changed: bool = False  # something is wanted, or no longer wanted
    forgets: bool = False  # ends are booked
    unpark: set[AttemptKey] = field(default_factory=set)  # that need not be parked any longer

    def desire(self, assignment: Assignment) -> None:
        """The node shall hold this."""
        self.desired[assignment.job] = assignment
        self.reasons.pop(assignment.job, None)
        self.changed = True

    def revoke(self, job: int, attempt: int, reason: str) -> bool:
        """The node shall no longer hold this. Returns whether it was to."""
        if job not in self.desired or self.desired[job].attempt != attempt:
            return False
        del self.desired[job]
        self.reasons[job] = reason
        self.changed = True
        return True

    def forget_end(self, key: AttemptKey) -> None:
        """The node shall no longer tell of this attempt, which has ended."""
        self.forget.add(key)
        self.forgets = True

    def clear(self) -> None:
        """The node shall hold nothing."""
        self.desired, self.forget, self.reasons = {}, set(), {}

    def renew(self, seq: int, holds: Collection[AttemptKey]) -> None:
        """Make the orders of this number, to be published. Those that tell of the ends that are booked alone
        can wait for the next report of the node. holds: what it said last."""
        if self.changed:
            self.decisive = seq
        self.changed = self.forgets = False
        self.forget.intersection_update(holds)
        present = {job for job, _ in holds}
        self.reasons = {job: why for job, why in self.reasons.items() if job in present}
        self.published = Orders(
            seq=seq,
            desired=tuple(self.desired.values()),
            forget=tuple(self.forget),
            reasons=dict(self.reasons),
            unpark=tuple(sorted(self.unpark)),
        )


@dataclass(frozen=True, slots=True)
class Hold:
    """A time in which a node gets no jobs, because what is not known here may still run on it."""

    until: float = 0.0  # monotonic
    reason: str = ""


@dataclass(slots=True)
class LiveNode:
    """A node."""

    name: str
    accelerator: str
    devices: int
    host: str = ""
    simulated_devices: bool = False
    runs_as: str = ""  # whom jobs run as there, in words; "" = its agent has not told
    drained: bool = False
    leaving: bool = False  # no longer in the cluster file: it is removed once nothing runs there
    lost: bool = False
    suspect: bool = False  # silent for longer than it should be, or since the server was started
    hold: Hold = field(default_factory=Hold)
    agent: AgentHistory = field(default_factory=AgentHistory)
    observed: ObservedState = field(default_factory=ObservedState)
    health: NodeHealth = field(default_factory=NodeHealth)
    leases: NodeLeases = field(default_factory=NodeLeases)
    desired: DesiredState = field(default_factory=DesiredState)

    @property
    def idle_since(self) -> float:
        """Return since when the node has neither reported nor had a lease."""
        return max(self.observed.seen, self.leases.until)

    @property
    def registered(self) -> bool:
        """Return whether it has registered with this server and is not lost."""
        return bool(self.agent.incarnation) and not self.lost
