"""Gandiva and jobs that lose their work when they are stopped."""

import numpy as np

from fairlead.model.events import RestartCostsLearned
from tests.scheduler.core.test_scheduler import (
    handle_all,
    round_report,
    scheduler,
    started_round,
    submit,
)

ROUND_S = 360.0


def turns(rounds: int, lost_s: float) -> list[int]:
    """Who runs in each round, of two jobs with one device. lost_s: of each second that a job has run since
    its start, what it loses if it is stopped."""
    core, ran, since = scheduler("gandiva", a=1), list[int](), 0
    commands = handle_all(core, submit(1, 2))
    for number in range(1, rounds + 1):
        now, time_s = started_round(commands), number * ROUND_S
        job = int(now.job_groups[0, 0])
        if ran and ran[-1] != job:
            since = number - 1
        ran.append(job)
        cost_s = [0.0, 0.0]
        cost_s[job - 1] = lost_s * (number - since) * ROUND_S
        core.handle(RestartCostsLearned(time_s, np.array([1, 2]), np.array(cost_s)))
        commands = handle_all(core, round_report(now, time_s, 360.0))
    return ran


def test_two_jobs_take_turns_and_a_job_that_starts_over_runs_to_its_end() -> None:
    """It ran for a round and was stopped for the other, which lost its round for it, and so on for ever."""
    assert len(set(turns(2, lost_s=0.0))) == 2
    assert len(set(turns(12, lost_s=1.0))) == 1


def test_what_is_lost_is_reckoned_a_little_old() -> None:
    assert len(set(turns(12, lost_s=0.8))) == 1


def test_a_job_that_loses_little_takes_turns() -> None:
    assert len(set(turns(12, lost_s=0.1))) == 2
