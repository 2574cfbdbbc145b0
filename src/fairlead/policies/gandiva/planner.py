"""Gandiva: jobs take turns on their servers, are packed by trial, and move to where they run best."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import ConfigError
from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.near_names import did_you_mean
from fairlead.model.plan import Accounts, Change, PlannerAnswer, RoundPlan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.gandiva.homes import Homes, servers_of
from fairlead.policies.gandiva.packing import proposed_pairs
from fairlead.policies.gandiva.progress import Measured, measure
from fairlead.policies.gandiva.state import (
    ALONE,
    IDLE,
    GandivaState,
    JobRecord,
    Pair,
    as_arrays,
    from_arrays,
)

_LOSS_FACTOR = 2.0  # what is known of the work that a stop would lose is a little old
MECHANISMS = ("slicing", "packing", "migration")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gandiva:
    """Each round, on each server: the jobs at home there with the least run time / weight, until it is full.

    A newcomer finds a home beside jobs of its size, on an empty server, on any free devices, or taking turns
    with jobs of its size on the server with the least load; else it waits. Where the jobs of a server ask for
    more devices than it has, two of them may share devices: those with the largest predicted sum of
    normalised rates, after each has run alone; they stay together if the sum that is measured in two rounds
    is above 1, which is what taking turns gives. Jobs move to devices that others have vacated, together
    if they were scattered, and away from servers that are nearly empty. Elastic jobs would grow and shrink
    after the moves of a round. Source: Gandiva (OSDI'18), sections 3 and 4.
    """

    without: tuple[str, ...] = ()  # of MECHANISMS: what it does not do
    name: str = "gandiva"
    space_sharing: bool = True

    @classmethod
    def of(cls, text: str | None) -> "Gandiva":
        """From the text of an argument: ``no-MECHANISM``, comma-separated. Raises ConfigError."""
        without = []
        for item in text.split(",") if text else ():
            known = [f"no-{name}" for name in MECHANISMS]
            if item not in known:
                raise ConfigError(
                    f"gandiva:{text}: {item!r} is not known{did_you_mean(item, known)} (choose from "
                    f"{', '.join(known)})"
                )
            without.append(item.removeprefix("no-"))
        chosen = tuple(name for name in MECHANISMS if name in without)
        return cls(without=chosen, space_sharing="packing" not in chosen)

    @property
    def spec(self) -> str:
        """Name of this planner with its options."""
        options = ",".join(f"no-{name}" for name in self.without)
        return f"{self.name}:{options}" if options else self.name

    def start(self) -> GandivaState:
        """The state in which no job has a home."""
        return GandivaState()

    def state_dict(self, state: GandivaState) -> dict[str, NDArray[Any]]:
        """The whole state as arrays, by name."""
        return as_arrays(state)

    def load_state_dict(self, arrays: Mapping[str, NDArray[Any]]) -> GandivaState:
        """The state from the arrays that ``state_dict`` returned."""
        return from_arrays(arrays)

    def due(self, now_s: float, changed: Change, stalled: bool, state: GandivaState) -> bool:  # noqa: ARG002
        """Return whether the pairs have changed: an answer makes job groups of them."""
        return self.space_sharing and tuple(state.pairs) != state.answered

    def solve(self, snapshot: Snapshot, state: GandivaState) -> Allocation:
        """The pairs that the last round proposed, with equal parts of their type; nothing is solved."""
        position = {job: i for i, job in enumerate(snapshot.jobs.tolist())}
        pairs = [(a, b) for a, b in state.pairs if a in position and b in position]
        groups = np.array([(job, -1) for job in position] + pairs, np.int64).reshape(-1, 2)
        share = np.zeros((len(groups), len(snapshot.slots)))
        used = np.zeros(len(snapshot.capacity))
        for row, (a, _) in enumerate(pairs, len(position)):
            slot = state.jobs[a].alone_on
            share[row, slot] = 1.0
            used[snapshot.accelerator_of_slot[slot]] += snapshot.job_scale[position[a]]
        part = np.minimum(snapshot.capacity / np.maximum(used, 1.0), 1.0)
        share *= part[snapshot.accelerator_of_slot]
        return Allocation(groups, share, SolveReport("closed-form"))

    def settle(
        self,
        snapshot: Snapshot,  # noqa: ARG002
        answer: PlannerAnswer,
        state: GandivaState,
    ) -> tuple[Accounts | None, GandivaState]:
        """The state with the pairs that are job groups from now on; there are no accounts."""
        assert isinstance(answer, Allocation)
        pairs = [(a, b) for a, b in answer.job_groups.tolist() if b >= 0]
        return None, replace(state, answered=tuple(pairs))

    def plan(self, snapshot: Snapshot, state: GandivaState) -> tuple[RoundPlan, GandivaState]:
        """The next round, with the nodes of every job where the snapshot has servers."""
        servers = servers_of(snapshot)
        found = measure(snapshot, state, servers)
        homes = Homes(snapshot, servers, found.jobs, "slicing" not in self.without)
        migrates = "migration" not in self.without
        homes.place_newcomers()
        if migrates:
            _fill_vacated(homes)
            homes.improve()
            homes.defragment()
        rows = _rows_of_pairs(snapshot, found)
        running = _take_turns(snapshot, homes, rows)
        plan = _round_plan(snapshot, homes, running)
        pairs = found.pairs
        if self.space_sharing:
            pairs = proposed_pairs(snapshot, homes, found.pairs, found.undone)
        jobs = _noted(snapshot, homes, running)
        return plan, replace(
            state,
            nodes=servers.names,
            jobs=jobs,
            pairs=pairs,
            undone=found.undone,
        )


@dataclass(frozen=True, slots=True)
class _RunningGroup:
    """A job group that runs in the round."""

    members: tuple[int, ...]  # positions of its jobs
    row: int  # of the snapshot's job groups
    slot: int  # with the locality of its home


def _fill_vacated(homes: Homes) -> None:
    """Move jobs that would wait on overloaded servers to devices that are free, the first in turn first."""
    free = any(homes.free(node) for node in range(len(homes.working)))
    if free and any(homes.overloaded(node) for node in range(len(homes.working))):
        waiting = [i for i, record in enumerate(homes.jobs) if record.home]
        waiting.sort(key=lambda i: (homes.jobs[i].partner != IDLE, homes.jobs[i].turn, i))
        homes.fill_vacated(waiting)


def _rows_of_pairs(snapshot: Snapshot, found: Measured) -> dict[Pair, int]:
    """Return the rows of the pairs in force that can run, by the positions of their jobs: one with a job that
    is bound to devices of its own cannot."""
    members = snapshot.group_members
    if not found.pairs or members.shape[1] < 2:
        return {}
    can_run = (snapshot.rate.min(axis=2) > 0).any(axis=1)
    at = np.flatnonzero((members[:, 1] >= 0) & can_run)
    by_pair = {(int(a), int(b)): row for row, (a, b) in zip(at.tolist(), members[at], strict=True)}
    position = {job: i for i, job in enumerate(snapshot.jobs.tolist())}
    wanted = [(position[a], position[b]) for a, b in found.pairs]
    return {pair: by_pair[pair] for pair in wanted if pair in by_pair}


def _take_turns(snapshot: Snapshot, homes: Homes, rows: Mapping[Pair, int]) -> list[_RunningGroup]:
    """Return who runs: of the jobs at home on a server, those with the least weighted run time first; of
    equals, those that ran. Who does not fit waits, and smaller ones after it may run. A job whose work is
    lost if it is stopped goes on until it is ahead by more than that work: two that start over would else
    take their devices from each other in every round, and neither would come to its end."""
    unkept_s = _LOSS_FACTOR * snapshot.unkept_s / snapshot.weight
    members = snapshot.group_members
    alone = np.arange(len(members))
    if members.shape[1] > 1:
        alone = np.flatnonzero(members[:, 1] < 0)
    groups: list[tuple[float, bool, tuple[int, ...], int]] = []
    packed: set[int] = set()
    for (a, b), row in rows.items():
        one, other = homes.jobs[a], homes.jobs[b]
        if one.home and one.home == other.home and homes.overloaded(one.home[0]):
            packed |= {a, b}
            idle = IDLE in (one.partner, other.partner)
            ahead = 0.0 if idle else float(max(unkept_s[a], unkept_s[b]))
            groups.append(((one.turn + other.turn) / 2 - ahead, idle, (a, b), row))
    for i, record in enumerate(homes.jobs):
        if record.home and i not in packed:
            idle = record.partner == IDLE
            ahead = 0.0 if idle else float(unkept_s[i])
            groups.append((record.turn - ahead, idle, (i,), int(alone[i])))
    groups.sort()
    free, running = list(homes.working), []
    for _, _, jobs, row in groups:
        home = homes.jobs[jobs[0]].home
        slot = homes.slot(jobs[0], home)
        if slot < 0 or any(free[node] < home.count(node) for node in set(home)):
            continue
        for node in home:
            free[node] -= 1
        running.append(_RunningGroup(jobs, row, slot))
    return running


def _round_plan(snapshot: Snapshot, homes: Homes, running: list[_RunningGroup]) -> RoundPlan:
    at = [homes.jobs[one.members[0]].home for one in running]
    nodes = [node for home in at for node in home]
    assert not running or len(nodes) == int(snapshot.scale[[one.row for one in running]].sum())
    return RoundPlan(
        np.array([one.row for one in running], np.int64),
        np.array([homes.planned_slot(home) for home in at], np.int64),
        nodes=None if snapshot.servers is None else np.array(nodes, np.int64),
    )


def _noted(snapshot: Snapshot, homes: Homes, running: list[_RunningGroup]) -> dict[int, JobRecord]:
    """Return the records by id, with who runs where and beside whom."""
    ids = snapshot.jobs.tolist()
    jobs = [record._replace(partner=IDLE, slot=-1) for record in homes.jobs]
    for one in running:
        for k, i in enumerate(one.members):
            partner = ids[one.members[1 - k]] if len(one.members) > 1 else ALONE
            jobs[i] = jobs[i]._replace(partner=partner, slot=one.slot)
    return dict(zip(ids, jobs, strict=True))
