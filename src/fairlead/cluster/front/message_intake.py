"""A bound on the memory of messages of agents that are being received.

gRPC makes room for a message as soon as somebody waits for it, and keeps what has come of it until it is
whole. So nobody waits for a stranger's, and for few at a time of each caller; what has not been asked for is
bounded by the window of its stream (``STREAM_WINDOW``).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

OF_ONE_CALLER = 4  # messages that are received at once
OF_ONE_ADDRESS = 32  # of all nodes there that share a token
OF_ALL_CALLERS = 64
RECEIVE_TIMEOUT_S = 30.0  # for a message to become whole
STREAMS = 32  # calls of one connection at once; an agent waits with further ones
STREAM_WINDOW = (1 << 16) - 1  # bytes of a call that are taken in before its message is asked for


@dataclass(slots=True)
class _Line:
    """The messages of one caller."""

    slots: asyncio.Semaphore
    calls: int = 0  # that receive, or wait for that


class MessageIntake:
    """Who may receive a message now. Used on one thread (the event loop's)."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(OF_ALL_CALLERS)
        self._lines: dict[str, _Line] = {}
        self.receiving = 0  # messages

    @property
    def calls(self) -> int:
        """Those that receive their message, or wait for that."""
        return sum(line.calls for line in self._lines.values())

    @asynccontextmanager
    async def slot(self, caller: str, most: int = OF_ONE_CALLER) -> AsyncIterator[None]:
        """Wait until this caller may receive a message, which is to be done in the block. most: at once.
        Raises TimeoutError where that takes longer than ``RECEIVE_TIMEOUT_S``."""
        line = self._lines.setdefault(caller, _Line(asyncio.Semaphore(most)))
        line.calls += 1
        try:
            async with line.slots, self._all:
                self.receiving += 1
                try:
                    async with asyncio.timeout(RECEIVE_TIMEOUT_S):
                        yield
                finally:
                    self.receiving -= 1
        finally:
            line.calls -= 1
            if not line.calls:
                del self._lines[caller]
