"""``fairlead solve-window`` as a user calls it, and the reader behind it."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fairlead.cli.solve_horizon import solve_window
from fairlead.errors import InputError
from fairlead.simulator.traces.planning_problems import read_windows

INSTANCE: dict[str, Any] = {
    "G": 2, "F": 4, "T": 120, "round": 1, "k": 0.001, "lam": 2.0, "rhomax": 1.0,
    "bases": [0.0, 0.5, 1.0], "logs": [-10.0, -0.7, 0.0],
    "ids": [7, 8], "nw": [1, 2], "E": [10, 20], "cur": [0, 10], "d": [60.0, 24.0],
    "R": [600.0, 240.0], "ftf": [360.0, 1000.0],
}  # fmt: skip

app = typer.Typer()
app.command()(solve_window)


def written(folder: Path, *records: Any) -> Path:
    path = folder / "windows.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def run(path: Path, *more: str) -> str:
    result = CliRunner().invoke(app, ["--instances", str(path), *more], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_one_object_per_problem(tmp_path: Path) -> None:
    """Job 0 is late: it expects to end at 120 + 600 s where 360 s would be fair, so it weighs 2^2."""
    path = written(tmp_path, {"inst": INSTANCE, "priorities": [1.0, 1.0]}, {"inst": INSTANCE})
    even, late = map(json.loads, run(path, "--json").splitlines())
    assert list(even) == ["objective", "counts", "bound", "seconds"]
    assert even["counts"] == [4, 2]
    # by hand: job 0 has 8 of 10 epochs done, job 1 all 20; 600 - 480 s remain of job 0
    assert even["objective"] == pytest.approx(-0.7 * 0.4 / 8 - 0.12)
    assert late["objective"] == pytest.approx(-4 * 0.7 * 0.4 / 8 - 0.12)
    assert even["bound"] == pytest.approx(even["objective"])


def test_the_table_is_plain_text(tmp_path: Path) -> None:
    out = run(written(tmp_path, {"inst": INSTANCE}))
    assert "1 window problem\n" in out
    assert [line.split()[:3] for line in out.splitlines() if line.strip()][3] == ["0", "2", "6"]
    assert "\x1b" not in out


def test_gzip_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "windows.jsonl.gz"
    path.write_bytes(gzip.compress(f"\n{json.dumps({'inst': INSTANCE})}\n\n".encode()))
    assert [instance.line for instance in read_windows(path)] == [2]


def test_no_jobs(tmp_path: Path) -> None:
    bare: dict[str, list[int]] = {name: [] for name in ("ids", "nw", "E", "cur", "d", "R", "ftf")}
    [line] = run(written(tmp_path, {"inst": {**INSTANCE, **bare}}), "--json").splitlines()
    assert json.loads(line)["counts"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"G": 0}, "inst.G: must be >= 1, got 0"),
        ({"F": 10**9}, "inst.F: must be <= 50000000, got 1000000000"),
        ({"F": 40_000_000}, "inst.F: jobs x rounds must be <= 50000000, got 2 x 40000000"),
        ({"T": 0}, "inst.T: must be > 0, got 0.0"),
        ({"k": -1}, "inst.k: must be >= 0, got -1.0"),
        ({"nw": [1, 0]}, "inst.nw[1]: must be >= 1, got 0"),
        ({"nw": "many"}, "not a window problem: Expected `array`, got `str` - at `$.inst.nw`"),
        ({"E": [10]}, "inst.E: expected 2 values, one per entry of nw, got 1"),
        ({"E": [10, 0]}, "inst.E[1]: must be > 0, got 0.0"),
        ({"cur": [0, 21]}, "inst.cur[1]: must be <= E = 20, got 21"),
        ({"d": [0, 1]}, "inst.d[0]: must be > 0, got 0.0"),
        ({"ftf": [1, -2]}, "inst.ftf[1]: must be > 0, got -2.0"),
        ({"ftf": None}, "inst.ftf: is missing, and there are no priorities"),
        ({"bases": [0.0, 0.0, 1.0]}, "inst.bases: expected two or more, rising, got [0.0, 0.0, 1.0]"),
        ({"logs": [-1.0, 0.0]}, "inst.logs: expected 3 values, got 2"),
        ({"logs": [-1, -0.9, 0]}, "inst.logs: expected rising and concave, got [-1.0, -0.9, 0.0]"),
    ],
)  # fmt: skip
def test_bad_values(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = written(tmp_path, {"inst": INSTANCE}, {"inst": {**INSTANCE, **change}})
    with pytest.raises(InputError) as caught:
        list(read_windows(path))
    assert str(caught.value) == f"{path}:2: {message}"


def test_bad_priorities_and_no_lines(tmp_path: Path) -> None:
    path = written(tmp_path, {"inst": INSTANCE, "priorities": [1.0, 0.0]})
    with pytest.raises(InputError, match=r":1: priorities\[1\]: must be > 0, got 0.0"):
        list(read_windows(path))
    path.write_text("\n")
    with pytest.raises(InputError, match=r"windows\.jsonl: is empty"):
        list(read_windows(path))
    path.write_text("{")
    with pytest.raises(InputError, match=":1: not a window problem"):
        list(read_windows(path))
