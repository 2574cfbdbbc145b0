"""Events of a live cluster: corrections, weights, pauses, rates that were learned."""

import numpy as np
import pytest
from tests.job_types import job_types
from tests.scheduler.core.test_scheduler import (
    RATES,
    handle_all,
    round_report,
    scheduler,
    started_round,
    submit,
)

from fairlead.errors import ProtocolError
from fairlead.model.cluster import SlotType
from fairlead.model.commands import (
    Command,
    EndJobs,
    EndRound,
    JobEnd,
)
from fairlead.model.events import (
    JobsCancelled,
    JobsPaused,
    JobsReweighted,
    JobsSubmitted,
    JobTypesLearned,
    ProgressCorrected,
    RestartCostsLearned,
    Stalled,
)
from fairlead.model.job import Job, JobId
from fairlead.scheduler.core import invariants
from fairlead.scheduler.core.paused_jobs import accounts_of
from fairlead.scheduler.core.scheduler import Scheduler


def corrected(time_s: float, **done: float) -> ProgressCorrected:
    ids = np.array([int(name[1:]) for name in done], np.int64)
    return ProgressCorrected(time_s, ids, np.array(list(done.values())))


def pause_jobs(time_s: float, *jobs: int, paused: bool = True) -> JobsPaused:
    return JobsPaused(time_s, np.array(jobs, np.int64), paused)


def done(core: Scheduler, job: int) -> float:
    return float(core.data.ledger.jobs.done[core.data.ledger.row(JobId(job))])


def ends_of_jobs(commands: list[Command]) -> dict[int, int]:
    return {
        job: end
        for command in commands
        if isinstance(command, EndJobs)
        for job, end in zip(command.jobs.tolist(), command.end.tolist(), strict=True)
    }


# --- corrections ---------------------------------------------------------------------------------


def test_a_correction_of_a_running_job_holds_at_once_and_its_round_adds_to_it() -> None:
    core = scheduler("fifo_perf", a=1)
    first = started_round(handle_all(core, submit(1)))
    second = started_round(handle_all(core, round_report(first, 360.0, 3600.0)))
    handle_all(core, corrected(400.0, j1=1000.0))
    assert done(core, 1) == 1000.0
    handle_all(core, round_report(second, 720.0, 3500.0))
    assert done(core, 1) == 4500.0


def test_a_running_job_that_was_corrected_to_its_end_leaves_with_its_round() -> None:
    core = scheduler("fifo_perf", a=1)
    first = started_round(handle_all(core, submit(1, steps=5000.0)))
    assert handle_all(core, corrected(100.0, j1=5000.0)) == []
    invariants.check(core)
    lost = round_report(first, 200.0, 0.0, outcome=2)  # whatever became of the round
    assert ends_of_jobs(handle_all(core, lost)) == {1: JobEnd.COMPLETED}


def test_the_last_steps_of_a_job_that_was_stopped_come_late() -> None:
    core = scheduler("las_aware", a=1)
    first = started_round(handle_all(core, submit(1, 2, steps=3700.0)))
    (out,) = first.job_groups[:, 0].tolist()
    handle_all(core, round_report(first, 360.0, 3600.0))
    commands = handle_all(core, corrected(361.0, **{f"j{out}": 3700.0}))
    assert ends_of_jobs(commands) == {out: JobEnd.COMPLETED}
    assert JobId(out) not in core.data.ledger


def test_a_correction_of_a_job_that_has_left_is_passed_over() -> None:
    core = scheduler("fifo_perf", a=1)
    handle_all(core, submit(1))
    assert handle_all(core, corrected(5.0, j7=3.0)) == []


# --- weights -------------------------------------------------------------------------------------


def test_a_new_weight_changes_shares_at_the_next_round() -> None:
    core = scheduler("las_aware", a=1)
    commands = handle_all(core, submit(1, 2))
    handle_all(core, JobsReweighted(1.0, np.array([2]), np.array([3.0])))
    ran = []
    for number in range(20):
        now = started_round(commands)
        ran += now.job_groups[:, 0].tolist()
        commands = handle_all(core, round_report(now, 360.0 * (number + 1), 360.0))
    assert ran.count(2) == pytest.approx(15, abs=1)


