"""Who runs where in the round in force, and the choice of devices for the next."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster, Locality
from fairlead.model.events import RoundEnded
from fairlead.model.plan import RoundPlan
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.ledger import Ledger
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.scheduler.placement.avoid_nodes import (
    OtherTypes,
    Placement,
    Site,
    change_types,
    move_away,
)
from fairlead.scheduler.placement.by_device_id import by_device_id
from fairlead.scheduler.placement.servers import fewest_servers
from fairlead.scheduler.placement.stay import Old, alike, go_back

ALIKE = 0.01  # relative difference of rates that are taken for equal
_Before = tuple[Ints, Ints, Ints, Ints]  # unit, slot, first, devices of the round before


@dataclass(frozen=True, slots=True)
class ReportMapping:
    """How rows follow from those of a report, where a scheduler took over a round in force: what was a
    pair may be two units now."""

    rows: int  # of the report
    row: Ints  # (units,) of the report
    member: Ints  # (units,) column of the report, -1 = all of the unit

    def apply(self, event: RoundEnded, width: int) -> RoundEnded:
        """The report with today's rows. width: of today's units."""
        steps, outcome = (
            np.zeros((len(self.row), width)),
            np.zeros((len(self.row), width), np.int64),
        )
        alone = np.flatnonzero(self.member >= 0)
        row, member = self.row[alone], self.member[alone]
        steps[alone, 0], outcome[alone, 0] = event.steps[row, member], event.outcome[row, member]
        whole = np.flatnonzero(self.member < 0)
        common = min(width, event.steps.shape[1])
        steps[whole, :common] = event.steps[self.row[whole], :common]
        outcome[whole, :common] = event.outcome[self.row[whole], :common]
        finish_s, restart_s = event.finish_s[self.row], event.restart_s[self.row]
        return replace(event, steps=steps, outcome=outcome, finish_s=finish_s, restart_s=restart_s)


class ActiveRound:
    """The units of a round, row by row as in ``StartRound``. A unit whose job has left is -1."""

    def __init__(
        self, cluster: Cluster, throughputs: Throughputs, profile: MechanismSettings, ledger: Ledger
    ) -> None:
        self.cluster = cluster
        self.learn(throughputs)
        self.profile = profile
        self.ledger = ledger
        slots = throughputs.slots
        self.accelerator_of_slot: Ints = np.array(
            [cluster.accelerators.index(s.accelerator) for s in slots]
        )
        self.spread: Bools = np.array([s.locality is Locality.SPREAD for s in slots])
        self.works: Bools = np.ones(len(cluster.device_type), np.bool_)
        none: Ints = np.zeros(0, np.int64)
        self.unit, self.slot, self.devices = none, none, none
        self.planned = none  # the slot before placement
        self.worth: Floats = np.ones(0)  # a second on slot over one on planned
        self.first: Ints = np.zeros(1, np.int64)  # unit u holds devices[first[u]:first[u + 1]]
        self.told: ReportMapping | None = None  # None: the report has the rows of this
        self.avoids: dict[int, tuple[str, ...]] = {}  # job -> nodes that it is not to be placed on
        self.left: dict[
            int, tuple[int, Ints]
        ] = {}  # held job -> slot and devices that it had alone

    def reported(self) -> int:
        """How many rows the report of the round has."""
        return len(self.unit) if self.told is None else self.told.rows

    def booked(self, event: RoundEnded) -> RoundEnded:
        """A report with the rows of this."""
        return event if self.told is None else self.told.apply(event, self.ledger.width)

    def learn(self, throughputs: Throughputs) -> None:
        """Another table, of the same slot types."""
        self.throughputs = throughputs
        self.fewest = self.cluster.fewest_servers(max(scale for _, scale in throughputs.kinds))

    def renumber(self, row: Ints | None) -> None:
        """Follow units to new rows of the ledger, -1 = gone; None: nothing has moved."""
        if row is not None:
            self.unit = np.where(self.unit >= 0, row[self.unit], -1)

    def place(self, plan: RoundPlan) -> Bools:
        """Choose devices and take note of who runs where; (units,) who stays on its devices."""
        units, cluster = self.ledger.units, self.cluster
        unit = self.unit
        if self.told is not None:  # who has lost its devices in between holds none
            unit = np.where(self.slot >= 0, unit, -1)
        before = (unit, self.slot, self.first, self.devices)
        if self.left:
            before = self._with_returned(plan, *before)
        if self.profile.place_by_device_id:
            order, first, devices, kept = by_device_id(
                plan.unit,
                plan.slot,
                units.scale,
                *before,
                cluster.device_type,
                self.works,
                units.n,
                self.accelerator_of_slot,
            )
            slot, worth = plan.slot[order], np.ones(len(order))
        else:
            fallback, gain, cost = self._stakes(plan)
            order, first, devices, kept, slot = fewest_servers(
                plan.unit,
                plan.slot,
                units.scale,
                *before,
                cluster.device_type,
                cluster.device_node,
                self.works,
                units.n,
                self.accelerator_of_slot,
                self.throughputs.sibling,
                self.spread,
                self.fewest,
                fallback,
                gain,
                cost,
            )
            worth = np.where(slot == plan.slot[order], 1.0, fallback[order])
        placed = Placement(first, devices, kept, slot)
        if self.profile.preemption_hysteresis > 0:
            placed = self._go_back(plan.unit[order], placed, before)
        if self.avoids:
            placed = self._move_away(plan.unit[order], placed, before)
        worth = self._worth(plan.unit[order], slot, placed.slot, worth)
        slot, devices, kept = placed.slot, placed.devices, placed.kept
        self.unit, self.planned = plan.unit[order], plan.slot[order]
        self.slot, self.worth = slot, worth
        self.first, self.devices = first, devices
        self.told = None
        return kept

    def forget(self, jobs: Ints) -> None:
        """Jobs have left: (jobs,) ids."""
        for job in jobs.tolist() if self.avoids or self.left else ():
            self.avoids.pop(job, None)
            self.left.pop(job, None)

    def put_aside(self, jobs: Ints, rows: Ints) -> None:
        """Jobs are held: note where they run, for they may come back. rows: (jobs,) of their own units."""
        at = {row: k for k, row in enumerate(self.unit.tolist()) if row >= 0}
        for job, row in zip(jobs.tolist(), rows.tolist(), strict=True):
            k = at.get(row)
            if k is not None and self.slot[k] >= 0:
                devices = self.devices[self.first[k] : self.first[k + 1]].copy()
                self.left[job] = int(self.slot[k]), devices

    def _with_returned(
        self, plan: RoundPlan, unit: Ints, slot: Ints, first: Ints, devices: Ints
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Who ran where, with jobs of the plan that were held meanwhile, unless others are there now."""
        ids, known = self.ledger.unit_ids()[plan.unit], set(unit.tolist())
        taken = set(devices[np.repeat(unit >= 0, np.diff(first))].tolist())
        for row, members in zip(plan.unit.tolist(), ids.tolist(), strict=True):
            alone = [job for job in members if job >= 0]
            found = self.left.pop(alone[0], None) if len(alone) == 1 else None
            if found is None or row in known or taken.intersection(found[1].tolist()):
                continue
            unit, slot = np.append(unit, row), np.append(slot, found[0])
            first = np.append(first, first[-1] + len(found[1]))
            devices = np.append(devices, found[1])
        return unit, slot, first, devices

    def _go_back(self, unit: Ints, placed: Placement, before: _Before) -> Placement:
        """Undo moves to another type where a unit is no faster and has a share on both: shares say how long
        it is to have each, which is worth a start only to those who want its devices. Nobody does where all
        jobs run. unit: (rows,) of the ledger."""
        units, jobs = self.ledger.units, self.ledger.jobs
        member = units.member[unit]
        if np.count_nonzero(np.bincount(member[member >= 0], minlength=jobs.n)) < jobs.n:
            return placed
        old = self._were_on(unit, before)
        old = {row: was for row, was in old.items() if self._could_stay(unit[row], was)}
        rows = [r for r, was in old.items() if self._other_type(was[0], int(placed.slot[r]))]
        if not rows:
            return placed
        slots = np.array([old[row][0] for row in rows], np.int64)
        same = alike(self._speed(unit[rows]), placed.slot[rows], slots, ALIKE)
        return go_back(
            placed, {row: old[row] for row, is_so in zip(rows, same, strict=True) if is_so}
        )

    def _could_stay(self, unit: int, was: Old) -> bool:
        slot, devices = was
        return bool(self.ledger.units.share[unit, slot] > 0 and self.works[devices].all())

    def _other_type(self, one: int, other: int) -> bool:
        return bool(self.accelerator_of_slot[one] != self.accelerator_of_slot[other])

    def _were_on(self, unit: Ints, before: _Before) -> dict[int, Old]:
        """Row of a plan -> slot and devices of its unit in the round before. unit: (rows,) of the ledger."""
        was, slot, first, devices = before
        row_of = {int(u): row for row, u in enumerate(unit)}
        return {
            row_of[u]: (int(slot[k]), devices[first[k] : first[k + 1]].copy())
            for k, u in enumerate(was.tolist())
            if u in row_of and slot[k] >= 0
        }

    def _speed(self, unit: Ints) -> Floats:
        """(rows, slots, width) steps/s that are believed, 1 where there is no member. unit: (rows,)"""
        units = self.ledger.units
        return np.where((units.member[unit] >= 0)[:, None, :], units.rate[unit], 1.0)

    def _worth(self, unit: Ints, planned: Ints, slot: Ints, worth: Floats) -> Floats:
        """(rows,) with that of rows that are on another slot than placement gave them: their time counts as
        received where it was meant to be."""
        other = np.flatnonzero(planned != slot)
        if not len(other):
            return worth
        speed, row = self._speed(unit[other]), np.arange(len(other))
        own, there = speed[row, planned[other]], speed[row, slot[other]]
        worth = worth.copy()
        worth[other] = np.divide(there, own, out=np.ones_like(own), where=own > 0).min(axis=1)
        return worth

    def _move_away(self, unit: Ints, placed: Placement, before: _Before) -> Placement:
        """The placement with units off the nodes that their jobs avoid. unit: (rows,) of the ledger."""
        ids, cluster = self.ledger.unit_ids()[unit], self.cluster
        barred: dict[int, Bools] = {}
        for job, names in self.avoids.items():
            nodes = np.array([node.name in names for node in cluster.nodes], np.bool_)
            for row in np.flatnonzero((ids == job).any(axis=1)).tolist():
                barred[row] = barred[row] | nodes if row in barred else nodes
        site = Site(
            cluster.device_type,
            cluster.device_node,
            self.works,
            self.fewest,
            self.throughputs.sibling,
        )
        speed = self._speed(unit).min(axis=2)
        others = OtherTypes(
            speed, self.accelerator_of_slot, self.spread, self._were_on(unit, before)
        )
        return move_away(change_types(placed, barred, site, others), barred, site)

    def _stakes(self, plan: RoundPlan) -> tuple[Floats, Floats, Floats]:
        """For each row of the plan: the rate on the other slot of its type over that on its own; the
        device-seconds that its own wins over it, at most over the horizon, and over all of that where it
        can run on no other; and the device-seconds that a move costs."""
        none: Floats = np.zeros(len(plan.unit))
        other = self.throughputs.sibling[plan.slot]
        if (other < 0).all():
            return none, none, none
        jobs, units = self.ledger.jobs, self.ledger.units
        member, scale = units.member[plan.unit], units.scale[plan.unit].astype(np.float64)
        there = member >= 0
        own = self._rate_on(member, plan.slot)
        runs = there & (own > 0)
        ratio = np.divide(self._rate_on(member, other), own, out=np.ones_like(own), where=runs)
        fallback = np.where(other >= 0, ratio.min(axis=1), 0.0)
        steps = (jobs.total - jobs.done)[member]
        left_s = np.divide(steps, own, out=np.zeros_like(own), where=runs).max(axis=1)
        lasts_s = np.minimum(np.where(fallback > 0, left_s, np.inf), self.profile.horizon_s)
        restart_s = np.where(there, jobs.restart_s[member], 0.0).max(axis=1)
        gain = scale * lasts_s * np.maximum(1.0 - fallback, 0.0)
        return fallback, gain, np.asarray(scale * restart_s)

    def _rate_on(self, member: Ints, slot: Ints) -> Floats:
        """(units, width) steps/s on a slot for each unit, whether it is offered or not. member: (units,
        width) rows of jobs; what stands where there is none has no meaning."""
        table, kind = self.throughputs, self.ledger.jobs.row[member]
        rate = np.ones(member.shape)
        rate[:, 0] = table.rate[kind[:, 0], slot]
        if table.pair is not None and member.shape[1] > 1:
            pairs = np.flatnonzero((member >= 0).all(axis=1))
            one, two, at = kind[pairs, 0], kind[pairs, 1], slot[pairs]
            rate[pairs, 0], rate[pairs, 1] = table.pair[one, two, at], table.pair[two, one, at]
        return rate
