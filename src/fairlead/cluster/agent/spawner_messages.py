"""Messages between the agent and its spawner, and how they are framed on a stream socket."""

import contextlib
import socket
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from fairlead.client.messages import HEADER
from fairlead.cluster.agent.cgroups import AttemptGroup
from fairlead.cluster.agent.os_users import OsUser

MAX_MESSAGE_BYTES = 1 << 26  # bytes of a message: an environment may be long


class RankLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    rank: int
    argv: tuple[str, ...]
    env: dict[str, str]  # all of it
    cwd: str
    log: str  # path of the file that stdout and stderr are appended to
    stacks: str = ""  # path of the file that it writes its stacks to, once it has said so there
    devices: tuple[int, ...]
    forkable: bool = False  # may it be forked from a prepared process?
    neighbours: tuple[str, ...] | None = None  # modules beside its script; None = not known


class Launch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Start these ranks as soon as their devices are free."""

    job: int
    attempt: int
    token: str  # FAIRLEAD_TOKEN of all ranks: what they and their children are known by
    ranks: tuple[RankLaunch, ...]
    colocated: tuple[
        tuple[int, int], ...
    ] = ()  # (job, attempt) that may share devices with this one
    grace_s: float
    prefork: bool = False  # from the process that the node's operator named
    start_limit_s: float = 60.0  # from fork to exec: its working directory may hang
    modules: str = ""  # comma-separated: from a process that has imported these, if there is one
    user: OsUser | None = None  # whom the ranks run as; None = the agent's own user
    group: AttemptGroup | None = None  # that limits what they may use; None = nothing does
    no_new_privs: bool = True  # programs with the setuid bit get such ranks nothing more
    parks: bool = False  # ranks may be parked instead of ended
    suspends: bool = False  # and, being programs without the iterator, be stopped as they are
    resumes: int = (
        0  # the attempt whose parked ranks, of the same token, go on as this one; 0 = none
    )
    alone: bool = (
        True  # all ranks of the job are here: they can be started anew if those have ended
    )


class EndAttempt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """End this attempt. One that still waits for devices is forgotten at once."""

    job: int
    attempt: int
    terminate: bool  # send SIGTERM now
    kill_after_s: float  # and SIGKILL to what is left then
    spares_finished: bool = False  # no SIGTERM to ranks whose loop is over


class Suspend(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Stop the processes of an attempt as they are, and park it. Where that cannot be done, end it."""

    job: int
    attempt: int
    kill_after_s: float  # of an attempt that is ended

    @property
    def to_end(self) -> EndAttempt:
        """The order to end it instead."""
        return EndAttempt(
            job=self.job, attempt=self.attempt, terminate=True, kill_after_s=self.kill_after_s
        )


class EndParked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Kill what is parked of an attempt. ``Unparked`` follows."""

    job: int
    attempt: int


class Until(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The lease of this attempt is over then, unless a later time is told: it is ended whatever has become of
    the agent."""

    job: int
    attempt: int
    until_s: float  # monotonic time


class Prepare(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Have a process at hand that has imported these modules, comma-separated."""

    modules: str


class Inspect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Have the ranks of an attempt write down where they stand, those that have said that they can."""

    job: int
    attempt: int


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Answer with ``Pong``."""


class Pong(msgspec.Struct, frozen=True, tag=True):
    """The spawner lives, and has heard all that was said before."""


class Inspected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """They were told to."""

    job: int
    attempt: int
    pids: dict[int, int]  # rank -> process, of those that live
    signalled: tuple[int, ...]  # ranks that write it down themselves


class Started(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All ranks run; of what was parked, those that had not come to their end."""

    job: int
    attempt: int
    free_s: float  # monotonic time at which the devices were free
    pids: dict[int, int]  # rank -> its process
    resumed_s: float | None = None  # monotonic time at which they went on that were parked


class Waits(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The attempt is put off, and tried again."""

    job: int
    attempt: int
    reason: str
    obstacle: bool = True  # is something of the node in its way? False: who had its devices before


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A rank cannot be started at all, or its attempt may not go on. ``Gone`` follows."""

    job: int
    attempt: int
    rank: int
    reason: str
    began: bool = False  # it ran, and is killed for this


class Released(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The devices of an attempt are free; it saves, and is then parked or ends."""

    job: int
    attempt: int
    at_s: float  # monotonic time


class Parked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The ranks of an attempt are parked. That they have exited, and ``Gone``, follow."""

    job: int
    attempt: int
    pids: dict[int, int]  # rank -> its process


class Unparked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing of an attempt is parked any more: its processes have ended."""

    job: int
    attempt: int


class Exited(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A rank has ended."""

    job: int
    attempt: int
    rank: int
    code: int  # as subprocess has it: negative for a signal
    expired: bool = False  # after the spawner has ended it, or was to, at the end of its lease
    leaving: bool = False  # after the spawner has told it to end, for it leaves itself
    terminated: bool = False  # after a SIGTERM, which it may have ended for
    exceeded: str = ""  # the limit that the kernel has ended it for, in half a sentence; "" = none
    at_s: float  # monotonic time


class Gone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing of this attempt is left, and its devices are free."""

    job: int
    attempt: int
    at_s: float  # monotonic time


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All that an earlier agent left behind has ended; starts are welcome."""

    survivors: int
    cleared: tuple[str, ...] = ()  # incarnations of agents of this node of which nothing lives


ToSpawner: TypeAlias = Launch | EndAttempt | Suspend | EndParked | Until | Inspect | Prepare | Ping
FromSpawner: TypeAlias = (
    Inspected
    | Started
    | Waits
    | Failed
    | Released
    | Parked
    | Unparked
    | Exited
    | Gone
    | Ready
    | Pong
)

encode = msgspec.msgpack.encode


def framed(message: msgspec.Struct) -> bytes:
    """The message behind its length."""
    body = encode(message)
    return HEADER.pack(len(body)) + body


class SpawnerFrames:
    """Cuts what arrives on a stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Bodies of the messages that are whole with ``data``."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._buffer)
            if len(self._buffer) < HEADER.size + length:
                return
            body = bytes(self._buffer[HEADER.size : HEADER.size + length])
            del self._buffer[: HEADER.size + length]
            yield body


def receive(peer: socket.socket, frames: SpawnerFrames) -> list[bytes] | None:
    """Whole messages that have arrived; None when the peer has gone."""
    try:
        data = peer.recv(1 << 16)
    except InterruptedError:
        return []
    except OSError:
        return None
    return list(frames.feed(data)) if data else None


class AgentSocket:
    """The spawner's end of the connection to its agent."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection  # to wait for
        self._frames = SpawnerFrames()

    def receive(self) -> list[ToSpawner] | None:
        """Return the messages that have arrived; None when the agent has gone."""
        bodies = receive(self.socket, self._frames)
        if bodies is None:
            return None
        return [msgspec.msgpack.decode(body, type=ToSpawner) for body in bodies]

    def send(self, message: FromSpawner) -> None:
        """Blocks until it is written. That the agent has gone is noticed by hearing."""
        with contextlib.suppress(OSError):
            self.socket.sendall(framed(message))
