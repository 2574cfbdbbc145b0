"""``fairlead simulate --profile pollux``, with files that a test makes."""

import json
from pathlib import Path

import polars as pl
import pytest
from tests.call_command import call
from tests.simulator.pollux_reference.measured import write_application, write_workload

from fairlead.simulator.pollux_reference.registry import POLICIES
from fairlead.simulator.pollux_reference.training import ElasticTraining


@pytest.fixture
def arguments(tmp_path: Path) -> list[object]:
    folder = write_application(tmp_path / "applications")
    trace = write_workload(tmp_path / "w.csv", "a,0,app,2,32", "b,90,app,4,64")
    given = {"--trace": trace, "--throughputs": folder, "--cluster": "gpu=4"}
    given |= {"--devices-per-server": 4, "--profile": "pollux"}
    return ["simulate", *(word for pair in given.items() for word in pair)]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_outcome_as_json_and_as_files(
    tmp_path: Path, arguments: list[object], policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert call(*arguments, "--policy", policy, "--out", out, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["jct_s"]) == ["a", "b"]
    assert found["avg_jct_s"] == sum(found["jct_s"].values()) / 2
    assert set(found["solve_s"]) == {"median", "p95"}
    assert (found["gap"] is None) == (policy in {"tiresias", "optimus"})
    assert found["gap"] is None or 0 <= found["gap"] < 1e-9
    jobs = pl.read_parquet(out / "jobs.parquet")
    assert jobs["jct_s"].to_list() == list(found["jct_s"].values())
    assert jobs["restarts"].sum() == found["restarts"]
    changes = pl.read_parquet(out / "allocations.parquet")
    assert changes.filter(pl.col("job") == "a")["time_s"][0] == 60.0
    assert json.loads((out / "run.json").read_text())["config"]["round_s"] == 60.0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--policy", "las"], "--policy: 'las': --profile pollux has elastic_srpt, "),
        (["--policy", "tiresias", "--mtbf-hours", 3], "--mtbf-hours: --profile pollux does not"),
        (["--policy", "tiresias", "--round", "auto"], "--round auto: --profile pollux needs a"),
        (["--policy", "sia", "--round", 0], "--round: --profile pollux takes 1 to 86,400 seconds"),
        (
            ["--policy", "sia", "--round", 1e9],
            "--round: --profile pollux takes 1 to 86,400 seconds",
        ),
        (["--policy", "tiresias", "--placement", "by_device_id"], "--placement: --profile pollux"),
    ],
)
def test_what_this_world_does_not_have_is_refused(
    tmp_path: Path,
    arguments: list[object],
    more: list[object],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(*arguments, *more, "--out", tmp_path / "out") == 2
    problem = capsys.readouterr().err
    assert message in problem
    assert len(problem.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--cluster", "v100=4,k80=4", "takes all devices for alike, and the cluster has k80, v100"),
        ("--cluster", "gpu=1", "job 'a': asks for 2 devices, the cluster has 1"),
        ("--throughputs", "builtin", "builtin: no such folder"),
        ("--trace", "none.csv", "none.csv: no such file"),
    ],
)
def test_input_that_is_wrong_leaves_nothing_behind(
    tmp_path: Path,
    arguments: list[object],
    option: str,
    value: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = list(arguments)
    given[given.index(option) + 1] = value
    if value == "gpu=1":
        given[given.index("--devices-per-server") + 1] = 1
    assert call(*given, "--policy", "tiresias", "--out", tmp_path / "out") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_interrupted_run_says_that_nothing_was_written(
    tmp_path: Path,
    arguments: list[object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ElasticTraining, "advance", interrupted)
    assert call(*arguments, "--policy", "optimus", "--out", tmp_path / "out") == 130
    assert capsys.readouterr().err == "fairlead: interrupted; nothing was written\n"
    assert not (tmp_path / "out").exists()


def test_types_of_devices_with_files_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = {"aws": 1.0, "dgx-ext": 4.0}
    folder = write_application(tmp_path / "applications", accelerators=speeds)
    trace = write_workload(tmp_path / "w.csv", "a,0,app,2,32", "b,90,app,4,64")
    given = {"--trace": trace, "--throughputs": folder, "--cluster": "aws=8,dgx-ext=8"}
    given |= {"--devices-per-server": "aws=4,dgx-ext=8", "--profile": "pollux"}
    arguments = ["simulate", *(word for pair in given.items() for word in pair)]
    assert call(*arguments, "--policy", "sia", "--out", tmp_path / "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["gap"] < 1e-9
    assert call(*arguments, "--policy", "optimus", "--out", tmp_path / "other") == 2
    assert "policy: 'optimus': takes all devices for alike, and the cluster has aws, dgx-ext" in (
        capsys.readouterr().err
    )
    (folder / "app" / "placements-aws.csv").unlink()
    assert call(*arguments, "--policy", "sia", "--out", tmp_path / "other") == 2
    assert "has no folder with a placements-aws.csv" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
