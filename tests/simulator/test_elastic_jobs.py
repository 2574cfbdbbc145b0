"""Simulations of elastic jobs in the default world."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.job_types import job_types

import fairlead
from fairlead.cli.main import main
from fairlead.model.cluster import Cluster, Node, SlotType
from fairlead.model.commands import StartRound
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import read_throughputs

TABLE = Throughputs(
    (SlotType("k80"), SlotType("v100")),
    job_types(("net", 1), ("net", 2), ("net", 4)),
    np.array([[4.0, 10.0], [7.0, 18.0], [12.0, 30.0]]),
)
PLANNERS = ("sia", "pollux", "goodput", "elastic_srpt", "optimus")
OF_SHARES = (
    "las_aware",
    "makespan_aware",
    "finish_time_aware",
    "water_filling_aware",
    "nash",
    "strategy_proof",
    "total_throughput",
    "total_throughput_normalised",
)


@dataclass
class Seen:
    """An observer: job -> devices of each of its rounds, and the devices of each round."""

    numbers: dict[int, list[int]] = field(default_factory=dict)
    devices: list[list[int]] = field(default_factory=list)

    def event(self, event: object) -> None:
        pass

    def command(self, command: object) -> None:
        if not isinstance(command, StartRound):
            return
        self.devices.append(command.devices.tolist())
        counts = np.diff(command.offsets).tolist()
        for job, count in zip(command.job_groups[:, 0].tolist(), counts, strict=True):
            self.numbers.setdefault(job, []).append(count)


def cluster(v100: int = 4, k80: int = 0) -> Cluster:
    nodes = [Node("a", "v100", v100)]
    return Cluster(tuple([*nodes, Node("k", "k80", k80)] if k80 else nodes))


def job(number: int, steps: float, numbers: tuple[int, ...] = (1, 2, 4)) -> Job:
    return Job(JobId(number), "net", 1, steps, devices=numbers)


def test_steps_are_those_of_the_devices_that_a_job_has() -> None:
    """Job 0 has four devices for 300 s, 9,000 steps at 30/s less a start of 10 s; then both have two, at 18/s
    less a start: of its 16,920 steps 7,920 are left after 300 s, 450 s with the start."""
    jobs = [Arrival(0.0, job(0, 8_700 + 7_920)), Arrival(200.0, job(1, 1e5))]
    seen = Seen()
    result = fairlead.simulate(
        jobs,
        cluster(),
        "sia",
        throughputs=TABLE,
        round_s=300.0,
        ground_truth=fairlead.GroundTruth(
            restart_costs=fairlead.RestartCosts(10.0), first_starts_cost=True
        ),
        observers=[seen],
    )
    ends = dict(result.jobs.select("job", "end_s").iter_rows())
    assert ends[0] == pytest.approx(300 + 10 + 7_920 / 18)
    assert seen.numbers[0] == [4, 2, 2]
    assert seen.numbers[1][:2] == [2, 2]
    assert set(seen.numbers[1][2:]) == {4}


@pytest.mark.parametrize("policy", [*PLANNERS, *OF_SHARES])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_each_round_keeps_to_devices_and_numbers(policy: str, data: st.DataObject) -> None:
    numbers = st.sets(st.sampled_from([1, 2, 4]), min_size=1).map(lambda s: tuple(sorted(s)))
    allowed = data.draw(st.lists(numbers, min_size=1, max_size=7))
    jobs = [
        Arrival(
            90.0 * i,
            Job(JobId(i), "net", own[0], data.draw(st.integers(1, 20_000)), devices=own),
        )
        for i, own in enumerate(allowed)
    ]
    seen = Seen()
    result = fairlead.simulate(
        jobs, cluster(4, 2), policy, throughputs=TABLE, round_s=120.0, observers=[seen]
    )
    assert result.metrics["n_completed"] == len(jobs)
    for i, own in enumerate(allowed):
        assert set(seen.numbers[i]) <= set(own)
    for used in seen.devices:
        assert len(used) == len(set(used))


TRACE = """job,arrival_s,family,scale_factor,total_steps,devices
0,0,ResNet-18 (batch size 32),1,200000,1 2 4
1,60,ResNet-18 (batch size 32),1,100000,4 2 1
2,600,ResNet-18 (batch size 32),4,100000,
"""


def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str], trace: str) -> tuple[int, str]:
    path = tmp_path / "trace.csv"
    path.write_text(trace)
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--trace", str(path), "--cluster", "v100=4", "--policy", "sia", "--json"])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out or said.err


def test_a_trace_states_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = simulate(tmp_path, capsys, TRACE)
    assert code == 0
    assert json.loads(said)["n_completed"] == 3
    elastic = read_trace(tmp_path / "trace.csv", read_throughputs("builtin"))
    assert [one.job.devices for one in elastic.arrivals] == [(1, 2, 4), (1, 2, 4), ()]


def test_a_job_of_which_one_number_fits_is_not_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = TRACE.replace(",1,200000,1 2 4", ",8,200000,2 8")
    code, said = simulate(tmp_path, capsys, wide)
    assert code == 0
    assert json.loads(said)["n_completed"] == 3


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ("2 4", "trace.csv:2: devices: '2 4' must include the scale_factor, 1"),
        ("1 3", "trace.csv:2: devices: 'ResNet-18 (batch size 32)' has no rate on 3 devices"),
        ("1 x", "trace.csv:2: devices: expected a whole number, got 'x'"),
        ("0 1", "trace.csv:2: devices: must be >= 1, got '0'"),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    devices: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = simulate(tmp_path, capsys, TRACE.replace("1 2 4", devices))
    assert code == 2
    assert said in told


@pytest.mark.parametrize("policy", ["elastic_srpt", "las_aware"])
def test_a_run_is_replayed_from_its_journal(policy: str, tmp_path: Path) -> None:
    jobs = [Arrival(50.0 * i, job(i, 20_000 + 1000 * i)) for i in range(6)]
    out = tmp_path / "run"
    fairlead.simulate(jobs, cluster(), policy, throughputs=TABLE, round_s=100.0, out=out)
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(out)])
    assert not ended.value.code
    assert "had more than one number of devices" in (out / "report.html").read_text()


def _no_costs() -> fairlead.GroundTruth:
    return fairlead.GroundTruth(restart_costs=fairlead.RestartCosts(0.0))


def test_shares_are_realised_on_the_numbers_that_they_are_of() -> None:
    """Two elastic jobs and one that has one device, on four: the latter runs all the time, and the others
    share three devices, each on one of them half of the time and on two the other half, 14 steps/s."""
    jobs = [
        Arrival(0.0, job(0, 14.0 * 24_000, (1, 2))),
        Arrival(0.0, job(1, 14.0 * 24_000, (1, 2))),
        Arrival(0.0, job(2, 10.0 * 24_000, ())),
    ]
    seen = Seen()
    result = fairlead.simulate(
        jobs,
        cluster(4),
        "water_filling_aware",
        throughputs=TABLE,
        round_s=100.0,
        ground_truth=_no_costs(),
        observers=[seen],
    )
    ends = dict(result.jobs.select("job", "end_s").iter_rows())
    for one in (0, 1, 2):  # a round more or less
        assert ends[one] == pytest.approx(24_000, abs=200)
    for elastic in (0, 1):
        of_number = {n: seen.numbers[elastic].count(n) for n in (1, 2)}
        assert of_number[1] == pytest.approx(120, abs=3)
        assert of_number[2] == pytest.approx(120, abs=3)


def test_a_job_alone_has_the_number_on_which_it_is_fastest() -> None:
    seen = Seen()
    result = fairlead.simulate(
        [Arrival(0.0, job(0, 30_000))],
        cluster(4),
        "las_aware",
        throughputs=TABLE,
        round_s=100.0,
        ground_truth=_no_costs(),
        observers=[seen],
    )
    assert set(seen.numbers[0]) == {4}
    assert dict(result.jobs.select("job", "end_s").iter_rows())[0] == pytest.approx(1000)


def test_elastic_jobs_come_and_go_among_rigid_ones() -> None:
    """The shares are by number from the first elastic job on, and no more when the last one has left."""
    jobs = [
        Arrival(0.0, job(0, 60_000, ())),
        Arrival(500.0, job(1, 15_000)),
        Arrival(800.0, job(2, 15_000)),
        Arrival(4000.0, job(3, 15_000)),
    ]
    seen = Seen()
    result = fairlead.simulate(
        jobs,
        cluster(2, 2),
        "las_aware",
        throughputs=TABLE,
        round_s=100.0,
        ground_truth=_no_costs(),
        observers=[seen],
    )
    assert result.metrics["n_completed"] == 4
    assert set(seen.numbers[0]) == {1}
    assert max(seen.numbers[3]) == 2


def test_a_job_that_is_left_alone_grows_however_long_a_start_takes() -> None:
    """Job 0 has half of the devices until job 1 ends at 1,000 s, and all of them from the next round on."""
    jobs = [Arrival(0.0, job(0, 400_000)), Arrival(0.0, job(1, 18_000))]
    seen = Seen()
    fairlead.simulate(
        jobs,
        cluster(4),
        "las_aware",
        throughputs=TABLE,
        round_s=100.0,
        ground_truth=fairlead.GroundTruth(restart_costs=fairlead.RestartCosts(600.0)),
        observers=[seen],
    )
    assert seen.numbers[0][: len(seen.numbers[1])] == seen.numbers[1]
    assert set(seen.numbers[1]) == {2}
    assert set(seen.numbers[0][len(seen.numbers[1]) :]) == {4}


def test_where_shares_promise_more_than_rounds_can_give_all_are_behind_alike() -> None:
    """By their shares two jobs have a device of the four each all the time, and one has all four of them half
    of the time, 10 steps/s each: no round has both. Rounds take turns; a mix of 2 : 1 gives each 6.7 to 7."""
    table = Throughputs(
        (SlotType("v100"),),
        job_types(("one", 1), ("big", 1), ("big", 4)),
        np.array([[10.0], [1.0], [20.0]]),
    )
    ones = [Arrival(0.0, Job(JobId(i), "one", 1, 1e7, devices=(1,))) for i in range(2)]
    result = fairlead.simulate(
        [*ones, Arrival(0.0, Job(JobId(2), "big", 1, 1e7, devices=(1, 4)))],
        cluster(4),
        "las_aware",
        throughputs=table,
        round_s=100.0,
        stop_at_s=100_000.0,
        ground_truth=fairlead.GroundTruth(restart_costs=fairlead.RestartCosts(30.0)),
    )
    done = dict(result.jobs.select("job", "steps_done").iter_rows())
    assert [done[i] / 100_000 for i in range(3)] == pytest.approx([6.8] * 3, abs=0.4)
    assert result.jobs["restarts"].sum() < 150


def test_policies_without_rates_keep_the_number() -> None:
    seen = Seen()
    fairlead.simulate(
        [Arrival(0.0, job(0, 30_000)), Arrival(10.0, job(1, 30_000))],
        cluster(4),
        "las",
        throughputs=TABLE,
        round_s=100.0,
        observers=[seen],
    )
    assert {n for numbers in seen.numbers.values() for n in numbers} == {1}
