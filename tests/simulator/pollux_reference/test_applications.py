"""Step times, batches and progress of applications, from files."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.simulator.pollux_reference.measured import write_application, write_workload

from fairlead.errors import InputError, ThroughputError
from fairlead.simulator.pollux_reference.applications import (
    Application,
    BatchChoice,
    read_applications,
    read_by_accelerator,
)
from fairlead.simulator.pollux_reference.workload import read_workload


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return read_applications(write_application(tmp_path))["app"]


def test_step_times_are_those_measured_or_between_them(application: Application) -> None:
    assert application.step_time((2,), 4).step_s == 0.7
    assert application.step_time((2,), 30) == (0.7, 0.1), "linear in the local batch"
    assert application.step_time((2, 4), 16).step_s == pytest.approx(0.5), "by the triangulation"
    with pytest.raises(ThroughputError, match=r"app: no step time for 64 replicas on 16 node\(s\)"):
        application.step_time((4,) * 16, 4)


def test_the_order_of_nodes_does_not_matter(tmp_path: Path) -> None:
    folder = write_application(tmp_path)
    path = folder / "app" / "placements.csv"
    path.write_text(path.read_text() + "13,4,9.0,0.1\n")
    application = read_applications(folder)["app"]
    assert application.step_time((3, 1), 4) == application.step_time((1, 3), 4) == (9.0, 0.1)


@pytest.mark.parametrize(
    ("total", "replicas", "choice"),
    [
        (32, 1, BatchChoice(32, 0)),
        (64, 1, BatchChoice(32, 1)),  # the noise is measured between steps
        (64, 2, BatchChoice(32, 0)),
        (64, 3, BatchChoice(21, 0)),  # 22 each would be more than was ever trained
        (33, 4, BatchChoice(9, 0)),
    ],
)
def test_replicas_share_a_batch(
    application: Application, total: int, replicas: int, choice: BatchChoice
) -> None:
    assert application.choose_batch(total, replicas) == choice


def test_a_local_batch_that_is_too_large_is_accumulated(application: Application) -> None:
    application = replace(application, limits=replace(application.limits, max_local=16))
    choice = application.choose_batch(64, 2)
    assert choice == BatchChoice(16, 1)
    assert choice.total(2) == 64
    assert application.iteration_s((2,), choice) == pytest.approx(0.7 + 0.6)


def test_progress_and_gain(application: Application) -> None:
    assert (application.epochs, application.batches) == (4, (32, 64))
    assert [application.progress_at(k) for k in range(5)] == [0, 100, 200, 300, 400]
    assert application.gain(32, 0) == 1.0
    assert application.gain(64, 0) == pytest.approx(4.0 / 2.5), "noise halves: (v + g) / (v/2 + g)"
    assert application.between(48, 0).iteration == 75.0


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "placements.csv",
            "placement,local_bsz,step_time\n",
            r"placements.csv:1: column 'sync_time' is",
        ),
        ("placements.csv", "", r"placements.csv: is empty"),
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n",
            r"placements.csv: has no rows",
        ),
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n102,4,1,0\n",
            r"placements.csv:2: placement: expected a digit from 1 to 9 for each node, got '102'",
        ),
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n1,0,1,0\n",
            r"placements.csv:2: local_bsz: must be >= 1, got '0'",
        ),
        (
            "scalability.csv",
            "num_nodes,num_replicas,local_bsz,step_time,sync_time\n1,1,1,-1,0\n",
            r"scalability.csv:2: step_time: must be > 0, got '-1'",
        ),
        (
            "validation-32.csv",
            "progress,iteration,metric,grad_sqr,grad_var\n1,2,x,nan,0\n",
            r"validation-32.csv:2: grad_sqr: expected a finite number, got 'nan'",
        ),
        ("validation-0.csv", "progress\n", r"validation-0.csv: expected validation-B.csv"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, file: str, text: str, message: str) -> None:
    folder = write_application(tmp_path)
    (folder / "app" / file).write_text(text)
    with pytest.raises(InputError, match=message):
        read_applications(folder)


def test_folders_without_measurements(tmp_path: Path) -> None:
    with pytest.raises(ThroughputError, match="no such folder"):
        read_applications(tmp_path / "none")
    with pytest.raises(ThroughputError, match=r"has no folder with a placements.csv"):
        read_applications(tmp_path)
    for path in write_application(tmp_path).glob("app/validation-*"):
        path.unlink()
    with pytest.raises(ThroughputError, match=r"app: has no validation-B.csv"):
        read_applications(tmp_path)


def test_applications_that_were_measured_on_several_types(tmp_path: Path) -> None:
    """Sia's layout: a pair of files per type; trainings are of no type."""
    folder = write_application(tmp_path, accelerators={"t4": 1.0, "a100": 4.0})
    found = read_by_accelerator(folder, ["t4", "a100"])["app"]
    slow, fast = found["t4"], found["a100"]
    assert slow.step_time((2,), 32).step_s == pytest.approx(4 * fast.step_time((2,), 32).step_s)
    assert slow.trainings == fast.trainings
    assert list(read_by_accelerator(folder, ["a100"])["app"]) == ["a100"]
    with pytest.raises(ThroughputError, match=r"has no folder with a placements-v100.csv"):
        read_by_accelerator(folder, ["t4", "v100"])
    with pytest.raises(ThroughputError, match=r"has no folder with a placements.csv"):
        read_by_accelerator(folder, ["v100"])
    (folder / "app" / "placements-a100.csv").rename(folder / "app" / "placements-x.csv")
    write_application(tmp_path, name="other", accelerators={"a100": 1.0, "t4": 1.0})
    with pytest.raises(ThroughputError, match=r"app: has no placements-a100.csv, and the cluster"):
        read_by_accelerator(folder, ["t4", "a100"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,1,app,2,0"], r"w.csv:2: batch_size: must be >= 1, got '0'"),
        (
            ["a,1,app,2,65"],
            r"w.csv:2: batch_size: must be from 32 to 64, as app was trained, got 65",
        ),
        (["a,1,bert,2,32"], r"w.csv:2: application: expected one of app, got 'bert'"),
        (["a,1,app,0,32"], r"w.csv:2: num_replicas: must be >= 1"),
        (["a,-1,app,1,32"], r"w.csv:2: time: must be >= 0"),
        (["a,1,app,1,32", "a,2,app,1,32"], r"w.csv:3: name: appears twice, got 'a'"),
        ([",1,app,1,32"], r"w.csv:2: name: must not be empty"),
        ([], r"w.csv: has no jobs"),
    ],
)
def test_a_workload_that_is_wrong(tmp_path: Path, rows: list[str], message: str) -> None:
    applications = read_by_accelerator(write_application(tmp_path), ["gpu"])
    with pytest.raises(InputError, match=message):
        read_workload(write_workload(tmp_path / "w.csv", *rows), applications)
