"""Messages between the driver's process and the front: frames of msgpack over one socket.

Both directions are states where that is possible: of two messages with the same ``key`` the newer one
replaces the older while it waits to be sent, so what waits for a side that stands still stays bounded.
"""

import struct
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from fairlead.cluster.protocol.api_models import JobState, NodeView, StatusView
from fairlead.cluster.protocol.messages import StartCheck, StorePosition
from fairlead.cluster.store.audit_log import AuditLimits
from fairlead.cluster.store.rows import NodeRow, UserRow

_HEADER = struct.Struct("!I")  # length of a frame
_EMPTY_LIST = msgspec.Raw(msgspec.msgpack.encode(()))
_EMPTY_MAP = msgspec.Raw(msgspec.msgpack.encode({}))
NIL = msgspec.Raw(msgspec.msgpack.encode(None))


class PublishedOrders(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``protocol.Orders`` whose parts are encoded already: they are passed on to the agent as they are."""

    seq: int = 0
    desired: msgspec.Raw = _EMPTY_LIST
    forget: msgspec.Raw = _EMPTY_LIST
    leases: dict[int, float] = {}
    heartbeat_s: float = 0.0
    gap_s: float = 0.0
    reasons: msgspec.Raw = _EMPTY_MAP
    check: StartCheck | None = None
    unpark: msgspec.Raw = _EMPTY_LIST
    wall_s: float = 0.0
    position: msgspec.Raw = NIL
    halted: str = ""
    halted_run: str = ""


# --- from the driver to the front --------------------------------------------------------------------


class Configure(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The first message: how the front works, and where it listens."""

    directory: str
    host: str
    agent_port: int  # 0 = any that is free
    http_fd: int  # a bound socket that the front has inherited
    tls_key: str  # "" = without TLS
    tls_certificate: str
    open_metrics: bool
    lease_s: float
    rate_bound: float
    heartbeat_s: float
    policies: tuple[str, ...]  # names of all that there are
    audit: AuditLimits

    @property
    def key(self) -> str:
        """Said once."""
        return ""


class PublishedNode(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """A node as the driver has published it."""

    node: str
    incarnation: str  # "" = has not registered with this server
    registration: int  # ascending: which registration of the node this follows
    lost: bool
    orders: PublishedOrders
    starts: tuple[tuple[int, int], ...]  # (job, attempt) of what is wanted
    push: bool  # are the orders worth telling before the node reports by itself?
    round_end: float = 0.0  # monotonic; of the round that these orders follow, 0 = they follow none
    seen: float = 0.0  # monotonic seconds; as far as the driver knows
    lease_until: float = 0.0
    token_hash: bytes = b""  # these two: as in ``NodeRow``
    revoked: bool = False

    @property
    def key(self) -> str:
        """One state per node."""
        return f"node {self.node}"

    def over(self, older: "PublishedNode") -> "PublishedNode":
        """This state in place of one that the front has not been sent."""
        if not older.push:
            return self
        round_end = self.round_end or older.round_end
        return msgspec.structs.replace(self, push=True, round_end=round_end)


class NodeRemoved(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """A node is no longer part of the cluster."""

    node: str

    @property
    def key(self) -> str:
        """In place of its state."""
        return f"node {self.node}"


class LossQuery(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Question whether the driver may give up this node. It may only if the node has been silent for
    ``timeout_s``."""

    node: str
    registration: int
    timeout_s: float

    @property
    def key(self) -> str:
        """Asked anew from time to time."""
        return f"loss {self.node}"


class EnrolledNodes(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The nodes of which the state knew when the server was started, as they were then."""

    rows: tuple[NodeRow, ...]

    @property
    def key(self) -> str:
        """All of them at once."""
        return "enrolled"


class UserList(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The users who may call. With the first list the front begins to listen: nodes are known by then."""

    rows: tuple[UserRow, ...]
    node_key: bytes = b""  # that tokens of nodes are signed with

    @property
    def key(self) -> str:
        """All of them at once."""
        return "users"


class PublishedStatus(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The cluster in one screen, as an admin may see it."""

    status: StatusView
    at: float  # monotonic seconds
    displayed: dict[int, JobState] = {}  # open jobs that are not shown as their rows say

    @property
    def key(self) -> str:
        """The newest counts."""
        return "status"


class PublishedNodeView(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """A node, as an admin may see it; without view: it is removed."""

    node: str
    view: NodeView | None
    at: float = 0.0  # monotonic seconds
    owners: dict[int, str] = {}  # job -> tenant

    @property
    def key(self) -> str:
        """The newest counts."""
        return f"shown {self.node}"


class PublishedPosition(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The durable position of the state: agents are told."""

    position: StorePosition

    @property
    def key(self) -> str:
        """The newest."""
        return "position"


class SchedulingHalted(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """From now on nothing is changed on any node: the state is older than what nodes know of it."""

    reason: str  # a sentence
    run_id: str = ""  # of the server

    @property
    def key(self) -> str:
        """The newest reason."""
        return "halted"


class PublishedSettings(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The options of the server that can change while it runs, and are the front's business."""

    prices: dict[str, float]  # $ per device-hour, by type
    log_level: str
    tenant_output_bytes: int = 0  # that are kept of a tenant's jobs; 0 = all that is

    @property
    def key(self) -> str:
        """The newest."""
        return "settings"


class CallProblem(msgspec.Struct, frozen=True, kw_only=True):
    """An error: the names of its class and of those above it, most particular first, and its sentence."""

    kinds: tuple[str, ...]
    sentence: str
    wait_s: float | None = None  # of a ``TooManyError``


class CallAnswer(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Answer to a ``Call``."""

    number: int
    result: msgspec.Raw = NIL
    problem: CallProblem | None = None

    @property
    def key(self) -> str:
        """Each by itself."""
        return ""


class StopFront(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The server ends."""

    @property
    def key(self) -> str:
        """Each by itself."""
        return ""


ToFront: TypeAlias = (
    Configure
    | PublishedNode
    | NodeRemoved
    | LossQuery
    | EnrolledNodes
    | UserList
    | CallAnswer
    | StopFront
    | PublishedStatus
    | PublishedNodeView
    | PublishedPosition
    | SchedulingHalted
    | PublishedSettings
)

# --- from the front to the driver --------------------------------------------------------------------


class FrontListening(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The front answers agents and people."""

    agent_port: int

    @property
    def key(self) -> str:
        """Said once."""
        return ""


class FrontRefused(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The front cannot listen, and ends."""

    sentence: str

    @property
    def key(self) -> str:
        """Said once."""
        return ""


class Reported(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The last report of a node, and the leases that it was granted."""

    node: str
    incarnation: str
    seq: int
    followed: int  # the newest orders that it says it follows
    seen: float  # monotonic seconds, of every process of this machine
    lease_until: float
    changed: bool  # is there more to it than progress?
    granted: tuple[tuple[int, int], ...]  # starts that ever got a lease
    problems: tuple[str, ...] = ()  # these seven: as in ``NodeReport``
    dead: tuple[int, ...] = ()
    checked: int = 0
    check_problem: str = ""
    health_known: bool = True
    ending: bool = False
    leaving: bool = False
    report: msgspec.Raw  # as the node sent it

    @property
    def key(self) -> str:
        """The newest of a node counts."""
        return f"report {self.node}"

    def over(self, older: "Reported") -> "Reported":
        """This report in place of one that the driver has not been sent."""
        if not older.changed or older.incarnation != self.incarnation:
            return self
        return msgspec.structs.replace(self, changed=True)


class NodeRenewal(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Answers ``LossQuery`` and a new registration. lost: nothing is renewed for this registration of the
    node from now on; lease_until: of all its registrations."""

    node: str
    registration: int
    lost: bool
    seen: float
    lease_until: float
    anew: (
        bool  # it is the first of this registration: nothing is granted to the one before any more
    )
    broke: float = 0.0  # monotonic; when a stream of orders to its agent broke, 0 = none did
    orders_seq: int = -1  # the orders that the front goes by
    granted: tuple[tuple[int, int], ...] = ()  # starts that ever got a lease

    def over(self, older: "NodeRenewal") -> "NodeRenewal":
        """This in place of one that the driver has not been sent."""
        if older.registration != self.registration:
            return self
        anew, broke = self.anew or older.anew, max(self.broke, older.broke)
        return msgspec.structs.replace(self, anew=anew, broke=broke)

    @property
    def key(self) -> str:
        """The newest counts; a loss is never taken back for one registration."""
        return f"standing {self.node}"


class Call(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """A method of the facade, or ``register``, with all its arguments in order."""

    number: int
    method: str
    arguments: msgspec.Raw

    @property
    def key(self) -> str:
        """Each by itself."""
        return ""


ToDriver: TypeAlias = FrontListening | FrontRefused | Reported | NodeRenewal | Call
_Message: TypeAlias = ToFront | ToDriver


def frame(message: _Message) -> bytes:
    """The bytes of a message on the socket."""
    body = msgspec.msgpack.encode(message)
    return _HEADER.pack(len(body)) + body


class FrontFrames:
    """Cuts what arrives into the bodies of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole now; valid until the next call."""
        self._buffer += data
        at, size = 0, len(self._buffer)
        while size - at >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer, at)
            if size - at - _HEADER.size < length:
                break
            at += _HEADER.size
            yield bytes(self._buffer[at : at + length])
            at += length
        del self._buffer[:at]
