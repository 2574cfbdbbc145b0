"""The scheduler: a state machine that turns events into commands.

It reads no clock, file, socket, environment or random source. Time is a field of every event.
"""

from functools import partial

import numpy as np

from fairlead.errors import ProtocolError
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    Command,
    EndRound,
    JobEnd,
    Solve,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsCancelled,
    JobsDropped,
    JobsPaused,
    JobsReweighted,
    JobsSubmitted,
    JobTypesLearned,
    NodeLost,
    NodeRecovered,
    NodesAvoided,
    ProgressCorrected,
    RatesLearned,
    RequirementsChanged,
    RestartCostsLearned,
    RoundEnded,
    Solved,
    Stalled,
)
from fairlead.model.job import Job, JobId, RestartCosts
from fairlead.model.job_index import rows_of
from fairlead.model.job_type import JobType
from fairlead.model.plan import Change, Planner
from fairlead.model.rates import isolated_rate
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.job_groups import find_groups, rows_of_groups
from fairlead.scheduler.core.ledger import Ledger
from fairlead.scheduler.core.lifecycle import JobPhase, start_round
from fairlead.scheduler.core.paused_jobs import (
    ended,
    pause,
    resume,
    retire_paused,
)
from fairlead.scheduler.core.rate_beliefs import RateBeliefs
from fairlead.scheduler.core.round_reports import (
    GroupAccounts,
    RowsReported,
    apply_round_report,
    job_accounts,
)
from fairlead.scheduler.core.running import ActiveRound
from fairlead.scheduler.core.snapshots import make_snapshot
from fairlead.scheduler.mechanism.settings import MechanismSettings


