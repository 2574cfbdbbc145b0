"""Restore a scheduler from another's checkpoint."""

import numpy as np

from fairlead.errors import ThroughputError
from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import Cluster, Locality, Node, SlotType
from fairlead.model.commands import StartRound
from fairlead.model.pair_rates import PairRates
from fairlead.model.plan import AccountingPlanner, Change, Checkpointable
from fairlead.scheduler.core.bound_jobs import BoundJobs
from fairlead.scheduler.core.checkpoint import (
    ANYTHING,
    LedgerCheckpoint,
    RoundCheckpoint,
    SchedulerCheckpoint,
    pairs_of,
)
from fairlead.scheduler.core.ledger import Ledger
from fairlead.scheduler.core.node_events import set_node
from fairlead.scheduler.core.rate_events import follow_table
from fairlead.scheduler.core.running import ReportMapping
from fairlead.scheduler.core.scheduler_data import SchedulerData
from fairlead.scheduler.placement.servers import are_scattered

_ACCOUNTS = ("received_s", "deficit_s", "share")


def restore_into(s: SchedulerData, state: SchedulerCheckpoint) -> None:
    """Make a fresh scheduler go on from a state.

    Jobs whose job type its table lacks are a ThroughputError. With the same policy, profile and slot types
    its planner goes on where the other was; otherwise it starts afresh with the shares in force and what
    jobs are owed, and solves at the next decision. The report of the round in
    force is awaited as it was commanded, also where devices or slot types are gone.
    """
    slot = _columns(state.slots, s.slots)
    job_type = _rows_of_job_types(state, s)
    if state.beliefs is not None:
        s.beliefs.load(state.beliefs, slot)
        follow_table(s)
    s.deferred.expected = dict(state.expected)
    for tenant in state.tenants:
        s.ledger.numbering.tenants.setdefault(tenant, len(s.ledger.numbering.tenants))
    s.now_s, s.round.number, s.round.last_end_s = state.time_s, state.round, state.last_end_s
    _load_planner(s, state, job_type)
    row = s.beliefs.row
    _load_ledger(s.ledger, state.ledger, job_type, row, slot, state.time_s - state.settled_s)
    _load_ledger(s.paused_jobs, state.paused, job_type, row, slot, 0.0)
    follow_table(s)
    _move_columns(s.ledger.allocated_s[None], state.allocated_s[None], slot)
    for node in s.cluster.nodes:
        if node.name in state.lost:
            set_node(s, node.name, False)
    s.deferred.adapting = {job: (batch, total, done) for job, batch, total, done in state.adapting}
    s.deferred.to_pause = set(state.to_pause)
    s.running.avoids = {job: tuple(nodes) for job, nodes in state.avoids}
    s.bound_jobs = BoundJobs(dict(state.bound))
    s.occupied = tuple((node, index) for node, index in state.occupied)
    s.elastic = {job: tuple(devices) for job, devices in state.elastic}
    if state.in_force is not None:
        _load_round(s, state.in_force, state, slot)


def _load_planner(s: SchedulerData, state: SchedulerCheckpoint, job_type: Ints) -> None:
    """The planner's state, and whether a solve is due."""
    planner, s.planning.changed = s.planning.planner, Change(state.changed)
    if s.cluster.nodes != state.nodes:
        s.planning.note(Change.DEVICES)
    rows = job_type[:-1]
    pair, classed = pairs_of(s, rows)
    same = np.array_equal(s.undominated.rate[rows], state.rate) if s.slots == state.slots else False
    same = same and _equal(pair, state.colocated_rate)
    if not (same and _equal_by_class(classed, state.classed)):
        s.planning.note(Change.REQUIREMENTS)
    if (s.options.policy, s.options.settings, s.slots) != (
        state.policy,
        state.settings,
        state.slots,
    ):
        s.planning.changed = ANYTHING
        if isinstance(planner, AccountingPlanner):
            s.planning.state = planner.begin(state.settled_s)
        return
    s.planning.previous = state.previous
    if isinstance(planner, Checkpointable):
        s.planning.state = planner.load_state_dict(state.planner_state)


def _equal(a: Floats | None, b: Floats | None) -> bool:
    return a is b if a is None or b is None else bool(np.array_equal(a, b))


