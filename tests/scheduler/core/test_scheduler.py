"""The core, told what happens event by event."""

import numpy as np
import pytest
from tests.job_types import job_types
from tests.small import core

from fairlead.errors import ProtocolError
from fairlead.model.cluster import Cluster, Node, SlotType
from fairlead.model.commands import (
    Command,
    EndJobs,
    EndRound,
    JobEnd,
    Solve,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsCancelled,
    JobsSubmitted,
    NodeLost,
    NodeRecovered,
    RoundEnded,
    Solved,
)
from fairlead.model.job import Job, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.scheduler import Scheduler

RATES = Throughputs(
    (SlotType("v100"),),
    job_types(("net", 1), ("net", 2)),
    np.array([[10.0], [18.0]]),
    None,
    "oracle",
)


def scheduler(policy: str, **nodes: int) -> Scheduler:
    """A core over named v100 nodes."""
    cluster = Cluster(tuple(Node(name, "v100", count) for name, count in nodes.items()))
    return core(cluster, RATES, policy)


def submit(*jobs: int, devices: int = 1, steps: float = 100_000, time_s: float = 0.0) -> Event:
    return JobsSubmitted(time_s, tuple(Job(JobId(j), "net", devices, steps) for j in jobs))


def handle_all(core: Scheduler, *events: Event) -> list[Command]:
    """Handle events, answering every solve; the commands of the last one."""
    commands: list[Command] = []
    for event in events:
        commands = core.handle(event)
        for command in commands:
            if isinstance(command, Solve):
                allocation = core.data.planning.planner.solve(command.snapshot, command.state)
                commands = [*commands, *core.handle(Solved.of(command.time_s, allocation))]
    return commands


def started_round(commands: list[Command]) -> StartRound:
    (found,) = [c for c in commands if isinstance(c, StartRound)]
    return found


def round_report(round_: StartRound, time_s: float, steps: float, outcome: int = 0) -> RoundEnded:
    n = len(round_.job_groups)
    return RoundEnded(
        time_s,
        round_.round,
        np.full(round_.job_groups.shape, steps),
        np.full(n, time_s),
        np.full(round_.job_groups.shape, outcome),
        np.zeros(n),
    )


@pytest.mark.parametrize("policy", ["las_aware", "fifo_perf"])
def test_a_job_starts_on_one_server_as_soon_as_it_arrives(policy: str) -> None:
    first = started_round(handle_all(scheduler(policy, a=1, b=2), submit(1, devices=2)))
    assert first.job_groups.tolist() == [[1]]
    assert first.devices.tolist() == [1, 2]  # both on node b


@pytest.mark.parametrize("policy", ["las_aware", "fifo_perf"])
def test_a_lost_node_frees_its_jobs(policy: str) -> None:
    core = scheduler(policy, a=2, b=2)
    first = started_round(handle_all(core, submit(1, devices=2)))
    assert first.devices.tolist() == [0, 1]
    assert handle_all(core, NodeLost(10.0, "a")) == [EndRound(10.0, 0)]
    second = started_round(handle_all(core, round_report(first, 10.0, 0.0, outcome=2)))
    assert second.devices.tolist() == [2, 3]
    assert not second.kept.any()


def test_a_lost_node_is_used_again_when_it_is_back() -> None:
    core = scheduler("fifo_perf", a=2)
    first = started_round(handle_all(core, submit(1, devices=2)))
    handle_all(core, NodeLost(10.0, "a"))
    assert not len(
        started_round(handle_all(core, round_report(first, 10.0, 0.0, outcome=2))).job_groups
    )
    assert started_round(handle_all(core, NodeRecovered(50.0, "a"))).devices.tolist() == [0, 1]


def test_a_round_is_cut_once_however_much_happens() -> None:
    core = scheduler("fifo_perf", a=1, b=1, c=1)
    handle_all(core, submit(1, 2))
    assert handle_all(core, NodeLost(5.0, "a")) == [EndRound(5.0, 0)]
    assert handle_all(core, NodeLost(5.0, "b")) == []


