"""The scheduler: a state machine that turns events into commands.

It reads no clock, file, socket, environment or random source. Time is a field of every event.
"""

from functools import partial

import numpy as np

from fairlead.commands import Command, End, EndJobs, EndRound, Solve, StartRound
from fairlead.core.credit import credit
from fairlead.core.ledger import Ledger
from fairlead.core.lifecycle import State, move, start_round
from fairlead.core.running import Running
from fairlead.errors import ProtocolError
from fairlead.events import (
    Event,
    JobsCancelled,
    JobsSubmitted,
    NodeLost,
    NodeRecovered,
    RequirementsChanged,
    RoundEnded,
    Solved,
    Stalled,
)
from fairlead.mechanism.profile import Profile
from fairlead.model.adaptation import with_batch
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job, JobId, RestartCosts
from fairlead.model.plan import Change, Planner
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughput import Throughputs
from fairlead.policies.shares import isolated_rate


class Scheduler:
    """Decides, round by round, who runs where. ``handle`` is its only verb."""

    def __init__(
        self,
        cluster: Cluster,
        throughputs: Throughputs,
        planner: Planner,
        profile: Profile,
        restart_costs: RestartCosts | None = None,
        overlap_solves: bool = False,
    ) -> None:
        """throughputs: what the scheduler believes; overlap_solves: rounds go on with the last
        allocation while a solve is under way, instead of waiting for it."""
        self.cluster = cluster
        self.throughputs = throughputs.on(cluster, profile.spread)
        self.offered = self.throughputs.worthwhile()  # what policies and mechanism are shown
        self.slots = self.throughputs.slots
        self.planner = planner
        self.profile = profile
        self.restart_costs = restart_costs or RestartCosts()
        self.overlap_solves = overlap_solves
        self.capacity: Floats = cluster.capacity.copy()
        self.ledger = Ledger(
            len(self.slots),
            planner.packed,
            profile.all_pairs,
            profile.round_s / 2 if profile.reset_accounts else 0.0,
            self.offered.rate,
            self.offered.pair,
        )
        self.running = Running(cluster, self.throughputs, profile, self.ledger)
        self.state = planner.start()
        self.previous: Allocation | None = None
        self.round = -1  # number of the round in force
        self.active = False  # does a round with units run?
        self.ending = False  # has its end been asked for?
        self.solving = False
        self.changed = Change.JOBS  # since the last solve
        # Of running jobs, what RequirementsChanged said: batch size, total steps, steps done.
        self.adapting: dict[int, tuple[int, float, float]] = {}
        self.started_s = 0.0
        self.last_end_s: float | None = None  # end of the last round that was not empty

    def handle(self, event: Event) -> list[Command]:
        """What to do about an event. The core's state changes here and nowhere else."""
        match event:
            case RoundEnded():
                return self._round_ended(event)
            case JobsSubmitted():
                return self._submitted(event)
            case RequirementsChanged():
                return self._requirements_changed(event)
            case Solved():
                return self._solved(event)
            case NodeLost():
                return self._node(event.time_s, event.node, False)
            case NodeRecovered():
                return self._node(event.time_s, event.node, True)
            case JobsCancelled():
                return self._cancelled(event)
            case Stalled():
                return self._decide(event.time_s, stalled=True)

    # --- one short method per event -------------------------------------------------------------

    def _submitted(self, event: JobsSubmitted) -> list[Command]:
        for job in event.jobs:
            self._admit(job, event.time_s)
        self.changed |= Change.JOBS
        return self._when_idle(event.time_s)

    def _admit(self, job: Job, time_s: float) -> None:
        kind = self.throughputs.row(job.family, job.scale_factor)
        if kind is None:
            raise ProtocolError(
                f"job {job.id}: no rate for {job.family!r} at scale factor {job.scale_factor}"
            )
        if job.id in self.ledger:
            raise ProtocolError(f"job {job.id}: a job with this id is in the system already")
        if self.ledger.jobs.n and job.id < self.ledger.jobs.id[-1]:
            raise ProtocolError(
                f"job {job.id}: ids must ascend, job {self.ledger.jobs.id[-1]} was submitted before"
            )
        self.ledger.add(
            job,
            time_s,
            kind,
            partial(self._kind_at, job.family, job.scale_factor),
            self.restart_costs.of(job),
            self._limit_s(job),
            self._fits(job.scale_factor),
        )

    def _fits(self, scale: int) -> Bools | None:
        """(slots,) where a job of this scale factor may be offered devices; None = everywhere."""
        if self.profile.offer_too_small:
            return None
        return np.asarray(self.cluster.capacity[self.running.draws_on] >= scale)

    def _limit_s(self, job: Job) -> float:
        """Run time after which a job counts as completed, whatever it has left."""
        if job.duration_s is None or self.profile.overtime == np.inf:
            return np.inf
        return float(int(self.profile.overtime * job.duration_s))

    def _kind_at(self, family: str, scale: int, batch: int) -> int:
        """Row of the throughput table for a family at another batch size."""
        other = with_batch(family, batch) if batch else family
        kind = self.throughputs.row(other, scale)
        if kind is None:
            raise ProtocolError(f"no rate for {other!r} at scale factor {scale}")
        return kind

    def _cancelled(self, event: JobsCancelled) -> list[Command]:
        jobs = self.ledger.jobs
        end = np.zeros(jobs.n, np.int64)
        for job in event.jobs:
            if job not in self.ledger:
                raise ProtocolError(f"job {job}: cannot cancel, it is not in the system")
            end[self.ledger.row(job)] = End.CANCELLED
        left = self._retire(end, np.full(jobs.n, event.time_s), event.time_s)
        if self.active:
            return [*left, *self._cut(event.time_s)]
        return [*left, *self._when_idle(event.time_s)]

    def _node(self, time_s: float, name: str, works: bool) -> list[Command]:
        index = next((i for i, n in enumerate(self.cluster.nodes) if n.name == name), None)
        if index is None:
            raise ProtocolError(f"node {name!r}: not in the cluster")
        self.running.works[self.cluster.device_node == index] = works
        kinds = self.cluster.device_type[self.running.works]
        self.capacity = np.bincount(kinds, minlength=len(self.capacity)).astype(np.float64)
        self.changed |= Change.DEVICES
        return self._cut(time_s) if self.active else self._when_idle(time_s)

    def _cut(self, time_s: float) -> list[Command]:
        """End the round in force, once, so that the next one reacts to what has happened."""
        if self.ending:
            return []
        self.ending = True
        return [EndRound(time_s, self.round)]

    def _round_ended(self, event: RoundEnded) -> list[Command]:
        if not self.active or event.round != self.round:
            raise ProtocolError(
                f"report for round {event.round} refused: round {self.round} is "
                f"{'in force' if self.active else 'over'}"
            )
        if len(event.finish_s) != len(self.running.unit):
            raise ProtocolError(
                f"report for round {event.round} has {len(event.finish_s)} units, "
                f"{len(self.running.unit)} ran"
            )
        jobs, units = self.ledger.jobs, self.ledger.units
        end = np.zeros(jobs.n, np.int64)
        end_s = np.zeros(jobs.n)
        from_s = self.started_s
        if self.profile.charge_idle_gaps:
            from_s = 0.0 if self.last_end_s is None else self.last_end_s
        failed = credit(
            np.argsort(-event.finish_s, kind="stable"),
            self.running.unit,
            self.running.planned,
            self.running.worth,
            event.steps,
            event.finish_s,
            event.outcome,
            from_s,
            units.member,
            jobs.total,
            jobs.done,
            jobs.fails,
            jobs.ran_s,
            self.profile.max_failures,
            units.received_s,
            self.ledger.handed_out_s,
            end,
            end_s,
            np.zeros(len(event.finish_s)) if self.profile.charge_starts else event.restart_s,
            jobs.limit_s,
        )
        if failed:
            self.changed |= Change.JOBS
        self.last_end_s = event.time_s
        self.active = self.ending = False
        left = self._retire(end, end_s, event.time_s)
        waiting, self.adapting = self.adapting, {}
        self._adapt(
            {job: to for job, to in waiting.items() if JobId(job) in self.ledger}, event.time_s
        )
        return [*left, *self._decide(event.time_s)]

    def _requirements_changed(self, event: RequirementsChanged) -> list[Command]:
        jobs = self.ledger.jobs
        running = set(jobs.id[jobs.state == State.RUNNING].tolist()) if self.active else set()
        now: dict[int, tuple[int, float, float]] = {}
        columns = (event.jobs, event.batch, event.total_steps, event.steps_done)
        for job, batch, total, done in zip(*(c.tolist() for c in columns), strict=True):
            if job not in self.ledger:
                raise ProtocolError(
                    f"job {job}: cannot change its batch size, it is not in the system"
                )
            (self.adapting if job in running else now)[job] = (batch, total, done)
        self._adapt(now, event.time_s)
        return []

    def _adapt(self, changes: dict[int, tuple[int, float, float]], time_s: float) -> None:
        """Jobs, none of them running, go on at other batch sizes: job -> (batch size, total, done)."""
        if not changes:
            return
        settles = self.profile.settle_on_adaptation
        if settles:
            self._settle_isolated(time_s)
        for job, (batch, total, done) in changes.items():
            row = self.ledger.row(JobId(job))
            scale = int(self.ledger.jobs.scale[row])
            family = self.throughputs.kinds[self.ledger.jobs.kind[row]][0]
            kind_of = partial(self._kind_at, family, scale)
            self.ledger.adapt(row, batch, total, done, kind_of, self._fits(scale), settles)
        if settles:
            self._settle_isolated(time_s)
        self.changed |= Change.REQUIREMENTS

    def _settle_isolated(self, time_s: float) -> None:
        rate = isolated_rate(self._snapshot(time_s), self.profile.weighted_isolation)
        self.ledger.settle_isolated(rate)

    def _solved(self, event: Solved) -> list[Command]:
        if not self.solving:
            raise ProtocolError("an allocation arrived that nobody had asked for")
        self.solving = False
        if event.answer is not None:
            accounts, self.state = self.planner.settle(
                self._snapshot(event.time_s), event.answer, self.state
            )
            units = self.ledger.units
            if accounts is not None:
                units.received_s[:] = accounts.received_s
                units.deficit_s[:] = accounts.deficit_s
                self.ledger.handed_out_s[:] = accounts.handed_out_s
        if event.allocation is not None:
            self._put_in_force(event.allocation)
        return [] if self.active else self._start_round(event.time_s)

    def _put_in_force(self, allocation: Allocation) -> None:
        """Take over the shares. A unit was part of the solve if all its jobs were; units that the
        allocation does not name have no share, and shares of jobs that have left are dropped."""
        self.previous = allocation
        jobs, units = self.ledger.jobs, self.ledger.units
        member, known = _rows_of(jobs.id, allocation.units, self.ledger.width)
        solved = np.zeros(jobs.n, np.bool_)
        solved[member[:, 0][known]] = True
        if self.ledger.width > 1:
            pairs = known & (member[:, 1] >= 0) & (allocation.share > 0).any(axis=1)
            row = self.ledger.set_pairs(member[pairs])
            self.running.renumber(row)
        units.allocated[:] = (solved[units.member] | (units.member < 0)).all(axis=1)
        units.share[:] = 0.0
        at = _find_rows(units.member, member[known], jobs.n)
        units.share[at[at >= 0]] = allocation.share[known][at >= 0]

    # --- from one round to the next --------------------------------------------------------------

    def _when_idle(self, time_s: float) -> list[Command]:
        return [] if self.active or self.solving else self._decide(time_s)

    def _decide(self, time_s: float, stalled: bool = False) -> list[Command]:
        wanted = not self.solving and self.planner.due(time_s, self.changed, stalled, self.state)
        solve: list[Command] = []
        if wanted:
            self.solving = True
            self.changed = Change.NOTHING
            snapshot = self._snapshot(time_s)
            self.ledger.settle_isolated(isolated_rate(snapshot, self.profile.weighted_isolation))
            if self.overlap_solves:
                snapshot = snapshot.copied()
            solve = [Solve(time_s, snapshot, self.state)]
        if self.solving and not self.overlap_solves:
            return solve
        return [*solve, *self._start_round(time_s)]

    def _start_round(self, time_s: float) -> list[Command]:
        units, jobs = self.ledger.units, self.ledger.jobs
        plan, self.state = self.planner.plan(self._snapshot(time_s), self.state)
        kept = self.running.place(plan)
        units.running_on[:] = -1
        units.running_on[self.running.unit] = self.running.planned
        self._set_states()
        self.round += 1
        self.active = len(self.running.unit) > 0
        self.started_s = time_s
        ids = self.ledger.unit_ids()[self.running.unit]
        return [
            StartRound(
                time_s,
                self.round,
                self.profile.round_s,
                ids,
                self.running.slot,
                self.running.devices,
                self.running.first,
                kept,
                jobs.n,
            )
        ]

    def _set_states(self) -> None:
        jobs = self.ledger.jobs
        start_round(jobs.state, self.ledger.units.member, self.running.unit, jobs.id)

    def _retire(self, end: Ints, end_s: Floats, time_s: float) -> list[Command]:
        gone = end > 0
        if not gone.any():
            return []
        jobs = self.ledger.jobs
        to = jobs.state.copy()
        to[gone] = end[gone] + 2
        move(jobs.state, to, jobs.id)
        command = EndJobs(time_s, jobs.id[gone], end[gone], end_s[gone])
        row = self.ledger.remove(gone)
        self.running.renumber(row)
        self.changed |= Change.JOBS
        return [command]

    def _snapshot(self, time_s: float) -> Snapshot:
        jobs, units = self.ledger.jobs, self.ledger.units
        return Snapshot(
            now_s=time_s,
            round_s=self.profile.round_s,
            jobs=jobs.id,
            weight=jobs.weight,
            total_steps=jobs.total,
            steps_left=np.maximum(jobs.total - jobs.done, 0.0),
            age_s=time_s - jobs.arrival_s,
            ran_s=jobs.ran_s,
            deadline_s=jobs.deadline_s - time_s,
            job_class=jobs.job_class,
            tenant=jobs.tenant,
            tenants=self.ledger.tenants,
            kind=jobs.kind,
            kind_rate=self.offered.rate,
            regimes=self.ledger.regimes.shown(jobs.kind, jobs.total, jobs.done),
            isolated_s=jobs.isolated_s,
            restart_s=jobs.restart_s,
            slots=self.slots,
            slot_type=self.running.draws_on,
            capacity=self.capacity,
            price=self.cluster.price,
            member=units.member,
            scale=units.scale,
            rate=units.rate,
            beside=self.offered.pair if self.planner.packed else None,
            received_s=units.received_s,
            deficit_s=units.deficit_s,
            handed_out_s=self.ledger.handed_out_s,
            share=units.share,
            allocated=units.allocated,
            running_on=units.running_on,
            previous=self.previous,
        )


def _rows_of(jobs: Ints, units: Ints, width: int) -> tuple[Ints, Bools]:
    """(units, width) rows of job ids, -1 = none, and which units have all their jobs in the system.
    jobs: (jobs,) ids, ascending."""
    if units.shape[1] < width:
        units = np.column_stack([units, np.full((len(units), width - units.shape[1]), -1)])
    row = np.minimum(np.searchsorted(jobs, units), len(jobs) - 1)
    none = units < 0
    same = none if not len(jobs) else (jobs[row] == units) | none
    row[none] = -1
    return row, np.asarray(same.all(axis=1))


def _find_rows(member: Ints, wanted: Ints, jobs: int) -> Ints:
    """(wanted,) rows of these units in member, -1 = not there. Both (.., width) rows of jobs."""
    have, want = member[:, 0].copy(), wanted[:, 0].copy()
    for k in range(1, wanted.shape[1]):
        want = want * (jobs + 1) + wanted[:, k] + 1
        have = have * (jobs + 1) + (member[:, k] + 1 if k < member.shape[1] else 0)
    order = np.argsort(have)
    at = order[np.minimum(np.searchsorted(have, want, sorter=order), len(order) - 1)]
    return np.where(have[at] == want, at, -1)