def test_a_weight_that_is_none_is_refused_and_changes_nothing() -> None:
    core = scheduler("las_aware", a=1)
    handle_all(core, submit(1, 2))
    with pytest.raises(ProtocolError, match=r"job 2: its weight must be a number > 0, got -1.0"):
        core.handle(JobsReweighted(1.0, np.array([1, 2]), np.array([2.0, -1.0])))
    with pytest.raises(ProtocolError, match="job 9: cannot change its weight, it is not in the"):
        core.handle(JobsReweighted(1.0, np.array([1, 9]), np.array([2.0, 2.0])))
    assert core.data.ledger.jobs.weight.tolist() == [1.0, 1.0]


# --- pauses --------------------------------------------------------------------------------------


def test_a_held_job_gives_way_and_comes_back_with_what_it_had() -> None:
    core = scheduler("fifo_perf", a=1)
    first = started_round(handle_all(core, submit(1, 2)))
    assert first.job_groups.tolist() == [[1]]
    assert handle_all(core, pause_jobs(100.0, 1)) == [EndRound(100.0, 0)]
    second = started_round(handle_all(core, round_report(first, 110.0, 1100.0)))
    assert second.job_groups.tolist() == [[2]]
    invariants.check(core)
    handle_all(core, pause_jobs(200.0, 1, paused=False))
    assert core.data.ledger.jobs.id.tolist() == [1, 2]  # in order of ids
    assert done(core, 1) == 1100.0
    assert core.data.ledger.jobs.arrival_s[0] == 0.0
    third = started_round(handle_all(core, round_report(second, 470.0, 3600.0)))
    assert third.job_groups.tolist() == [[1]]
    invariants.check(core)


def test_a_job_that_is_let_go_before_its_round_ends_was_never_held() -> None:
    core = scheduler("fifo_perf", a=1)
    first = started_round(handle_all(core, submit(1)))
    handle_all(core, pause_jobs(100.0, 1), pause_jobs(101.0, 1, paused=False))
    assert started_round(
        handle_all(core, round_report(first, 110.0, 1100.0))
    ).job_groups.tolist() == [[1]]


def test_held_jobs_can_be_withdrawn_reweighed_and_corrected() -> None:
    core = scheduler("las_aware", a=1)
    handle_all(core, submit(1, 2, 3, steps=500.0))
    handle_all(core, pause_jobs(10.0, 1, 2, 3))
    first = core.data.round.in_force
    assert first is not None
    handle_all(core, round_report(first, 11.0, 100.0))
    assert core.data.paused_jobs.jobs.id.tolist() == [1, 2, 3]
    handle_all(core, JobsReweighted(12.0, np.array([1]), np.array([4.0])))
    assert core.data.paused_jobs.jobs.weight.tolist() == [4.0, 1.0, 1.0]
    assert ends_of_jobs(handle_all(core, corrected(13.0, j2=500.0))) == {2: JobEnd.COMPLETED}
    assert ends_of_jobs(handle_all(core, JobsCancelled(14.0, (JobId(3),)))) == {3: JobEnd.CANCELLED}
    assert core.data.paused_jobs.jobs.id.tolist() == [1]
    assert started_round(
        handle_all(core, pause_jobs(15.0, 1, paused=False))
    ).job_groups.tolist() == [[1]]
    with pytest.raises(ProtocolError, match="job 8: cannot pause it, it is not in the system"):
        core.handle(pause_jobs(16.0, 8))


def test_the_id_of_a_held_job_is_taken() -> None:
    core = scheduler("fifo_perf", a=1)
    handle_all(core, submit(5, 7))
    handle_all(core, pause_jobs(1.0, 7))
    with pytest.raises(ProtocolError, match="job 7: a job with this id is in the system already"):
        core.handle(submit(7))


def test_a_job_may_come_after_jobs_with_larger_ids() -> None:
    core = scheduler("fifo_perf", a=1)
    first = started_round(handle_all(core, submit(5, 7)))
    handle_all(core, submit(6))
    assert core.data.ledger.jobs.id.tolist() == [5, 6, 7]
    invariants.check(core)
    handle_all(core, round_report(first, 360.0, 100_000.0))
    assert core.data.ledger.jobs.id.tolist() == [6, 7]


def test_a_held_job_is_owed_what_it_was_owed_and_no_more() -> None:
    """Two jobs share a device; one is held for long. It does not get the device for as long after."""
    core = scheduler("las_aware", a=1)
    commands = handle_all(core, submit(1, 2))
    ran: list[int] = []
    for number in range(60):
        now = started_round(commands)
        ran += now.job_groups[:, 0].tolist()
        time_s = 360.0 * (number + 1)
        if number == 9:
            handle_all(core, pause_jobs(time_s - 1.0, 2))
        if number == 39:
            handle_all(core, pause_jobs(time_s - 1.0, 2, paused=False))
        commands = handle_all(core, round_report(now, time_s, 360.0))
    assert ran[:10].count(2) == 5
    assert set(ran[10:40]) == {1}
    assert ran[40:].count(2) == pytest.approx(10, abs=1)


