"""Nodes, accelerator types, prices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, cast

import numpy as np

from fairlead.errors import ClusterError
from fairlead.model.argument_checks import (
    TEXT,
    WHOLE_NUMBER,
    check_arguments,
    check_fields,
    instance_of,
    is_whole,
    list_of,
    mapping_to_numbers,
)
from fairlead.model.arrays import Floats, Ints, frozen
from fairlead.model.limits import MAX_DEVICES, MAX_NUMBER


class Locality(Enum):
    """Locality of the devices of one job."""

    CONSOLIDATED = "consolidated"  # on as few servers as could hold them if all were empty
    SCATTERED = "spread"  # on more


@dataclass(frozen=True, slots=True, order=True)
class SlotType:
    """A way to run: an accelerator type and a locality. Both localities draw on the same devices."""

    accelerator: str
    locality: Locality = Locality.CONSOLIDATED

    def __post_init__(self) -> None:
        check_fields(self, _SLOT_TYPE, ClusterError)
        if not self.accelerator:
            raise ClusterError("SlotType(): accelerator: must not be empty")

    def __str__(self) -> str:
        """For messages."""
        scattered = self.locality is Locality.SCATTERED
        return f"{self.accelerator} ({self.locality.value})" if scattered else self.accelerator


@dataclass(frozen=True, slots=True)
class Node:
    """A server with devices of one accelerator type. ClusterError names a field of another type."""

    name: str  # unique in a cluster
    accelerator: str  # type of all its devices, e.g. v100
    devices: int  # how many, >= 1

    def __post_init__(self) -> None:
        check_fields(self, _NODE, ClusterError)


@dataclass(frozen=True)
class Cluster:
    """Nodes and the price of a device-hour per accelerator type.

    Device ids are positions: accelerator types in alphabetical order, within a type node by node as
    given (Gavel's numbering of workers).
    """

    nodes: tuple[Node, ...]
    prices: Mapping[str, float] = field(default_factory=dict)  # $ per device-hour; absent = 0

    def __post_init__(self) -> None:
        check_fields(self, _CLUSTER, ClusterError)
        if not self.nodes:
            raise ClusterError("a cluster needs at least one node, got none")
        seen: set[str] = set()
        for node in self.nodes:
            if node.devices < 1:
                raise ClusterError(f"node {node.name!r}: devices must be >= 1, got {node.devices}")
            if node.name in seen:
                raise ClusterError(f"node {node.name!r}: the name appears twice")
            seen.add(node.name)
        if sum(node.devices for node in self.nodes) > MAX_DEVICES:
            raise ClusterError(f"a cluster may have at most {MAX_DEVICES} devices")
        for accelerator, price in self.prices.items():
            if not 0 <= price <= MAX_NUMBER:
                raise ClusterError(
                    f"price of {accelerator!r}: must be a number from 0 to {MAX_NUMBER:g}, got {price}"
                )
        ordered = tuple(sorted(self.nodes, key=lambda node: node.accelerator))
        object.__setattr__(self, "nodes", ordered)

    @staticmethod
    def of(
        counts: Mapping[str, int],
        devices_per_server: int | Mapping[str, int] = 1,
        prices: Mapping[str, float] | None = None,
    ) -> "Cluster":
        """A cluster from device counts, e.g. ``{"v100": 8, "k80": 24}``; the last server of a type
        holds what is left over. Types with 0 devices are absent."""
        _check_counts(counts, devices_per_server)
        nodes: list[Node] = []
        for accelerator, count in counts.items():
            if count < 0:
                raise ClusterError(f"{accelerator}: devices must be >= 0, got {count}")
            per = (
                devices_per_server.get(accelerator, 1)
                if isinstance(devices_per_server, Mapping)
                else devices_per_server
            )
            if count > MAX_DEVICES:
                raise ClusterError(f"{accelerator}: at most {MAX_DEVICES} devices, got {count}")
            if per < 1:
                raise ClusterError(f"{accelerator}: devices per server must be >= 1, got {per}")
            for first in range(0, count, per):
                name = f"{accelerator}-{first // per}"
                nodes.append(Node(name, accelerator, min(per, count - first)))
        if not nodes:
            raise ClusterError("the cluster has no devices: every count is 0")
        return Cluster(tuple(nodes), {} if prices is None else prices)

    def without(self, name: str) -> "Cluster":
        """Return the cluster without the node of this name."""
        return Cluster(tuple(n for n in self.nodes if n.name != name), self.prices)

    @cached_property
    def accelerators(self) -> tuple[str, ...]:
        """Accelerator types, alphabetical: the columns of every (types,) array."""
        return tuple(sorted({node.accelerator for node in self.nodes}))

    @cached_property
    def slots(self) -> tuple[SlotType, ...]:
        """One consolidated slot type per accelerator type: the columns of every (slots,) array."""
        return tuple(SlotType(accelerator) for accelerator in self.accelerators)

    @cached_property
    def scatterable(self) -> tuple[str, ...]:
        """Accelerator types on which it matters where a job's devices sit: several servers, and not
        all of one device."""
        servers = {
            a: [n.devices for n in self.nodes if n.accelerator == a] for a in self.accelerators
        }
        return tuple(a for a, sizes in servers.items() if len(sizes) > 1 and max(sizes) > 1)

    def fewest_servers(self, largest: int) -> Ints:
        """Return (types, largest + 1) how many servers of a type hold so many devices, if all are empty and
        work: 0 for no device, all servers for more devices than there are."""
        fewest = np.zeros((len(self.accelerators), largest + 1), np.int64)
        for t, accelerator in enumerate(self.accelerators):
            sizes = sorted(
                (n.devices for n in self.nodes if n.accelerator == accelerator), reverse=True
            )
            count = np.searchsorted(np.cumsum(sizes), np.arange(1, largest + 1)) + 1
            fewest[t, 1:] = np.minimum(count, len(sizes))
        return fewest

    @cached_property
    def capacity(self) -> Floats:
        """(types,) devices."""
        counts = np.bincount(self.device_type, minlength=len(self.accelerators))
        return frozen(counts.astype(np.float64))

    @cached_property
    def price(self) -> Floats:
        """(types,) $ per device-hour."""
        return frozen(np.array([self.prices.get(a, 0.0) for a in self.accelerators], np.float64))

    @cached_property
    def device_node(self) -> Ints:
        """(devices,) index into ``nodes``."""
        devices = [node.devices for node in self.nodes]
        return frozen(np.repeat(np.arange(len(self.nodes)), devices))

    @cached_property
    def device_type(self) -> Ints:
        """(devices,) index into ``accelerators``; non-decreasing."""
        column = {a: i for i, a in enumerate(self.accelerators)}
        accelerator_index = np.array([column[node.accelerator] for node in self.nodes], np.int64)
        return frozen(accelerator_index[self.device_node])


def _check_counts(counts: object, devices_per_server: object) -> None:
    """Raise ClusterError with the first type that is no text or count that is no whole number."""
    by_type = {"counts": counts}
    if not is_whole(devices_per_server):
        by_type["devices_per_server"] = devices_per_server
    for name, numbers in by_type.items():
        expected = {name: (instance_of(Mapping), "whole numbers by accelerator type")}
        check_arguments("Cluster.of", by_type, expected, ClusterError)
        for accelerator, number in cast(Mapping[Any, Any], numbers).items():
            given = {"accelerator type": accelerator, "devices": number}
            check_arguments("Cluster.of", given, _COUNTS, ClusterError)


_COUNTS = {"accelerator type": TEXT, "devices": WHOLE_NUMBER}
_SLOT_TYPE = {"accelerator": TEXT, "locality": (instance_of(Locality), "a Locality")}
_NODE = {"name": TEXT, "accelerator": TEXT, "devices": WHOLE_NUMBER}
_CLUSTER = {
    "nodes": list_of(Node, "a tuple of Node"),
    "prices": mapping_to_numbers(instance_of(str), "$ per device-hour by accelerator type"),
}
