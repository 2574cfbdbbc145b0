"""Rank 0's side of the socket to its agent. Never waits while the job trains."""

from __future__ import annotations

import os
import socket
from math import inf
from time import monotonic, sleep

from fairlead.client.messages import (
    Adapt,
    FromAgent,
    Grant,
    Hello,
    Loaded,
    Progress,
    RankFrames,
    RankRefused,
    Save,
    StopRank,
    frame,
)
from fairlead.client.rank_environment import (
    EXIT_MAY_NOT_RUN,
    RankEnvironment,
    leave,
    say,
)
from fairlead.client.version import __version__
from fairlead.errors import WireError

OPEN_S = 30.0  # how long the agent may be away when a rank comes up
FINISH_S = 10.0  # and when it ends
RECONNECT_S = 0.5  # between attempts
TELL_S = 0.2  # between two reports of progress
RENEW_AT = 0.75  # of the lease
ANSWER_S = 1.0  # what a rank that was busy beyond the end of its lease waits for a renewal
HELD_BACK = 4096  # bytes that wait to be sent; beyond that progress is not told for now


class Link:
    """The lease, and what the agent wants. Without an agent the lease lasts for ever.

    ``stop`` (a reason), ``save_wanted`` and ``refused`` (a reason) are what it has asked for so far.
    """

    def __init__(self, place: RankEnvironment, checkpoint_s: float) -> None:
        self.checkpoint_s = checkpoint_s
        self.lease_end = inf  # monotonic time
        self.stop = ""
        self.save_wanted = False
        self.refused = ""
        self._place = place
        self._socket: socket.socket | None = None
        self._frames: RankFrames[FromAgent] = RankFrames(FromAgent)
        self._outbox = bytearray()
        self._asked = False  # for the lease, and not answered yet
        self._asked_at = 0.0
        self._renew_at = inf
        self._told_at = -inf
        self._tried_at = -inf
        self._state = (-1, 0, 0.0)  # step, newest saved step, seconds that it took to save
        self._again: dict[type, object] = {}  # what an agent that comes back has to know

    def open(self) -> None:
        """Connect, say hello, get the lease. Leaves the process where that is refused."""
        if not self._place.socket:
            return
        until = monotonic() + OPEN_S
        self.lease_end = -inf
        while self.lease_end == -inf and not self.refused:
            now = monotonic()
            if now > until:
                leave(EXIT_MAY_NOT_RUN, f"the agent does not answer at {self._place.socket}")
            self._connect(now)
            self._receive(wait_s=0.1)
            if self._socket is None:
                sleep(0.05)
        if self.refused:
            leave(EXIT_MAY_NOT_RUN, f"this process may not run: {self.refused}")

    def look(self, now: float) -> None:
        """Take in what the agent has said; connect again where it was lost; ask for the lease when it is
        time."""
        if not self._place.socket:
            return
        self._connect(now)
        self._receive()
        if now >= self.lease_end and (not self._asked or self._asked_at == now):
            self._final_renewal(now)

    def tell(self, message: object) -> None:
        """Send, at once if the agent takes it."""
        if isinstance(message, (Loaded, Adapt)):
            self._again[type(message)] = message
        self._send(message)

    def tell_progress(
        self, now: float, step: int, saved_step: int, save_s: float, at_once: bool = False
    ) -> None:
        """Progress, at most every ``TELL_S`` unless ``at_once``; with it the request for the lease."""
        self._state = step, saved_step, save_s
        renew = self.is_due(now)
        if self._socket is None or not (renew or at_once or now >= self._told_at + TELL_S):
            return
        self._told_at = now
        if renew:
            self._asked, self._asked_at = True, now
        if renew or len(self._outbox) < HELD_BACK:
            self._send(Progress(self._place.attempt, *self._state, renew=renew))

    def tell_saving(self) -> None:
        """The state is being saved."""
        if self._socket is not None and len(self._outbox) < HELD_BACK:
            self._send(Progress(self._place.attempt, *self._state, saving=True))

    def is_due(self, now: float) -> bool:
        """Is it time to ask for the lease?"""
        return now >= self._renew_at and not self._asked

    def finish(self, message: object) -> None:
        """The last word, and hang up."""
        self._again.pop(type(message), None)
        self.deliver(message)
        self.close()

    def deliver(self, message: object) -> None:
        """Send, and wait until the agent's socket has taken it. One that was lost gets some time to come
        back for it."""
        if not self._place.socket:
            return
        until = min(self.lease_end, monotonic() + FINISH_S)
        while not self._delivered(message) and monotonic() < until:
            sleep(0.05)

    def stay(self, message: object) -> None:
        """The last word of the loop. The connection stays, so that the agent can say that the code behind
        the loop is to stop; an agent that is lost is told again."""
        self.deliver(message)
        self._again[type(message)] = message

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._asked = False

    def _delivered(self, message: object) -> bool:
        self._receive()  # an agent that has gone is noticed here
        self._connect(monotonic())
        if self._socket is None:
            return False
        self._socket.settimeout(2.0)
        try:
            self._socket.sendall(self._outbox + frame(message))
            self._socket.setblocking(False)
        except OSError:
            self.close()
            return False
        self._outbox.clear()
        return True

    def _final_renewal(self, now: float) -> None:
        """The lease ran out while the rank was busy (a long step, a load): the agent may still extend it."""
        if self._socket is not None and not self._asked:
            self._asked, self._asked_at = True, now
            self._send(Progress(self._place.attempt, *self._state, renew=True))
        until = now + ANSWER_S
        while self._asked and self._socket is not None and (now := monotonic()) < until:
            self._receive(wait_s=until - now)

    def _connect(self, now: float) -> None:
        if self._socket is not None or now < self._tried_at + RECONNECT_S:
            return
        self._tried_at = now
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            made.connect(self._place.socket)
        except OSError:
            made.close()
            return
        self._socket, self._frames, self._outbox = made, RankFrames(FromAgent), bytearray()
        self._asked, self._asked_at = True, now
        place = self._place
        for message in (
            Hello(place.job, place.attempt, place.token, os.getpid(), version=__version__),
            *self._again.values(),
        ):
            self._send(message)

    def _receive(self, wait_s: float = 0.0) -> None:
        self._flush()
        if self._socket is None:
            return
        if wait_s:
            self._socket.settimeout(wait_s)
        try:
            data = self._socket.recv(65536)
        except (BlockingIOError, socket.timeout):  # no TimeoutError before Python 3.10
            return
        except OSError:
            data = b""
        finally:
            if wait_s:
                self._socket.setblocking(False)
        self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        if not data:
            self.close()
            return
        try:
            for message in self._frames.feed(data):
                self._take(message)
        except WireError as problem:
            say(f"the connection to the agent is dropped: {problem}")
            self.close()

    def _take(self, message: FromAgent) -> None:
        if isinstance(message, Grant):
            self._asked = False
            self.lease_end = self._asked_at + message.lease_s
            self._renew_at = self._asked_at + RENEW_AT * message.lease_s
            self.checkpoint_s = message.checkpoint_s
        elif isinstance(message, StopRank):
            self.stop = message.reason or "stopped"
        elif isinstance(message, Save):
            self.save_wanted = True
        elif isinstance(message, RankRefused):
            self.refused = message.reason or "refused"

    def _send(self, message: object) -> None:
        if self._socket is not None:
            self._outbox += frame(message)
            self._flush()

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
