"""``fairlead bench policies`` as a user calls it, and the problems that it times."""

import json

import numpy as np
import pytest
from tests.call_command import call
from tests.job_types import job_types

from fairlead.analysis.solve_benchmark import (
    problem,
    sequence,
    timed,
    with_types,
)
from fairlead.errors import ConfigError
from fairlead.model.cluster import Locality, SlotType
from fairlead.model.throughputs import Throughputs
from fairlead.policies.finish_time import FinishTime
from fairlead.policies.las import Las
from fairlead.policies.makespan import Makespan
from fairlead.simulator.traces.throughput_tables import builtin_throughputs

POLICIES = ("las_aware", "makespan_aware", "finish_time_aware", "water_filling_aware", "las_packed")


def bench(*arguments: str) -> int:
    return call("bench", "policies", *arguments)


def test_decisions_on_elastic_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--devices", "64,300", "--jobs-per-device", "0.3,2", "--policies", "sia,elastic_srpt")
    assert call("bench", "elastic", *sizes, "--json") == 0
    told = json.loads(capsys.readouterr().out)["timings"]
    assert [(one["policy"], one["devices"], one["jobs"]) for one in told] == [
        (policy, devices, jobs)
        for policy in ("sia", "elastic_srpt")
        for devices, jobs in ((64, 19), (64, 128), (300, 90), (300, 600))
    ]
    assert all(one["gap"] <= 1e-12 for one in told if one["devices"] == 64)
    assert all(one["gap"] <= 1e-2 and one["cpu_s"] > 0 for one in told)
    sizes = ("--devices", "64", "--jobs-per-device", "0.3,2", "--kinds", "9")
    assert call("bench", "elastic", *sizes, "--policies", "las_aware", "--json") == 0
    told = json.loads(capsys.readouterr().out)["timings"]
    assert [one["jobs"] for one in told] == [19, 128]
    assert all(one["gap"] <= 1e-6 and one["cpu_s"] > 0 for one in told)
    assert call("bench", "elastic", "--devices", "64", "--jobs-per-device", "1") == 0
    assert capsys.readouterr().out.split()[-6:-1][:3] == ["sia", "64", "64"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--devices", "2"), "--devices: at least 3, one of each type, got '2'"),
        (("--devices", "x"), "--devices: expected whole numbers from 1 to"),
        (("--jobs-per-device", "0"), "--jobs-per-device: expected numbers above 0"),
        (("--jobs-per-device", "nan"), "--jobs-per-device: expected numbers above 0"),
        (("--devices", "9999999", "--jobs-per-device", "999"), "--jobs-per-device: at most"),
        (("--policies", "las"), "--policies: expected some of elastic_srpt, goodput, pollux, sia"),
    ],
)
def test_wrong_options_of_elastic_decisions(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("bench", "elastic", *options) == 2
    assert message in capsys.readouterr().err


def table_of(*slots: SlotType) -> Throughputs:
    rate = np.arange(1.0, 2 * len(slots) + 1).reshape(2, len(slots))
    return Throughputs(slots, job_types(("LM", 1), ("ResNet", 4)), rate)


def test_one_row_for_each_policy_and_number_of_types(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--jobs", "12,30", "--types", "2,4") == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.strip().startswith(("2 ", "4 "))]
    assert [row[:2] for row in rows] == [[k, name] for k in "24" for name in POLICIES]
    assert all(len(row) == 5 and float(row[4]) <= 1e-6 for row in rows)
    assert "\x1b" not in out


def test_json_tells_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--jobs", "20", "--types", "3", "--policies", "las_aware,isolated", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["changes"] is None
    las, isolated = told["timings"]
    assert (las["policy"], las["jobs"], las["types"], las["distinct_rates"]) == (
        "las_aware",
        20,
        3,
        False,
    )
    assert len(las["runs_s"]) == 5
    assert las["cpu_s"] == sorted(las["runs_s"])[2]
    assert las["gap"] <= 1e-6
    assert las["violation"] <= 1e-9
    assert isolated["gap"] is None


def test_a_sequence_and_rates_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--distinct-rates", "--policies", "makespan_aware", "--types", "3", "--json")
    assert bench("--jobs", "10", "--changes", "6", *options) == 0
    (timing,) = json.loads(capsys.readouterr().out)["timings"]
    assert timing["distinct_rates"]
    assert len(timing["runs_s"]) == 6
    assert timing["cpu_s"] == pytest.approx(sum(timing["runs_s"]))
    assert timing["gap"] <= 1e-6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--jobs", "many"), "--jobs: expected whole numbers from 1 to 10,000,000, got 'many'"),
        (("--jobs", "0"), "--jobs: expected whole numbers from 1"),
        (("--types", "3,"), "--types: expected whole numbers from 1 to 100, got '3,'"),
        (("--policies", "las_pref"), "did you mean 'las_aware'"),
        (("--policies", "tiresias"), "it plans rounds itself"),
        (("--distinct-rates", "--policies", "las_packed"), "have none in pairs"),
        (("--jobs", "1", "--changes", "2"), "at least 2"),
        (("--throughputs", "nowhere.json"), "nowhere.json"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert shown.err.count("\n") == 1


def test_a_problem_asks_for_three_times_the_devices() -> None:
    made = problem(builtin_throughputs(), 2_000, 3)
    assert made.job_scale.sum() / made.capacity.sum() == pytest.approx(3, rel=0.01)
    assert set(np.unique(made.job_scale)) == {1, 2, 4, 8}
    assert np.mean(made.weight == 1.5) == pytest.approx(0.2, abs=0.03)
    assert (made.steps_left > 0).all()
    assert (made.age_s >= 0).all()
    assert (made.solo_rate.max(axis=1) > 0).all()
    assert made.colocated_rate is not None
    assert len(np.unique(made.job_class)) < 300
    again = problem(builtin_throughputs(), 2_000, 3)
    assert np.array_equal(made.steps_left, again.steps_left)


def test_further_types_are_mixes_and_pairs_slow_down_as_on_the_first() -> None:
    table = builtin_throughputs()
    wide = with_types(table, 10)
    assert len({slot.accelerator for slot in wide.slots}) == 10
    assert np.array_equal(wide.rate[:, :3], with_types(table, 3).rate)
    assert ((wide.rate[:, 3:] > 0).sum(axis=0) > 50).all()
    assert wide.colocated_rate is not None
    assert wide.colocated_rate.shape == (len(wide.job_types), len(wide.job_types), 10)
    assert (wide.colocated_rate <= wide.rate[:, None] * (1 + 1e-9)).all()
    assert len(with_types(table_of(SlotType("only")), 5).slots) == 5


def test_a_table_that_cannot_serve_says_so() -> None:
    with pytest.raises(ConfigError, match="no consolidated rates"):
        problem(table_of(SlotType("a", Locality.SCATTERED)), 5, 1)
    lone = Throughputs(
        (SlotType("a"),),
        job_types(
            ("LM", 3),
        ),
        np.ones((1, 1)),
    )
    with pytest.raises(ConfigError, match="no job type with 1 or 2 or 4 or 8 devices"):
        problem(lone, 5, 1)


def test_rows_of_their_own_differ_from_job_to_job() -> None:
    made = problem(builtin_throughputs(), 200, 3, distinct_rates=True)
    assert len(np.unique(made.solo_rate, axis=0)) == 200
    assert len(np.unique(made.job_class)) == 200
    assert made.colocated_rate is None


@pytest.mark.parametrize("policy", [Las(), Makespan(), FinishTime()])
def test_jobs_come_and_go_with_the_answer_before(policy: Las | Makespan | FinishTime) -> None:
    table = builtin_throughputs()
    timing = sequence(policy, table, jobs=20, types=3, changes=9)
    assert timing.jobs == 19  # the ninth change is a departure
    assert len(timing.runs_s) == 9
    assert timing.gap is not None
    assert timing.gap <= 1e-6
    alone = timed(policy, problem(table, 20, 3))
    assert alone.violation <= 1e-9
