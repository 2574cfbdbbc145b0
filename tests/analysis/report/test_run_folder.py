"""What a run from Python leaves is what the command leaves."""

import json
from pathlib import Path

import pytest
from tests.small import job, run

from fairlead.analysis.report.run_folders import read_record, read_table
from fairlead.errors import FairleadError, RunError

JOBS = [job(0, 0.0, 900.0), job(1, 5.0, 900.0)]
FILES = [
    "jobs.parquet",
    "journal",
    "placement_intervals.parquet",
    "report.html",
    "rounds.parquet",
    "run.json",
]


def test_the_folder_is_made_and_holds_what_the_command_writes(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    result = run(JOBS, out=str(folder))
    assert sorted(path.name for path in folder.iterdir()) == FILES
    record = read_record(folder)
    assert record["metrics"]["n_completed"] == result.metrics["n_completed"] == 2
    assert record["config"]["policy"] == "las_aware"
    assert read_table(folder, "jobs").equals(result.jobs)
    assert "las_aware" in (folder / "report.html").read_text()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(RunError, match="is there already and not an empty folder"):
        run(JOBS, out=tmp_path)
    with pytest.raises(RunError, match="is there already and not an empty folder"):
        run(JOBS, out=tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_with_a_run_that_is_not_complete_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(JOBS, out=folder, stop=lambda: True)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(
        RunError, match=f"go on with the run there: --resume {folder} .*resume=True"
    ):
        run(JOBS, out=folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    run(JOBS, out=folder, resume=True)
    with pytest.raises(RunError, match=r"choose another folder$"):
        run(JOBS, out=folder)


def test_a_run_that_fails_and_one_that_is_stopped_say_so(tmp_path: Path) -> None:
    class Nothing:
        name, heterogeneity_aware, space_sharing, work_conserving = "nothing", True, False, True

        def allocate(self, snapshot: object) -> None:
            return None

    with pytest.raises(FairleadError):
        run(JOBS, policy=Nothing(), out=tmp_path / "a")
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    assert record["status"] == "failed"
    assert "expected an Allocation, got None" in record["error"]
    run(JOBS, out=tmp_path / "b", stop=lambda: True)
    assert json.loads((tmp_path / "b" / "run.json").read_text())["status"] == "interrupted"
