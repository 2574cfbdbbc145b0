"""A job that was preempted goes back to the devices that it had, where starts cost less there."""

import pytest
from tests.scheduler.core.test_scheduler import (
    RATES,
    handle_all,
    round_report,
    started_round,
    submit,
)

from fairlead.model.cluster import Cluster, Node
from fairlead.model.commands import StartRound
from fairlead.policies import registry
from fairlead.scheduler.core import invariants
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import planner_of


def _scheduler(*, preempted_return: bool) -> Scheduler:
    cluster = Cluster((Node("a", "v100", 1), Node("b", "v100", 1)))
    planner = planner_of(
        registry.make("las_aware", seed=0, profile="default"), "las_aware", 0, DEFAULT
    )
    return Scheduler(cluster, RATES, planner, DEFAULT, preempted_return=preempted_return)


def _where(started: StartRound) -> dict[int, int]:
    return dict(zip(started.job_groups[:, 0].tolist(), started.devices.tolist(), strict=True))


@pytest.mark.parametrize("preempted_return", [True, False])
def test_jobs_that_take_turns(preempted_return: bool) -> None:
    core = _scheduler(preempted_return=preempted_return)
    started = started_round(handle_all(core, submit(1, 2, 3, 4)))
    places: dict[int, set[int]] = {}
    turns = 0
    now_s = 0.0
    for _ in range(30):
        for job, device in _where(started).items():
            places.setdefault(job, set()).add(device)
        kept = dict(zip(started.job_groups[:, 0].tolist(), started.kept.tolist(), strict=True))
        before = set(kept)
        now_s += DEFAULT.round_s
        started = started_round(handle_all(core, round_report(started, now_s, 0.0)))
        stays = dict(zip(started.job_groups[:, 0].tolist(), started.kept.tolist(), strict=True))
        turns += len(before - set(stays))
        assert not any(stays[job] for job in set(stays) - before), "who comes back has to start"
        invariants.check(core)
    assert turns >= 10
    if preempted_return:
        assert all(len(devices) == 1 for devices in places.values()), "each has its own device"
