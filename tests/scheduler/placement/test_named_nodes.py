"""Devices on the nodes that a planner names."""

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.scheduler.placement.named_nodes import place_on_nodes
from fairlead.scheduler.placement.records import PlannedGroups, PreviousRound, Topology


def topology(servers: int = 3) -> Topology:
    """Servers of four devices; slots: together and scattered."""
    cluster = Cluster.of({"x": 4 * servers}, 4)
    return Topology(
        device_type=cluster.device_type.copy(),
        device_node=cluster.device_node.copy(),
        usable=np.ones(4 * servers, np.bool_),
        fewest_servers=cluster.fewest_servers(8),
        accelerator_of_slot=np.zeros(2, np.int64),
        other_locality=np.array([1, 0]),
        scattered=np.array([False, True]),
    )


def planned(*scales: int) -> PlannedGroups:
    n = len(scales)
    return PlannedGroups(np.arange(n), np.zeros(n, np.int64), np.array(scales, np.int64))


def previous(*held: tuple[int, list[int]]) -> PreviousRound:
    sizes = [len(devices) for _, devices in held]
    return PreviousRound(
        np.array([group for group, _ in held], np.int64),
        np.zeros(len(held), np.int64),
        np.cumsum([0, *sizes]).astype(np.int64),
        np.array([d for _, devices in held for d in devices], np.int64),
    )


def test_who_stays_on_its_nodes_keeps_its_devices_and_others_get_what_is_left() -> None:
    before = previous((1, [2, 3]), (0, [4, 5]))
    made = place_on_nodes(planned(2, 2), before, topology(), np.array([0, 0, 0, 0]))
    assert made.order.tolist() == [0, 1]
    assert made.devices.tolist() == [0, 1, 2, 3]
    assert made.kept.tolist() == [False, True]
    assert made.slot.tolist() == [0, 0]


def test_devices_on_more_servers_than_needed_are_scattered() -> None:
    nodes = np.array([0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2, 2])
    made = place_on_nodes(planned(4, 8), previous(), topology(), nodes)
    assert made.devices[:4].tolist() == [0, 1, 4, 5]
    assert made.slot.tolist() == [1, 1]


def test_who_finds_its_node_full_does_not_run_and_leaves_nothing_taken() -> None:
    at = topology(2)
    at.usable[0] = False
    made = place_on_nodes(planned(4, 3), previous(), at, np.array([0] * 4 + [0] * 3))
    assert made.order.tolist() == [1]
    assert made.devices.tolist() == [1, 2, 3]
    assert made.offsets.tolist() == [0, 3]
