"""Jobs that fail: given up by an event, and placed elsewhere."""

import numpy as np
import pytest
from tests.job_types import job_types
from tests.scheduler.core.test_changes import ends_of_jobs, pause_jobs
from tests.scheduler.core.test_checkpoint import (
    TWO,
    devices,
    moved,
    nodes,
    setup,
)
from tests.scheduler.core.test_scheduler import (
    handle_all,
    round_report,
    scheduler,
    started_round,
    submit,
)

from fairlead.errors import ProtocolError
from fairlead.model.commands import EndRound, JobEnd
from fairlead.model.events import JobsDropped, NodeLost, NodesAvoided
from fairlead.model.job import JobId
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core import invariants
from fairlead.scheduler.journal import decode, encode
from fairlead.scheduler.setup import build

ONE = JobId(1)


def avoid(time_s: float, *names: str, job: int = 1) -> NodesAvoided:
    return NodesAvoided(time_s, JobId(job), names)


def test_a_job_is_dropped_whatever_it_does() -> None:
    core = scheduler("fifo_perf", a=1)
    handle_all(core, submit(1, 2, 3))
    handle_all(core, pause_jobs(1.0, 3))
    commands = handle_all(core, JobsDropped(2.0, (ONE, JobId(2), JobId(3))))
    assert ends_of_jobs(commands) == {1: JobEnd.DROPPED, 2: JobEnd.DROPPED, 3: JobEnd.DROPPED}
    assert EndRound(2.0, 0) in commands
    invariants.check(core)
    with pytest.raises(ProtocolError, match="job 1: cannot drop it, it is not in the system"):
        core.handle(JobsDropped(3.0, (ONE,)))


@pytest.mark.parametrize("policy", ["las_aware", "fifo_perf"])
def test_a_job_is_placed_off_the_nodes_that_it_avoids(policy: str) -> None:
    core = scheduler(policy, a=1, b=1)
    first = started_round(handle_all(core, submit(1)))
    assert first.devices.tolist() == [0]
    core.handle(avoid(5.0, "a", "no such node"))
    second = started_round(handle_all(core, round_report(first, 360.0, 0.0, outcome=2)))
    assert second.devices.tolist() == [1]
    assert not second.kept.any()
    third = started_round(handle_all(core, round_report(second, 720.0, 10.0)))
    assert third.kept.all()
    core.handle(avoid(730.0))
    assert not core.data.running.avoids


def test_a_job_that_avoids_all_nodes_runs_where_it_can() -> None:
    core = scheduler("fifo_perf", a=1)
    first = started_round(handle_all(core, submit(1)))
    core.handle(avoid(5.0, "a"))
    assert started_round(
        handle_all(core, round_report(first, 360.0, 0.0, outcome=2))
    ).devices.tolist() == [0]


def test_two_that_failed_change_places_although_both_come_back_to_their_devices() -> None:
    core = scheduler("fifo_perf", a=1, b=1)
    first = started_round(handle_all(core, submit(1, 2)))
    assert first.devices.tolist() == [0, 1]
    handle_all(core, avoid(5.0, "a"), avoid(5.0, "b", job=2), pause_jobs(6.0, 1, 2))
    handle_all(core, round_report(first, 6.5, 0.0, outcome=2))
    second = started_round(handle_all(core, pause_jobs(7.0, 1, 2, paused=False)))
    assert second.job_groups.tolist() == [[1], [2]]
    assert second.devices.tolist() == [1, 0]


def test_what_a_job_avoids_is_forgotten_with_it() -> None:
    core = scheduler("fifo_perf", a=1, b=1)
    handle_all(core, submit(1, 2))
    handle_all(core, avoid(1.0, "a"), avoid(1.0, "a", job=2), pause_jobs(1.5, 2))
    handle_all(core, JobsDropped(2.0, (ONE, JobId(2))))
    assert not core.data.running.avoids
    with pytest.raises(ProtocolError, match="job 1: cannot avoid nodes"):
        core.handle(avoid(3.0, "a"))


def test_what_a_job_avoids_survives_a_change_of_hands() -> None:
    core = build(setup(nodes(b=1)))
    first = started_round(handle_all(core, submit(1)))
    core.handle(avoid(5.0, "b"))
    core = moved(core, setup(nodes(a=1, b=1)))
    handle_all(core, round_report(first, 10.0, 0.0, outcome=2))
    assert devices(core) == {1: [("a", 0)]}


@pytest.mark.parametrize("event", [JobsDropped(2.0, (ONE,)), avoid(1.0, "a", "b")])
def test_the_journal_has_them(event: JobsDropped | NodesAvoided) -> None:
    assert decode(encode(event)) == event


@pytest.mark.parametrize("policy", ["las_aware", "fifo_perf"])
def test_a_job_leaves_the_only_node_of_a_type_where_others_are_free(policy: str) -> None:
    core = build(setup(nodes(a=1, k=1), policy))
    first = started_round(handle_all(core, submit(1)))
    assert devices(core) == {1: [("a", 0)]}
    core.handle(avoid(5.0, "a"))
    second = started_round(handle_all(core, round_report(first, 10.0, 0.0, outcome=2)))
    assert devices(core) == {1: [("k", 0)]}
    third = started_round(handle_all(core, round_report(second, 370.0, 10.0)))
    assert third.kept.all(), "it stays there"
    handle_all(core, NodeLost(375.0, "k"))
    handle_all(core, round_report(third, 375.0, 0.0, outcome=2))
    assert devices(core) == {1: [("a", 0)]}, "a wish is no ban"
    invariants.check(core)


def test_a_job_leaves_its_node_for_no_other_type_while_its_own_has_room() -> None:
    core = build(setup(nodes(a=1, b=1, k=1)))
    first = started_round(handle_all(core, submit(1)))
    core.handle(avoid(5.0, "a"))
    handle_all(core, round_report(first, 10.0, 0.0, outcome=2))
    assert devices(core) == {1: [("b", 0)]}


def test_a_job_does_not_go_where_it_has_no_rate() -> None:
    table = Throughputs(
        TWO.slots,
        job_types(
            ("net", 1),
        ),
        np.array([[0.0, 10.0]]),
        None,
    )
    core = build(setup(nodes(a=1, k=1), table=table))
    first = started_round(handle_all(core, submit(1)))
    core.handle(avoid(5.0, "a"))
    handle_all(core, round_report(first, 10.0, 0.0, outcome=2))
    assert devices(core) == {1: [("a", 0)]}
