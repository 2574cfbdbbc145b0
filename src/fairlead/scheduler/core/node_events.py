"""Handlers of nodes that are lost, drained or back."""

import numpy as np

from fairlead.errors import ProtocolError
from fairlead.model.commands import Command
from fairlead.model.plan import Change
from fairlead.model.snapshot import Servers
from fairlead.scheduler.core.decisions import end_round_early, when_idle
from fairlead.scheduler.core.scheduler_data import (
    SchedulerData,
)


def node_changed(s: SchedulerData, time_s: float, name: str, usable: bool) -> list[Command]:
    """A node takes work from now on, or no more."""
    set_node(s, name, usable)
    s.planning.note(Change.DEVICES)
    return end_round_early(s, time_s) if s.round.active else when_idle(s, time_s)


def set_node(s: SchedulerData, name: str, usable: bool) -> None:
    """Set whether the devices of a node may be given to jobs."""
    index = next((i for i, n in enumerate(s.cluster.nodes) if n.name == name), None)
    if index is None:
        raise ProtocolError(f"node {name!r}: not in the cluster")
    s.running.topology.usable[s.cluster.device_node == index] = usable
    s.servers = Servers.of(s.cluster, s.running.topology.usable)
    accelerator_index = s.cluster.device_type[s.running.topology.usable]
    s.capacity = np.bincount(accelerator_index, minlength=len(s.capacity)).astype(np.float64)