class Scheduler:
    """Decides, round by round, who runs where. ``handle`` is its only verb."""

    def __init__(
        self,
        cluster: Cluster,
        throughputs: Throughputs,
        planner: Planner,
        profile: MechanismSettings,
        restart_costs: RestartCosts | None = None,
        overlap_solves: bool = False,
        policy: str = "",
    ) -> None:
        """throughputs: what the scheduler believes; overlap_solves: rounds go on with the last
        allocation while a solve is under way, instead of waiting for it; policy: what the planner was
        made from, name and options."""
        self.cluster = cluster
        self.beliefs = RateBeliefs(
            throughputs.on(cluster, profile.scattered), planner.space_sharing
        )
        self.slots = self.throughputs.slots
        self.planner = planner
        self.settings = profile
        self.restart_costs = restart_costs or RestartCosts()
        self.overlap_solves = overlap_solves
        self.policy = policy
        self.capacity: Floats = cluster.capacity.copy()
        self.ledger = Ledger(
            slots=len(self.slots),
            space_sharing=planner.space_sharing,
            all_pairs=profile.all_pairs,
            head_start_s=profile.round_s / 2 if profile.reset_accounts else 0.0,
            rate=self.undominated.rate,
            colocated_rate=self.undominated.colocated_rate,
        )
        self.paused_jobs = self.ledger.for_paused_jobs()  # jobs that take no part
        self.running = ActiveRound(cluster, self.throughputs, profile, self.ledger)
        self.state = planner.start()
        self.previous: Allocation | None = None
        self.round = -1  # number of the round in force
        self.active = False  # does a round with job groups run?
        self.ending = False  # has its end been asked for?
        self.solving = False
        self.changed = Change.JOBS  # since the last solve
        # Of running jobs, what RequirementsChanged said: batch size, total steps, steps done.
        self.adapting: dict[int, tuple[int, float, float]] = {}
        self.expected: dict[int, int] = {}  # beliefs of jobs that are still to come, or to adapt
        self.to_pause: set[int] = set()  # jobs that are held as soon as the round is reported
        self.corrected = False  # the steps of a job that runs?
        self.now_s = 0.0  # of the last event
        self.in_force: StartRound | None = None  # the last one; device ids as they are now
        self.started_s = 0.0
        self.last_end_s: float | None = None  # end of the last round that was not empty

    @property
    def throughputs(self) -> Throughputs:
        """The rates that are believed; rows are job types, and beliefs about single jobs."""
        return self.beliefs.table

    @property
    def undominated(self) -> Throughputs:
        """What of them policies and mechanism are shown."""
        return self.beliefs.undominated

    def handle(self, event: Event) -> list[Command]:
        """What to do about an event. The core's state changes here and nowhere else."""
        self.now_s = event.time_s
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
                return self._withdrawn(event.jobs, JobEnd.CANCELLED, event.time_s)
            case JobsDropped():
                return self._withdrawn(event.jobs, JobEnd.DROPPED, event.time_s)
            case NodesAvoided():
                return self._nodes_avoided(event)
            case Stalled():
                return self._decide(event.time_s, stalled=True)
            case ProgressCorrected():
                return self._progress_corrected(event)
            case RestartCostsLearned():
                return self._restart_costs_learned(event)
            case JobsReweighted():
                return self._reweighted(event)
            case JobsPaused():
                return self._pause(event) if event.paused else self._resume(event)
            case JobTypesLearned():
                return self._job_types_learned(event)
            case RatesLearned():
                return self._rates_learned(event)

    # --- one short method per event -------------------------------------------------------------

    def _submitted(self, event: JobsSubmitted) -> list[Command]:
        for job in event.jobs:
            self._admit(job, event.time_s)
        if self.expected:
            ids = [job.id for job in event.jobs if job.id in self.expected]
            self._assign_belief({job: self.expected.pop(job) for job in ids})
        self.changed |= Change.JOBS
        return self._when_idle(event.time_s)

    def _admit(self, job: Job, time_s: float) -> None:
        job_type = self.throughputs.row(job.job_type)
        if job_type is None:
            raise ProtocolError(f"job {job.id}: no rate for {job.job_type}")
        if job.id in self.ledger or job.id in self.paused_jobs:
            raise ProtocolError(f"job {job.id}: a job with this id is in the system already")
        ledger = self.ledger if job.id > self.ledger.last_id else self.ledger.for_paused_jobs()
        ledger.add(
            job,
            time_s,
            job_type=job_type,
            row_at=partial(self._row_at_batch_size, job.job_type),
            restart_s=self.restart_costs.of(job),
            limit_s=self._limit_s(job),
            fits=self._fits(job.scale_factor),
        )
        if ledger is not self.ledger:  # it waited outside: to where its id belongs
            self.running.renumber(self.ledger.receive(ledger, np.zeros(1, np.int64)))

    def _fits(self, scale: int) -> Bools | None:
        """(slots,) where a job of this scale factor may be offered devices; None = everywhere."""
        if self.settings.allow_undersized:
            return None
        return np.asarray(self.cluster.capacity[self.running.site.accelerator_of_slot] >= scale)

    def _limit_s(self, job: Job) -> float:
        """Run time after which a job counts as completed, whatever it has left."""
        if job.duration_s is None or self.settings.overtime == np.inf:
            return np.inf
        return float(int(self.settings.overtime * job.duration_s))

    def _row_at_batch_size(self, job_type: JobType, batch: int) -> int:
        """Row of the throughput table for a job type at another batch size; 0 = its own."""
        other = job_type.with_batch_size(batch) if batch else job_type
        row = self.throughputs.row(other)
        if row is None:
            raise ProtocolError(f"no rate for {other}")
        return row

    def _withdrawn(self, jobs: tuple[JobId, ...], end: JobEnd, time_s: float) -> list[Command]:
        cannot = "cannot cancel" if end is JobEnd.CANCELLED else "cannot drop it"
        for job in jobs:
            self._ledger(job, cannot)
        named = np.array(jobs, np.int64)
        left = self._retire(
            np.where(np.isin(self.ledger.jobs.id, named), int(end), 0),
            np.full(self.ledger.jobs.n, time_s),
            time_s,
        )
        left += retire_paused(self, np.isin(self.paused_jobs.jobs.id, named), end, time_s)
        if self.active:
            return [*left, *self._end_round_early(time_s)]
        return [*left, *self._when_idle(time_s)]

    def _nodes_avoided(self, event: NodesAvoided) -> list[Command]:
        self._ledger(event.job, "cannot avoid nodes")
        self.running.avoids.pop(event.job, None)
        if event.nodes:
            self.running.avoids[event.job] = event.nodes
        return []

    def _ledger(self, job: int, cannot: str) -> Ledger:
        """The ledger that has a job; ProtocolError says what cannot be done where none has it."""
        for ledger in (self.ledger, self.paused_jobs):
            if JobId(job) in ledger:
                return ledger
        raise ProtocolError(f"job {job}: {cannot}, it is not in the system")

    def _node(self, time_s: float, name: str, works: bool) -> list[Command]:
        self.set_node(name, works)
        self.changed |= Change.DEVICES
        return self._end_round_early(time_s) if self.active else self._when_idle(time_s)

    def set_node(self, name: str, works: bool) -> None:
        """May the devices of a node be given to jobs?"""
        index = next((i for i, n in enumerate(self.cluster.nodes) if n.name == name), None)
        if index is None:
            raise ProtocolError(f"node {name!r}: not in the cluster")
        self.running.site.works[self.cluster.device_node == index] = works
        accelerator_index = self.cluster.device_type[self.running.site.works]
        self.capacity = np.bincount(accelerator_index, minlength=len(self.capacity)).astype(
            np.float64
        )

    def _end_round_early(self, time_s: float) -> list[Command]:
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
        if len(event.finish_s) != self.running.reported():
            raise ProtocolError(
                f"report for round {event.round} has {len(event.finish_s)} job groups, "
                f"{self.running.reported()} ran"
            )
        event = self.running.mapped(event)
        jobs, groups = self.ledger.jobs, self.ledger.groups
        end = np.zeros(jobs.n, np.int64)
        end_s = np.zeros(jobs.n)
        from_s = self.started_s
        if self.settings.charge_idle_gaps:
            from_s = 0.0 if self.last_end_s is None else self.last_end_s
        uncharged_s = event.restart_s
        if self.settings.charge_startup:
            uncharged_s = np.zeros(len(event.finish_s))
        failed = apply_round_report(
            np.argsort(-event.finish_s, kind="stable"),
            from_s,
            self.settings.max_failures,
            RowsReported(
                group=self.running.job_group,
                slot=self.running.planned,
                worth=self.running.worth,
                steps=event.steps,
                outcome=event.outcome,
                finish_s=event.finish_s,
                start_s=uncharged_s,
            ),
            GroupAccounts(groups.members, groups.received_s, self.ledger.allocated_s),
            job_accounts(jobs, end, end_s),
        )
        if failed:
            self.changed |= Change.JOBS
        if self.corrected:
            done = (jobs.done >= jobs.total) & (end == 0)
            end[done], end_s[done] = JobEnd.COMPLETED, event.time_s
        self.last_end_s = event.time_s
        self.active = self.ending = self.corrected = False
        left = self._retire(end, end_s, event.time_s)
        if self.adapting:
            waiting, self.adapting = self.adapting, {}
            here = {job: to for job, to in waiting.items() if JobId(job) in self.ledger}
            self._adapt(here, event.time_s)
        if self.to_pause:
            holding, self.to_pause = self.to_pause, set()
            pause(self, [job for job in holding if JobId(job) in self.ledger], event.time_s)
        return [*left, *self._decide(event.time_s)]

    def _requirements_changed(self, event: RequirementsChanged) -> list[Command]:
        running = self._running()
        now: dict[int, tuple[int, float, float]] = {}
        columns = (event.jobs, event.batch, event.total_steps, event.steps_done)
        for job, batch, total, done in zip(*(c.tolist() for c in columns), strict=True):
            self._ledger(job, "cannot change its batch size")
            (self.adapting if job in running else now)[job] = (batch, total, done)
        self._adapt(now, event.time_s)
        return []

    def _running(self) -> set[int]:
        """Jobs in the round in force."""
        jobs = self.ledger.jobs
        return set(jobs.id[jobs.state == JobPhase.RUNNING].tolist()) if self.active else set()

    def _adapt(self, changes: dict[int, tuple[int, float, float]], time_s: float) -> None:
        """Jobs, none of them running, go on at other batch sizes: job -> (batch size, total, done)."""
        if not changes:
            return
        settles = self.settings.settle_on_adaptation
        if settles:
            self._settle_isolated(time_s)
        for job, (batch, total, done) in changes.items():
            ledger = self.ledger if JobId(job) in self.ledger else self.paused_jobs
            row = ledger.row(JobId(job))
            job_type = self.throughputs.job_types[ledger.jobs.job_type[row]]
            row_at = partial(self._row_at_batch_size, job_type)
            fits = self._fits(job_type.scale_factor)
            ledger.adapt(
                row, batch, total=total, done=done, row_at=row_at, fits=fits, settled=settles
            )
        here = {job: self.expected.pop(job) for job in changes if job in self.expected}
        if here:
            self._assign_belief(here)
        if settles:
            self._settle_isolated(time_s)
        self.changed |= Change.REQUIREMENTS

    def _settle_isolated(self, time_s: float) -> None:
        rate = isolated_rate(make_snapshot(self, time_s), self.settings.weighted_isolation)
        self.ledger.settle_isolated(rate)

    def _progress_corrected(self, event: ProgressCorrected) -> list[Command]:
        changed = False
        for ledger in (self.paused_jobs, self.ledger):
            jobs = ledger.jobs
            row, here = rows_of(jobs.id, event.jobs)
            row, done = row[here], event.steps_done[here]
            changed |= bool((jobs.done[row] != done).any())
            jobs.done[row] = done
        runs = (jobs.state[row] == JobPhase.RUNNING) & self.active
        self.corrected |= bool(runs.any())
        end = np.zeros(jobs.n, np.int64)
        end[row[~runs & (done >= jobs.total[row])]] = JobEnd.COMPLETED
        left = self._retire(end, np.full(len(end), event.time_s), event.time_s)
        over = self.paused_jobs.jobs.done >= self.paused_jobs.jobs.total
        left += retire_paused(self, over, JobEnd.COMPLETED, event.time_s)
        return [*left, *self._when_idle(event.time_s)] if changed or left else left

    def _restart_costs_learned(self, event: RestartCostsLearned) -> list[Command]:
        """It counts from the next decision on, and is no reason for one."""
        if not np.all((event.restart_s >= 0) & np.isfinite(event.restart_s)):
            raise ProtocolError(f"restart costs must be finite and >= 0, got {event.restart_s}")
        for ledger in (self.paused_jobs, self.ledger):
            row, here = rows_of(ledger.jobs.id, event.jobs)
            ledger.jobs.restart_s[row[here]] = event.restart_s[here]
        return []

    def _reweighted(self, event: JobsReweighted) -> list[Command]:
        given = list(zip(event.jobs.tolist(), event.weight.tolist(), strict=True))
        for job, weight in given:
            self._ledger(job, "cannot change its weight")
            if not 0 < weight < np.inf:
                raise ProtocolError(f"job {job}: its weight must be a number > 0, got {weight}")
        for job, weight in given:
            ledger = self._ledger(job, "")
            ledger.reweigh(ledger.row(JobId(job)), weight)
        self.changed |= Change.JOBS
        return self._when_idle(event.time_s)

    def _pause(self, event: JobsPaused) -> list[Command]:
        named = event.jobs.tolist()
        for job in named:
            self._ledger(job, "cannot hold it")
        running = self._running()
        self.to_pause.update(running.intersection(named))
        waiting = [job for job in named if job not in running and JobId(job) in self.ledger]
        pause(self, waiting, event.time_s)
        if running.intersection(named):
            return self._end_round_early(event.time_s)
        return self._when_idle(event.time_s)

    def _resume(self, event: JobsPaused) -> list[Command]:
        for job in event.jobs.tolist():
            self._ledger(job, "cannot let it go")
        self.to_pause.difference_update(event.jobs.tolist())
        if not resume(self, event.jobs, event.time_s):
            return []
        return self._when_idle(event.time_s)

    def _job_types_learned(self, event: JobTypesLearned) -> list[Command]:
        self.beliefs.learn_job_types(event)
        self.follow_table()
        self.changed |= Change.REQUIREMENTS
        return self._when_idle(event.time_s)

    def _rates_learned(self, event: RatesLearned) -> list[Command]:
        changed = self.beliefs.learn(event)
        self.running.learn(self.throughputs)
        given = dict(zip(event.jobs.tolist(), event.name.tolist(), strict=True))
        here: dict[int, int] = {}
        for job, name in given.items():
            there = job in self.ledger or job in self.paused_jobs
            (here if there and job not in self.adapting else self.expected)[job] = name
        self._assign_belief(here, changed)
        return []

    def _assign_belief(self, given: dict[int, int], changed: Ints | None = None) -> None:
        """Jobs in the system go by these beliefs, -1 = by their job type; job groups follow. changed: rows
        of the table with other rates than before."""
        for ledger in (self.ledger, self.paused_jobs):
            jobs = ledger.jobs
            ids = np.array(sorted(job for job in given if JobId(job) in ledger), np.int64)
            at = np.searchsorted(jobs.id, ids)
            name = [given[job] for job in ids.tolist()]
            row = self.beliefs.row
            job_type = jobs.job_type[at].tolist()
            jobs.row[at] = [k if n < 0 else row[n] for k, n in zip(job_type, name, strict=True)]
            ledger.classify(at)
            some = np.zeros(jobs.n, np.bool_)
            some[at] = True
            if changed is not None:
                some |= np.isin(jobs.row, changed)
            pair = None if ledger is self.paused_jobs else self.undominated.colocated_rate
            ledger.job_type_rate, ledger.colocated_rate = self.undominated.rate, pair
            ledger.follow(some, self._room())
            if some.any():
                self.changed |= Change.REQUIREMENTS

    def _room(self) -> Floats | None:
        """(slots,) devices in all, where a job may be offered no slot type with fewer than it needs."""
        if self.settings.allow_undersized:
            return None
        return self.cluster.capacity[self.running.site.accelerator_of_slot]

    def follow_table(self) -> None:
        """Bring the rates of all job groups up to the table."""
        self.running.learn(self.throughputs)
        room = self._room()
        self.ledger.learn(self.undominated.rate, self.undominated.colocated_rate, room)
        self.paused_jobs.learn(self.undominated.rate, None, room)

    def _solved(self, event: Solved) -> list[Command]:
        if not self.solving:
            raise ProtocolError("an allocation arrived that nobody had asked for")
        self.solving = False
        if event.answer is not None:
            accounts, self.state = self.planner.settle(
                make_snapshot(self, event.time_s), event.answer, self.state
            )
            groups = self.ledger.groups
            if accounts is not None:
                groups.received_s[:] = accounts.received_s
                groups.deficit_s[:] = accounts.deficit_s
                self.ledger.allocated_s[:] = accounts.allocated_s
        else:
            self.changed |= Change.JOBS  # at the next round there is another try
        if event.allocation is not None:
            self._put_in_force(event.allocation)
        return [] if self.active else self._start_round(event.time_s)

    def _put_in_force(self, allocation: Allocation) -> None:
        """Take over the shares. A job group was part of the solve if all its jobs were; job groups that the
        allocation does not name have no share, and shares of jobs that have left are dropped."""
        self.previous = allocation
        jobs, groups = self.ledger.jobs, self.ledger.groups
        group_members, known = rows_of_groups(jobs.id, allocation.job_groups, self.ledger.width)
        solved = np.zeros(jobs.n, np.bool_)
        solved[group_members[:, 0][known]] = True
        if self.ledger.width > 1:
            pairs = known & (group_members[:, 1] >= 0) & (allocation.share > 0).any(axis=1)
            row = self.ledger.set_pairs(group_members[pairs])
            self.running.renumber(row)
        groups.allocated[:] = (solved[groups.members] | (groups.members < 0)).all(axis=1)
        groups.share[:] = 0.0
        at = find_groups(groups.members, group_members[known], jobs.n)
        groups.share[at[at >= 0]] = allocation.share[known][at >= 0]

    # --- from one round to the next --------------------------------------------------------------

    def _when_idle(self, time_s: float) -> list[Command]:
        waits = self.solving and not self.overlap_solves
        return [] if self.active or waits else self._decide(time_s)

    def _decide(self, time_s: float, stalled: bool = False) -> list[Command]:
        wanted = not self.solving and self.planner.due(time_s, self.changed, stalled, self.state)
        solve: list[Command] = []
        if wanted:
            self.solving = True
            self.changed = Change.NOTHING
            snapshot = make_snapshot(self, time_s)
            self.ledger.settle_isolated(isolated_rate(snapshot, self.settings.weighted_isolation))
            if self.overlap_solves:
                snapshot = snapshot.copied()
            solve = [Solve(time_s, snapshot, self.state)]
        if self.solving and not self.overlap_solves:
            return solve
        return [*solve, *self._start_round(time_s)]

    def _start_round(self, time_s: float) -> list[Command]:
        groups, jobs = self.ledger.groups, self.ledger.jobs
        plan, self.state = self.planner.plan(make_snapshot(self, time_s), self.state)
        kept = self.running.place(plan)
        groups.running_on[:] = -1
        groups.running_on[self.running.job_group] = self.running.planned
        self._set_states()
        self.round += 1
        self.active = len(self.running.job_group) > 0
        self.started_s = time_s
        ids = self.ledger.group_ids()[self.running.job_group]
        self.in_force = StartRound(
            time_s,
            self.round,
            self.settings.round_s,
            ids,
            self.running.slot,
            self.running.devices,
            self.running.first,
            kept,
            jobs.n,
        )
        return [self.in_force]

    def _set_states(self) -> None:
        jobs = self.ledger.jobs
        start_round(jobs.state, self.ledger.groups.members, self.running.job_group, jobs.id)

    def _retire(self, end: Ints, end_s: Floats, time_s: float) -> list[Command]:
        gone = end > 0
        if not gone.any():
            return []
        command = ended(self.ledger, end, end_s, time_s)
        self.running.forget(command.jobs)
        self.running.renumber(self.ledger.remove(gone))
        self.changed |= Change.JOBS
        return [command]
