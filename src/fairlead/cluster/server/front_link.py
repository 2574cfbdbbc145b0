"""The driver's end of the socket to the front."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from fairlead.cluster.front.messages import (
    FrontFrames,
    ToDriver,
    ToFront,
)
from fairlead.cluster.front.outbox import Outbox

CHUNK = 1 << 18  # bytes that are read at once
CHUNK_BYTES = 1 << 16  # bytes that are sent at once: the front renews no lease while it reads them
GATHER_S = 0.002  # from the first message that waits until it is sent
_decoder = msgspec.msgpack.Decoder(ToDriver)
_log = logging.getLogger(__name__)


class DriverLink:
    """``listen`` on the thread that owns it; ``put`` from any. What is sent waits on a thread of its own,
    so that a front that stands still holds up nobody."""

    def __init__(self, sock: socket.socket, take: Callable[[Any], None]) -> None:
        """take: given what the front says, on the listening thread."""
        self._sock = sock
        self._take = take
        self._outbox = Outbox()
        self._news = threading.Event()
        self._closed = False
        self._writer = threading.Thread(target=self._write, name="to-front", daemon=True)

    def put(self, message: ToFront) -> None:
        """Have it sent, if the front lives."""
        self._outbox.put(message)
        self._news.set()

    def listen(self) -> None:
        """Hand on what comes until the front ends."""
        self._writer.start()
        frames = FrontFrames()
        try:
            while data := self._receive():
                for body in frames.feed(data):
                    self._hand_on(body)
        finally:
            self._closed = True
            self._news.set()
            self._sock.close()
            self._writer.join()

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(CHUNK)
        except OSError:
            return b""

    def _hand_on(self, body: bytes) -> None:
        try:
            self._take(_decoder.decode(body))
        except Exception:  # one message that is not understood must not cut off all others
            _log.exception("a message of the front could not be handled")

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed:
                self._news.wait()
                time.sleep(GATHER_S)  # what is published together is sent together
                self._news.clear()
                while not self._closed and (data := self._outbox.take(CHUNK_BYTES)):
                    self._sock.sendall(data)
