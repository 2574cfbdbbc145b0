"""The agent's side of a rank's socket for one job, without a cluster: to profile a script, and to test."""

from __future__ import annotations

import os
import secrets
import select
import socket
from contextlib import suppress
from pathlib import Path

from fairlead.client.messages import (
    FromRank,
    Grant,
    Hello,
    Progress,
    RankFrames,
    RankRefused,
    frame,
)
from fairlead.errors import WireError


class StubAgent:
    """Listens at a path, lets the one job in, answers requests for its lease.

    ``granting`` off: requests are not answered. ``received``: all that the rank has said, oldest first.
    """

    def __init__(
        self, path: Path, *, lease_s: float = 10.0, checkpoint_s: float = 600.0, job: int = 1
    ) -> None:
        self.path = path
        self.lease_s, self.checkpoint_s = lease_s, checkpoint_s
        self.job, self.attempt = job, 1
        self.token = secrets.token_hex(16)
        self.granting = True
        self.received: list[FromRank] = []
        self.known = False  # the rank that is connected has said a good hello
        self._listening: socket.socket | None = None
        self._peer: socket.socket | None = None
        self._frames: RankFrames[FromRank] = RankFrames(FromRank)

    def open(self) -> None:
        """Listen."""
        self.path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(os.fspath(self.path))
        self._listening.listen(4)

    def environment(self, **more: str | int) -> dict[str, str]:
        """Return the variables of the rank; ``more`` without the prefix: ``total_steps=100``."""
        variables: dict[str, str | int] = {
            "socket": os.fspath(self.path),
            "job": self.job,
            "attempt": self.attempt,
            "token": self.token,
        }
        return {
            f"FAIRLEAD_{name.upper()}": str(value) for name, value in (variables | more).items()
        }

    def poll(self, wait_s: float) -> list[FromRank]:
        """Wait at most ``wait_s`` seconds for the rank, and return the messages that have come."""
        waiting = [one for one in (self._listening, self._peer) if one is not None]
        ready = select.select(waiting, [], [], wait_s)[0]
        if self._peer in ready:
            return self._read()
        if ready:
            self._accept()
        return []

    def send(self, message: object) -> None:
        """Say something to the rank, if it is there."""
        if self._peer is not None:
            with suppress(OSError):
                self._peer.sendall(frame(message))

    def drop(self) -> None:
        """Hang up; the rank may call again."""
        if self._peer is not None:
            self._peer.close()
            self._peer, self.known = None, False

    def close(self) -> None:
        """Hang up and go away."""
        self.drop()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        assert self._listening is not None
        self.drop()
        self._peer, _ = self._listening.accept()
        self._frames = RankFrames(FromRank)

    def _read(self) -> list[FromRank]:
        assert self._peer is not None
        try:
            data = self._peer.recv(65536)
            messages = list(self._frames.feed(data))
        except (OSError, WireError):
            data, messages = b"", []
        for message in messages:
            self._reply(message)
        self.received += messages
        if not data:
            self.drop()
        return messages

    def _reply(self, message: FromRank) -> None:
        if isinstance(message, Hello):
            right = (self.job, self.attempt, self.token)
            self.known = (message.job, message.attempt, message.token) == right
            if not self.known:
                self.send(
                    RankRefused(f"job {message.job}, attempt {message.attempt} may not run here")
                )
                return
        wants = isinstance(message, Hello) or (isinstance(message, Progress) and message.renew)
        if wants and self.granting and self.known:
            self.send(Grant(self.lease_s, self.checkpoint_s))