def _equal_by_class(a: PairRates | None, b: PairRates | None) -> bool:
    return a is b if a is None or b is None else a.equals(b)


def _columns(old: tuple[SlotType, ...], new: tuple[SlotType, ...]) -> Ints:
    """(old slots,) columns of the new ones; where one of the two localities of a type is gone, what was
    scattered goes to the other. -1 = gone."""
    at = {slot: i for i, slot in enumerate(new)}
    together = [at.get(SlotType(s.accelerator, Locality.CONSOLIDATED), -1) for s in old]
    found = [at.get(slot, other) for slot, other in zip(old, together, strict=True)]
    return np.array(found, np.int64)


def _rows_of_job_types(state: SchedulerCheckpoint, s: SchedulerData) -> Ints:
    """(job_types + 1,) rows of the new table; the last, found by -1, is -1."""
    rows = []
    for job_type in state.job_types:
        row = s.throughputs.row(job_type)
        if row is None:
            raise ThroughputError(
                f"{s.throughputs.origin}: no rate for {job_type}, which a job in the system has"
            )
        rows.append(row)
    return np.array([*rows, -1], np.int64)


def _load_ledger(
    ledger: Ledger,
    state: LedgerCheckpoint,
    job_type: Ints,
    belief: dict[int, int],
    slot: Ints,
    elapsed_s: float,
) -> None:
    """belief: number -> row; elapsed_s: since the accounts were settled."""
    jobs = dict(state.jobs)
    jobs["job_type"] = jobs["rate_row"] = job_type[state.jobs["job_type"].astype(np.int64)]
    if "belief" in jobs:
        numbers = zip(jobs.pop("belief").tolist(), jobs["job_type"].tolist(), strict=True)
        jobs["rate_row"] = np.array([k if n < 0 else belief[n] for n, k in numbers], np.int64)
    regimes = dict(state.regimes)
    regimes["job_type"] = job_type[state.regimes["job_type"].astype(np.int64)]
    ledger.load(jobs, regimes, state.adaptation)
    pairs = _known_pairs(ledger, state.pair)
    if ledger.width > 1 and not ledger.all_pairs:
        ledger.add_pairs(pairs)
    ledger.sort()
    solo = ledger.single_job_rows()
    for name in _ACCOUNTS:
        column = np.zeros((len(solo), ledger.groups.share.shape[1]))
        _move_columns(column, getattr(state, name), slot)
        getattr(ledger.groups, name)[solo] = column
    ledger.groups.allocated[solo] = state.allocated
    _load_pairs(ledger, state, pairs, slot, elapsed_s)


def _known_pairs(ledger: Ledger, pair: Ints) -> Ints:
    """(pairs, 2) rows of jobs, the first below the second."""
    return np.sort(np.searchsorted(ledger.jobs.id, pair), axis=1)


def _load_pairs(
    ledger: Ledger, state: LedgerCheckpoint, pairs: Ints, slot: Ints, elapsed_s: float
) -> None:
    """Accounts of pairs; where there are none any more, their members are owed what the pair was."""
    groups = ledger.groups
    if not len(pairs):
        return
    moved = {name: np.zeros((len(pairs), groups.share.shape[1])) for name in _ACCOUNTS}
    for name, column in moved.items():
        _move_columns(column, getattr(state, f"pair_{name}"), slot)
    if ledger.width == 1:
        owed_s = moved["deficit_s"] + moved["share"] * elapsed_s - moved["received_s"]
        for k in (0, 1):
            np.add.at(groups.deficit_s, pairs[:, k], np.maximum(owed_s, 0.0))
        return
    at = ledger.find(pairs)
    there = at >= 0
    for name, column in moved.items():
        getattr(groups, name)[at[there]] = column[there]
    groups.allocated[at[there]] = state.pair_allocated[there]


def _move_columns(into: Floats, values: Floats, slot: Ints) -> None:
    """Add (rows, old slots) values to (rows, new slots), in place."""
    for old, new in enumerate(slot.tolist()):
        if new >= 0:
            into[:, new] += values[:, old]


