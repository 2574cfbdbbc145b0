"""The ranks of a job stay on one step: all follow rank 0, which alone knows the lease.

Every rank comes to the same *check step*, says how it stands and waits for rank 0's verdict: go on until the
next check step, save, stop here. Rank 0 spaces check steps so that one comes every quarter of a second or
so; between them no rank speaks. A rank that is gone shows as the end of its connection.

Frames are those of ``fairlead.client.messages``, over TCP; strangers are kept out by the token of the start.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Literal, Protocol, TypeVar, Union

from fairlead.client.checkpoint import Part
from fairlead.client.messages import RankFrames, frame
from fairlead.client.rank_environment import (
    EXIT_RANK_SYNC,
    RankEnvironment,
    leave,
)
from fairlead.errors import WireError

CONNECT_TIMEOUT_S = 60.0  # until all ranks have come
SLICE_S = 0.25  # rank 0 looks after its lease so often while it waits for the others
CHECK_S = 0.25  # wanted between two check steps


@dataclass(frozen=True)
class Join:
    """A rank is there."""

    token: str
    attempt: int
    rank: int


@dataclass(frozen=True)
class Begin:
    """The message about the checkpoint that every rank loads: its path, ``""`` = none."""

    checkpoint: str


@dataclass(frozen=True)
class RankStatus:
    """The status of a rank at a check step. The first three must be the same for all that train."""

    step: int
    batch_size: int
    total_steps: int
    finished: bool = False  # its steps are done, or its data have ended
    complete: bool = False  # its script says that no more are needed
    terminated: bool = False  # it got SIGTERM
    pass_ends: bool = False  # the code after a pass over the data comes next, before another pass


@dataclass(frozen=True)
class Decision:
    """The decision about what all ranks do now."""

    do: Literal["go", "save", "stop", "finish", "abandon"]
    reason: str = ""
    check_step: int = 0  # the next
    partial: str = ""  # where parts of a checkpoint are saved, "" = nothing to save
    park: bool = False  # a process that stops may be parked
    uneven: bool = False  # ranks have come to different steps


@dataclass(frozen=True)
class Saved:
    """A rank's part of a checkpoint is on the disk, or is not."""

    parts: dict[str, Part]
    problem: str = ""  # why not, "" = it is
    place: str = ""  # then: the directory that is out of order, "" = not known


FromOtherRank = Union[Join, RankStatus, Saved]
FromRankZero = Union[Begin, Decision]
Idle = Callable[[], None]  # called while rank 0 waits
Reply = TypeVar("Reply", Join, RankStatus, Saved)


class RankSync(Protocol):
    """The other ranks, as rank 0 sees them. A rank that is gone, or too late, ends the process."""

    def open(self, idle: Idle) -> None:
        """Wait until all of them have connected."""

    def send(self, message: Begin | Decision) -> None:
        """Send to each of them."""

    def statuses(self, idle: Idle) -> list[RankStatus]:
        """Wait for the status of each, and return them in order of connection."""

    def saved(self, idle: Idle) -> list[Saved]:
        """Wait until each has saved its part, and return what they report."""

    def close(self) -> None:
        """Close the connections."""


class SingleRankSync:
    """The gang of a job of one rank."""

    def open(self, idle: Idle) -> None: ...
    def send(self, message: Begin | Decision) -> None: ...
    def statuses(self, idle: Idle) -> list[RankStatus]:  # noqa: ARG002
        return []

    def saved(self, idle: Idle) -> list[Saved]:  # noqa: ARG002
        return []

    def close(self) -> None: ...


class Peer:
    """A connection to another rank."""

    def __init__(self, connected: socket.socket, types: object, name: str) -> None:
        self.socket = connected
        self.name = name
        self._frames: RankFrames[FromOtherRank | FromRankZero] = RankFrames(types)
        self._arrived: list[FromOtherRank | FromRankZero] = []

    def send(self, message: object) -> None:
        try:
            self.socket.sendall(frame(message))
        except OSError as problem:
            leave(EXIT_RANK_SYNC, f"{self.name} is gone ({problem.strerror})")

    def receive(self) -> FromOtherRank | FromRankZero | None:
        """The next message, None: not whole yet. Waits as long as the socket does."""
        if not self._arrived:
            try:
                data = self.socket.recv(65536)
                self._arrived += self._frames.feed(data)
            except (OSError, WireError) as problem:
                leave(EXIT_RANK_SYNC, f"{self.name} is gone ({problem})")
            if not data:
                leave(EXIT_RANK_SYNC, f"{self.name} is gone")
        return self._arrived.pop(0) if self._arrived else None

    def take(self, reply_type: type[Reply], idle: Idle) -> Reply:
        """The next message, which has to be of this type."""
        while True:
            if not self._arrived and not select.select([self.socket], [], [], SLICE_S)[0]:
                idle()
                continue
            message = self.receive()
            if isinstance(message, reply_type):
                return message
            if message is not None:
                leave(EXIT_RANK_SYNC, f"{self.name}: {reply_type.__name__} expected, got {message}")


