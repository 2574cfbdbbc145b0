"""When nodes fail and come back."""

import heapq

import numpy as np

from fairlead.model.arrays import Bools
from fairlead.model.cluster import Cluster
from fairlead.model.events import NodeLost, NodeRecovered
from fairlead.simulator.ground_truth import GroundTruth


class NodeFailures:
    """Each node fails and comes back by a random clock of its own."""

    def __init__(self, cluster: Cluster, ground_truth: GroundTruth) -> None:
        self.lost: Bools = np.zeros(len(cluster.device_node), np.bool_)  # (devices,) at the moment
        self._cluster = cluster
        self._ground_truth = ground_truth
        self._clocks: list[np.random.Generator] = []
        self._to_come: list[tuple[float, int, bool]] = []  # heap of time, node, does it come back?

    def begin(self, now_s: float) -> None:
        """Start the clocks, if nodes fail at all; a second call does nothing."""
        if self._ground_truth.mtbf_s is None or self._clocks:
            return
        for node in range(len(self._cluster.nodes)):
            self._clocks.append(self._ground_truth.node_clock(node))
            self._set(node, now_s, is_up=True)

    def next_s(self) -> float:
        """When the next node fails or comes back; inf = never."""
        return self._to_come[0][0] if self._to_come else np.inf

    def take(self) -> tuple[NodeLost | NodeRecovered, int]:
        """Carry out the next failure or recovery, and return it and the position of the node."""
        time_s, node, is_up = heapq.heappop(self._to_come)
        self._set(node, time_s, is_up=is_up)
        self.lost[self._cluster.device_node == node] = not is_up
        name = self._cluster.nodes[node].name
        return (NodeRecovered(time_s, name) if is_up else NodeLost(time_s, name)), node

    def _set(self, node: int, now_s: float, *, is_up: bool) -> None:
        """Draw when a node fails that works from now on, or is back that does not."""
        truth = self._ground_truth
        assert truth.mtbf_s is not None
        lasts_s = self._clocks[node].exponential(truth.mtbf_s if is_up else truth.mttr_s)
        heapq.heappush(self._to_come, (now_s + lasts_s, node, not is_up))
