"""The messages between a rank and the agent of its node, over a Unix stream socket.

A message is its length (little-endian u32) and a JSON object with a ``type`` (``fairlead.client.codec``).
Rank 0 alone speaks to its agent; the other ranks follow rank 0 (``fairlead.client.rank_sync``). The
agent tells a
rank who it is in its environment:

==========================  =====================================================================
FAIRLEAD_SOCKET             path of the agent's socket; absent: not under Fairlead
FAIRLEAD_JOB                job id
FAIRLEAD_ATTEMPT              of the lease; it grows with every start, and each message carries it
FAIRLEAD_TOKEN              secret of this start; a stranger on the same machine does not know it
FAIRLEAD_CHECKPOINT_DIR     where the job's checkpoints are
FAIRLEAD_TOTAL_STEPS        steps of the whole job
FAIRLEAD_ACCELERATOR        accelerator type of the devices
FAIRLEAD_DEVICES            their indices on the node, ``0,1`` (CUDA_VISIBLE_DEVICES: those of all ranks here)
FAIRLEAD_ARRAY_ID           of a task: its array, and which task of it this is; _COUNT: how many there are
FAIRLEAD_ARRAY_INDEX
FAIRLEAD_ARRAY_COUNT
FAIRLEAD_SEARCH, _TRIAL     of a trial of a search: its search, and which trial of it this is; its parameters
FAIRLEAD_PARAMETERS         as a JSON object (``fairlead.parameters()``),
FAIRLEAD_PARAM_NAME         and one by one
FAIRLEAD_BATCH              samples per step that the job uses now, where it has changed it before
FAIRLEAD_ACCEPT_LOSS        1: the owner has this start begin with whatever checkpoints are there
FAIRLEAD_FAILURE_FILE       where to leave the exception that the rank dies of
FAIRLEAD_PARKING            descriptors with which it can be parked (``fairlead.client.parking``)
FAIRLEAD_STACKS_FILE        where to write the stacks of all threads on a signal, should it hang
FAIRLEAD_METRICS_FILE       where rank 0 reports metrics (``fairlead.client.report``)
FAIRLEAD_RANK_SYNC               host:port where rank 0 listens for the other ranks; absent for one rank
FAIRLEAD_RANK_SYNC_TOKEN         secret that they share, on all nodes; FAIRLEAD_TOKEN is a node's own
RANK, WORLD_SIZE,           as torchrun sets them for torch.distributed's ``env://``: all of them, always
LOCAL_RANK, MASTER_ADDR,
MASTER_PORT, GROUP_RANK,
LOCAL_WORLD_SIZE,
GROUP_WORLD_SIZE
==========================  =====================================================================

Steps are absolute: the count of the whole job, not of this start. A step counts for all ranks together.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union

from fairlead.client.codec import DecodeError, decode, encode
from fairlead.errors import WireError

if TYPE_CHECKING:
    from typing import TypeAlias

PROTOCOL = 3  # of agent and client; it grows when one could not understand the other any more
HEADER = struct.Struct("<I")
MAX_MESSAGE_BYTES = 1 << 16  # bytes of a message; more is a stranger
EXPIRED = "lease expired"  # the reason of an end that no job is to blame for


@dataclass(frozen=True)
class Hello:
    """The first message of rank 0. Answered by ``Grant``, ``StandBy`` or ``RankRefused``."""

    job: int
    attempt: int
    token: str
    pid: int
    protocol: int = PROTOCOL
    version: str = ""  # of fairlead-client


@dataclass(frozen=True)
class Loaded:
    """Training goes on from here: the checkpoint that was loaded is of this step (0: there was none)."""

    attempt: int
    step: int
    load_s: float
    lost_steps: int = -1  # by all starts so far: done, and to be done again; -1 = not known
    from_job: int = -1  # that had saved this checkpoint; -1 = none, or not known
    from_attempt: int = 0  # of that job


@dataclass(frozen=True)
class Progress:
    """So many steps are done. renew: 75 % of the lease are over, please extend it."""

    attempt: int
    step: int  # -1 = not known yet: the checkpoint is still to be loaded
    saved_step: int  # of the newest whole checkpoint, 0 = none
    save_s: float  # seconds that the newest checkpoint took
    renew: bool = False
    saving: bool = False  # a checkpoint is being saved: the next step may take a while
    save_problem: str = ""  # why the newest checkpoint could not be saved; "" = it could
    save_place: str = ""  # then: the directory that is out of order, "" = not known


@dataclass(frozen=True)
class Adapt:
    """The job trains on with another batch size (Accordion, GNS). From the next step on."""

    attempt: int
    batch: int  # samples per step
    total_steps: int  # of the whole job, as absolute steps from now on
    step: int  # steps done, in the same count


@dataclass(frozen=True)
class RankPrepared:
    """A rank 0 that stands by has gathered the other ranks. Answered by ``StandBy`` once the job runs nowhere
    else."""

    attempt: int


@dataclass(frozen=True)
class RankEnded:
    """The loop of rank 0 is over. Completed: what is left is the code behind it, which may still be told to
    stop; a rank that then stops says so with another one."""

    attempt: int
    step: int
    saved_step: int
    save_s: float
    completed: bool  # all steps are done, or the script says that it needs no more
    reason: str = ""  # why a loop that is not completed is over; "" = not told


@dataclass(frozen=True)
class Grant:
    """The lease, now and for so long from the moment its renewal was asked for (monotonic time)."""

    lease_s: float
    checkpoint_s: float  # save when so much time has passed since the last save


@dataclass(frozen=True)
class StopRank:
    """Stop at the next step that all ranks can agree on, save, exit with 0."""

    reason: str  # preempted | cancelled | paused | lease expired | agent leaves
    park: bool = False  # then stay, without devices, until the job has some again


@dataclass(frozen=True)
class StandBy:
    """The job still runs elsewhere: touch nothing of it, its checkpoints included. over: not any more; ask
    for the lease."""

    over: bool = False


@dataclass(frozen=True)
class Save:
    """Save a checkpoint now, and go on."""


@dataclass(frozen=True)
class RankRefused:
    """This process may not run: it is of an old attempt, or a stranger. Exit without saving."""

    reason: str


FromRank: TypeAlias = Union[Hello, Loaded, Progress, Adapt, RankPrepared, RankEnded]
FromAgent: TypeAlias = Union[Grant, StandBy, StopRank, Save, RankRefused]


Message = TypeVar("Message")


def frame(message: object) -> bytes:
    """A message as it goes over the socket: length, then JSON."""
    body = encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise WireError(
            f"{type(message).__name__}: {len(body)} bytes, at most {MAX_MESSAGE_BYTES} are sent"
        )
    return HEADER.pack(len(body)) + body


class RankFrames(Generic[Message]):
    """Messages out of the bytes of a stream, in whatever pieces these arrive.

    ``RankFrames(FromRank)`` on the agent's side, ``RankFrames(FromAgent)`` on the rank's.
    """

    def __init__(self, types: Any) -> None:
        self._types = types
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole with these bytes. Raises WireError where the peer does not speak our
        language; the stream cannot be used any more then."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._buffer)
            if length > MAX_MESSAGE_BYTES:
                raise WireError(
                    f"a message of {length} bytes, at most {MAX_MESSAGE_BYTES} are accepted"
                )
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            yield self._decode(body)

    def _decode(self, body: bytes) -> Message:
        try:
            message: Message = decode(body, self._types)
        except DecodeError as problem:
            raise WireError(f"a message that is not understood: {problem}") from None
        return message
