"""Device-seconds by accelerator type: what there was, and what became of it."""

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster
from fairlead.model.events import NodeLost, NodeRecovered


class DeviceTime:
    """Device-seconds since the first submission. Arrays are (slots,), one per accelerator type."""

    def __init__(self, cluster: Cluster) -> None:
        self.capacity: Floats = cluster.capacity.copy()  # devices that work
        self.capacity_s: Floats = np.zeros(len(cluster.slots))  # that there were
        self.busy_s: Floats = np.zeros(len(cluster.slots))  # in use
        self.charged_s: Floats = np.zeros(len(cluster.slots))  # the same by Gavel's definition
        self.spread_s: Floats = np.zeros(len(cluster.slots))  # of jobs that were scattered
        self._cluster = cluster
        self._from_s: float | None = None

    def begin(self, time_s: float) -> None:
        """Start the count at the first submission; later calls change nothing."""
        if self._from_s is None:
            self._from_s = time_s

    def count(self, now_s: float) -> None:
        """Add the capacity of the time up to now."""
        if self._from_s is not None:
            self.capacity_s += self.capacity * (now_s - self._from_s)
            self._from_s = now_s

    def change(self, event: NodeLost | NodeRecovered) -> None:
        """Change the capacity by a node that is lost or back."""
        node = next(n for n in self._cluster.nodes if n.name == event.node)
        sign = 1 if isinstance(event, NodeRecovered) else -1
        capacity = self.capacity.copy()
        capacity[self._cluster.accelerators.index(node.accelerator)] += sign * node.devices
        self.capacity = capacity
