"""All that a scheduler knows, as plain values that another scheduler can take over.

Nothing in it is a position in the cluster or in the throughput table: slot types, kinds, tenants and nodes
go by name, a device by its node and its place there. So the other scheduler may have another cluster,
table, policy or profile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.model.adaptation import Adaptation
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Node, SlotType
from fairlead.model.plan import Change, Checkpointable, KeepsAccounts
from fairlead.model.throughputs import JobType
from fairlead.scheduler.core.ledger import JobTable, Ledger
from fairlead.scheduler.core.rate_beliefs import BeliefState, RateBeliefs
from fairlead.scheduler.core.regime_table import RegimeTable
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.mechanism.settings import MechanismSettings

ANYTHING = Change.JOBS | Change.DEVICES | Change.REQUIREMENTS


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """A ledger. Kinds, tenants and slots are positions in those of the ``SchedulerCheckpoint``."""

    jobs: Mapping[
        str, NDArray[Any]
    ]  # (jobs,) columns of ``JobTable``; no row, but belief: a number
    regimes: Mapping[str, NDArray[Any]]  # (jobs,) or (jobs, batches), of ``RegimeTable``
    adaptation: tuple[Adaptation | None, ...]  # (jobs,)
    received_s: Floats  # (jobs, slots)
    deficit_s: Floats  # (jobs, slots)
    share: Floats  # (jobs, slots)
    allocated: Bools  # (jobs,)
    pair: Ints  # (pairs, 2) ids of units of two jobs
    pair_received_s: Floats  # (pairs, slots)
    pair_deficit_s: Floats  # (pairs, slots)
    pair_share: Floats  # (pairs, slots)
    pair_allocated: Bools  # (pairs,)


@dataclass(frozen=True, slots=True)
class RoundCheckpoint:
    """A round in force, row by row as it was commanded, and as its report will be."""

    time_s: float
    round: int
    length_s: float
    active: int
    ending: bool  # its end has been asked for
    corrected: bool
    units: Ints  # (units, width) job ids, -1 behind the last
    counts: Bools  # (units, width) is the member still there to be credited?
    slot: Ints  # (units,)
    planned: Ints  # (units,) the slot before placement, -1 = it is gone
    worth: Floats  # (units,) a second on slot over one on planned
    kept: Bools  # (units,) did it run on from the round before?
    first: Ints  # (units + 1,) unit u holds devices first[u]:first[u + 1]
    node: Ints  # (devices of all units,) -1 = the device is gone
    index: Ints  # (devices of all units,) place on the node


@dataclass(frozen=True, slots=True)
class SchedulerCheckpoint:
    """A scheduler between two events."""

    time_s: float  # of the last event
    policy: str  # what the planner was made from
    profile: MechanismSettings
    slots: tuple[SlotType, ...]
    kinds: tuple[JobType, ...]  # of its jobs
    rate: Floats  # (kinds, slots) steps/s that planners are shown
    colocated_rate: (
        Floats | None
    )  # (kinds, kinds, slots) the same of pairs, where they may be packed
    tenants: tuple[str, ...]
    nodes: tuple[Node, ...]
    lost: tuple[str, ...]  # nodes that do not work
    ledger: LedgerCheckpoint
    held: LedgerCheckpoint
    allocated_s: Floats  # (slots,)
    round: int  # number of the last round
    last_end_s: float | None
    in_force: RoundCheckpoint | None
    adapting: tuple[tuple[int, int, float, float], ...]  # job, batch size, total steps, steps done
    holding: tuple[int, ...]  # jobs that are held when the round is reported
    changed: int  # of ``Change``, since the last solve that was answered
    settled_s: float  # when the accounts were settled last
    kept: Mapping[str, NDArray[Any]]  # the planner's state
    previous: Allocation | None  # the answer in force
    beliefs: BeliefState | None = None  # about single jobs; None = there are none
    expected: tuple[tuple[int, int], ...] = ()  # job, belief: of jobs to come, or to adapt
    avoids: tuple[tuple[int, tuple[str, ...]], ...] = ()  # job, nodes that it is not placed on


def take_checkpoint(s: Scheduler) -> SchedulerCheckpoint:
    """What a scheduler knows now; it is not changed, and shares no memory with the result. The answer to
    a ``Solve`` that is under way is no part of it."""
    kinds = _kinds_of(s)
    node, works = s.cluster.device_node, s.running.works
    lost = sorted(set(node[~works].tolist()))
    pair = s.offered.pair if s.planner.packed else None
    planner = s.planner
    return SchedulerCheckpoint(
        s.now_s,
        s.policy,
        s.profile,
        s.slots,
        tuple(s.throughputs.kinds[k] for k in kinds.tolist()),
        s.offered.rate[kinds],
        None if pair is None else pair[np.ix_(kinds, kinds)],
        s.ledger.tenants,
        s.cluster.nodes,
        tuple(s.cluster.nodes[n].name for n in lost),
        _books_of(s.ledger, kinds, s.believed),
        _books_of(s.held, kinds, s.believed),
        s.ledger.allocated_s.copy(),
        s.round,
        s.last_end_s,
        _round_of(s) if s.active else None,
        tuple((job, *to) for job, to in s.adapting.items()),
        tuple(sorted(s.holding)),
        int(ANYTHING if s.solving else s.changed),
        planner.settled_s(s.state) if isinstance(planner, KeepsAccounts) else s.now_s,
        planner.kept(s.state) if isinstance(planner, Checkpointable) else {},
        s.previous,
        s.believed.state(_rows_in_use(s)) if s.believed.row else None,
        tuple(s.expected.items()),
        tuple(s.running.avoids.items()),
    )


def _rows_in_use(s: Scheduler) -> set[int]:
    """Rows of the table by which jobs go, those still to come included."""
    used = set(s.ledger.jobs.row.tolist()) | set(s.held.jobs.row.tolist())
    return used | {s.believed.row[name] for name in s.expected.values() if name >= 0}


def _kinds_of(s: Scheduler) -> Ints:
    """(kinds,) rows of the throughput table that jobs use."""
    used = [ledger.jobs.kind for ledger in (s.ledger, s.held)]
    used += [ledger.regimes.table.kind.reshape(-1) for ledger in (s.ledger, s.held)]
    kinds = np.unique(np.concatenate(used))
    return np.asarray(kinds[kinds >= 0])


def _books_of(ledger: Ledger, kinds: Ints, believed: RateBeliefs) -> LedgerCheckpoint:
    jobs = {n: getattr(ledger.jobs, n).copy() for n in JobTable.columns}
    row = jobs.pop("row")
    if believed.row:
        jobs["belief"] = np.array([believed.of_row(r) for r in row.tolist()], np.int64)
    table = ledger.regimes.table
    regimes = {name: getattr(table, name).copy() for name in RegimeTable.columns}
    jobs["kind"] = np.searchsorted(kinds, jobs["kind"])
    regimes["kind"] = np.where(regimes["kind"] < 0, -1, np.searchsorted(kinds, regimes["kind"]))
    units, alone = ledger.units, ledger.alone()
    pairs = np.setdiff1d(np.arange(units.n), alone)
    pair: Ints = np.zeros((0, 2), np.int64)
    if ledger.width > 1:
        pair = ledger.jobs.id[units.member[pairs]]
    return LedgerCheckpoint(
        jobs,
        regimes,
        tuple(ledger.regimes.adaptation),
        units.received_s[alone],
        units.deficit_s[alone],
        units.share[alone],
        units.allocated[alone],
        pair,
        units.received_s[pairs],
        units.deficit_s[pairs],
        units.share[pairs],
        units.allocated[pairs],
    )


def _round_of(s: Scheduler) -> RoundCheckpoint:
    command, running = s.in_force, s.running
    assert command is not None
    told = running.told
    n = len(command.units)
    row, member = np.arange(n), np.full(n, -1)
    if told is not None:
        row, member = told.row, told.member
    there = running.unit >= 0
    counts = np.zeros(command.units.shape, np.bool_)
    whole, one = there & (member < 0), there & (member >= 0)
    counts[row[whole]] = command.units[row[whole]] >= 0
    counts[row[one], member[one]] = True
    planned, worth = np.full(n, -1), np.ones(n)
    planned[row], worth[row] = running.planned, running.worth
    device = np.maximum(command.devices, 0)
    gone = command.devices < 0
    node = s.cluster.device_node[device]
    return RoundCheckpoint(
        command.time_s,
        command.round,
        command.length_s,
        command.active,
        s.ending,
        s.corrected,
        command.units.copy(),
        counts,
        command.slot.copy(),
        planned,
        worth,
        command.kept.copy(),
        command.first.copy(),
        np.where(gone, -1, node),
        device - np.searchsorted(s.cluster.device_node, node),
    )
