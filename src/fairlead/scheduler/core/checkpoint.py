"""All that a scheduler knows, as plain values that another scheduler can take over.

Nothing in it is a position in the cluster or in the throughput table: slot types, job types, tenants and
nodes go by name, a device by its node and its place there. So the other scheduler may have another cluster,
table, policy or profile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.model.adaptation import Adaptation
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Node, SlotType
from fairlead.model.job_type import JobType
from fairlead.model.pair_rates import PairRates
from fairlead.model.plan import AccountingPlanner, Change, Checkpointable
from fairlead.scheduler.core.bound_jobs import DevicePositions
from fairlead.scheduler.core.ledger import Ledger
from fairlead.scheduler.core.rate_beliefs import BeliefState, RateBeliefs
from fairlead.scheduler.core.regime_table import RegimeTable
from fairlead.scheduler.core.resizing import rows_of_elastic
from fairlead.scheduler.core.scheduler_data import SchedulerData
from fairlead.scheduler.mechanism.settings import MechanismSettings

ANYTHING = Change.JOBS | Change.DEVICES | Change.REQUIREMENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCheckpoint:
    """A ledger. Job types, tenants and slots are positions in those of the ``SchedulerCheckpoint``."""

    jobs: Mapping[
        str, NDArray[Any]
    ]  # (jobs,) columns of ``Ledger.job_tables``; no rate_row, but belief: a number
    regimes: Mapping[str, NDArray[Any]]  # (jobs,) or (jobs, batches), of ``RegimeTable``
    adaptation: tuple[Adaptation | None, ...]  # (jobs,)
    received_s: Floats  # (jobs, slots)
    deficit_s: Floats  # (jobs, slots)
    share: Floats  # (jobs, slots)
    allocated: Bools  # (jobs,)
    pair: Ints  # (pairs, 2) ids of job groups of two jobs
    pair_received_s: Floats  # (pairs, slots)
    pair_deficit_s: Floats  # (pairs, slots)
    pair_share: Floats  # (pairs, slots)
    pair_allocated: Bools  # (pairs,)


class RoundCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename={"offsets": "first"}):
    """A round in force, row by row as it was commanded, and as its report will be.

    A Struct because journals call the offsets ``first``.
    """

    time_s: float
    round: int
    length_s: float
    active: int
    ending: bool  # its end has been asked for
    corrected: bool
    job_groups: Ints  # (groups, width) job ids, -1 after the last
    counts: Bools  # (groups, width) is the member still there to be credited?
    slot: Ints  # (groups,)
    planned: Ints  # (groups,) the slot before placement, -1 = it is gone
    relative_rate: Floats  # (groups,) rate on slot over that on planned
    kept: Bools  # (groups,) did it run on from the round before?
    offsets: Ints  # (groups + 1,) job group u holds devices offsets[u]:offsets[u + 1]
    node: Ints  # (devices of all groups,) -1 = the device is gone
    index: Ints  # (devices of all groups,) place on the node


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerCheckpoint:
    """A scheduler between two events."""

    time_s: float  # of the last event
    policy: str  # what the planner was made from
    settings: MechanismSettings
    slots: tuple[SlotType, ...]
    job_types: tuple[JobType, ...]  # of its jobs
    rate: Floats  # (job_types, slots) steps/s that planners are shown
    colocated_rate: (
        Floats | None
    )  # (job_types, job_types, slots) the same of pairs, where they may be packed
    tenants: tuple[str, ...]
    nodes: tuple[Node, ...]
    lost: tuple[str, ...]  # nodes that do not work
    ledger: LedgerCheckpoint
    paused: LedgerCheckpoint
    allocated_s: Floats  # (slots,)
    round: int  # number of the last round
    last_end_s: float | None
    in_force: RoundCheckpoint | None
    adapting: tuple[tuple[int, int, float, float], ...]  # job, batch size, total steps, steps done
    to_pause: tuple[int, ...]  # jobs that are paused when the round is reported
    changed: int  # of ``Change``, since the last solve that was answered
    settled_s: float  # when the accounts were settled last
    planner_state: Mapping[str, NDArray[Any]]  # the planner's state
    previous: Allocation | None  # the answer in force
    beliefs: BeliefState | None = None  # about single jobs; None = there are none
    expected: tuple[tuple[int, int], ...] = ()  # job, belief: of jobs to come, or to adapt
    avoids: tuple[tuple[int, tuple[str, ...]], ...] = ()  # job, nodes that it is not placed on
    bound: tuple[tuple[int, DevicePositions], ...] = ()  # job, devices that it is bound to
    occupied: DevicePositions = ()  # held by programs that were told to leave
    elastic: tuple[tuple[int, tuple[int, ...]], ...] = ()  # job, scale factors that it may have
    classed: PairRates | None = None  # rates of pairs by class, in place of ``colocated_rate``


def take_checkpoint(s: SchedulerData) -> SchedulerCheckpoint:
    """Return the checkpoint of a scheduler, which is not changed and shares no memory with it.
    The answer to a ``Solve`` that is under way is no part of it."""
    job_types = _job_types_of(s)
    node, usable = s.cluster.device_node, s.running.topology.usable
    lost = sorted(set(node[~usable].tolist()))
    planner = s.planning.planner
    pair, classed = pairs_of(s, job_types)
    return SchedulerCheckpoint(
        time_s=s.now_s,
        policy=s.options.policy,
        settings=s.options.settings,
        slots=s.slots,
        job_types=tuple(s.throughputs.job_types[k] for k in job_types.tolist()),
        rate=s.undominated.rate[job_types],
        colocated_rate=pair,
        classed=classed,
        tenants=s.ledger.tenants,
        nodes=s.cluster.nodes,
        lost=tuple(s.cluster.nodes[n].name for n in lost),
        ledger=_ledger_of(s.ledger, job_types, s.beliefs),
        paused=_ledger_of(s.paused_jobs, job_types, s.beliefs),
        allocated_s=s.ledger.allocated_s.copy(),
        round=s.round.number,
        last_end_s=s.round.last_end_s,
        in_force=_round_of(s) if s.round.active else None,
        adapting=tuple((job, *to) for job, to in s.deferred.adapting.items()),
        to_pause=tuple(sorted(s.deferred.to_pause)),
        changed=int(ANYTHING if s.planning.solving else s.planning.changed),
        settled_s=planner.settled_s(s.planning.state)
        if isinstance(planner, AccountingPlanner)
        else s.now_s,
        planner_state=planner.state_dict(s.planning.state)
        if isinstance(planner, Checkpointable)
        else {},
        previous=s.planning.previous,
        beliefs=s.beliefs.state(_rows_in_use(s)) if s.beliefs.row else None,
        expected=tuple(s.deferred.expected.items()),
        avoids=tuple(s.running.avoids.items()),
        bound=tuple(s.bound_jobs.devices.items()),
        occupied=s.occupied,
        elastic=tuple(s.elastic.items()),
    )


def pairs_of(s: SchedulerData, job_types: Ints) -> tuple[Floats | None, PairRates | None]:
    """Rates of pairs of these rows of the table that planners are shown: as they are stated, or by class."""
    shown = s.undominated
    if not s.planning.planner.space_sharing:
        return None, None
    if shown.classed is not None:
        return None, shown.classed.rows(job_types)
    pair = shown.colocated_rate
    return None if pair is None else pair[np.ix_(job_types, job_types)], None


def _rows_in_use(s: SchedulerData) -> set[int]:
    """Rows of the table by which jobs go, those still to come included."""
    used = set(s.ledger.jobs.rate_row.tolist()) | set(s.paused_jobs.jobs.rate_row.tolist())
    return used | {s.beliefs.row[name] for name in s.deferred.expected.values() if name >= 0}


def _job_types_of(s: SchedulerData) -> Ints:
    """(job_types,) rows of the throughput table that jobs use."""
    used = [ledger.jobs.job_type for ledger in (s.ledger, s.paused_jobs)]
    used += [ledger.regimes.table.job_type.reshape(-1) for ledger in (s.ledger, s.paused_jobs)]
    if s.elastic:
        used.append(np.array(sorted(rows_of_elastic(s)), np.int64))
    job_types = np.unique(np.concatenate(used))
    return np.asarray(job_types[job_types >= 0])


def _ledger_of(ledger: Ledger, job_types: Ints, beliefs: RateBeliefs) -> LedgerCheckpoint:
    jobs = {
        name: getattr(table, name).copy() for table in ledger.job_tables for name in table.columns
    }
    row = jobs.pop("rate_row")
    if beliefs.row:
        jobs["belief"] = np.array([beliefs.of_row(r) for r in row.tolist()], np.int64)
    table = ledger.regimes.table
    regimes = {name: getattr(table, name).copy() for name in RegimeTable.columns}
    jobs["job_type"] = np.searchsorted(job_types, jobs["job_type"])
    regimes["job_type"] = np.where(
        regimes["job_type"] < 0, -1, np.searchsorted(job_types, regimes["job_type"])
    )
    groups, solo = ledger.groups, ledger.single_job_rows()
    pairs = np.setdiff1d(np.arange(groups.n), solo)
    pair: Ints = np.zeros((0, 2), np.int64)
    if ledger.width > 1:
        pair = ledger.jobs.id[groups.members[pairs]]
    return LedgerCheckpoint(
        jobs=jobs,
        regimes=regimes,
        adaptation=tuple(ledger.regimes.adaptation),
        received_s=groups.received_s[solo],
        deficit_s=groups.deficit_s[solo],
        share=groups.share[solo],
        allocated=groups.allocated[solo],
        pair=pair,
        pair_received_s=groups.received_s[pairs],
        pair_deficit_s=groups.deficit_s[pairs],
        pair_share=groups.share[pairs],
        pair_allocated=groups.allocated[pairs],
    )


def _round_of(s: SchedulerData) -> RoundCheckpoint:
    command, running = s.round.in_force, s.running
    assert command is not None
    mapping = running.report_mapping
    n = len(command.job_groups)
    row, group_members = np.arange(n), np.full(n, -1)
    if mapping is not None:
        row, group_members = mapping.row, mapping.column
    there = running.job_group >= 0
    counts = np.zeros(command.job_groups.shape, np.bool_)
    whole, one = there & (group_members < 0), there & (group_members >= 0)
    counts[row[whole]] = command.job_groups[row[whole]] >= 0
    counts[row[one], group_members[one]] = True
    planned, relative_rate = np.full(n, -1), np.ones(n)
    planned[row], relative_rate[row] = running.planned, running.relative_rate
    device = np.maximum(command.devices, 0)
    gone = command.devices < 0
    node = s.cluster.device_node[device]
    return RoundCheckpoint(
        time_s=command.time_s,
        round=command.round,
        length_s=command.length_s,
        active=command.active,
        ending=s.round.ending,
        corrected=s.round.corrected,
        job_groups=command.job_groups.copy(),
        counts=counts,
        slot=command.slot.copy(),
        planned=planned,
        relative_rate=relative_rate,
        kept=command.kept.copy(),
        offsets=command.offsets.copy(),
        node=np.where(gone, -1, node),
        index=device - np.searchsorted(s.cluster.device_node, node),
    )
