"""A job that was held while it ran goes back to the devices that it had, if nobody else is there."""

from tests.scheduler.core.test_changes import hold
from tests.scheduler.core.test_scheduler import (
    ended,
    run,
    scheduler,
    start,
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
    first = start(run(core, submit(1, 2)))
    assert first.devices.tolist() == [0, 1]
    run(core, NodeLost(5.0, "b"), hold(5.0, 2))
    second = start(run(core, ended(first, 6.0, 0.0)))
    assert second.devices.tolist() == [0]
    run(core, hold(7.0, 2, held=False), NodeRecovered(7.0, "b"))
    third = start(run(core, ended(second, 8.0, 0.0)))
    where = dict(zip(third.job_groups[:, 0].tolist(), third.devices.tolist(), strict=True))
    assert where == {1: 0, 2: 1}
    assert third.kept.all()
    assert not core.data.running.paused_on
    invariants.check(core)


def test_it_goes_elsewhere_where_another_has_them_now() -> None:
    core = scheduler("fifo_perf", a=1, b=1, c=1)
    first = start(run(core, submit(1, 2)))
    run(core, hold(5.0, 1), submit(3, time_s=5.5))
    second = start(run(core, ended(first, 6.0, 0.0)))
    where = dict(zip(second.job_groups[:, 0].tolist(), second.devices.tolist(), strict=True))
    assert where == {2: 1, 3: 0}
    run(core, hold(8.0, 1, held=False))
    third = start(run(core, ended(second, 9.0, 0.0)))
    where = dict(zip(third.job_groups[:, 0].tolist(), third.devices.tolist(), strict=True))
    assert where == {1: 2, 2: 1, 3: 0}
    invariants.check(core)


def test_nothing_is_noted_of_jobs_that_leave() -> None:
    core = scheduler("fifo_perf", a=1, b=1)
    first = start(run(core, submit(1, 2)))
    run(core, hold(5.0, 2), ended(first, 6.0, 0.0))
    assert set(core.data.running.paused_on) == {2}
    run(core, JobsCancelled(7.0, (JobId(2),)))
    assert not core.data.running.paused_on


def test_it_comes_back_while_the_round_of_the_last_other_job_has_yet_to_end() -> None:
    core = scheduler("las_aware", a=1, b=1)
    first = start(run(core, submit(1, 2)))
    run(core, hold(5.0, 2))
    second = start(run(core, ended(first, 6.0, 0.0)))
    run(core, JobsCancelled(6.5, (JobId(1),)))
    run(core, hold(7.0, 2, held=False))
    third = start(run(core, ended(second, 8.0, 0.0)))
    assert third.job_groups.tolist() == [[2]]
    invariants.check(core)
