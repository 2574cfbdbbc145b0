"""Connections whose process has not said yet who it is: any process of the user may open them, so they are
few. Where there are too many, who has most of them loses the oldest: a rank that speaks at once gets in."""

import asyncio
import logging
import os
import resource
import socket
import struct
import time
from collections import Counter
from typing import NamedTuple

MAX_PENDING = 64  # at once
_PART = 8  # of the descriptors that this process may open, at most one in so many
_WARN_INTERVAL_S = 60.0  # between two complaints
_CREDENTIALS = struct.Struct("3i")  # pid, user, group
_log = logging.getLogger(__name__)


class SocketOwner(NamedTuple):
    """Who has connected."""

    uid: int
    group: int  # of processes


class ThrottledWarning:
    """A warning that is logged once in a while, however often there is reason for it."""

    def __init__(self) -> None:
        self._next = 0.0
        self._suppressed = 0

    def __call__(self, text: str) -> None:
        """Log it, or count it."""
        now = time.monotonic()
        if now < self._next:
            self._suppressed += 1
            return
        more = (
            f" ({self._suppressed:,} more of the kind since the last)" if self._suppressed else ""
        )
        _log.warning("%s%s", text, more)
        self._next, self._suppressed = now + _WARN_INTERVAL_S, 0


class PendingConnections:
    """Open connections without a Hello."""

    def __init__(self, most: int | None = None) -> None:
        """most: connections; None = 64, or less where this process may open few files."""
        self._most = allowed() if most is None else most
        self._peers: dict[asyncio.StreamWriter, SocketOwner] = {}  # oldest first
        self._warn = ThrottledWarning()

    def __len__(self) -> int:
        return len(self._peers)

    def add(self, writer: asyncio.StreamWriter) -> bool:
        """Returns whether another one had to go for it."""
        self._peers[writer] = socket_owner(writer.get_extra_info("socket"))
        if len(self._peers) <= self._most:
            return False
        # Of the user who has most of them, so that one with many processes takes none from another.
        user, _ = Counter(peer.uid for peer in self._peers.values()).most_common(1)[0]
        mine = [peer.group for peer in self._peers.values() if peer.uid == user]
        group, connections = Counter(mine).most_common(1)[0]
        oldest = next(one for one, of in self._peers.items() if of == SocketOwner(user, group))
        del self._peers[oldest]
        oldest.transport.abort()
        self._warn(
            f"process group {group} holds {connections} connections to this agent on which nothing is said; "
            "they are closed"
        )
        return True

    def discard(self, writer: asyncio.StreamWriter) -> None:
        """Drop a connection that has identified itself, or has gone."""
        self._peers.pop(writer, None)


def allowed() -> int:
    """So many connections that the files of this process do not run out."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        MAX_PENDING if files == resource.RLIM_INFINITY else max(min(MAX_PENDING, files // _PART), 4)
    )


def socket_owner(peer: socket.socket) -> SocketOwner:
    """Return the user and the process group of the process that connected; its process id for the group if
    it has ended, 0 if unknown."""
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = map(int, _CREDENTIALS.unpack(found))
    try:
        return SocketOwner(uid, os.getpgid(pid) if pid > 0 else 0)
    except OSError:
        return SocketOwner(uid, pid)
