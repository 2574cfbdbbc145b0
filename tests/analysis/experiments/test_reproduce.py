"""What a reproduction writes, and the page that is made of it."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.analysis.experiments.small_points import point
from tests.call_command import call

from fairlead.analysis.experiments import reproduce as r
from fairlead.analysis.experiments.executor import Processes
from fairlead.analysis.experiments.experiment_context import RunContext
from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
    Reproduction,
)
from fairlead.analysis.experiments.result_store import ResultStore
from fairlead.analysis.report.chart import Chart, Series
from fairlead.errors import ConfigError


def _found(context: ExperimentContext) -> Findings:
    [one] = context.run([point()])
    hours = one.metrics["avg_jct_s"] / 3600
    x = np.array([1.0, 2.0])
    chart = Chart("JCT", "Jobs", "h", (Series("fifo", x, np.array([hours, np.nan])),))
    rows = (
        FindingRow("average JCT", hours, hours / 2, "h", "twice | as long"),
        FindingRow("makespan", None, 3, "h", "not run"),
        FindingRow("jobs", np.float64(123456.0)),  # as an element of an array is
    )
    return Findings((FindingTable("Six jobs", rows),), (chart,), ("They are few.",))


ONE = Reproduction("six-jobs", "Six jobs", "A paper, figure 1", _found)


def _context(folder: Path) -> RunContext:
    return RunContext(
        "six-jobs", "small", folder / "six-jobs-small", ResultStore(folder), executor=Processes(1)
    )


def test_all_of_it_is_written_and_the_page_has_it(tmp_path: Path) -> None:
    context = _context(tmp_path)
    _, record = r.reproduce(ONE, context)
    assert (record.n_points, record.n_known) == (1, 0)
    assert record.command == "fairlead reproduce six-jobs --scale small"
    names = {path.name for path in context.folder.iterdir()}
    assert names == {
        *("figure.png", "figure.svg", "table.csv", "table.md", "charts.json", "points.json"),
        "findings.json",
    }
    rows = list(csv.DictReader((context.folder / "table.csv").read_text().splitlines()))
    assert [row["ratio"] for row in rows] == ["2.0", "", ""]
    assert [row["ours"] for row in rows][1:] == ["", "123456.0"]
    [ran] = json.loads((context.folder / "points.json").read_text())
    assert ran["point"]["policy"] == "fifo_aware"
    assert json.loads((context.folder / "charts.json").read_text())[0]["series"][0]["y"][1] is None

    assert (
        msgspec.json.decode((context.folder / r.RECORD).read_bytes(), type=r.ReproductionRecord)
        == record
    )
    again = _context(tmp_path)  # what was run is not run again
    assert r.reproduce(ONE, again)[1] == record  # and when it was run stays written
    assert again.fresh == 0
    (context.folder / r.RECORD).unlink()
    assert r.reproduce(ONE, _context(tmp_path))[1].n_known == 1

    pages = tmp_path / "docs" / "results"
    r.write_results(pages, [context.folder])
    text = (pages / "six-jobs.md").read_text()
    assert "\n# Six jobs\n" in text
    assert "    fairlead reproduce six-jobs --scale small\n" in text
    assert "| 2.000 | twice \\| as long |" in text
    assert "| makespan (h) | – | 3 | – | not run |" in text
    assert "| jobs | 123,456 | – | – |  |" in text
    assert "- They are few." in text
    assert "![Six jobs](images/six-jobs-figure.svg)" in text
    assert (pages / "images" / "six-jobs-figure.svg").exists()
    assert "| [Six jobs](six-jobs.md) |" in (pages / "index.md").read_text()
    with pytest.raises(ConfigError, match=r"--write-results: .*index\.md is not a directory"):
        r.write_results(pages / "index.md", [context.folder])


def test_the_command_names_the_data_that_were_used(tmp_path: Path) -> None:
    def found(context: ExperimentContext) -> Findings:
        context.shared("rates.csv")
        return Findings((), ())

    (tmp_path / "rates.csv").touch()
    context = replace(_context(tmp_path), data=tmp_path)
    _, record = r.reproduce(replace(ONE, run=found), context)
    assert record.command == "fairlead reproduce six-jobs --scale small --data DIR"


def test_names_are_those_of_the_published_modules() -> None:
    known = r.reproductions()
    assert list(known) == sorted(known)
    assert [one.name for one in r.select_reproductions(["all"])] == list(known)
    assert r.select_reproductions(["all", next(iter(known))]) == list(known.values())
    with pytest.raises(ConfigError, match=r"'no-such' is not known \(choose from all, .*shockwave"):
        r.select_reproductions(["all", "no-such"])


def test_data_that_is_missing_is_named(tmp_path: Path) -> None:
    context = _context(tmp_path)
    context.data = tmp_path
    with pytest.raises(ConfigError, match=r"philly/jobs\.csv: six-jobs needs this file"):
        context.shared("philly/jobs.csv")
    (tmp_path / "rates.csv").write_text("")
    assert context.shared("rates.csv") == tmp_path / "rates.csv"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give a name, or 'all'"),
        (["no-such"], "'no-such' is not known"),
        (["shockwave-canonical", "--data", "nowhere"], "--data: nowhere is not a directory"),
        (["--write-results", "results", "nowhere"], "nowhere/findings.json: cannot be read"),
    ],
)
def test_bad_usage_is_one_sentence(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("reproduce", *arguments) == 2
    assert says in capsys.readouterr().err


def test_an_out_that_is_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    path.write_text("")
    assert call("reproduce", "shockwave-canonical", "--out", str(path)) == 2
    assert capsys.readouterr().err == f"fairlead: --out: {path} is not a directory\n"
    assert call("reproduce", "shockwave-canonical", "--out", str(path / "below")) == 2
    assert f"--out: {path}/below: cannot be made (Not a directory)" in capsys.readouterr().err


def test_the_list_has_titles_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("reproduce", "--list") == 0
    message = capsys.readouterr().out
    assert all(name in message for name in r.reproductions())
