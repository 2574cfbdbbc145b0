"""Pages and figures of runs that are there, from the command line."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from tests.analysis.experiments.test_sweep_report import swept
from tests.analysis.report.test_run_report import Page
from tests.call_command import call
from tests.cli.test_commands import JOBS

from fairlead.analysis.report.run_charts import RUN_FIGURES


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two policies."""
    folder = tmp_path_factory.mktemp("runs")
    asked = ["--policies", "las,las_aware", "--restart-cost", "60", "--out", str(folder / "both")]
    assert call("compare", *JOBS, *asked) == 0
    return folder / "both"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that has ended."""
    made = swept(tmp_path_factory.mktemp("sweeps") / "sweep")
    (made.folder / "sweep.json").write_bytes(msgspec.json.encode(made.result))
    return made.folder


def test_a_report_on_one_run_on_several_and_on_a_sweep(
    runs: Path, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = str(runs / "1-las-default")
    for folders, words in (([one], "Who ran where"), ([str(runs)], "2 policies compared"),
                           ([str(sweep)], "Sustainable load")):  # fmt: skip
        out = tmp_path / "new" / "page.html"
        assert call("report", *folders, "--out", str(out)) == 0
        assert words in out.read_text()
    assert call("report", str(sweep)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Report: {sweep / 'report.html'}"


def test_runs_that_are_there_can_be_compared(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(runs / "2-las_aware-default"), str(runs / "1-las-default")]
    asked = ["--relative-to", "las", "--out", str(tmp_path / "c")]
    assert call("compare", *folders, *asked, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["runs"]) == ["las_aware", "las"]
    assert printed["relative_to"] == "las"
    known = json.loads((runs / "1-las-default" / "run.json").read_text())["metrics"]
    assert printed["runs"]["las"]["avg_jct_s"] == known["avg_jct_s"]
    assert "Relative to las" in (tmp_path / "c" / "report.html").read_text()


def test_figures_are_written_as_files(
    runs: Path, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "figures")
    asked = ["--figure", "jct", "--figure", "cost", "--out", out]
    assert call("figure", str(runs), *asked[:2], *asked[4:]) == 0
    assert call("figure", str(sweep), "--figure", "jct-load", "--format", "svg", "--out", out) == 0
    names = sorted(path.name for path in Path(out).iterdir())
    assert names == ["jct-load.svg", "jct.png", "jct.svg"]
    capsys.readouterr()
    assert call("figure", "--list") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in [*(one.name for one in RUN_FIGURES), "jct-load"])
    for folder, there, absent in ((runs, "preemptions over time", ("tenants", "jct-load")),
                                  (sweep, "jct-load", ("cost-load", "fragmentation"))):  # fmt: skip
        assert call("figure", str(folder), "--list", "--out", str(tmp_path / "unused")) == 0
        listed = capsys.readouterr().out
        assert there in listed
        assert not any(name in listed for name in absent)
    assert not (tmp_path / "unused").exists()


def test_figures_for_papers_have_the_size_of_columns(
    runs: Path, sweep: Path, tmp_path: Path
) -> None:
    out = ["--out", str(tmp_path)]
    asked = [
        "--width",
        "1",
        "--column-width",
        "3.5",
        "--height",
        "2",
        "--line-styles",
        "--no-titles",
    ]
    assert call("figure", str(runs), "--figure", "jct", "--figure", "changes", *asked, *out) == 0
    for name in ("jct", "changes"):
        page = (tmp_path / f"{name}.pdf").read_bytes()
        assert re.search(rb"/MediaBox \[ ?0 0 252 144 ?\]", page)  # points: 3.5 x 2 inches
        assert b"CreationDate" not in page
    asked = [
        "--figure",
        "jct-load",
        "--relative-to",
        "las",
        "--log-x",
        "--width",
        "2",
        "--format",
        "svg",
    ]
    assert call("figure", str(sweep), *asked, *out) == 0
    picture = (tmp_path / "jct-load.svg").read_text()
    assert 'width="503.28pt"' in picture  # two columns and what is between them


@pytest.mark.parametrize("content", [None, b"", b"junk"])
def test_a_sweep_whose_table_of_jobs_is_lost_is_shown_without_it(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = swept(tmp_path / "sweep")
    (made.folder / "sweep.json").write_bytes(msgspec.json.encode(made.result))
    lost = made.folder / "las-2.0-1.parquet"  # 2: the highest load that all lines sustain
    lost.unlink()
    if content is not None:
        lost.write_bytes(content)
    (made.folder / "las-3.0-1.parquet").unlink()  # is not needed
    assert call("report", str(made.folder)) == 0
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{lost}: " in told
    assert f"remove its .json file ({lost.with_suffix('.json')})" in told
    assert f"fairlead sweep --resume {made.folder}" in told
    page = Page((made.folder / "report.html").read_text())
    assert str(lost) in page.text
    assert "Job completion time at 2" not in page.text
    assert "Average JCT" in page.text
    out = tmp_path / "figures"
    asked = ["figure", str(made.folder), "--format", "svg", "--out", str(out), "--figure"]
    assert call(*asked, "jct-load") == 0
    assert capsys.readouterr().err == ""
    assert call(*asked, "jct") == 2
    assert str(lost) in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["jct-load.svg"]


def test_out_makes_the_folders_that_are_missing(sweep: Path, tmp_path: Path) -> None:
    asked = ["--figure", "jct-load", "--format", "svg"]
    assert call("report", str(sweep), "--out", str(tmp_path / "a" / "b" / "x.html")) == 0
    assert call("figure", str(sweep), *asked, "--out", str(tmp_path / "c" / "d")) == 0
    assert (tmp_path / "a" / "b" / "x.html").is_file()
    assert (tmp_path / "c" / "d" / "jct-load.svg").is_file()


def test_what_is_no_complete_run_is_refused_in_one_sentence(
    runs: Path, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = str(runs / "1-las-default")
    broken, half, other = tmp_path / "broken", tmp_path / "half", tmp_path / "other"
    for folder, text in ((broken, "{"), (half, '{"status": "interrupted"}'), (other, "[]")):
        folder.mkdir()
        (folder / "run.json").write_text(text)
    lost, file = tmp_path / "lost", str(broken / "run.json")
    lost.mkdir()
    (lost / "run.json").write_text('{"status": "complete", "config": {}, "metrics": {}}')
    cases: list[tuple[list[str], str]] = [
        (["compare", good, str(tmp_path / "none")], "is not the folder of a run"),
        (["compare", good, str(half)], "half: is not a complete run, its status is 'interrupted'"),
        (["compare", good], "expected two runs or more"),
        (["compare", good, good, "--seed", "3"], "compared as they are"),
        (["report", str(broken)], "run.json: is not JSON"),
        (["report", str(other)], "run.json: expected an object, got list"),
        (["report", str(lost)], "jobs.parquet: cannot be read"),
        (["report", str(tmp_path / "none")], "none: holds no run and no finished sweep"),
        (["report", file], f"{file}: is a file, expected the folder of a run"),
        (["figure", file], f"{file}: is a file, expected the folder of a run"),
        (["compare", good, file], f"{file}: is a file, expected the folder of a run"),
        (["compare", good, str(sweep)], "is a sweep, not a run; see sweeps, one or several"),
        (["compare", str(sweep), str(sweep)], f"with: fairlead report {sweep}\n"),
        (
            ["report", good, "--out", f"{file}/x.html"],
            f"--out: {file} is a file, expected a folder",
        ),
        (["figure", str(sweep), "--out", file], f"--out: {file} is a file, expected a folder"),
        (
            ["figure", str(sweep), "--out", f"{file}/x"],
            f"--out: {file} is a file, expected a folder",
        ),
        (["report", good, str(sweep)], "is a run and"),
        (["report"], "name one folder at least"),
        (["report", good, "--out", str(tmp_path)], "--out:"),
        (["figure", good, "--figure", "jct-load"], "'jct-load' is not a figure of runs"),
        (["figure", good, "--figure", "tenants"], "--figure tenants: there is no data for it"),
        (["figure", good, "--format", "eps"], "--format: expected pdf, png, svg, got 'eps'"),
        (["figure", good, "--width", "9"], "--width: must be from 0.5 to 4, got 9"),
        (["figure", good, "--font-size", "1"], "--font-size: must be from 4 to 24, got 1"),
        (["figure", good, "--relative-to", "las"], "--relative-to and --intervals are for sweeps"),
        (["figure", str(sweep), "--relative-to", "x"], "'x' is not a line of the sweep"),
    ]
    for arguments, message in cases:
        assert call(*arguments) == 2, arguments
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    (sweep.parent / "bad").mkdir()
    (sweep.parent / "bad" / "sweep.json").write_text('{"version": 3}')
    assert call("report", str(sweep.parent / "bad")) == 2
    assert "is not the result of a sweep" in capsys.readouterr().err
