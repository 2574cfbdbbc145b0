"""The request to a rule of placement, and the two rules that Fairlead has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import AllocationError
from fairlead.model.argument_checks import brief_repr
from fairlead.model.array_checks import as_whole_numbers
from fairlead.model.arrays import Ints
from fairlead.model.third_party import is_built_in, read_only, third_party_call
from fairlead.scheduler.placement.gavel_reference.by_device_id import by_device_id
from fairlead.scheduler.placement.records import (
    MoveTradeoffs,
    Placement,
    PlannedGroups,
    PreviousRound,
    Topology,
)
from fairlead.scheduler.placement.servers import are_scattered, place_on_fewest_servers


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """The job groups of a round, to be given devices. Arrays are read-only, and hold until ``place`` returns.

    plan: who is to run, in order of choice: ``group`` (rows,) and ``slot`` (rows,) of each row, the slot
    types planned; ``scale`` (groups,) devices of all job groups (``device_counts()`` has those of the rows).
    before: who held what in the round before (``previous_devices()`` has it by row).
    topology: the devices and the slot types. Of device d, ``device_type[d]`` is the index of its accelerator
    type, ``device_node[d]`` that of its node, ``usable[d]`` whether it can be given; of slot type t,
    ``accelerator_of_slot[t]`` is the accelerator type.
    tradeoffs: what each row wins by being on few servers, and loses by a move, in device-seconds.
    """

    plan: PlannedGroups
    before: PreviousRound
    topology: Topology
    tradeoffs: MoveTradeoffs

    def device_counts(self) -> Ints:
        """(rows,) devices that each row of the plan uses."""
        return np.asarray(self.plan.scale[self.plan.group])

    def previous_devices(self) -> dict[int, Ints]:
        """Row -> the devices that its job group held in the round before, where they are of the accelerator
        type on which it is to run now."""
        row_of = {int(u): row for row, u in enumerate(self.plan.group)}
        offsets, devices = self.before.offsets, self.before.devices
        accelerator, slot = self.topology.accelerator_of_slot, self.plan.slot
        return {
            row_of[u]: devices[offsets[k] : offsets[k + 1]].copy()
            for k, u in enumerate(self.before.group.tolist())
            if u in row_of and accelerator[self.before.slot[k]] == accelerator[slot[row_of[u]]]
        }

    def placement(self, devices: Mapping[int, Ints]) -> Placement:
        """The answer that gives rows these devices; rows that are not named do not run. Slots follow from
        where the devices are. Raises AllocationError for devices that cannot be given."""
        if not isinstance(devices, Mapping):
            raise AllocationError(
                f"placement(): expected a mapping from rows to their devices, got {brief_repr(devices)}"
            )
        order = as_whole_numbers("rows", list(devices))
        parts = [as_whole_numbers(f"devices of row {row}", devices[row]) for row in devices]
        return self._placement(order, parts)

    def checked(self, answer: object) -> Placement:
        """Return the answer of a rule from outside, with arrays of its own.
        Raises AllocationError where it cannot be done, or ``kept`` or ``slot`` contradicts the devices."""
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise AllocationError(
                f"expected what PlacementRequest.placement returns, got {brief_repr(answer)}"
            )
        order, offsets, devices = (
            as_whole_numbers(name, given)
            for name, given in zip(Placement._fields[:3], answer[:3], strict=True)
        )
        if len(offsets) != len(order) + 1 or offsets[0] != 0 or offsets[-1] != len(devices):
            raise AllocationError(
                f"offsets must be {len(order) + 1} numbers from 0 to {len(devices)}, "
                f"got {brief_repr(offsets)}"
            )
        made = self._placement(order, np.split(devices, offsets[1:-1]) if len(order) else [])
        for name, given in zip(("kept", "slot"), answer[3:], strict=True):
            _check_equal(name, given, getattr(made, name), order)
        return made

    def _placement(self, order: Ints, parts: Sequence[Ints]) -> Placement:
        parts = [np.sort(part) for part in parts]
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        given = np.concatenate([np.zeros(0, np.int64), *parts])
        self._check(order, offsets, given)
        previous_devices = self.previous_devices()
        kept = [
            row in previous_devices and np.array_equal(np.sort(previous_devices[row]), part)
            for row, part in zip(order.tolist(), parts, strict=True)
        ]
        return Placement(
            order, offsets, given, np.array(kept, np.bool_), self._slot(order, offsets, given)
        )

    def _slot(self, order: Ints, offsets: Ints, given: Ints) -> Ints:
        """(placed,) slots by where the devices are."""
        topology, slot = self.topology, np.asarray(self.plan.slot[order])
        tables = (topology.device_type, topology.device_node, topology.fewest_servers)
        writable = (np.require(table, requirements="W") for table in tables)  # as kernels take them
        scattered = are_scattered(offsets, given, *writable)
        other = topology.other_locality[slot]
        return np.where((scattered != topology.scattered[slot]) & (other >= 0), other, slot)

    def _check(self, order: Ints, offsets: Ints, devices: Ints) -> None:
        """AllocationError unless row order[k] can be given devices[offsets[k]:offsets[k + 1]]."""
        rows, topology = len(self.plan.group), self.topology
        known = (order >= 0) & (order < rows)
        if not known.all() or len(np.unique(order)) != len(order):
            raise AllocationError("rows must be some of those asked for, each once")
        sizes, needs = np.diff(offsets), self.device_counts()[order]
        if (sizes != needs).any():
            i = int(np.flatnonzero(sizes != needs)[0])
            raise AllocationError(f"row {order[i]} needs {needs[i]} devices, got {sizes[i]}")
        there = (devices >= 0) & (devices < len(topology.usable))
        there[there] = topology.usable[devices[there]]
        if not there.all():
            raise AllocationError(f"device {devices[~there][0]} is not there, or does not work")
        if len(np.unique(devices)) != len(devices):
            raise AllocationError("a device is given to two job groups")
        expected = np.repeat(topology.accelerator_of_slot[self.plan.slot[order]], sizes)
        other = np.flatnonzero(topology.device_type[devices] != expected)
        if len(other):
            raise AllocationError(
                f"device {devices[other[0]]} is not of the accelerator type that was planned"
            )


def _check_equal(name: str, given: object, expected: NDArray[Any], order: Ints) -> None:
    """AllocationError unless an array of an answer is what follows from the devices."""
    array = np.asarray(given)
    if array.shape != expected.shape:
        raise AllocationError(f"{name} must have shape {expected.shape}, got {brief_repr(given)}")
    wrong = np.flatnonzero(array != expected)
    if len(wrong):
        k = int(wrong[0])
        raise AllocationError(
            f"{name} of row {order[k]} must be {expected[k]} with the devices that it gets, "
            f"got {array[k]}"
        )


@runtime_checkable
class PlacementRule(Protocol):
    """Chooses devices for the job groups of each round. It must be deterministic: a replay asks it again."""

    @property
    def name(self) -> str:
        """Name in reports and errors."""

    def place(self, request: PlacementRequest) -> Placement:
        """Return devices for rows of the request, made by ``PlacementRequest.placement``; rows without do not
        run."""


@dataclass(frozen=True)
class FewestServers:
    """Devices on as few servers as possible; whoever can stay stays. See
    ``servers.place_on_fewest_servers``."""

    name: str = "fewest_servers"

    def place(self, request: PlacementRequest) -> Placement:
        """Place by ``place_on_fewest_servers``."""
        return place_on_fewest_servers(
            request.plan, request.before, request.topology, request.tradeoffs
        )


@dataclass(frozen=True)
class ByDeviceId:
    """Gavel's rule: by the numbers of the devices. See ``gavel_reference.by_device_id``."""

    name: str = "by_device_id"

    def place(self, request: PlacementRequest) -> Placement:
        """Place by ``by_device_id``."""
        return by_device_id(request.plan, request.before, request.topology, request.tradeoffs)


BUILT_IN: dict[str, PlacementRule] = {rule.name: rule for rule in (FewestServers(), ByDeviceId())}


def ask(rule: PlacementRule, request: PlacementRequest, now_s: float) -> Placement:
    """The rule's answer. Of a rule from outside, it is checked: raises AllocationError with the rule's name
    and the time where it cannot be done, SolveError where the rule fails."""
    if is_built_in(rule):
        return rule.place(request)
    with third_party_call(f"placement {rule.name!r} at {now_s:.0f} s"):
        return request.checked(rule.place(read_only(request)))
