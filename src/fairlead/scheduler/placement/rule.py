"""What a rule of placement is asked, and the two rules that Fairlead has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from fairlead.errors import AllocationError
from fairlead.model.arrays import Ints
from fairlead.scheduler.placement.gavel_reference.by_device_id import by_device_id
from fairlead.scheduler.placement.records import (
    Placed,
    PlannedGroups,
    PreviousRound,
    Site,
    Stakes,
)
from fairlead.scheduler.placement.servers import are_scattered, fewest_servers


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """The job groups of a round, to be given devices. The arrays are the scheduler's: read them only."""

    plan: PlannedGroups
    before: PreviousRound
    site: Site
    stakes: Stakes

    def needs(self) -> Ints:
        """(rows,) devices that each row of the plan uses."""
        return np.asarray(self.plan.scale[self.plan.group])

    def current_devices(self) -> dict[int, Ints]:
        """Row -> the devices that its job group held on the same slot in the round before."""
        row_of = {int(u): row for row, u in enumerate(self.plan.group)}
        first, devices = self.before.first, self.before.devices
        return {
            row_of[u]: devices[first[k] : first[k + 1]].copy()
            for k, u in enumerate(self.before.group.tolist())
            if u in row_of and self.before.slot[k] == self.plan.slot[row_of[u]]
        }

    def placed(self, devices: Mapping[int, Ints]) -> Placed:
        """The answer that gives rows these devices; rows that are not named do not run. Slots follow from
        where the devices are. Raises AllocationError for devices that cannot be given."""
        rows = list(devices)
        parts = [np.sort(np.asarray(devices[row], np.int64)) for row in rows]
        first = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        order, given = np.array(rows, np.int64), np.concatenate([np.zeros(0, np.int64), *parts])
        self.check(order, first, given)
        current_devices, slot, site = (
            self.current_devices(),
            np.asarray(self.plan.slot[order]),
            self.site,
        )
        kept = [
            row in current_devices and np.array_equal(np.sort(current_devices[row]), part)
            for row, part in zip(rows, parts, strict=True)
        ]
        scattered = are_scattered(first, given, site.device_type, site.device_node, site.fewest)
        other = site.sibling[slot]
        slot = np.where((scattered != site.scattered[slot]) & (other >= 0), other, slot)
        return order, first, given, np.array(kept, np.bool_), slot

    def check(self, order: Ints, first: Ints, devices: Ints) -> None:
        """AllocationError unless row order[k] can be given devices[first[k]:first[k + 1]]."""
        rows, site = len(self.plan.group), self.site
        known = (order >= 0) & (order < rows)
        if not known.all() or len(np.unique(order)) != len(order):
            raise AllocationError("rows must be some of those asked for, each once")
        sizes, needs = np.diff(first), self.needs()[order]
        if (sizes != needs).any():
            i = int(np.flatnonzero(sizes != needs)[0])
            raise AllocationError(f"row {order[i]} needs {needs[i]} devices, got {sizes[i]}")
        there = (devices >= 0) & (devices < len(site.works))
        there[there] = site.works[devices[there]]
        if not there.all():
            raise AllocationError(f"device {devices[~there][0]} is not there, or does not work")
        if len(np.unique(devices)) != len(devices):
            raise AllocationError("a device is given to two job groups")
        expected = np.repeat(site.accelerator_of_slot[self.plan.slot[order]], sizes)
        other = np.flatnonzero(site.device_type[devices] != expected)
        if len(other):
            raise AllocationError(
                f"device {devices[other[0]]} is not of the accelerator type that was planned"
            )


@runtime_checkable
class PlacementRule(Protocol):
    """Chooses devices for the job groups of each round. It must be deterministic: a replay asks it again."""

    @property
    def name(self) -> str: ...

    def place(self, request: PlacementRequest) -> Placed:
        """Devices for rows of the request, as ``PlacementRequest.placed`` returns them."""


@dataclass(frozen=True)
class FewestServers:
    """Devices on as few servers as possible; whoever can stay stays. See ``servers.fewest_servers``."""

    name: str = "fewest_servers"

    def place(self, request: PlacementRequest) -> Placed:
        """As the kernel has it."""
        return fewest_servers(request.plan, request.before, request.site, request.stakes)


@dataclass(frozen=True)
class ByDeviceId:
    """Gavel's rule: by the numbers of the devices. See ``gavel_reference.by_device_id``."""

    name: str = "by_device_id"

    def place(self, request: PlacementRequest) -> Placed:
        """As the kernel has it."""
        return by_device_id(request.plan, request.before, request.site, request.stakes)


BUILT_IN: dict[str, PlacementRule] = {rule.name: rule for rule in (FewestServers(), ByDeviceId())}


def ask(rule: PlacementRule, request: PlacementRequest) -> Placed:
    """The rule's answer. Raises AllocationError with the name of a rule from outside whose devices cannot be
    given."""
    if isinstance(rule, FewestServers | ByDeviceId):
        return rule.place(request)
    where = f"placement {rule.name!r}"
    try:
        found: object = rule.place(request)
        if not isinstance(found, tuple) or len(found) != 5:
            raise AllocationError(
                f"expected what PlacementRequest.placed returns, got {type(found).__name__}"
            )
        order, first, devices, kept, slot = found
        request.check(order, first, devices)
    except AllocationError as problem:
        raise AllocationError(f"{where}: {problem}") from None
    return order, first, devices, kept, slot
