"""The starts of jobs in a forecast: those under way, and what those to come take."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fairlead.cluster.forecasting.fluid_forecast import hysteresis
from fairlead.model.commands import StartRound
from fairlead.model.job import Job, JobId, RestartCosts
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.simulator.true_jobs import JobUnderWay

# What the core is told that a restart costs of a job that is to keep its devices for now: more than any job
# is ever owed, or wins by being on one server.
UNBOUNDED_COST_S = 1e9
# Times what a start takes, for which a job keeps its devices: it trains for half of that
SPARED_STARTS = 2.0


@dataclass(frozen=True, slots=True)
class NextStart:
    """A job in the round in force: how long its start there took up to now, and how long it still takes."""

    took_s: float = 0.0
    left_s: float = 0.0


def with_starts(costs: RestartCosts, start_s: Mapping[int, float]) -> RestartCosts:
    """The costs, with those of jobs of which it is known what a start takes."""
    if not start_s:
        return costs
    known = {JobId(job): seconds for job, seconds in start_s.items()}
    return replace(costs, by_job={**costs.by_job, **known})


def assume_costs(scheduler: Scheduler, costs: RestartCosts, start_s: Mapping[int, float]) -> None:
    """Replace unbounded restart costs, by which jobs keep their devices for now, by the default cost: in a
    forecast nothing would ever lift them. What is preempted before it has trained for as long as its start
    takes has started for little: a live cluster leaves it alone."""
    spared = hysteresis(scheduler)
    for ledger in (scheduler.data.ledger, scheduler.data.paused_jobs):
        restart_s = ledger.jobs.restart_s
        restart_s[restart_s >= UNBOUNDED_COST_S] = costs.default_s
        if spared > 0 and start_s:
            known_s = [start_s.get(job, 0.0) for job in ledger.jobs.id.tolist()]
            np.maximum(restart_s, SPARED_STARTS * np.array(known_s) / spared, out=restart_s)


class RoundUnderWay(NamedTuple):
    """The round in force."""

    command: StartRound
    lasted_s: float
    row: dict[int, int]  # job in the system -> its row in the ledger


def round_under_way(s: Scheduler, now_s: float) -> RoundUnderWay | None:
    """Return the round in force; None = nothing runs."""
    command = s.data.round.in_force
    if not s.data.round.active or command is None:
        return None
    row = {job: i for i, job in enumerate(s.data.ledger.jobs.id.tolist())}
    return RoundUnderWay(command, max(now_s - command.time_s, 0.0), row)


def starts_under_way(
    s: Scheduler,
    now_s: float,
    costs: RestartCosts,
    start_s: Mapping[int, float],
    starting: Mapping[int, float],
) -> dict[int, NextStart]:
    """The jobs of the round in force. The first start of a job is free, as in the simulator, unless it is
    known what starts take: then those under way are too."""
    current = round_under_way(s, now_s)
    if current is None:
        return {}
    command, lasted_s, row = current
    out = {}
    for ids, kept in zip(command.job_groups.tolist(), command.kept.tolist(), strict=True):
        for job in ids:
            if job not in row:
                continue
            if job in start_s:
                left_s = starting.get(job, 0.0)
                out[job] = NextStart(lasted_s if left_s else 0.0, left_s)
                continue
            free = kept or s.data.ledger.runs.ran_s[row[job]] == 0
            cost_s = 0.0 if free else costs.of(_job(s, row[job]))
            took_s = min(cost_s, lasted_s)
            out[job] = NextStart(took_s, cost_s - took_s)
    return out


def as_under_way(
    s: Scheduler, starts: Mapping[int, NextStart], start_s: Mapping[int, float]
) -> list[JobUnderWay]:
    """The jobs that take part, as they are now."""
    jobs, runs = s.data.ledger.jobs, s.data.ledger.runs.ran_s
    found = []
    for row, (job, done, ran_s) in enumerate(
        zip(jobs.id.tolist(), jobs.done.tolist(), runs.tolist(), strict=True)
    ):
        begun = starts.get(job)
        started = ran_s > 0 or begun is not None or job in start_s
        start_left_s = 0.0 if begun is None else begun.left_s
        found.append(JobUnderWay(_job(s, row), done, started, start_left_s))
    return found


def _job(s: Scheduler, row: int) -> Job:
    """A job in the system as it is now. Its family is what is believed of it, if that is its own: to be
    looked up in the scheduler's table. A job that adapts, or is elastic, goes by its kinds."""
    jobs = s.data.ledger.jobs
    job = JobId(int(jobs.id[row]))
    devices = s.data.elastic.get(job, ())
    by_kind = bool(devices) or s.data.ledger.regimes.adaptation[row] is not None
    job_type = s.data.throughputs.job_types[jobs.job_type[row] if by_kind else jobs.rate_row[row]]
    return Job(
        job,
        job_type.name,
        job_type.scale_factor,
        float(jobs.total[row]),
        weight=float(jobs.weight[row]),
        adaptation=s.data.ledger.regimes.adaptation[row],
        devices=devices,
    )
