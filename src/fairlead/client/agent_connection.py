"""A socket to the agent that carries framed messages, never blocks unless asked to, and is made again where
it was lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from fairlead.client.messages import FromAgent, RankFrames, frame
from fairlead.client.rank_environment import print_to_log
from fairlead.errors import WireError

RECONNECT_S = 0.5  # between attempts
DELIVER_S = 2.0  # that one attempt to deliver may block


class AgentConnection:
    """The connection to an agent's socket at ``path``; closed at first."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._frames: RankFrames[FromAgent] = RankFrames(FromAgent)
        self._outbox = bytearray()
        self._tried_at = float("-inf")

    @property
    def is_open(self) -> bool:
        """Return whether there is a connection, as far as is known."""
        return self._socket is not None

    @property
    def backlog(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._outbox)

    def connect(self, now: float) -> bool:
        """Connect where there is no connection, at most every ``RECONNECT_S``. Whether one was made."""
        if self._socket is not None or now < self._tried_at + RECONNECT_S:
            return False
        self._tried_at = now
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            made.connect(self._path)
        except OSError:
            made.close()
            return False
        self._socket, self._frames, self._outbox = made, RankFrames(FromAgent), bytearray()
        return True

    def receive(self, wait_s: float = 0.0) -> Iterator[FromAgent]:
        """The messages that have come. Closes the connection where it was lost, or what comes is not
        understood."""
        data = self._read(wait_s)
        if data is None:
            return
        if not data:
            self.close()
            return
        try:
            yield from self._frames.feed(data)
        except WireError as problem:
            print_to_log(f"the connection to the agent is dropped: {problem}")
            self.close()

    def send(self, message: object) -> None:
        """Send as much as the agent takes now; the rest goes first the next time. Lost where there is no
        connection."""
        if self._socket is not None:
            self._outbox += frame(message)
            self._flush()

    def deliver(self, message: object) -> bool:
        """Send, and wait until the agent's socket has taken it. Whether it has."""
        if self._socket is None:
            return False
        self._socket.settimeout(DELIVER_S)
        try:
            self._socket.sendall(self._outbox + frame(message))
            self._socket.setblocking(False)
        except OSError:
            self.close()
            return False
        self._outbox.clear()
        return True

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        self.close()

    def _read(self, wait_s: float) -> bytes | None:
        """Return the bytes that have come; empty: the connection is lost; None: there is nothing."""
        self._flush()
        if self._socket is None:
            return None
        if wait_s:
            self._socket.settimeout(wait_s)
        try:
            return self._socket.recv(65536)
        except (BlockingIOError, socket.timeout):  # no TimeoutError before Python 3.10
            return None
        except OSError:
            return b""
        finally:
            if wait_s:
                self._socket.setblocking(False)

    def _flush(self) -> None:
        if self._socket is None or not self._outbox:
            return
        try:
            sent = self._socket.send(self._outbox)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        del self._outbox[:sent]