class RankZeroSync:
    """Rank 0 of several."""

    def __init__(self, environment: RankEnvironment) -> None:
        self._environment = environment
        self._peers: dict[int, Peer] = {}

    def open(self, idle: Idle) -> None:
        """Listen until all ranks have joined. Leaves the process where they do not come."""
        assert self._environment.rank_sync is not None
        try:
            listening = socket.create_server(
                self._environment.rank_sync, backlog=self._environment.world_size
            )
        except OSError as problem:
            leave(
                EXIT_RANK_SYNC,
                f"cannot listen at {self._environment.rank_sync}: {problem.strerror}",
            )
        with listening:
            until = monotonic() + CONNECT_TIMEOUT_S
            while len(self._peers) < self._environment.world_size - 1:
                if monotonic() > until:
                    leave(
                        EXIT_RANK_SYNC,
                        f"{self._missing()} did not come within {CONNECT_TIMEOUT_S:.0f} s",
                    )
                if select.select([listening], [], [], SLICE_S)[0]:
                    self._welcome(listening)
                idle()

    def send(self, message: Begin | Decision) -> None:
        for peer in self._peers.values():
            peer.send(message)

    def statuses(self, idle: Idle) -> list[RankStatus]:
        return [peer.take(RankStatus, idle) for peer in self._peers.values()]

    def saved(self, idle: Idle) -> list[Saved]:
        return [peer.take(Saved, idle) for peer in self._peers.values()]

    def close(self) -> None:
        _close(self._peers.values())
        self._peers = {}

    def _welcome(self, listening: socket.socket) -> None:
        """Let a rank in, and nobody else."""
        connected, _ = listening.accept()
        connected.settimeout(5.0)
        frames: RankFrames[Join] = RankFrames(Join)
        joins: list[Join] = []
        with suppress(OSError, WireError):
            while not joins and (data := connected.recv(4096)):
                joins += frames.feed(data)
        if len(joins) != 1 or not self._is_ours(joins[0]):
            connected.close()
            return
        _keep_alive(connected)
        rank = joins[0].rank
        self._peers[rank] = Peer(connected, FromOtherRank, f"rank {rank}")

    def _is_ours(self, join: Join) -> bool:
        environment = self._environment
        known = (
            join.token == (environment.sync_token or environment.token)
            and join.attempt == environment.attempt
        )
        return known and 0 < join.rank < environment.world_size and join.rank not in self._peers

    def _missing(self) -> str:
        missing = [r for r in range(1, self._environment.world_size) if r not in self._peers]
        return f"rank {missing[0]}" if len(missing) == 1 else f"{len(missing)} ranks"


class OtherRankSync:
    """Any other rank."""

    def __init__(self, environment: RankEnvironment) -> None:
        self._environment = environment
        self._peer: Peer | None = None

    def open(self) -> str:
        """Join rank 0. The path of the checkpoint to load, ``""`` = none."""
        until = monotonic() + CONNECT_TIMEOUT_S
        while (connected := self._connected()) is None:
            if monotonic() > until:
                leave(EXIT_RANK_SYNC, f"rank 0 does not answer at {self._environment.rank_sync}")
            sleep(0.05)
        self._peer = Peer(connected, FromRankZero, "rank 0")
        environment = self._environment
        self._peer.send(
            Join(environment.sync_token or environment.token, environment.attempt, environment.rank)
        )
        begin = self._wait()
        assert isinstance(begin, Begin)
        return begin.checkpoint

    def exchange(self, status: RankStatus) -> Decision:
        """Say how this rank stands; what all ranks do now."""
        assert self._peer is not None
        self._peer.send(status)
        decision = self._wait()
        assert isinstance(decision, Decision)
        return decision

    def send(self, saved: Saved) -> None:
        assert self._peer is not None
        self._peer.send(saved)

    def close(self) -> None:
        if self._peer is not None:
            _close([self._peer])
            self._peer = None

    def _wait(self) -> FromOtherRank | FromRankZero:
        assert self._peer is not None
        while (message := self._peer.receive()) is None:
            pass
        return message

    def _connected(self) -> socket.socket | None:
        assert self._environment.rank_sync is not None
        try:
            connected = socket.create_connection(self._environment.rank_sync, timeout=5.0)
        except OSError:
            return None
        connected.settimeout(None)
        _keep_alive(connected)
        return connected


class CheckStepPace:
    """Chooses the next check step: about ``CHECK_S`` ahead, at most twice as far as the one before."""

    def __init__(self) -> None:
        self._stride = 1
        self._last = (0, 0.0)  # step, monotonic time

    def next(self, step: int, now: float) -> int:
        before, then = self._last
        self._last = step, now
        if step > before and then:
            ahead = int(CHECK_S * (step - before) / max(now - then, 1e-9))
            self._stride = max(1, min(ahead, 2 * self._stride))
        return step + self._stride


def _keep_alive(connected: socket.socket) -> None:
    """A machine that goes silent shows after about 25 s."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def _close(peers: Iterable[Peer]) -> None:
    for peer in peers:
        peer.socket.close()
