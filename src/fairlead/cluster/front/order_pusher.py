"""Tells nodes of new orders, as fast as they answer."""

import asyncio
from collections.abc import AsyncGenerator
from typing import NamedTuple

from fairlead.cluster.front.leases import LeasedNode, LeaseTable
from fairlead.cluster.front.messages import PublishedOrders
from fairlead.cluster.protocol.messages import WatchRequest

# Nodes that have been told and have not answered yet. Each answers with reports, which queue before the
# renewals of others: with 16 orders were there as soon, and the slowest hundredth of renewals took 24 to
# 47 ms in place of 22 to 23 (``benchmarks/live_load.py``, 1,000 nodes).
MAX_IN_FLIGHT = 6
PUSH_TIMEOUT_S = 1.0  # a node that does not answer for so long holds up the others no more


class _Pushed(NamedTuple):
    seq: int  # of the orders
    at: float  # monotonic seconds


class OrderPusher:
    """The streams of orders to agents, on the event loop.

    Every node that is told reports what came of it, at once and again as its jobs stop and start. Where a
    round has orders for thousands of nodes, they are told as others have answered, so that reports do not
    pile up and leases of all nodes go on being renewed in time.
    """

    def __init__(self, table: LeaseTable, window: int = MAX_IN_FLIGHT) -> None:
        self._table = table
        self._window = window
        self._streams: dict[str, set[asyncio.Event]] = {}
        self._waiting: dict[str, None] = {}  # names, in the order in which they are to be told
        self._pushed: dict[str, _Pushed] = {}

    async def watch(self, message: WatchRequest) -> AsyncGenerator[PublishedOrders, None]:
        """The orders of a node now, and whenever they are new to it. Raises StaleError."""
        event = asyncio.Event()
        streams = self._streams.setdefault(message.node, set())
        streams.add(event)
        try:
            sent = -1
            while True:
                event.clear()
                orders = self._table.known(message.node, message.incarnation).orders
                if orders.seq > sent and not self._table.halted:
                    sent = orders.seq
                    yield orders
                else:
                    await event.wait()
        finally:
            self._table.disconnected(message.node, message.incarnation)
            streams.discard(event)
            if not streams and self._streams.get(message.node) is streams:
                del self._streams[message.node]

    def notify(self, name: str) -> None:
        """There are new orders for a node."""
        self._waiting[name] = None
        self._push()

    def is_under_way(self) -> bool:
        """Return whether some nodes have not been sent their orders yet."""
        return bool(self._waiting)

    def reported(self, node: LeasedNode) -> None:
        """A node has reported: it may have followed."""
        pushed = self._pushed.get(node.name)
        if pushed is not None and node.followed >= pushed.seq:
            del self._pushed[node.name]
            self._push()

    def tick(self) -> None:
        """Called often: those that do not answer are no longer waited for."""
        now = self._table.monotonic()
        for name in [
            name for name, pushed in self._pushed.items() if now - pushed.at > PUSH_TIMEOUT_S
        ]:
            del self._pushed[name]
        self._push()

    def _push(self) -> None:
        while self._waiting and len(self._pushed) < self._window:
            name = next(iter(self._waiting))
            del self._waiting[name]
            node, streams = self._table.nodes.get(name), self._streams.get(name)
            # An answer to a report may have brought them already.
            if node is not None and streams and node.answered < node.orders.seq:
                self._pushed[name] = _Pushed(node.orders.seq, self._table.monotonic())
                for event in streams:
                    event.set()
