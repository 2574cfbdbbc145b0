"""A job that was held while it ran goes back to the devices that it had, if nobody else is there."""

from tests.scheduler.core.test_changes import pause_jobs
from tests.scheduler.core.test_scheduler import (
    handle_all,
    round_report,
    scheduler,
    started_round,
    submit,
)

from fairlead.model.events import (
    JobsCancelled,
    NodeLost,
    NodeRecovered,
)
from fairlead.model.job import JobId
from fairlead.scheduler.core import invariants


def test_it_goes_back_to_where_it_was() -> None:
    core = scheduler("fifo_perf", a=1, b=1, c=1)
    first = started_round(handle_all(core, submit(1, 2)))
    assert first.devices.tolist() == [0, 1]
    handle_all(core, NodeLost(5.0, "b"), pause_jobs(5.0, 2))
    second = started_round(handle_all(core, round_report(first, 6.0, 0.0)))
    assert second.devices.tolist() == [0]
    handle_all(core, pause_jobs(7.0, 2, paused=False), NodeRecovered(7.0, "b"))
    third = started_round(handle_all(core, round_report(second, 8.0, 0.0)))
    where = dict(zip(third.job_groups[:, 0].tolist(), third.devices.tolist(), strict=True))
    assert where == {1: 0, 2: 1}
    assert third.kept.all()
    assert not core.data.running.remembered
    invariants.check(core)


def test_it_goes_elsewhere_where_another_has_them_now() -> None:
    core = scheduler("fifo_perf", a=1, b=1, c=1)
    first = started_round(handle_all(core, submit(1, 2)))
    handle_all(core, pause_jobs(5.0, 1), submit(3, time_s=5.5))
    second = started_round(handle_all(core, round_report(first, 6.0, 0.0)))
    where = dict(zip(second.job_groups[:, 0].tolist(), second.devices.tolist(), strict=True))
    assert where == {2: 1, 3: 0}
    handle_all(core, pause_jobs(8.0, 1, paused=False))
    third = started_round(handle_all(core, round_report(second, 9.0, 0.0)))
    where = dict(zip(third.job_groups[:, 0].tolist(), third.devices.tolist(), strict=True))
    assert where == {1: 2, 2: 1, 3: 0}
    invariants.check(core)


def test_nothing_is_noted_of_jobs_that_leave() -> None:
    core = scheduler("fifo_perf", a=1, b=1)
    first = started_round(handle_all(core, submit(1, 2)))
    handle_all(core, pause_jobs(5.0, 2), round_report(first, 6.0, 0.0))
    assert core.data.running.remembered
    handle_all(core, JobsCancelled(7.0, (JobId(2),)))
    assert not core.data.running.remembered


def test_it_comes_back_while_the_round_of_the_last_other_job_has_yet_to_end() -> None:
    core = scheduler("las_aware", a=1, b=1)
    first = started_round(handle_all(core, submit(1, 2)))
    handle_all(core, pause_jobs(5.0, 2))
    second = started_round(handle_all(core, round_report(first, 6.0, 0.0)))
    handle_all(core, JobsCancelled(6.5, (JobId(1),)))
    handle_all(core, pause_jobs(7.0, 2, paused=False))
    third = started_round(handle_all(core, round_report(second, 8.0, 0.0)))
    assert third.job_groups.tolist() == [[2]]
    invariants.check(core)