def _load_round(
    s: SchedulerData, state: RoundCheckpoint, whole: SchedulerCheckpoint, slot: Ints
) -> None:
    """The round in force: rows whose devices are not all there hold none."""
    devices = _devices(s.cluster, whole.nodes, state)
    missing = np.zeros(len(devices) + 1, np.int64)
    missing[1:] = np.cumsum(devices < 0)
    gone = missing[state.offsets[1:]] > missing[state.offsets[:-1]]
    column = slot[state.slot]
    gone |= column < 0
    planned = np.where(state.planned >= 0, slot[state.planned], -1)
    command_slot = np.where(column >= 0, column, 0)
    s.round.in_force = StartRound(
        time_s=state.time_s,
        round=state.round,
        length_s=state.length_s,
        job_groups=state.job_groups.copy(),
        slot=command_slot,
        devices=devices,
        offsets=state.offsets.copy(),
        kept=state.kept.copy(),
        active=state.active,
    )
    s.round.active, s.round.ending, s.round.corrected = True, state.ending, state.corrected
    s.round.started_s = state.time_s
    row, group_member, group = _rows(s, state)
    # Of the rows of a former pair, the first holds the devices.
    first_of_pair = ~gone[row] & (np.diff(row, prepend=-1) > 0)
    of_row = np.split(devices, state.offsets[1:-1])
    kept = [of_row[r] for r in row[first_of_pair].tolist()]
    running = s.running
    running.job_group, running.planned, running.relative_rate = (
        group,
        planned[row],
        state.relative_rate[row],
    )
    running.slot = np.where(first_of_pair, column[row], -1)
    sizes = np.zeros(len(row) + 1, np.int64)
    sizes[1:][first_of_pair] = [len(k) for k in kept]
    running.offsets = np.cumsum(sizes)
    running.devices = np.concatenate([devices[:0], *kept])
    running.report_mapping = ReportMapping(len(planned), row, group_member)
    _locate(s)
    there = group >= 0
    s.ledger.groups.running_on[group[there]] = running.planned[there]


def _devices(cluster: Cluster, nodes: tuple[Node, ...], state: RoundCheckpoint) -> Ints:
    """(devices,) ids in a cluster, -1 = gone."""
    at = {(node.name, node.accelerator): i for i, node in enumerate(cluster.nodes)}
    node = np.array([*(at.get((n.name, n.accelerator), -1) for n in nodes), -1])[state.node]
    first_device = np.searchsorted(cluster.device_node, node)
    sizes = np.array([*(n.devices for n in cluster.nodes), 0])
    return np.where((node >= 0) & (state.index < sizes[node]), first_device + state.index, -1)


def _rows(s: SchedulerData, state: RoundCheckpoint) -> tuple[Ints, Ints, Ints]:
    """(rows,) row of the report, its column (-1 = all of it), and job group of the ledger (-1 = none)."""
    out: list[tuple[int, int, int]] = []
    ledger = s.ledger
    where = {job: i for i, job in enumerate(ledger.jobs.id.tolist())}
    solo = ledger.single_job_rows()
    for r, (ids, counts) in enumerate(
        zip(state.job_groups.tolist(), state.counts.tolist(), strict=True)
    ):
        members = [k for k, job in enumerate(ids) if job >= 0]
        present = [k for k in members if counts[k] and ids[k] in where]
        rows = [where[ids[k]] for k in present]
        pair = -1
        if len(present) == len(members) == 2 and ledger.width > 1:
            pair = int(ledger.find(np.sort(np.array([rows])))[0])
        if len(present) == len(members) == 1:
            out.append((r, -1, int(solo[rows[0]])))
        elif pair >= 0 or not present:
            out.append((r, -1, pair))
        else:
            out += [(r, k, int(solo[row])) for k, row in zip(present, rows, strict=True)]
    table = np.array(out, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


def _locate(s: SchedulerData) -> None:
    """Set the slots of job groups by where their devices are in this cluster."""
    running, cluster = s.running, s.cluster
    rows = np.flatnonzero(running.slot >= 0)
    if not len(rows):
        return
    sizes = np.diff(running.offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    places = (offsets, running.devices, cluster.device_type, cluster.device_node)
    scattered = are_scattered(*places, running.topology.fewest_servers)
    slot = running.slot[rows]
    other = s.throughputs.other_locality[slot]
    mismatch = (scattered != running.topology.scattered[slot]) & (other >= 0)
    running.slot[rows] = np.where(mismatch, other, slot)
