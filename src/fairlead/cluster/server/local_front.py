"""Leases granted in the driver's own process: for tests and benchmarks that play the nodes themselves."""

import msgspec

from fairlead.cluster.front.leases import LeaseTable
from fairlead.cluster.front.messages import (
    LossQuery,
    NodeRemoved,
    NodeRenewal,
    PublishedNode,
    PublishedOrders,
    PublishedPosition,
    Reported,
    SchedulingHalted,
)
from fairlead.cluster.protocol.messages import NodeReport, Orders
from fairlead.cluster.server.fleet import Fleet, NodeNotices

_ORDERS = msgspec.msgpack.Decoder(Orders)


class LocalFront:
    """A lease table whose driver is in the same process. Any thread may report."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.table = LeaseTable(
            fleet.lease_s,
            fleet.rate_bound,
            lambda: fleet.monotonic(),  # which a test may replace
            self._forward,
            fleet.shortest_s,
        )
        fleet.connect(self._take)

    def _forward(self, message: Reported | NodeRenewal) -> None:
        if isinstance(message, Reported):
            self._fleet.apply_report(message)
        else:
            self._fleet.apply_renewal(message)

    def report(self, message: NodeReport) -> Orders:
        """The orders of the node, with its leases renewed. Raises StaleError."""
        with self._fleet.lock:
            return _as_orders(self.table.report(message))

    def orders(self, node: str, incarnation: str) -> Orders:
        """The orders of a node as published last, without leases. Raises StaleError."""
        with self._fleet.lock:
            return _as_orders(self.table.known(node, incarnation).orders)

    def _take(self, message: NodeNotices) -> None:
        renewal = None
        match message:
            case PublishedPosition():
                self.table.move(message)
            case SchedulingHalted():
                self.table.halt(message)
            case PublishedNode():
                renewal = self.table.publish(message)
            case NodeRemoved():
                self.table.remove(message)
            case LossQuery():
                renewal = self.table.ask_loss(message)
        if renewal is not None:
            self._fleet.apply_renewal(renewal)


def _as_orders(orders: PublishedOrders) -> Orders:
    """Return orders as an agent decodes them."""
    return _ORDERS.decode(msgspec.msgpack.encode(orders))
