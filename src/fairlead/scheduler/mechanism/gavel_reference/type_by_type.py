"""Gavel's round: its priorities, and one accelerator type filled after the other."""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1, Floats1, Floats2, Floats3, Ints1, Ints2
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.mechanism.priorities import can_run
from fairlead.scheduler.mechanism.selection import (
    Candidates,
    Priorities,
    empty_queue,
    empty_selection,
    select_into,
)


class _Received(NamedTuple):
    """Shares, and the time that was given. Arrays as in ``Snapshot``."""

    members: Ints2  # (groups, width)
    rate: Floats3  # (groups, slots, width)
    share: Floats2  # (groups, slots)
    received_s: Floats2  # (groups, slots)
    allocated_s: Floats1  # (slots,)
    allocated: Bools1  # (groups,)
    deficit_s: Floats2  # (groups, slots)


class _Devices(NamedTuple):
    """Devices that job groups need, and the slots that provide them."""

    scale: Ints1  # (groups,) devices
    capacity: Floats1  # (types,)
    accelerator_of_slot: Ints1  # (slots,)
    order: Ints1  # (slots,) slots as they are filled


def gavel_priorities(snapshot: Snapshot) -> Priorities:
    """Gavel's keys: the share over the fraction of the slot's time that the job group has received, then
    the time owed from before, then the share."""
    return _priorities(_received(snapshot))


def fill_type_by_type(snapshot: Snapshot, order: Ints) -> tuple[Ints, Ints]:
    """The job groups that run and their slots: ``select_type_by_type`` by ``gavel_priorities``."""
    devices = _Devices(snapshot.scale, snapshot.capacity, snapshot.accelerator_of_slot, order)
    return _fill(_received(snapshot), devices, len(snapshot.jobs))


def _received(snapshot: Snapshot) -> _Received:
    return _Received(
        members=snapshot.group_members,
        rate=snapshot.rate,
        share=snapshot.share,
        received_s=snapshot.received_s,
        allocated_s=snapshot.allocated_s,
        allocated=snapshot.allocated,
        deficit_s=snapshot.deficit_s,
    )


@kernel("Priorities(_Received)")
def _priorities(given: _Received) -> Priorities:
    share = given.share
    first, runs = np.zeros(share.shape), np.zeros(share.shape, np.bool_)
    priorities = Priorities(first, given.deficit_s, share, runs)
    _enter(given, priorities)
    return priorities


@kernel("void(_Received, Priorities)", allocates=False)
def _enter(given: _Received, into: Priorities) -> None:
    """Enter where job groups can run, and their first keys."""
    share, received_s, allocated_s = given.share, given.received_s, given.allocated_s
    first, runs = into.primary, into.eligible
    groups, slots = share.shape
    for u in range(groups):
        for t in range(slots):
            if not can_run(given.members, given.rate, u, t):
                continue
            runs[u, t] = True
            if not given.allocated[u] or share[u, t] == 0:
                continue
            fraction = received_s[u, t] / allocated_s[t] if allocated_s[t] != 0 else 0.0
            first[u, t] = share[u, t] / fraction if fraction > 0 else share[u, t] * 1e9


@kernel("Tuple((i8[::1], i8[::1]))(Priorities, Candidates, i8[::1], i8[::1], i8)")
def select_type_by_type(
    priorities: Priorities, candidates: Candidates, capacity: Ints, order: Ints, jobs: int
) -> tuple[Ints, Ints]:
    """Select as ``selection.select`` does, but fill the slots one after the other in this order, each from
    its own queue."""
    selection = empty_selection(capacity, jobs)
    queue = empty_queue(candidates, 1, len(capacity))
    count = 0
    for q in range(len(order)):
        count = select_into(order[q : q + 1], count, priorities, candidates, selection, queue)
    return selection.group[:count].copy(), selection.slot[:count].copy()


@kernel("Tuple((i8[::1], i8[::1]))(_Received, _Devices, i8)")
def _fill(given: _Received, devices: _Devices, jobs: int) -> tuple[Ints, Ints]:
    candidates = Candidates(given.members, devices.scale, devices.accelerator_of_slot)
    free = devices.capacity.astype(np.int64)
    return select_type_by_type(_priorities(given), candidates, free, devices.order, jobs)