def test_a_job_that_stays_keeps_its_devices() -> None:
    core = scheduler("las_aware", a=2, b=2)
    first = started_round(handle_all(core, submit(1, devices=2)))
    handle_all(core, submit(2, time_s=50.0))
    second = started_round(handle_all(core, round_report(first, 360.0, 3600.0)))
    where = dict(zip(second.job_groups[:, 0].tolist(), second.offsets.tolist(), strict=False))
    assert second.devices[where[1] : where[1] + 2].tolist() == first.devices.tolist()
    assert second.kept.sum() == 1


def test_a_finished_job_leaves_with_the_time_of_its_finish() -> None:
    core = scheduler("las_aware", a=1)
    first = started_round(handle_all(core, submit(1, steps=100.0)))
    commands = handle_all(core, round_report(first, 10.0, 100.0))
    (left,) = [c for c in commands if isinstance(c, EndJobs)]
    assert (left.jobs.tolist(), left.end.tolist(), left.end_s.tolist()) == (
        [1],
        [JobEnd.COMPLETED],
        [10.0],
    )


def test_five_failed_attempts_in_a_row_drop_a_job() -> None:
    core = scheduler("las_aware", a=1)
    commands = handle_all(core, submit(1))
    for attempt in range(5):
        commands = handle_all(
            core, round_report(started_round(commands), 360.0 * (attempt + 1), 50.0, outcome=1)
        )
    (left,) = [c for c in commands if isinstance(c, EndJobs)]
    assert left.end.tolist() == [JobEnd.DROPPED]


def test_a_good_round_forgives_failed_attempts() -> None:
    core = scheduler("las_aware", a=1)
    commands = handle_all(core, submit(1))
    for attempt in range(12):
        outcome = 0 if attempt % 4 == 3 else 1
        commands = handle_all(
            core, round_report(started_round(commands), 360.0 * (attempt + 1), 50.0, outcome)
        )
    assert not [c for c in commands if isinstance(c, EndJobs)]


def test_two_jobs_share_one_device_evenly() -> None:
    core = scheduler("las_aware", a=1)
    commands = handle_all(core, submit(1, 2))
    ran = []
    for number in range(10):
        now = started_round(commands)
        ran += now.job_groups[:, 0].tolist()
        commands = handle_all(core, round_report(now, 360.0 * (number + 1), 3600.0))
    assert ran.count(1) == ran.count(2) == 5


def test_a_report_for_another_round_is_refused() -> None:
    core = scheduler("las_aware", a=1)
    first = started_round(handle_all(core, submit(1)))
    second = started_round(handle_all(core, round_report(first, 360.0, 3600.0)))
    with pytest.raises(ProtocolError, match="report for round 0 refused: round 1 is in force"):
        core.handle(round_report(first, 720.0, 3600.0))
    core.handle(round_report(second, 720.0, 3600.0))


def test_a_job_is_submitted_once() -> None:
    core = scheduler("las_aware", a=1)
    handle_all(core, submit(1))
    with pytest.raises(ProtocolError, match="job 1: a job with this id is in the system already"):
        core.handle(submit(1, time_s=3.0))


def test_what_is_not_there_cannot_be_cancelled_or_lost() -> None:
    core = scheduler("las_aware", a=1)
    with pytest.raises(ProtocolError, match="job 7: cannot cancel, it is not in the system"):
        core.handle(JobsCancelled(1.0, (JobId(7),)))
    with pytest.raises(ProtocolError, match="node 'z': not in the cluster"):
        core.handle(NodeLost(1.0, "z"))


def test_a_failed_solve_leaves_the_last_allocation_in_force() -> None:
    core = scheduler("las_aware", a=1)
    first = started_round(handle_all(core, submit(1)))
    core.handle(submit(2, time_s=5.0))
    solve = core.handle(round_report(first, 360.0, 3600.0))
    assert isinstance(solve[0], Solve)
    go_on = started_round(core.handle(Solved(360.0, None, "no answer in time")))
    assert go_on.job_groups.tolist() == [[1]]
