"""The live state run forward: when jobs will be done, and what would be if.

A scheduler is restored from a state and driven by the simulator, with the rates that are believed as the
true ones. The round in force goes on to its end; it is cut where the question has other nodes. The state,
and whoever it was taken from, are not touched.

Rounds are simulated one by one: 1,000 jobs take seconds, and the time grows with jobs, solves and rounds.
Where that takes longer than is allowed, the rest follows without rounds (``fluid``): an outcome says up to
when it is exact.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import numpy as np

from fairlead.cluster.forecasting.arrivals import History
from fairlead.cluster.forecasting.fluid_forecast import (
    finish_times,
    fluid_jobs,
    joined,
)
from fairlead.cluster.forecasting.forecast_starts import (
    NextStart,
    as_under_way,
    assume_costs,
    round_under_way,
    starts_under_way,
    with_starts,
)
from fairlead.cluster.forecasting.future_jobs import FutureJobs
from fairlead.errors import SimulationError
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    Command,
    EndJobs,
    JobEnd,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsPaused,
    JobsSubmitted,
    ProgressCorrected,
    RatesLearned,
    RoundEnded,
)
from fairlead.model.job import Job, JobId, RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.checkpoint import SchedulerCheckpoint
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.driver import drive
from fairlead.scheduler.mechanism import planner_calls
from fairlead.scheduler.setup import Setup, restore
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.submissions import MeasuredJobs

DAY_S = 86_400.0
MAX_FUTURE_JOBS = 1_000  # to come, that a forecast without rounds looks at, and
FUTURE_JOBS_PER_JOB = 2  # as many for each job in the system


@dataclass(frozen=True, slots=True)
class ForecastQuery:
    """The assumptions of a forecast beyond the state that it starts from, and what it may cost."""

    now_s: float | None = None  # None: the time of the state
    horizon_s: float = 30 * DAY_S
    steps_done: Mapping[int, float] = field(default_factory=dict)  # what is known beyond the state
    paused_s: Mapping[int, float] = field(
        default_factory=dict
    )  # paused jobs -> seconds until they are resumed
    # job -> how many times as fast it is as its job type: those of a type made up, which says nothing
    measured: Mapping[int, float] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()  # jobs whose rates nobody knows: left out of the result
    rate_noise: float = 0.0  # as in ``GroundTruth``
    rate_bias: float = 0.0
    restart_costs: RestartCosts | None = None  # None: those of the setup
    # job -> seconds that a start of it takes, the first one too; of others the first one is free
    start_s: Mapping[int, float] = field(default_factory=dict)
    starting: Mapping[int, float] = field(default_factory=dict)  # job -> seconds left of its start
    add_jobs: Sequence[Job] = ()  # submitted now; ids above all others
    cluster: Cluster | None = None  # None: as it is
    policy: str | None = None
    history: History = field(default_factory=History)  # by which jobs are expected; none: none are
    early_s: float = np.inf  # a round of this age ends where devices are free and jobs wait
    cpu_s: float = np.inf  # of this process that rounds may be simulated for
    wall_s: float = np.inf  # that rounds may be simulated for, whatever the process got of them
    rounds_s: float = np.inf  # from now on that are simulated round by round, if there is time


@dataclass(frozen=True, slots=True)
class ForecastRun:
    """One possible future."""

    finish_s: Mapping[int, float]  # job -> seconds from now; missing: not within the horizon
    makespan_s: float  # to the end of the last job, or the horizon where some have not ended
    utilization: float  # device-seconds held over those there were, up to then
    unfinished: tuple[int, ...]  # jobs, but for paused ones, with no end within the horizon
    exact_s: float = np.inf  # seconds from now for which rounds were simulated; inf = to the end

    def without(self, jobs: Collection[int], horizon_s: float) -> "ForecastRun":
        """Return the forecast without these jobs."""
        if not jobs:
            return self
        finish_s = {job: t for job, t in self.finish_s.items() if job not in jobs}
        unfinished = tuple(job for job in self.unfinished if job not in jobs)
        makespan_s = horizon_s if unfinished else max(finish_s.values(), default=0.0)
        return replace(self, finish_s=finish_s, makespan_s=makespan_s, unfinished=unfinished)

    def after(self, seconds: float, least_s: Mapping[int, float]) -> "ForecastRun":
        """Return this forecast as of a later time. least_s: job -> its remaining time at its best rate, below
        which it does not fall, as a job that waited meanwhile is no nearer to its end."""
        finish_s = {
            job: max(t - seconds, least_s.get(job, 0.0)) for job, t in self.finish_s.items()
        }
        makespan_s = self.makespan_s
        if not self.unfinished:
            makespan_s = max(makespan_s - seconds, *finish_s.values(), 0.0)
        return replace(self, finish_s=finish_s, makespan_s=makespan_s)

    @property
    def complete(self) -> bool:
        """Return whether all jobs that are not held have ended."""
        return not self.unfinished

    @property
    def coarse(self) -> bool:
        """Return whether the time was too short to simulate rounds to the end."""
        return self.exact_s < np.inf

    @property
    def mean_left_s(self) -> float:
        """Mean time from now to the end of each job that ends; 0 where none does."""
        return float(np.mean(list(self.finish_s.values()))) if self.finish_s else 0.0


@dataclass(frozen=True, slots=True)
class Eta:
    """When one job will be done, in seconds from now; None: not within the horizon."""

    finish_s: float | None  # the median of the forecasts
    low_s: float | None  # 10 % of them are earlier
    high_s: float | None  # 10 % are later
    forecasts: int


def forecast(
    setup: Setup,
    state: SchedulerCheckpoint,
    query: ForecastQuery | None = None,
    seeds: Sequence[int] = (0,),
) -> list[ForecastRun]:
    """One outcome for each seed; without noise and bias they are all the same.

    Raises InputError where the question's cluster, policy or jobs do not go with the state.
    """
    query = query or ForecastQuery()
    return [_future(setup, state, query, seed) for seed in seeds]


def eta(outcomes: Sequence[ForecastRun], job: int) -> Eta:
    """When a job will be done, from several outcomes."""
    times = np.array([outcome.finish_s.get(job, np.inf) for outcome in outcomes])
    if not len(times):
        return Eta(None, None, None, 0)
    found = np.quantile(times, (0.5, 0.1, 0.9), method="inverted_cdf").tolist()
    median, low, high = (value if value < np.inf else None for value in found)
    return Eta(median, low, high, len(times))


def median_s(outcomes: Sequence[ForecastRun], job: int) -> float | None:
    """The median of when a job will be done, as ``eta`` has it."""
    times = sorted(outcome.finish_s.get(job, np.inf) for outcome in outcomes)
    found = times[(len(times) - 1) // 2] if times else np.inf
    return found if found < np.inf else None


def running_jobs(state: SchedulerCheckpoint) -> frozenset[int]:
    """Ids of the jobs that hold devices in a state: those of the round in force that have not left it."""
    if state.in_force is None:
        return frozenset()
    return frozenset(state.in_force.job_groups[state.in_force.counts].tolist())


def _learn_rates(scheduler: Scheduler, now_s: float, measured: Mapping[int, float]) -> None:
    """Single jobs go by what they were measured to do. measured: as of ``ForecastQuery``."""
    data = scheduler.data
    if data.beliefs.row:  # there is an estimator, which knows all that
        return
    numbers: dict[tuple[int, float], int] = {}
    name: dict[int, int] = {}
    for ledger in (data.ledger, data.paused_jobs):
        for job, row in zip(ledger.jobs.id.tolist(), ledger.jobs.rate_row.tolist(), strict=True):
            if job in measured:
                alike = row, float(f"{measured[job]:.3g}")
                name[job] = numbers.setdefault(alike, len(numbers))
    if not name:
        return
    rows, factors = (np.array(column) for column in zip(*numbers, strict=True))
    rate = data.throughputs.rate[rows] * factors[:, None]
    scheduler.handle(
        RatesLearned(
            time_s=now_s,
            jobs=np.array(list(name), np.int64),
            name=np.array(list(name.values()), np.int64),
            belief=np.arange(len(numbers)),
            job_types=tuple(data.throughputs.job_types[row] for row in rows.tolist()),
            job_type=np.arange(len(numbers)),
            rate=rate,
            pair=np.zeros((0, 2), np.int64),
            colocated_rate=np.zeros((0, rate.shape[1], 2)),
        )
    )


def _resume(scheduler: Scheduler, now_s: float, query: ForecastQuery) -> list[Command]:
    """Jobs that are paused for now take part from the beginning; their wait is added in the end."""
    paused = [job for job in query.paused_s if JobId(job) in scheduler.data.paused_jobs]
    if not paused:
        return []
    return scheduler.handle(JobsPaused(now_s, np.array(paused, np.int64), False))


def _setup_ahead(setup: Setup, query: ForecastQuery) -> Setup:
    """The setup of a forecast: with what is asked instead of what is, and no solves beside the rounds."""
    return replace(
        setup,
        cluster=query.cluster or setup.cluster,
        policy=query.policy or setup.policy,
        traits=None,
        overlap_solves=False,
    )


def _future(
    setup: Setup, state: SchedulerCheckpoint, query: ForecastQuery, seed: int
) -> ForecastRun:
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    costs = with_starts(query.restart_costs or setup.restart_costs, query.start_s)
    ahead = _setup_ahead(setup, query)
    now_s = state.time_s if query.now_s is None else query.now_s
    scheduler = restore(ahead, state)
    assume_costs(scheduler, costs, query.start_s)
    _learn_rates(scheduler, now_s, query.measured)
    starts = starts_under_way(scheduler, now_s, costs, query.start_s, query.starting)
    done = _done(scheduler, now_s, query.steps_done, starts)
    ids = np.array(list(done), np.int64)
    scheduler.handle(ProgressCorrected(now_s, ids, np.array(list(done.values()))))
    rest_of_round = None if query.cluster is not None else _rest_in_force(scheduler, now_s)
    first: list[Command] = _resume(scheduler, now_s, query)
    if query.add_jobs or not scheduler.data.round.active:
        first += scheduler.handle(JobsSubmitted(now_s, tuple(query.add_jobs)))
    if rest_of_round is not None:
        first.append(rest_of_round)
    elif scheduler.data.round.active:
        first += scheduler.handle(_end_round_early(scheduler, now_s, starts))
    jobs_under_way = as_under_way(scheduler, starts, query.start_s)
    future_jobs = FutureJobs(scheduler, query.history, query.add_jobs, now_s, seed)
    backend = SimBackend(
        future_jobs.arrivals(),
        ahead.cluster,
        _truth(scheduler, setup),
        partial(planner_calls.solve, scheduler.data.planning.planner),
        GroundTruth(costs, query.rate_noise, query.rate_bias, seed=seed),
        measured_jobs=MeasuredJobs(0, len(jobs_under_way)),
        stop_at_s=now_s + query.horizon_s,
        now_s=now_s,
        jobs_under_way=jobs_under_way,
        early_s=query.early_s,
    )
    watch = _Watch(now_s, float(scheduler.data.capacity.sum()), future_jobs.first_id)
    for command in first:
        watch.command(command)
        if not isinstance(command, EndJobs):  # who has ended by now is not under way
            backend.perform(command)
    to_the_end = True
    with suppress(SimulationError):  # where the rest would wait for ever: not within the horizon
        to_the_end = drive(
            scheduler,
            backend,
            [watch],
            lambda: (
                time.process_time() - began_cpu_s >= query.cpu_s
                or time.monotonic() - began_s >= query.wall_s
                or scheduler.data.now_s - now_s >= query.rounds_s
            ),
        )
    open_ = scheduler.data.ledger.jobs.id
    unfinished = tuple(open_[open_ < future_jobs.first_id].tolist())
    if to_the_end:
        found = watch.outcome(unfinished, query.horizon_s)
    else:
        found = _rest_of_round(scheduler, ahead.policy, watch, query, future_jobs)
    return _with_waits(found, query.paused_s).without(query.unknown, query.horizon_s)


def _with_waits(outcome: ForecastRun, paused_s: Mapping[int, float]) -> ForecastRun:
    """An outcome of which jobs were let go at once that are to wait for so many seconds."""
    finish_s = {job: t + paused_s.get(job, 0.0) for job, t in outcome.finish_s.items()}
    last_s = max(finish_s.values(), default=0.0)
    return replace(outcome, finish_s=finish_s, makespan_s=max(outcome.makespan_s, last_s))


def _rest_of_round(
    s: Scheduler, policy: str, watch: "_Watch", query: ForecastQuery, future_jobs: FutureJobs
) -> ForecastRun:
    """Return the forecast with what follows, estimated without rounds, on what was simulated."""
    there = fluid_jobs(s)
    exact_s = max(s.data.now_s - watch.now_s, 0.0)
    jobs = joined(
        there, future_jobs.fluid(s, MAX_FUTURE_JOBS + FUTURE_JOBS_PER_JOB * len(there.job))
    )
    horizon_s = query.horizon_s - exact_s
    times = finish_times(jobs, s.data.capacity, policy, horizon_s, _round_left_s(s))
    found = zip(there.job.tolist(), times[: len(there.job)].tolist(), strict=True)
    mine = {job: t for job, t in found if job < future_jobs.first_id}
    finish_s = watch.finish_s | {job: exact_s + t for job, t in mine.items() if t < np.inf}
    unfinished = tuple(job for job, t in mine.items() if t == np.inf)
    makespan_s = query.horizon_s if unfinished else max(finish_s.values(), default=0.0)
    fastest = np.maximum(there.rate.max(axis=1, initial=0.0), 1e-300)
    work_s = float((there.scale * there.left / fastest)[times[: len(there.job)] < np.inf].sum())
    there_s = float(s.data.capacity.sum()) * makespan_s
    used = min((watch.paused_s + work_s) / there_s, 1.0) if there_s > 0 else 0.0
    return ForecastRun(finish_s, makespan_s, used, unfinished, exact_s)


def _round_left_s(s: Scheduler) -> float:
    """Seconds of the round in force that are still to come; 0 where there is none, or it is ending."""
    command = s.data.round.in_force
    if command is None or not s.data.round.active or s.data.round.ending:
        return 0.0
    return max(command.time_s + command.length_s - s.data.now_s, 0.0)


def _done(
    s: Scheduler, now_s: float, known: Mapping[int, float], starts: Mapping[int, NextStart]
) -> dict[int, float]:
    """Steps of the jobs in the round in force up to now: as they are known, or by rate and time."""
    current, jobs = round_under_way(s, now_s), s.data.ledger.jobs
    if current is None:
        return {}
    command, lasted_s, row = current
    out = {}
    for ids, slot in zip(command.job_groups.tolist(), command.slot.tolist(), strict=True):
        rate = _rates(s, [row.get(job, -1) for job in ids], slot)
        for k, job in enumerate(ids):
            if job in row:
                at = row[job]
                guess = jobs.done[at] + rate[k] * (lasted_s - starts[job].took_s)
                out[job] = float(min(known.get(job, guess), jobs.total[at]))
    return out


def _rest_in_force(s: Scheduler, now_s: float) -> StartRound | None:
    """The rest of the round in force, None where it ends now. Who has left does nothing in it."""
    command = s.data.round.in_force
    if not s.data.round.active or s.data.round.ending or command is None:
        return None
    if (command.devices < 0).any():
        return None
    remaining_s = command.time_s + command.length_s - now_s
    groups = np.where(np.isin(command.job_groups, s.data.ledger.jobs.id), command.job_groups, -1)
    kept = np.ones_like(command.kept)
    remaining = msgspec.structs.replace(
        command, time_s=now_s, length_s=remaining_s, job_groups=groups, kept=kept
    )
    return remaining if remaining_s > 0 else None


def _end_round_early(s: Scheduler, now_s: float, starts: Mapping[int, NextStart]) -> RoundEnded:
    """The end of the round in force, now; its steps are counted already."""
    command = s.data.round.in_force
    assert command is not None
    rows = len(command.job_groups)
    took_s = [
        max((starts[j].took_s for j in ids if j in starts), default=0.0)
        for ids in command.job_groups.tolist()
    ]
    nothing = np.zeros(command.job_groups.shape)
    outcome = np.zeros(command.job_groups.shape, np.int64)
    return RoundEnded(
        now_s, command.round, nothing, np.full(rows, now_s), outcome, np.array(took_s)
    )


def _rates(s: Scheduler, rows: list[int], slot: int) -> list[float]:
    """Steps/s of the members of a job group on a slot; rows: of jobs, -1 = none."""
    table = s.data.throughputs
    job_types = [int(s.data.ledger.jobs.rate_row[row]) for row in rows if row >= 0]
    if len(job_types) == 2 and table.pair_rates is not None:
        return [float(table.pair_rates[job_types[k], job_types[1 - k], slot]) for k in (0, 1)]
    return [
        float(table.rate[s.data.ledger.jobs.rate_row[row], slot]) if row >= 0 else 0.0
        for row in rows
    ]


def _truth(s: Scheduler, setup: Setup) -> Throughputs:
    """The rates that jobs shall have: those believed."""
    return s.data.throughputs if s.data.beliefs.row else setup.throughputs


class _Watch:
    """Sees when jobs end and how many devices are held."""

    def __init__(self, now_s: float, devices: float, first_id: int) -> None:
        """first_id: from which on jobs are not there yet."""
        self.now_s, self.devices, self.first_id = now_s, devices, first_id
        self.finish_s: dict[int, float] = {}
        self.paused_s = 0.0
        self._scale: Floats = np.zeros(0)
        self._began_s = now_s

    def event(self, event: Event) -> None:
        """Count the time of a round."""
        if isinstance(event, RoundEnded):
            self.paused_s += float(self._scale @ (event.finish_s - self._began_s))

    def command(self, command: Command) -> None:
        """Take note of ends and of who runs."""
        if isinstance(command, StartRound):
            self._began_s = command.time_s
            self._scale = np.diff(command.offsets).astype(np.float64)
        elif isinstance(command, EndJobs):
            for job, end, end_s in zip(command.jobs, command.end, command.end_s, strict=True):
                if end == JobEnd.COMPLETED and job < self.first_id:
                    self.finish_s[int(job)] = float(end_s) - self.now_s

    def outcome(self, unfinished: tuple[int, ...], horizon_s: float) -> ForecastRun:
        """Return the ends and the use of the devices that were seen, as a forecast."""
        makespan_s = horizon_s if unfinished else max(self.finish_s.values(), default=0.0)
        there_s = self.devices * makespan_s
        used = self.paused_s / there_s if there_s > 0 else 0.0
        return ForecastRun(self.finish_s, makespan_s, used, unfinished)