# --- rates ---------------------------------------------------------------------------------------

V100 = (SlotType("v100"),)


def test_a_family_that_is_learned_can_be_submitted() -> None:
    core = scheduler("fifo_perf", a=2)
    with pytest.raises(ProtocolError, match="no rate for 'own' at scale factor 1"):
        core.handle(submit_own(0.0))
    handle_all(
        core,
        JobTypesLearned(
            1.0,
            job_types(
                ("own", 1),
            ),
            V100,
            np.array([[7.0]]),
        ),
    )
    assert started_round(handle_all(core, submit_own(2.0))).job_groups.tolist() == [[1]]
    assert core.data.ledger.groups.rate[:, 0, 0].tolist() == [7.0]


def submit_own(time_s: float) -> JobsSubmitted:
    return JobsSubmitted(time_s, (Job(JobId(1), "own", 1, 100.0),))


def submit_three() -> JobsSubmitted:
    sizes = {1: 2, 2: 2, 3: 1}
    jobs = [Job(JobId(number), "net", scale, 100_000.0) for number, scale in sizes.items()]
    return JobsSubmitted(0.0, tuple(jobs))


def test_jobs_follow_rates_that_are_learned() -> None:
    core = scheduler("las_aware", a=2)
    first = started_round(handle_all(core, submit_three()))
    handle_all(core, pause_jobs(1.0, 1, 3))
    second = started_round(handle_all(core, round_report(first, 2.0, 0.0)))
    handle_all(
        core,
        JobTypesLearned(3.0, job_types(("net", 2), ("net", 1)), V100, np.array([[15.0], [9.0]])),
    )
    assert core.data.ledger.groups.rate[:, 0, 0].tolist() == [15.0]
    assert core.data.paused_jobs.groups.rate[:, 0, 0].tolist() == [15.0, 9.0]
    handle_all(core, round_report(second, 360.0, 100.0))
    assert RATES.rate.tolist() == [[10.0], [18.0]]  # the table that it began with is another's


def test_rates_that_cannot_be_are_refused() -> None:
    core = scheduler("las_aware", a=2)
    for slots, rate, words in (
        ((SlotType("k80"),), 1.0, "there is no slot type 'k80'"),
        (V100, -2.0, "must be a finite number >= 0, got -2.0"),
    ):
        with pytest.raises(ProtocolError, match=words):
            core.handle(
                JobTypesLearned(
                    1.0,
                    job_types(
                        ("own", 1),
                    ),
                    slots,
                    np.array([[rate]]),
                )
            )


def test_a_stall_leaves_what_jobs_are_owed_as_it_was() -> None:
    """Time since the accounts were settled does not count from the beginning again."""
    core = scheduler("las_aware", a=1)
    commands = handle_all(core, submit(1, 2))
    for number in range(10):
        commands = handle_all(
            core, round_report(started_round(commands), 36_000.0 + 360.0 * number, 360.0)
        )
    before = accounts_of(core.data, 40_000.0).deficit_s.copy()
    core.data.round.active = False
    core.handle(Stalled(40_000.0))
    assert accounts_of(core.data, 40_000.0).deficit_s == pytest.approx(before)


# --- costs of restarts ---------------------------------------------------------------------------


def test_a_job_whose_restart_costs_much_stays_where_it_runs() -> None:
    turns = {}
    for cost_s in (0.0, 1e6):
        core = scheduler("las_aware", a=1)
        commands = handle_all(core, submit(1, 2))
        first = started_round(commands).job_groups[0, 0]
        told = RestartCostsLearned(1.0, np.array([first, 99]), np.array([cost_s, 1.0]))
        assert core.handle(told) == []
        ran = []
        for number in range(10):
            now = started_round(commands)
            ran += now.job_groups[:, 0].tolist()
            commands = handle_all(core, round_report(now, 360.0 * (number + 1), 1.0))
        turns[cost_s] = set(ran)
    assert turns[0.0] == {1, 2}
    assert len(turns[1e6]) == 1


def test_a_cost_that_is_none_is_refused() -> None:
    core = scheduler("las_aware", a=1)
    handle_all(core, submit(1))
    with pytest.raises(ProtocolError, match="restart costs must be finite"):
        core.handle(RestartCostsLearned(1.0, np.array([1]), np.array([-1.0])))
