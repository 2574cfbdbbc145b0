"""Jobs that run on certain devices or not at all: what they have done is in the memory of processes there."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.job import JobId
from fairlead.model.pair_rates import PairRates
from fairlead.model.plan import RoundPlan
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.core.ledger import Ledger
from fairlead.scheduler.placement.avoid_nodes import DeviceAssignment
from fairlead.scheduler.placement.records import MoveTradeoffs, PreviousRound, Topology

DevicePositions: TypeAlias = tuple[tuple[str, int], ...]  # of each: node, index among its devices


class BoundGroup(NamedTuple):
    """Where a job group of one bound job runs."""

    slot: int  # as planners see it: they reckon with what jobs do on few servers
    slot_there: int  # of the devices: scattered where they are
    devices: Ints  # ascending


BoundGroups: TypeAlias = Mapping[int, BoundGroup]  # by rows of the ledger's job groups


def device_mask(positions: DevicePositions, cluster: Cluster) -> Bools:
    """(devices,) those of a cluster that are among these; positions that are not in it are ignored."""
    nodes = {node.name: (k, node.devices) for k, node in enumerate(cluster.nodes)}
    found = np.zeros(len(cluster.device_node), np.bool_)
    for name, index in positions:
        node, devices = nodes.get(name, (0, 0))
        if 0 <= index < devices:
            found[np.searchsorted(cluster.device_node, node) + index] = True
    return found


class BoundJobs:
    """The devices that jobs are bound to, by the names of their nodes: ids change with the cluster."""

    def __init__(self, devices: Mapping[int, DevicePositions] | None = None) -> None:
        self.devices: dict[int, DevicePositions] = dict(devices or {})  # by job

    def __bool__(self) -> bool:
        return bool(self.devices)

    def bind(self, job: int, devices: DevicePositions) -> None:
        """A job runs on these devices or not at all; none: anywhere."""
        if devices:
            self.devices[job] = devices
        else:
            self.devices.pop(job, None)

    def groups(self, ledger: Ledger, cluster: Cluster, topology: Topology) -> dict[int, BoundGroup]:
        """Return the bound job groups of jobs that take part. A job whose devices are no longer in the
        cluster, are of several types, or are not as many as it needs may run anywhere."""
        jobs = [job for job in self.devices if JobId(job) in ledger]
        if not jobs:
            return {}
        first = dict(
            zip(
                (node.name for node in cluster.nodes),
                np.searchsorted(cluster.device_node, np.arange(len(cluster.nodes))).tolist(),
                strict=True,
            )
        )
        size = {node.name: node.devices for node in cluster.nodes}
        solo, found = ledger.single_job_rows(), dict[int, BoundGroup]()
        for job in jobs:
            where = self.devices[job]
            if any(not 0 <= index < size.get(node, 0) for node, index in where):
                continue
            devices = np.array(sorted({first[node] + index for node, index in where}), np.int64)
            row = int(solo[ledger.row(JobId(job))])
            types = set(topology.device_type[devices].tolist())
            if len(types) == 1 and len(devices) == ledger.groups.scale[row]:
                found[row] = BoundGroup(*_slots_of(devices, topology), devices)
        return found


def _slots_of(devices: Ints, topology: Topology) -> tuple[int, int]:
    """The slot type of job groups on few servers with devices of this type, and that of these devices."""
    accelerator = topology.device_type[devices[0]]
    slots = np.flatnonzero(topology.accelerator_of_slot == accelerator)
    together = int(slots[~topology.scattered[slots]][0])
    other = int(topology.other_locality[together])
    servers = len(np.unique(topology.device_node[devices]))
    is_scattered = servers > topology.fewest_servers[accelerator, len(devices)]
    return together, other if is_scattered and other >= 0 else together


def as_seen_by_planners(snapshot: Snapshot, bound: BoundGroups) -> Snapshot:
    """Return a snapshot in which bound jobs run alone, on their own slot types: they are of job types of
    their own."""
    if not bound:
        return snapshot
    rows = list(bound)
    job = snapshot.group_members[rows, 0]
    slots = np.array([(one.slot, one.slot_there) for one in bound.values()], np.int64).T
    known, classes = snapshot.job_type_rate, snapshot.job_class
    types, type_of = np.unique([snapshot.job_type[job], *slots], axis=1, return_inverse=True)
    _, class_of = np.unique([classes[job], *slots], axis=1, return_inverse=True)
    old_type, on, there = types
    believed = known if snapshot.believed_rate is None else snapshot.believed_rate
    new, rates = np.arange(len(on)), believed[old_type, there]
    more = np.zeros((len(on), known.shape[1]))
    more[new, on] = rates
    more_believed = more.copy()
    more_believed[new, there] = rates
    job_type, job_class = snapshot.job_type.copy(), classes.copy()
    job_type[job] = len(known) + type_of.ravel()
    job_class[job] = classes.max() + 1 + class_of.ravel()
    rate = snapshot.rate.copy()
    rate[np.isin(snapshot.group_members, job).any(axis=1)] = 0.0
    rate[rows, :, 0] = more[type_of.ravel()]
    return replace(
        snapshot,
        rate=rate,
        job_type=job_type,
        job_class=job_class,
        job_type_rate=np.concatenate([known, more]),
        believed_rate=np.concatenate([believed, more_believed]),
        colocated_rate=_without_pairs_of(snapshot.colocated_rate, len(on)),
    )


def _without_pairs_of(rate: Floats | PairRates | None, more: int) -> Any:
    """Return the rates of pairs with so many more job types, which have none."""
    if rate is None:
        return None
    if isinstance(rate, PairRates):
        return rate.grown(more)
    return np.pad(rate, ((0, more), (0, more), (0, 0)))


def anew_costs(
    ledger: Ledger, bound: BoundGroups, start_s: float, hysteresis: float
) -> dict[int, float]:
    """Row of a bound job group -> device-seconds that it is worth not to begin anew elsewhere: its start,
    ``hysteresis`` times, and to do again what it has done. start_s: that a start costs."""
    groups, jobs, found = ledger.groups, ledger.jobs, dict[int, float]()
    for row, (_, there, _) in bound.items():
        rate, done = float(groups.rate[row, there, 0]), float(jobs.done[groups.members[row, 0]])
        work_s = done / rate if rate > 0 else np.inf
        found[row] = (hysteresis * start_s + work_s) * float(groups.scale[row])
    return found


def gather_accounts(ledger: Ledger, bound: BoundGroups) -> None:
    """What bound job groups are due and have received on any slot type counts on their own: they can get it
    nowhere else."""
    groups = ledger.groups
    for row, (slot, _, _) in bound.items():
        elsewhere = groups.received_s[row].copy()
        elsewhere[slot] = 0.0
        ledger.allocated_s -= elsewhere
        ledger.allocated_s[slot] += elsewhere.sum()
        for account in (groups.share, groups.received_s, groups.deficit_s):
            total = account[row].sum()
            account[row] = 0.0
            account[row, slot] = total


class BlockingCosts(NamedTuple):
    """What it costs that bound job groups get devices where others hold theirs. ``anew`` and ``limit`` are by
    rows of the ledger's job groups."""

    move: Mapping[int, float]  # device -> to move the job group that holds it and stays on its type
    anew: Mapping[int, float]  # that the bound one begins anew on other devices
    limit: Mapping[int, float]  # up to which cost either is done for it


