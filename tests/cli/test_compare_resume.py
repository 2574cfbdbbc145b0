"""A comparison that was interrupted goes on, and is then what it would have been."""

import importlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.call_command import call

from fairlead.analysis.experiments.point import Point
from fairlead.analysis.experiments.result_store import digests
from fairlead.cli import options

GIVEN = ["--generate", "gavel,jobs=25,interarrival=1500", "--cluster", "v100=3,p100=3,k80=3"]
COMPARED = [*GIVEN, "--policies", "fifo,las,isolated", "--relative-to", "las"]
PROCESSOR = ("cpu_s", "solve_s")  # differ from run to run
FOLDERS = ["1-fifo-default", "2-las-default", "3-isolated-default"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def stop_at(monkeypatch: pytest.MonkeyPatch, run: int, event: int) -> None:
    """The user presses Ctrl-C at this event of this run."""
    runs = 0

    @contextmanager
    def interruptible() -> Iterator[Callable[[], bool]]:
        nonlocal runs
        runs += 1
        of_run, events = runs, 0

        def stop() -> bool:
            nonlocal events
            events += 1
            return of_run == run and events >= event

        yield stop

    monkeypatch.setattr(options, "interruptible", interruptible)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What ``--json`` printed, without what no two runs share."""
    message: dict[str, Any] = json.loads(capsys.readouterr().out)
    del message["out"]
    for one in message["runs"].values():
        del one["config"]["command"]
        for name in PROCESSOR:
            del one[name]
    for ratios in message["ratios"].values():
        for name in PROCESSOR:
            ratios.pop(name, None)
    return message


@pytest.fixture
def whole(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The comparison in the folder ``whole``, which nobody interrupted."""
    assert call("compare", *COMPARED, "--out", "whole", "--json") == 0
    return printed(capsys)


def test_an_interrupted_comparison_goes_on_to_the_same_results(
    whole: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        stop_at(patched, run=2, event=40)
        assert call("compare", *COMPARED, "--out", "cut") == 130
    message = capsys.readouterr().err
    assert "fairlead compare --resume cut" in message
    assert "simulate --resume" not in message
    assert sorted(path.name for path in Path("cut").iterdir() if path.is_dir()) == FOLDERS[:2]
    finished = Path("cut/1-fifo-default/run.json").stat().st_mtime_ns
    assert call("compare", "--resume", "cut", "--json") == 0
    assert printed(capsys) == whole
    assert Path("cut/1-fifo-default/run.json").stat().st_mtime_ns == finished
    for name in FOLDERS:
        journal = Path("cut", name, "journal").read_bytes()
        assert journal == Path("whole", name, "journal").read_bytes()
    assert Path("cut/report.html").is_file()
    assert call("compare", "--resume", "cut") == 2
    assert "this comparison is complete" in capsys.readouterr().err


def test_a_comparison_that_was_killed_goes_on(
    whole: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """One run is cut off within its journal, one has none yet, one has not begun."""
    shutil.copytree("whole", "killed")
    Path("killed/report.html").unlink()
    for name in FOLDERS[:2]:
        folder = Path("killed", name)
        record = json.loads((folder / "run.json").read_text())
        del record["metrics"], record["skipped"]
        (folder / "run.json").write_text(json.dumps(record | {"status": "running"}))
        (folder / "report.html").unlink()
        for table in folder.glob("*.parquet"):
            table.unlink()
    journal = Path("killed", FOLDERS[0], "journal")
    journal.write_bytes(journal.read_bytes()[:-500])
    Path("killed", FOLDERS[1], "journal").unlink()
    shutil.rmtree(Path("killed", FOLDERS[2]))
    assert call("compare", "--resume", "killed", "--json") == 0
    assert printed(capsys) == whole


def test_a_comparison_does_not_go_on_otherwise_than_it_began(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("t.csv").write_text(
        "job,arrival_s,family,scale_factor,total_steps\n0,0,A3C,1,1000\n1,9,A3C,1,1000\n"
    )
    asked = ["--trace", "t.csv", "--policies", "fifo,las", "--out", "c"]
    assert call("compare", *asked) == 0
    Path("c/report.html").unlink()
    shutil.rmtree("c/2-las-default")
    assert call("compare", "--resume", "c", "--policy", "fifo") == 2
    assert "--resume goes on as the comparison began" in capsys.readouterr().err
    Path("t.csv").write_text(
        "job,arrival_s,family,scale_factor,total_steps\n0,0,A3C,1,1000\n1,9,A3C,1,2000\n"
    )
    assert call("compare", "--resume", "c") == 2
    assert "t.csv: has changed since" in capsys.readouterr().err
    assert call("compare", "--resume", "nowhere") == 2
    assert "nowhere holds no comparison: it has no compare.json" in capsys.readouterr().err
    Path("c/compare.json").write_text('{"runs": 1}')
    assert call("compare", "--resume", "c") == 2
    message = capsys.readouterr().err
    assert "c/compare.json: does not describe a comparison" in message
    assert message.count("\n") == 1


GREEDY = """
import numpy as np
import fairlead

class Greedy:
    name, heterogeneity_aware, space_sharing, work_conserving = "greedy", True, False, True

    def allocate(self, snapshot):
        share = np.where(snapshot.solo_rate > 0, TIMES, 0.0) / len(snapshot.slots)
        report = fairlead.SolveReport("closed-form")
        return fairlead.check_allocation(fairlead.allocation(snapshot, share, report), snapshot)

def make(request):
    return Greedy()
"""


@pytest.fixture
def greedy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The module of an installed policy that shares out more devices than there are."""
    package = Path("greedy-0.1.dist-info")
    package.mkdir()
    package.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: greedy\nVersion: 0.1\n")
    package.joinpath("entry_points.txt").write_text("[fairlead.policies]\ngreedy = greedy:make\n")
    module = Path("greedy.py")
    module.write_text(GREEDY.replace("TIMES", "1.0"))
    monkeypatch.syspath_prepend(str(Path.cwd()))
    yield module
    sys.modules.pop("greedy", None)


def test_a_policy_that_fails_does_not_keep_the_others_from_the_table(
    greedy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*GIVEN, "--policies", "fifo,greedy,las", "--relative-to", "las", "--out", "partly"]
    assert call("compare", *asked) == 1
    message = capsys.readouterr()
    assert "fifo" in message.out
    assert "ratio to las" in message.out
    assert "greedy" not in message.out
    last = message.err.strip().splitlines()[-1]
    assert re.fullmatch(
        r"fairlead: policy 'greedy' at \d+ s: \w+: \d.\d+ devices shared out of 3", last
    )
    assert call("compare", "--resume", "partly", "--json") == 1, "while the policy is as it was"
    message = json.loads(capsys.readouterr().out)
    assert list(message["runs"]) == list(message["ratios"]) == ["fifo", "las"]
    assert message["failed"] == {"greedy": last.removeprefix("fairlead: ")}
    greedy.write_text(GREEDY.replace("TIMES", "0.01"))
    del sys.modules["greedy"]
    importlib.invalidate_caches()
    assert call("compare", "--resume", "partly") == 0
    assert "greedy" in capsys.readouterr().out
    assert call("compare", "--resume", "partly") == 2
    assert "this comparison is complete" in capsys.readouterr().err


def test_a_policy_that_answers_nonsense_does_not_keep_the_others_from_the_table(
    greedy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    greedy.write_text(GREEDY.replace("TIMES", "1.0").replace("share, rep", "share[0], rep"))
    asked = [*GIVEN, "--policies", "greedy,fifo", "--out", "nonsense"]
    assert call("compare", *asked) != 0
    message = capsys.readouterr()
    assert "fifo" in message.out
    assert "greedy" in message.err.strip().splitlines()[-1]


def test_where_no_policy_comes_to_its_end_there_is_the_error_alone(
    greedy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("compare", *GIVEN, "--policy", "greedy", "--out", "none") == 1
    message = capsys.readouterr()
    assert message.out == ""
    assert "policy 'greedy' at" in message.err
    assert call("compare", "--resume", "none", "--json") == 1
    message = json.loads(capsys.readouterr().out)
    assert message["runs"] == {}
    assert "policy 'greedy' at" in message["failed"]["greedy"]


def test_a_run_does_not_go_on_with_another_policy_than_it_began_with(
    greedy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("simulate", *GIVEN, "--policy", "greedy", "--out", "run") == 1
    capsys.readouterr()
    greedy.write_text(GREEDY.replace("TIMES", "0.01"))
    assert call("simulate", "--resume", "run") == 2
    assert re.fullmatch(
        r"fairlead: \S+greedy.py: has changed since the run in run began, it cannot go on\n",
        capsys.readouterr().err,
    )


def test_a_sweep_runs_points_again_whose_policy_has_changed(greedy: Path) -> None:
    point = Point("greedy")
    before, built_in = digests(point), digests(Point("las"))
    greedy.write_text(GREEDY.replace("TIMES", "0.01"))
    assert list(before) == [str(greedy.resolve())]
    assert digests(point) != before
    assert built_in == {}


def test_results_are_not_put_into_folders_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", *GIVEN, "--policy", "fifo", "--out", "run") == 0
    report = Path("run/report.html").read_bytes()
    capsys.readouterr()
    assert call("sweep", "--policies", "fifo", "--jobs", "3", "--out", "run") == 2
    assert "--out: run is there already and holds no sweep" in capsys.readouterr().err
    assert Path("run/report.html").read_bytes() == report
    Path("own.csv").write_text("mine")
    assert call("report", "run", "--out", "own.csv") == 2
    assert "--out: own.csv is there already and is no report" in capsys.readouterr().err
    assert Path("own.csv").read_text() == "mine"
    for _ in range(2):
        assert call("report", "run", "--out", "page.html") == 0


@pytest.mark.parametrize(
    ("times", "sentence"),
    [("1.0", r"\w+: \d.\d+ devices shared out of 1"), ("np.nan", "job 0: .*nan")],
)
def test_solve_checks_what_a_policy_answers(
    greedy: Path, capsys: pytest.CaptureFixture[str], times: str, sentence: str
) -> None:
    answer = "fairlead.allocation(snapshot, share, report)"
    unchecked = GREEDY.replace(f"fairlead.check_allocation({answer}, snapshot)", answer)
    greedy.write_text(unchecked.replace("TIMES", times))
    jobs = [{"id": n, "job_type": "A3C", "scale_factor": 1} for n in range(3)]
    problem = {"k": 1, "cluster_spec": {"v100": 1, "k80": 1}, "jobs": jobs}
    Path("problem.jsonl").write_text(json.dumps(problem))
    assert call("solve", "--instances", "problem.jsonl", "--policy", "greedy") == 1
    message = capsys.readouterr()
    assert message.out == ""
    assert re.fullmatch(rf"fairlead: policy 'greedy' at 0 s: {sentence}.*", message.err.strip())
