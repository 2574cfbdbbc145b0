"""Gandiva's planner, in whole runs on the simulator."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fairlead.analysis.simulate import simulate
from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.commands import Command, StartRound
from fairlead.model.events import Event
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.policies.gandiva.planner import Gandiva
from fairlead.policies.gandiva_packing import GandivaPacking
from fairlead.scheduler.driver import drive
from fairlead.scheduler.journal import replay
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import Setup, build
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.ground_truth import GroundTruth
from tests.job_types import job_types

SCALES = (1, 2, 4)
ROUND_S = 360.0


def table(beside: float = 0.0, scattered: float = 0.5) -> Throughputs:
    """One step a second, for one, two or four devices; beside: the rate of each of two jobs."""
    slots = (SlotType("x"), SlotType("x", Locality.SCATTERED))
    rate = np.tile([1.0, scattered], (len(SCALES), 1))
    rate[0] = 1.0
    pair = np.zeros((len(SCALES), len(SCALES), 2))
    for k in range(len(SCALES)):
        pair[k, k] = beside * rate[k]
    return Throughputs(slots, job_types(*(("net", scale) for scale in SCALES)), rate, pair)


def job(number: int, scale: int = 1, hours: float = 10.0, weight: float = 1.0) -> Job:
    return Job(JobId(number), "net", scale, hours * 3600, weight=weight)


class Rounds:
    """Who ran where: an observer."""

    def __init__(self) -> None:
        self.commands: list[StartRound] = []

    def event(self, event: Event) -> None: ...

    def command(self, command: Command) -> None:
        if isinstance(command, StartRound):
            self.commands.append(command)

    def groups(self, number: int) -> list[tuple[int, ...]]:
        """The job groups of a round, ascending."""
        ids = self.commands[number].job_groups
        return sorted(tuple(int(j) for j in row if j >= 0) for row in ids)

    def nodes(self, number: int, per_node: int = 4) -> dict[tuple[int, ...], list[int]]:
        """The nodes of the devices of each job group of a round."""
        command, found = self.commands[number], {}
        for k, row in enumerate(command.job_groups):
            devices = command.devices[command.offsets[k] : command.offsets[k + 1]]
            found[tuple(int(j) for j in row if j >= 0)] = (devices // per_node).tolist()
        return found

    def ran(self, number: int) -> int:
        """How many rounds a job was in."""
        return sum(bool((one.job_groups == number).any()) for one in self.commands)


def run(
    jobs: list[tuple[float, Job]],
    devices: int,
    policy: str = "gandiva",
    *,
    believed: Throughputs | None = None,
    true: Throughputs | None = None,
    costs: RestartCosts | None = None,
    stop_at_s: float | None = None,
) -> Rounds:
    """A run on servers of four devices."""
    cluster = Cluster.of({"x": devices}, 4)
    believed = believed or table()
    costs = costs or RestartCosts()
    setup = Setup(
        version="",
        cluster=cluster,
        throughputs=believed.on(cluster),
        policy=policy,
        settings=DEFAULT,
        seed=0,
        restart_costs=costs,
    )
    scheduler, seen = build(setup), Rounds()
    backend = SimBackend(
        [Arrival(time_s, one) for time_s, one in jobs],
        cluster,
        true or believed,
        scheduler.data.planning.planner.solve,
        GroundTruth(restart_costs=costs),
        stop_at_s=stop_at_s,
    )
    drive(scheduler, backend, [seen])
    if stop_at_s is not None:
        seen.commands.pop()  # the round that would have been next
    return seen


def test_six_jobs_on_four_devices_get_two_thirds_each() -> None:
    seen = run([(0.0, job(i)) for i in range(6)], 4, stop_at_s=90 * ROUND_S)
    assert [seen.ran(i) for i in range(6)] == [60] * 6
    assert all(len(seen.groups(k)) == 4 for k in range(90))


def test_turns_follow_weights() -> None:
    weights = (3.0, 1.0, 1.0, 1.0)
    jobs = [(0.0, job(i, 4, weight=weight)) for i, weight in enumerate(weights)]
    seen = run(jobs, 4, stop_at_s=60 * ROUND_S)
    assert seen.ran(0) == pytest.approx(30, abs=1)
    assert [seen.ran(i) for i in (1, 2, 3)] == pytest.approx([10] * 3, abs=1)


def test_jobs_of_one_size_share_servers() -> None:
    sizes = [1, 4, 1, 2, 1, 2, 1]
    seen = run([(float(i), job(i, size)) for i, size in enumerate(sizes)], 12)
    nodes = seen.nodes(1)
    assert {nodes[(i,)][0] for i in (0, 2, 4, 6)} == set(nodes[(0,)])
    assert nodes[(3,)] + nodes[(5,)] == [nodes[(3,)][0]] * 4
    assert len({nodes[(i,)][0] for i in (0, 1, 3)}) == 3


def test_a_large_job_takes_turns_with_its_like_and_not_with_small_ones() -> None:
    sizes = [4, 1, 1, 1, 1, 4]
    seen = run([(0.0, job(i, size)) for i, size in enumerate(sizes)], 8, stop_at_s=20 * ROUND_S)
    assert [seen.ran(i) for i in (1, 2, 3, 4)] == [20] * 4
    assert abs(seen.ran(0) - seen.ran(5)) <= 2


def test_a_job_in_the_queue_is_served_at_last() -> None:
    """No server has jobs of its size, and all are full for ever."""
    jobs = [(0.0, job(i)) for i in range(4)] + [(1.0, job(4, 4))]
    seen = run(jobs, 4, stop_at_s=30 * ROUND_S)
    first = next(k for k in range(30) if (4,) in seen.groups(k))
    assert 5 <= first <= 15
    assert seen.ran(4) >= 0.4 * (30 - first)


def test_without_slicing_jobs_wait_in_the_queue() -> None:
    jobs = [(0.0, job(i, 1, 1.0)) for i in range(6)]
    seen = run(jobs, 4, "gandiva:no-slicing")
    assert all(seen.groups(k) == [(0,), (1,), (2,), (3,)] for k in range(10))
    assert seen.groups(10) == [(4,), (5,)]


def test_pairs_that_help_are_kept() -> None:
    seen = run([(0.0, job(i)) for i in range(6)], 4, believed=table(0.8), stop_at_s=12 * ROUND_S)
    assert all(len(one) == 1 for k in (0, 1) for one in seen.groups(k))  # each runs alone first
    pairs = [[one for one in seen.groups(k) if len(one) == 2] for k in range(12)]
    assert len(pairs[-1]) == 2
    assert pairs[-1] == pairs[-4]
    assert len(seen.groups(11)) == 4  # all six run


def test_pairs_that_do_not_help_are_undone_within_three_rounds_and_not_tried_again() -> None:
    seen = run(
        [(0.0, job(i)) for i in range(6)],
        4,
        believed=table(0.8),
        true=table(0.4),
        stop_at_s=40 * ROUND_S,
    )
    pairs = [one for k in range(40) for one in seen.groups(k) if len(one) == 2]
    assert pairs
    assert max(pairs.count(one) for one in pairs) <= 3
    assert len(pairs) <= 2 * 3  # what two pairs have shown holds for all jobs of the type


def test_nothing_is_packed_where_there_is_no_overload() -> None:
    seen = run([(0.0, job(i)) for i in range(4)], 4, believed=table(0.9))
    assert all(len(one) == 1 for k in range(20) for one in seen.groups(k))


def test_devices_that_are_vacated_go_to_those_that_wait_elsewhere() -> None:
    jobs = [(0.0, job(i, 4, 2.0 if i % 2 else 20.0)) for i in range(4)]
    moving = run(jobs, 8, stop_at_s=60 * ROUND_S)
    assert moving.groups(-1) == [(0,), (2,)]
    staying = run(jobs, 8, "gandiva:no-migration", stop_at_s=60 * ROUND_S)
    assert len(staying.groups(-1)) == 1


def test_a_scattered_job_moves_together_when_that_pays() -> None:
    hours = [1.0, 5.0, 1.0, 20.0]
    jobs = [(0.0, job(i, 2, one)) for i, one in enumerate(hours)] + [(5000.0, job(4, 4, 20.0))]

    def is_scattered(seen: Rounds) -> list[bool]:
        nodes = [seen.nodes(k) for k in range(len(seen.commands))]
        return [len(set(one[(4,)])) > 1 for one in nodes if (4,) in one]

    cheap = is_scattered(run(jobs, 8, stop_at_s=100 * ROUND_S))
    assert cheap[0]
    assert not cheap[-1]
    costly = run(jobs, 8, costs=RestartCosts(40 * 3600.0), stop_at_s=100 * ROUND_S)
    assert all(is_scattered(costly))


def test_nearly_empty_servers_are_emptied() -> None:
    """Four jobs on each of two servers; three of each end, and the last two end up on one server."""
    hours = [1.0, 1.0, 1.0, 40.0] * 2
    jobs = [(0.0, job(i, 1, one)) for i, one in enumerate(hours)]
    seen = run(jobs, 8, stop_at_s=20 * ROUND_S)
    nodes = seen.nodes(-1)
    assert nodes[(3,)] == nodes[(7,)]
    costly = run(jobs, 8, costs=RestartCosts(3600.0), stop_at_s=20 * ROUND_S).nodes(-1)
    assert costly[(3,)] != costly[(7,)]


def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    times = [0.0] * 9 + [1000.0 * i for i in range(1, 6)] + [60_000.0] * 9
    jobs = [
        Arrival(t, Job(JobId(i), "net", SCALES[i % 3], 4000.0 + 1000 * i))
        for i, t in enumerate(times)
    ]
    cluster, rates = Cluster.of({"x": 8}, 4), table(0.7)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    truth = GroundTruth(mtbf_s=30_000.0, mttr_s=4000.0, rate_noise=0.1)
    known = simulate(jobs, cluster, "gandiva", throughputs=rates, out=whole, ground_truth=truth)
    calls = iter(range(10**9))

    def stop() -> bool:
        return next(calls) > 60

    partly = simulate(
        jobs, cluster, "gandiva", throughputs=rates, out=cut, stop=stop, ground_truth=truth
    )
    assert not partly.complete
    resumed = simulate(
        jobs, cluster, "gandiva", throughputs=rates, out=cut, resume=True, ground_truth=truth
    )
    assert resumed.metrics["journal_sha256"] == known.metrics["journal_sha256"]
    assert replay(cut / "journal")[0] > 60


def test_gavels_baseline_keeps_its_name_in_its_profile() -> None:
    make: Callable[[str, str], object] = lambda name, profile: registry.make(  # noqa: E731
        name, seed=0, profile=profile
    )
    assert isinstance(make("gandiva", "gavel"), GandivaPacking)
    assert isinstance(make("gandiva", "default"), Gandiva)
    assert isinstance(make("gandiva_packing", "default"), GandivaPacking)


def test_options_are_checked() -> None:
    made = registry.make("gandiva:no-migration,no-packing", seed=0, profile="default")
    assert isinstance(made, Gandiva)
    assert made.spec == "gandiva:no-packing,no-migration"
    assert not made.space_sharing
    with pytest.raises(ConfigError, match=r"gandiva:no-slice: 'no-slice' is not known"):
        registry.make("gandiva:no-slice", seed=0, profile="default")