class BlockedGroups(NamedTuple):
    """The bound job groups of a plan that cannot have their devices, by rows of the ledger's job groups."""

    waiting: set[int]
    released: set[int]  # these begin anew on other devices


def find_blocked(
    plan: RoundPlan, bound: BoundGroups, topology: Topology, costs: BlockingCosts
) -> BlockedGroups:
    """The bound job groups of a plan that cannot have their devices: these do not work, are to be left to
    bound ones that were chosen before, or to others for which a move would cost too much. They begin anew
    elsewhere where those do not make room and that costs no more than they are owed."""
    taken, waiting, released = set[int](), set[int](), set[int]()
    accelerator = topology.accelerator_of_slot
    for row, slot in zip(plan.job_group.tolist(), plan.slot.tolist(), strict=True):
        if row not in bound:
            continue
        one = bound[row]
        mine = set(one.devices.tolist())
        is_there = accelerator[slot] == accelerator[one.slot] and topology.usable[one.devices].all()
        if not is_there or not mine.isdisjoint(taken):
            waiting.add(row)
        elif all(costs.move.get(device, 0.0) <= costs.limit[row] for device in mine):
            taken |= mine
        elif costs.anew[row] <= costs.limit[row]:
            released.add(row)
        else:
            waiting.add(row)
    return BlockedGroups(waiting, released)


