"""The scripts of examples/search."""

import csv
import runpy
import sys
from importlib.resources import files
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "examples" / "search"


def test_rules_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare_searches.py"])
    runpy.run_path(str(SCRIPTS / "compare_searches.py"), run_name="__main__")
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    hours = {word[1]: float(word[6]) for word in words}
    assert hours.keys() == {"none", "curve", "median", "asha"}
    assert max(hours.values()) == hours["none"]


def test_the_table_that_comes_along_was_recorded_by_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    table = tmp_path / "curves.csv"
    monkeypatch.setattr(sys, "argv", ["record_curves.py", str(table), "--configurations", "1"])
    runpy.run_path(str(SCRIPTS / "record_curves.py"), run_name="__main__")
    with table.open(newline="") as file:
        made = list(csv.reader(file))
    known = (files("fairlead.simulator.traces.data") / "digits_curves.csv").read_text()
    header, first = list(csv.reader(known.splitlines()))[:2]
    assert made[0] == header
    assert made[1][:13] == first[:13]
    accuracy = [[float(text) for text in row[13:]] for row in (made[1], first)]
    assert accuracy[0] == pytest.approx(accuracy[1], abs=0.1)  # another torch rounds otherwise
