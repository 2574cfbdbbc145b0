"""Devices that programs hold which were told to leave them: job groups get others, where there are any."""

import numpy as np
import pytest
from tests import small
from tests.job_types import job_types
from tests.scheduler.core.test_changes import pause_jobs
from tests.scheduler.core.test_scheduler import (
    handle_all,
    round_report,
    scheduler,
    started_round,
    submit,
)

from fairlead.model.cluster import Cluster, Node, SlotType
from fairlead.model.commands import StartRound
from fairlead.model.events import DevicesOccupied, NodeLost, NodeRecovered
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.checkpoint import take_checkpoint
from fairlead.scheduler.core.restore import restore_into
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.journal import decode, encode


def devices_of(round_: StartRound, job: int) -> list[int]:
    """The devices of a job in a round, by their ids."""
    row = round_.job_groups[:, 0].tolist().index(job)
    devices: list[int] = round_.devices[round_.offsets[row] : round_.offsets[row + 1]].tolist()
    return devices


def occupied(time_s: float, *devices: tuple[str, int]) -> DevicesOccupied:
    return DevicesOccupied(time_s, devices)


@pytest.mark.parametrize("nodes", [{"a": 2}, {"a": 1, "b": 1}])
@pytest.mark.parametrize("policy", ["las_aware", "fifo_perf"])
def test_a_job_starts_on_a_device_that_is_free(policy: str, nodes: dict[str, int]) -> None:
    core = scheduler(policy, **nodes)
    first = started_round(handle_all(core, submit(1)))
    (held,) = devices_of(first, 1)
    where = ("a", held) if len(nodes) == 1 else ("ab"[held], 0)
    core.handle(occupied(300.0, where))
    handle_all(core, pause_jobs(300.0, 1), round_report(first, 300.0, 1.0))
    second = started_round(handle_all(core, submit(2, time_s=301.0)))
    assert devices_of(second, 2) == [1 - held]


def test_who_waits_for_an_occupied_device_gets_another_once_there_is_one() -> None:
    core = scheduler("las_aware", a=1, b=1)
    handle_all(core, NodeLost(0.0, "b"))
    now = started_round(handle_all(core, submit(1)))
    assert devices_of(now, 1) == [0]
    core.handle(occupied(300.0, ("a", 0)))
    now = started_round(handle_all(core, round_report(now, 360.0, 0.0)))
    assert devices_of(now, 1) == [0]  # there is no other
    handle_all(core, NodeRecovered(400.0, "b"))
    now = started_round(handle_all(core, round_report(now, 720.0, 0.0)))
    assert devices_of(now, 1) == [1]
    assert not now.kept.any()
    core.handle(occupied(800.0))
    now = started_round(handle_all(core, round_report(now, 1080.0, 0.0)))
    assert devices_of(now, 1) == [1]
    assert now.kept.all()


def test_a_gang_gets_free_devices_as_a_whole_or_stays() -> None:
    core = scheduler("las_aware", a=4)
    now = started_round(handle_all(core, submit(1, devices=2)))
    first = devices_of(now, 1)
    core.handle(occupied(300.0, *(("a", device) for device in first[:1])))
    now = started_round(handle_all(core, round_report(now, 360.0, 0.0)))
    assert len(devices_of(now, 1)) == 2
    assert first[0] not in devices_of(now, 1)
    core.handle(occupied(600.0, ("a", 0), ("a", 1), ("a", 2)))
    after = started_round(handle_all(core, round_report(now, 720.0, 0.0)))
    assert devices_of(after, 1) == devices_of(now, 1)


def test_what_is_not_in_the_cluster_is_ignored() -> None:
    core = scheduler("las_aware", a=1)
    core.handle(occupied(0.0, ("gone", 0), ("a", 7)))
    assert devices_of(started_round(handle_all(core, submit(1))), 1) == [0]


def test_it_outlives_a_checkpoint_and_the_journal() -> None:
    core = scheduler("las_aware", a=2)
    event = occupied(1.0, ("a", 0))
    assert decode(encode(event)) == event
    core.handle(event)
    other: Scheduler = scheduler("las_aware", a=2)
    restore_into(other.data, take_checkpoint(core.data))
    assert other.data.occupied == (("a", 0),)
    assert devices_of(started_round(handle_all(other, submit(1))), 1) == [1]


def test_a_job_goes_to_another_type_before_it_waits() -> None:
    nodes = (Node("a", "v100", 1), Node("k", "k80", 1))
    slots = SlotType("v100"), SlotType("k80")
    table = Throughputs(slots, job_types(("net", 1)), np.array([[10.0, 1.0]]))
    made = small.core(Cluster(nodes), table, "las_aware")
    now = started_round(handle_all(made, submit(1)))
    (fast,) = devices_of(now, 1)
    assert made.data.cluster.accelerators[fast] == "v100"
    made.handle(occupied(300.0, ("a", 0)))
    now = started_round(handle_all(made, round_report(now, 360.0, 0.0)))
    assert devices_of(now, 1) == [1 - fast]
