"""When an agent reports: with its heartbeats, at news, and when somebody waits for the answer."""

import asyncio
import contextlib
import random
import time

from fairlead.cluster.agent.heartbeat import until_heartbeat_s
from fairlead.cluster.protocol.messages import Orders

_GAP_S = 0.003  # between reports: what changes meanwhile is told in one
_LATEST_HEARTBEATS = 1.5  # after the last report the next one is made at the latest

Waiting = list[asyncio.Future[None]]


class ReportPace:
    """Pace of the reports of one agent: call ``await_due``, ``begin``, then ``answered`` or ``failed``,
    ``wait_gap``, and so on."""

    def __init__(self) -> None:
        self._phase = random.random()  # of its heartbeats
        self._heartbeat_s = 1.0
        self._heartbeat_at = 0.0  # monotonic seconds of the next
        self._answered_at = 0.0  # monotonic seconds of the last answer
        self._gap_s = (
            0.0  # between reports, unless there are new orders or somebody waits for an answer
        )
        self._news = asyncio.Event()
        self._urgent = asyncio.Event()
        self._waiting: Waiting = []  # for the answer to the next report

    def wake(self) -> None:
        """There is news."""
        self._news.set()

    def skip_gap(self) -> None:
        """The next report does not wait for the gap that the server wants."""
        self._urgent.set()

    async def ask(self) -> None:
        """Report at once, and wait for the answer."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self.skip_gap()
        self.wake()
        await answered

    def set_heartbeat(self, heartbeat_s: float) -> None:
        """The longest time between two heartbeats, as the server wants it."""
        self._heartbeat_s = heartbeat_s

    async def await_due(self) -> None:
        """Wait for news, no longer than until the next heartbeat."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(self._heartbeat_at - time.monotonic(), 0.0)):
                await self._news.wait()

    def spare_s(self, now: float) -> float:
        """Return for how many seconds the next report may be put off: a node that has said nothing for two
        heartbeats is suspect."""
        return max(self._answered_at + _LATEST_HEARTBEATS * self._heartbeat_s - now, 0.0)

    def begin(self) -> Waiting:
        """A report is made, with all news until now. Returns who waits for its answer."""
        self._news.clear()
        self._urgent.clear()
        waiting, self._waiting = self._waiting, []
        return waiting

    def failed(self, waiting: Waiting) -> None:
        """There was no answer: they wait for that to the next report."""
        self._waiting = waiting + self._waiting

    def answered(self, waiting: Waiting, orders: Orders) -> None:
        """The orders that answer the report have been followed."""
        self._heartbeat_s = orders.heartbeat_s or self._heartbeat_s
        self._gap_s = orders.gap_s
        now = self._answered_at = time.monotonic()
        self._heartbeat_at = now + until_heartbeat_s(
            heartbeat_s=self._heartbeat_s, phase=self._phase, now=now
        )
        for answered in waiting:
            if not answered.done():
                answered.set_result(None)

    async def wait_gap(self) -> None:
        """Between two reports."""
        await asyncio.sleep(_GAP_S)
        if self._gap_s > _GAP_S:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._gap_s - _GAP_S):
                    await self._urgent.wait()
