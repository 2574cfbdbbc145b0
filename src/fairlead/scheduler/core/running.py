"""Job groups and devices of the round in force, and the choice of devices for the next."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster, Locality
from fairlead.model.events import RoundEnded
from fairlead.model.plan import RoundPlan
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.bound_jobs import (
    BlockedGroups,
    BlockingCosts,
    BoundGroups,
    DevicePositions,
    anew_costs,
    are_on_own_devices,
    as_if_held,
    device_mask,
    find_blocked,
    immovable,
)
from fairlead.scheduler.core.ledger import Ledger
from fairlead.scheduler.core.remembered_devices import RememberedDevices
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.scheduler.placement.avoid_nodes import (
    AlternativeTypes,
    DeviceAssignment,
    change_types,
    move_away,
)
from fairlead.scheduler.placement.named_nodes import place_on_nodes
from fairlead.scheduler.placement.occupied_devices import leave_occupied
from fairlead.scheduler.placement.records import (
    MoveTradeoffs,
    PlannedGroups,
    PreviousRound,
    Topology,
)
from fairlead.scheduler.placement.rule import BUILT_IN, PlacementRequest, PlacementRule, ask
from fairlead.scheduler.placement.undo_moves import (
    PlacedGroups,
    SlotAndDevices,
    moved_for_nothing,
    rates_equal,
    undo_group_swaps,
    undo_moves,
    undo_swaps,
)

RATE_TOLERANCE = 0.01  # relative difference of rates that are taken for equal


@dataclass(frozen=True, slots=True)
class ReportMapping:
    """The mapping of rows from those of a report, where a scheduler took over a round in force: what was a
    pair may be two job groups now."""

    rows: int  # of the report
    row: Ints  # (groups,) of the report
    column: Ints  # (groups,) column of the report, -1 = all of the job group

    def apply(self, event: RoundEnded, width: int) -> RoundEnded:
        """The report with today's rows. width: of today's job groups."""
        steps, outcome = (
            np.zeros((len(self.row), width)),
            np.zeros((len(self.row), width), np.int64),
        )
        solo = np.flatnonzero(self.column >= 0)
        row, group_members = self.row[solo], self.column[solo]
        steps[solo, 0], outcome[solo, 0] = (
            event.steps[row, group_members],
            event.outcome[row, group_members],
        )
        whole = np.flatnonzero(self.column < 0)
        common = min(width, event.steps.shape[1])
        steps[whole, :common] = event.steps[self.row[whole], :common]
        outcome[whole, :common] = event.outcome[self.row[whole], :common]
        finish_s, restart_s = event.finish_s[self.row], event.restart_s[self.row]
        return replace(event, steps=steps, outcome=outcome, finish_s=finish_s, restart_s=restart_s)


class ActiveRound:
    """The job groups of a round, row by row as in ``StartRound``. A job group whose job has left is -1."""

    def __init__(
        self,
        cluster: Cluster,
        throughputs: Throughputs,
        settings: MechanismSettings,
        ledger: Ledger,
        rule: PlacementRule | None = None,
        *,
        preempted_return: bool = False,
    ) -> None:
        """rule: of placement; None = that of the settings. preempted_return: see ``RememberedDevices``."""
        self.cluster = cluster
        self.throughputs = throughputs
        self.settings = settings
        self.ledger = ledger
        slots = throughputs.slots
        self.topology = Topology(
            device_type=cluster.device_type.copy(),
            device_node=cluster.device_node.copy(),
            usable=np.ones(len(cluster.device_type), np.bool_),
            fewest_servers=_fewest_servers(cluster, throughputs),
            accelerator_of_slot=np.array(
                [cluster.accelerators.index(s.accelerator) for s in slots]
            ),
            other_locality=throughputs.other_locality.copy(),
            scattered=np.array([s.locality is Locality.SCATTERED for s in slots]),
        )
        default_rule = "by_device_id" if settings.gavel.place_by_device_id else "fewest_servers"
        self.rule = BUILT_IN[default_rule] if rule is None else rule
        none: Ints = np.zeros(0, np.int64)
        self.job_group, self.slot, self.devices = none, none, none
        self.planned = none  # the slot before placement
        self.relative_rate: Floats = np.ones(0)  # rate on the slot over that on the planned one
        self.offsets: Ints = np.zeros(
            1, np.int64
        )  # job group u holds devices[offsets[u]:offsets[u + 1]]
        self.report_mapping: ReportMapping | None = None  # None: the report has the rows of this
        self.avoids: dict[int, tuple[str, ...]] = {}  # job -> nodes that it is not to be placed on
        self.remembered = RememberedDevices(preempted_return=preempted_return)

    def reported(self) -> int:
        """Return how many rows the report of the round has."""
        return len(self.job_group) if self.report_mapping is None else self.report_mapping.rows

    def mapped(self, event: RoundEnded) -> RoundEnded:
        """A report with the rows of this."""
        return (
            event
            if self.report_mapping is None
            else self.report_mapping.apply(event, self.ledger.width)
        )

    def use_table(self, throughputs: Throughputs) -> None:
        """Another table, of the same slot types."""
        self.throughputs = throughputs
        self.topology = self.topology._replace(
            fewest_servers=_fewest_servers(self.cluster, throughputs),
            other_locality=throughputs.other_locality.copy(),
        )

    def release(self, groups: Ints) -> None:
        """These job groups hold none of their devices any more, and do not come back to those that they had:
        they start anew."""
        self.job_group = np.where(np.isin(self.job_group, groups), -1, self.job_group)
        for job in self.ledger.group_ids()[groups].ravel().tolist():
            self.remembered.forget(job)

    def renumber(self, row: Ints | None) -> None:
        """Follow job groups to new rows of the ledger, -1 = gone; None: nothing has moved."""
        if row is not None:
            group, there = self.job_group.copy(), self.job_group >= 0
            group[there] = row[group[there]]  # of an empty ledger all are -1, and ``row`` has none
            self.job_group = group

    def find_blocked(
        self, plan: RoundPlan, bound: BoundGroups, elapsed_s: float | None, start_s: float
    ) -> BlockedGroups:
        """The bound job groups of a plan that cannot have their devices. Others make room if a bound group
        is owed as much as it would have to be to preempt them, ``preemption_hysteresis`` times what their
        start costs. Where it is owed as much as that of its own start and what it has done, it begins anew
        elsewhere: that does not grow while it waits. elapsed_s: from the last settling of accounts to the end
        of the round that is planned; None = the planner keeps no accounts: they do for what a round lasts.
        start_s: that a start costs."""
        running, jobs, groups = self._still_running(), self.ledger.jobs, self.ledger.groups
        hysteresis, round_s = self.settings.preemption_hysteresis, self.settings.round_s
        slot = dict(zip(plan.job_group.tolist(), plan.slot.tolist(), strict=True))
        move_cost, of_slot = dict[int, float](), self.topology.accelerator_of_slot
        for k, row in enumerate(running.group.tolist()):
            if row not in slot or row in bound or of_slot[slot[row]] != of_slot[running.slot[k]]:
                continue
            members = groups.members[row]
            restart_s = float(jobs.restart_s[members[members >= 0]].max())
            cost = restart_s if elapsed_s is None else hysteresis * restart_s
            for device in running.devices[running.offsets[k] : running.offsets[k + 1]].tolist():
                move_cost[device] = cost
        anew = anew_costs(self.ledger, bound, start_s, hysteresis)
        limit = dict.fromkeys(bound, round_s)
        if elapsed_s is None:  # in starts, one of which is worth so many seconds of work
            anew = {row: cost / hysteresis if hysteresis else np.inf for row, cost in anew.items()}
        else:
            for row, (at, _, _) in bound.items():
                owed_s = groups.deficit_s[row, at] + groups.share[row, at] * elapsed_s
                owed_s -= groups.received_s[row, at]
                limit[row] = max(float(owed_s), 0.0) * float(groups.scale[row])
        return find_blocked(plan, bound, self.topology, BlockingCosts(move_cost, anew, limit))

    def place(
        self,
        plan: RoundPlan,
        now_s: float,
        *,
        bound: BoundGroups | None = None,
        occupied: DevicePositions = (),
        weighs_prices: bool = False,
    ) -> Bools:
        """Choose devices and take note of who runs where; (groups,) who stays on its devices. bound: of which
        each of the plan can have its devices; occupied: by programs that were told to leave;
        weighs_prices: of the policy, see ``BasePolicy``."""
        running, tradeoffs, bound = self._still_running(), self._tradeoffs(plan), bound or {}
        before, returned = as_if_held(running, plan.job_group, bound)
        if bound:
            tradeoffs = immovable(tradeoffs, plan.job_group, bound)
        if self.remembered:
            ids = self.ledger.group_ids()[plan.job_group]
            before, more = self.remembered.add_to(before, plan.job_group, ids)
            returned = returned + more
        rows = PlannedGroups(plan.job_group, plan.slot, self.ledger.groups.scale)
        if plan.nodes is None:
            request = PlacementRequest(rows, before, self.topology, tradeoffs)
            placed = ask(self.rule, request, now_s)
        else:
            placed = place_on_nodes(rows, before, self.topology, plan.nodes)
        order, offsets, devices, kept, slot = placed
        group = plan.job_group[order]
        assignment = DeviceAssignment(offsets, devices, kept, slot)
        if self.settings.preemption_hysteresis > 0 and plan.nodes is None:
            assignment = self._undo_moves(group, assignment, before, weighs_prices, bound)
        if self.avoids:
            runs = np.isin(group, [*running.group.tolist(), *bound])
            assignment = self._move_away(group, assignment, before, runs, bound)
        if occupied:
            mask, others = device_mask(occupied, self.cluster), self._alternatives(group, before)
            unmoved, same = np.isin(group, [*bound]), plan.nodes is not None
            assignment = leave_occupied(
                assignment, mask, self.topology, others, bound=unmoved, same_nodes=same
            )
        stays = are_on_own_devices(group, assignment, bound)
        if not stays.all():
            order, slot, group = order[stays], slot[stays], group[stays]
            assignment = assignment.only(stays)
        if returned:  # where they were, but they have to start
            assignment = replace(assignment, kept=assignment.kept & ~np.isin(group, returned))
        self.remembered.note_round(running, group, self.ledger.group_ids)
        planned = plan.slot[order]
        self.relative_rate = np.ones(len(slot))
        if self.throughputs.locality_matters:
            self.relative_rate = np.where(slot == planned, 1.0, tradeoffs.fallback_rate[order])
        if assignment.slot is not slot:
            self.relative_rate = self._relative_rate(
                group, slot, assignment.slot, self.relative_rate
            )
        self._run(group, planned, assignment)
        return assignment.kept

    def _run(self, group: Ints, planned: Ints, assignment: DeviceAssignment) -> None:
        self.job_group, self.planned, self.slot = group, planned, assignment.slot
        self.offsets, self.devices = assignment.offsets, assignment.devices
        self.report_mapping = None

    def _still_running(self) -> PreviousRound:
        """Return the job groups that ran, with their devices, and may go on there without a start."""
        group = self.job_group
        if self.report_mapping is not None:  # who has lost its devices in between holds none
            group = np.where(self.slot >= 0, group, -1)
        return PreviousRound(group, self.slot, self.offsets, self.devices)

    def forget(self, jobs: Ints) -> None:
        """Jobs have left: (jobs,) ids."""
        for job in jobs.tolist() if self.avoids or self.remembered else ():
            self.avoids.pop(job, None)
            self.remembered.forget(job)

    def remember_devices(self, jobs: Ints, rows: Ints) -> None:
        """Jobs are paused: note where they run, for they may come back. rows: (jobs,) of their own job
        groups."""
        at = {row: k for k, row in enumerate(self.job_group.tolist()) if row >= 0}
        for job, row in zip(jobs.tolist(), rows.tolist(), strict=True):
            k = at.get(row)
            if k is not None and self.slot[k] >= 0:
                devices = self.devices[self.offsets[k] : self.offsets[k + 1]].copy()
                self.remembered.pause(job, int(self.slot[k]), devices)

    def _undo_moves(
        self,
        group: Ints,
        assignment: DeviceAssignment,
        before: PreviousRound,
        weighs_prices: bool,
        bound: BoundGroups,
    ) -> DeviceAssignment:
        """Undo moves to another type where a job group is no faster and, for a policy that weighs prices, its
        old devices cost no more: such a move is not worth a start. Job groups that are placed on them and
        run as fast on the new ones take those. It takes them also where they are free, unless a job that
        waits could run on what it leaves.
        group: (rows,) of the ledger."""
        groups, of_slot = self.ledger.groups, self.topology.accelerator_of_slot
        placed = PlacedGroups(group, assignment.slot, groups.members, groups.rate, of_slot)
        rows = moved_for_nothing(placed, before, RATE_TOLERANCE)
        if not len(rows):
            return assignment
        old, usable = self._previous_devices(group, before, rows), self.topology.usable
        back = {row: old[row] for row in rows.tolist() if usable[old[row][1]].all()}
        if not back:
            return assignment
        speed = self._speed(group)

        def fits(row: int, one: int, other: int) -> bool:
            return group[row] not in bound and bool(
                rates_equal(
                    speed[row : row + 1], np.array([one]), np.array([other]), RATE_TOLERANCE
                )[0]
            )

        waiting, result, kept = self._waiting(group), assignment, -1
        while kept < (kept := int(np.count_nonzero(result.kept))):  # one makes room for another
            result = undo_swaps(result, back, fits)
            pairs = self._as_cheap(group, result, back) if weighs_prices else back
            if len(waiting):
                result = undo_group_swaps(result, back, self.topology, fits)
                result = undo_moves(result, self._of_no_use(result, pairs, waiting))
            else:
                result = undo_moves(result, pairs)
                free = usable.copy()
                free[result.devices] = False
                result = undo_group_swaps(result, back, self.topology, fits, free=free)
        return result

    def _as_cheap(
        self, group: Ints, assignment: DeviceAssignment, back: dict[int, SlotAndDevices]
    ) -> dict[int, SlotAndDevices]:
        """Return those of the rows that would go back that have a share there, or run there at no higher
        price."""
        share, price = (
            self.ledger.groups.share,
            self.cluster.price[self.topology.accelerator_of_slot],
        )
        return {
            row: where
            for row, where in back.items()
            if share[group[row], where[0]] > 0 or price[where[0]] <= price[assignment.slot[row]]
        }

    def _waiting(self, group: Ints) -> Ints:
        """Job groups of single jobs that do not run. group: (rows,) who runs."""
        runs = np.zeros(self.ledger.jobs.n, np.bool_)
        members = self.ledger.groups.members[group]
        runs[members[members >= 0]] = True
        waiting: Ints = self.ledger.single_job_rows()[~runs]
        return waiting

    def _of_no_use(
        self, assignment: DeviceAssignment, back: dict[int, SlotAndDevices], waiting: Ints
    ) -> dict[int, SlotAndDevices]:
        """Return those of the rows that would go back whose move frees nothing on which a waiting job could
        run: otherwise the free devices would cause another decision at once, with the same outcome."""
        topology, groups = self.topology, self.ledger.groups
        free = topology.usable.copy()
        free[assignment.devices] = False
        found: dict[int, SlotAndDevices] = {}
        for row, where in sorted(back.items()):
            if assignment.slot[row] == where[0]:
                continue
            accelerator = topology.accelerator_of_slot[assignment.slot[row]]
            left = int(np.count_nonzero(free & (topology.device_type == accelerator)))
            left += len(assignment.of(row))
            runs_there = groups.rate[waiting][:, topology.accelerator_of_slot == accelerator, 0] > 0
            if not (runs_there.any(axis=1) & (groups.scale[waiting] <= left)).any():
                found[row] = where
                free[assignment.of(row)] = topology.usable[assignment.of(row)]
        return found

    def _previous_devices(
        self, group: Ints, before: PreviousRound, rows: Ints
    ) -> dict[int, SlotAndDevices]:
        """Row of a plan -> slot and devices of its job group in the round before, of those among ``rows``
        that ran. group: ledger rows."""
        was, slot, offsets, devices = before
        position: Ints = np.full(self.ledger.groups.n, -1, np.int64)
        ran = np.flatnonzero((was >= 0) & (slot >= 0))
        position[was[ran]] = ran
        there = position[group[rows]]
        return {
            row: (int(slot[k]), devices[offsets[k] : offsets[k + 1]].copy())
            for row, k in zip(rows.tolist(), there.tolist(), strict=True)
            if k >= 0
        }

    def _speed(self, group: Ints) -> Floats:
        """(rows, slots, width) steps/s that are believed, 1 where there is no member. group: (rows,)"""
        groups = self.ledger.groups
        return np.where((groups.members[group] >= 0)[:, None, :], groups.rate[group], 1.0)

    def _relative_rate(
        self, group: Ints, planned: Ints, slot: Ints, relative_rate: Floats
    ) -> Floats:
        """(rows,) with that of rows that are on another slot than placement gave them: their time counts as
        received where it was meant to be."""
        other = np.flatnonzero(planned != slot)
        if not len(other):
            return relative_rate
        speed, row = self._speed(group[other]), np.arange(len(other))
        planned_rate, there = speed[row, planned[other]], speed[row, slot[other]]
        relative_rate = relative_rate.copy()
        relative_rate[other] = np.divide(
            there, planned_rate, out=np.ones_like(planned_rate), where=planned_rate > 0
        ).min(axis=1)
        return relative_rate

    def _move_away(
        self,
        group: Ints,
        assignment: DeviceAssignment,
        before: PreviousRound,
        running: Bools,
        bound: BoundGroups,
    ) -> DeviceAssignment:
        """The placement with job groups off the nodes that their jobs avoid, but for bound ones. group:
        (rows,) of the ledger; running: (rows,) who has devices now."""
        ids, cluster = self.ledger.group_ids()[group], self.cluster
        avoided: dict[int, Bools] = {}
        for job, names in self.avoids.items():
            nodes = np.array([node.name in names for node in cluster.nodes], np.bool_)
            for row in np.flatnonzero((ids == job).any(axis=1)).tolist():
                if group[row] in bound:
                    continue
                avoided[row] = avoided[row] | nodes if row in avoided else nodes
        alternatives = self._alternatives(group, before)
        changed = change_types(assignment, avoided, self.topology, alternatives)
        return move_away(changed, avoided, self.topology, keeps_running=changed.kept & running)

    def _alternatives(self, group: Ints, before: PreviousRound) -> AlternativeTypes:
        return AlternativeTypes(
            self._speed(group).min(axis=2),
            self._previous_devices(group, before, np.arange(len(group))),
        )

    def _tradeoffs(self, plan: RoundPlan) -> MoveTradeoffs:
        """For each row of the plan: the rate on the other slot of its type over that on its own; the
        device-seconds that its own wins over it, at most over the horizon, and over all of that where it
        can run on no other; and the device-seconds that a move costs."""
        none: Floats = np.zeros(len(plan.job_group))
        if not self.throughputs.locality_matters:
            return MoveTradeoffs(none, none, none)
        other = self.throughputs.other_locality[plan.slot]
        if (other < 0).all():
            return MoveTradeoffs(none, none, none)
        jobs, groups = self.ledger.jobs, self.ledger.groups
        group_members, scale = (
            groups.members[plan.job_group],
            groups.scale[plan.job_group].astype(np.float64),
        )
        there = group_members >= 0
        planned_rate = self._rate_on(group_members, plan.slot)
        runs = there & (planned_rate > 0)
        ratio = np.divide(
            self._rate_on(group_members, other),
            planned_rate,
            out=np.ones_like(planned_rate),
            where=runs,
        )
        fallback_rate = np.where(other >= 0, ratio.min(axis=1), 0.0)
        steps = (jobs.total - jobs.done)[group_members]
        left_s = np.divide(steps, planned_rate, out=np.zeros_like(planned_rate), where=runs).max(
            axis=1
        )
        lasts_s = np.minimum(
            np.where(fallback_rate > 0, left_s, np.inf), self.settings.payback_period_s
        )
        restart_s = np.where(there, jobs.restart_s[group_members], 0.0).max(axis=1)
        gain = scale * lasts_s * np.maximum(1.0 - fallback_rate, 0.0)
        return MoveTradeoffs(fallback_rate, gain, np.asarray(scale * restart_s))

    def _rate_on(self, group_members: Ints, slot: Ints) -> Floats:
        """(groups, width) steps/s on a slot for each job group, whether it is offered or not.
        group_members: (job groups, width) rows of jobs; what stands where there is none has no meaning."""
        table, job_type = self.throughputs, self.ledger.jobs.rate_row[group_members]
        rate = np.ones(group_members.shape)
        rate[:, 0] = table.rate[job_type[:, 0], slot]
        if table.pair_rates is not None and group_members.shape[1] > 1:
            pairs = np.flatnonzero((group_members >= 0).all(axis=1))
            one, two, at = job_type[pairs, 0], job_type[pairs, 1], slot[pairs]
            rate[pairs, 0], rate[pairs, 1] = (
                table.pair_rates[one, two, at],
                table.pair_rates[two, one, at],
            )
        return rate


def _fewest_servers(cluster: Cluster, throughputs: Throughputs) -> Ints:
    """Return ``Cluster.fewest_servers`` for the largest jobs of the table."""
    return cluster.fewest_servers(max(one.scale_factor for one in throughputs.job_types))