def on_own_nodes(plan: RoundPlan, bound: BoundGroups, scale: Ints, device_node: Ints) -> RoundPlan:
    """Return a plan that names nodes with those of their own devices for bound job groups. scale: (groups,)
    devices."""
    if plan.nodes is None:
        return plan
    nodes = plan.nodes.copy()
    offsets = np.concatenate([[0], np.cumsum(scale[plan.job_group])])
    for i, row in enumerate(plan.job_group.tolist()):
        if row in bound:
            nodes[offsets[i] : offsets[i + 1]] = device_node[bound[row].devices]
    return RoundPlan(plan.job_group, plan.slot, plan.wake_s, nodes, plan.scale)


def without_groups(plan: RoundPlan, rows: Collection[int], scale: Ints) -> RoundPlan:
    """Return a plan without these job groups. scale: (groups,) devices."""
    stays = ~np.isin(plan.job_group, np.array(sorted(rows), np.int64))
    nodes = plan.nodes
    if nodes is not None:
        nodes = nodes[np.repeat(stays, scale[plan.job_group])]
    resized = None if plan.scale is None else plan.scale[stays]
    return RoundPlan(plan.job_group[stays], plan.slot[stays], plan.wake_s, nodes, resized)


def as_if_held(
    running: PreviousRound, planned: Ints, bound: BoundGroups
) -> tuple[PreviousRound, list[int]]:
    """Return the previous round as if the bound job groups of a plan had held their devices, and nobody else
    had; and those of them that did not run there. planned: (rows,) job groups of the plan."""
    if not bound:
        return running, []
    coming = {row: bound[row] for row in planned.tolist() if row in bound}
    group, slot, offsets, devices = running
    holds = {
        row: devices[offsets[k] : offsets[k + 1]]
        for k, row in enumerate(group.tolist())
        if row >= 0
    }
    starting = [
        row
        for row, one in coming.items()
        if row not in holds or not np.array_equal(np.sort(holds[row]), one.devices)
    ]
    if not starting:
        return running, []
    given = np.concatenate([coming[row].devices for row in starting])
    leaves = [row for row, those in holds.items() if row in starting or np.isin(those, given).any()]
    sizes = [len(coming[row].devices) for row in starting]
    return (
        PreviousRound(
            np.append(np.where(np.isin(group, leaves), -1, group), starting),
            np.append(slot, [coming[row].slot_there for row in starting]),
            np.append(offsets, offsets[-1] + np.cumsum(sizes)),
            np.append(devices, given),
        ),
        starting,
    )


def immovable(tradeoffs: MoveTradeoffs, planned: Ints, bound: BoundGroups) -> MoveTradeoffs:
    """Return the tradeoffs with no move of a bound job group worth its cost. planned: (rows,) job groups."""
    rows = np.isin(planned, np.array(sorted(bound), np.int64))
    fallback_rate, gain, cost = tradeoffs
    return MoveTradeoffs(
        np.where(rows, 1.0, fallback_rate), np.where(rows, 0.0, gain), np.where(rows, np.inf, cost)
    )


def are_on_own_devices(group: Ints, assignment: DeviceAssignment, bound: BoundGroups) -> Bools:
    """(rows,) whether a row is no bound job group on other devices than its own. group: (rows,)."""
    return np.array(
        [
            row not in bound or np.array_equal(np.sort(assignment.of(i)), bound[row].devices)
            for i, row in enumerate(group.tolist())
        ]
        if bound
        else np.ones(len(group)),
        np.bool_,
    )
