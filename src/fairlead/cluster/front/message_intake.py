"""A bound on the memory of messages of agents that are being received.

gRPC makes room for a message as soon as somebody waits for it, and keeps what has come of it until it is
whole. So nobody waits for a stranger's, and for a bounded number of each caller; what has not been asked for
is bounded by the window of its stream (``STREAM_WINDOW``).

Most messages are whole as soon as they are asked for, but the answer takes a turn of the event loop. So many
are received at once, and the few that may stay are counted once they are slow: where the nodes of a large
cluster report at once, a small number of places held each up for many turns.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

STREAMS = 32  # calls of one connection at once; an agent waits with further ones
STREAM_WINDOW = (1 << 16) - 1  # bytes of a call that are taken in before its message is asked for
SLOW_S = 1.0  # after which a message that is not whole is slow
RECEIVE_TIMEOUT_S = 30.0  # for a message to become whole


@dataclass(frozen=True, slots=True)
class IntakeLimit:
    """Messages that are received at once."""

    at_once: int
    slow: int  # of these


OF_ONE_CALLER = IntakeLimit(at_once=4, slow=4)
OF_ONE_ADDRESS = IntakeLimit(at_once=192, slow=32)  # of all nodes there that share a token
OF_ALL_CALLERS = IntakeLimit(at_once=256, slow=64)


class IntakeFullError(Exception):
    """A message was slow to become whole while as many others were."""


class _Line:
    """The messages of one caller, or of all."""

    def __init__(self, most: IntakeLimit) -> None:
        self.most = most
        self.slots = asyncio.Semaphore(most.at_once)
        self.calls = 0  # that receive, or wait for that
        self.slow = 0  # messages


class MessageIntake:
    """Who may receive a message now. Used on one thread (the event loop's)."""

    def __init__(self) -> None:
        self._all = _Line(OF_ALL_CALLERS)
        self._lines: dict[str, _Line] = {}
        self.receiving = 0  # messages

    @property
    def calls(self) -> int:
        """Those that receive their message, or wait for that."""
        return sum(line.calls for line in self._lines.values())

    @asynccontextmanager
    async def slot(self, caller: str, most: IntakeLimit = OF_ONE_CALLER) -> AsyncIterator[None]:
        """Wait until this caller may receive a message, which is to be done in the block. most: of it. Raises
        TimeoutError where that takes longer than ``RECEIVE_TIMEOUT_S``, IntakeFullError where it is slow
        while too many others are."""
        line = self._lines.setdefault(caller, _Line(most))
        line.calls += 1
        try:
            async with line.slots, self._all.slots:
                self.receiving += 1
                try:
                    async with _in_time((line, self._all)):
                        yield
                finally:
                    self.receiving -= 1
        finally:
            line.calls -= 1
            if not line.calls:
                del self._lines[caller]


@asynccontextmanager
async def _in_time(lines: tuple[_Line, ...]) -> AsyncIterator[None]:
    """Receive a message in the block, as one of these lines. Raises as ``MessageIntake.slot``."""
    loop = asyncio.get_running_loop()
    state: Literal["fresh", "slow", "refused", "done"] = "fresh"

    def note_slow() -> None:
        nonlocal state
        if state != "fresh":  # it has ended in the turn before
            return
        if any(line.slow >= line.most.slow for line in lines):
            state = "refused"
            limit.reschedule(loop.time())
            return
        state = "slow"
        for line in lines:
            line.slow += 1
        limit.reschedule(loop.time() + RECEIVE_TIMEOUT_S)

    # A turn later, so that what has become whole while the loop was busy is taken first
    timer = loop.call_later(SLOW_S, loop.call_soon, note_slow)
    try:
        async with asyncio.timeout(None) as limit:
            yield
    except TimeoutError:
        if state == "refused":
            raise IntakeFullError from None
        raise
    finally:
        timer.cancel()
        if state == "slow":
            for line in lines:
                line.slow -= 1
        state = "done"
