"""A sweep: what it consists of, where it ends, and that nothing stops it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.call_command import call

from fairlead.analysis.experiments.point import (
    Point,
    PointResult,
    Status,
)
from fairlead.analysis.experiments.sweep import (
    Automatic,
    Spec,
    SweepCell,
    SweepResult,
    read_sweep,
    run_sweep,
    summarise,
    sustainable,
)
from fairlead.analysis.experiments.sweep_description import described
from fairlead.analysis.experiments.sweep_loads import loads, step_of
from fairlead.cli.sweep import NAMES
from fairlead.errors import ConfigError
from fairlead.simulator.simulation_input import SimulationInput

SMALL = ["--cluster", "1:1:1", "--policies", "fifo_aware", "las_aware"]


def spec(**table: Any) -> Spec:
    return described({"window": "5:9"} | table, "sweep", NAMES)


# --- what it consists of -------------------------------------------------------------------------


def test_loads_are_listed_or_spread_over_a_range() -> None:
    assert loads(["0.4:6.0:15"], False) == tuple(round(0.4 + 0.4 * n, 10) for n in range(15))
    assert loads(["0:6:3", 1.5], False) == (1.5, 3.0, 6.0)
    assert loads(["0:700:8"], True) == (100, 200, 300, 400, 500, 600, 700)


def test_every_policy_meets_every_load_and_seed() -> None:
    made = spec(policies=["las", "fifo"], seeds=[0, 3], rates=[0.5, 2], cluster="1:1:1")
    asked: list[Point] = []
    result = run_sweep(made, lambda points: _noted(points, asked))
    assert len(asked) == 8
    assert [(c.line, c.load, c.seed) for c in result.cells] == [
        (line, load, seed) for line in ("las", "fifo") for load in (0.5, 2.0) for seed in (0, 3)
    ]
    generated = {p.input.generate for p in asked}
    assert generated == {"gavel,interarrival=7200.0", "gavel,interarrival=1800.0"}
    assert {p.input.window for p in asked} == {"5:9"}


def test_a_full_queue_has_all_jobs_at_the_start() -> None:
    made = spec(jobs="10:30:3", generate="gavel,multi-gpu", window="0:5", seeds=4)
    point = made.point("las", 20.0, 4)
    assert point.input.generate == "gavel,multi-gpu,interarrival=0,jobs=20"
    assert point.input.seed == 4


def test_options_with_several_values_are_lines() -> None:
    made = spec(
        policies="las", profiles=["gavel", "default"], rates=1, round=[360, 720.0], cluster="1:1:1"
    )
    assert list(made.lines()) == [
        "las (gavel) round_s=360",
        "las (gavel) round_s=720",
        "las (default) round_s=360",
        "las (default) round_s=720",
    ]
    assert made.point("las (gavel) round_s=720", 1.0, 0).input.round_s == 720
    assert made.input.cluster == "1:1:1"


def test_lines_end_at_their_cutoff(tmp_path: Path) -> None:
    """Gavel's file of them, whatever notation and names it has."""
    path = tmp_path / "cutoffs.json"
    path.write_text('{"1:1:1": {"max_min_fairness": 1.0}, "36:36:36": {"las_aware": 0.1}}')
    made = spec(cutoff=str(path), rates=[0.5, 1, 2], cluster="v100=1,p100=1,k80=1")
    result = run_sweep(made, lambda points: [_outcome(p) for p in points])
    by_line = {
        line.name: [c.load for c in result.cells if c.line == line.name] for line in result.lines
    }
    assert by_line == {"las": [0.5], "las_aware": [0.5, 1.0, 2.0]}


# --- rates found by the way ----------------------------------------------------------------------


def test_automatic_rates_go_up_until_all_is_in_use_or_the_queue_grows() -> None:
    def run(points: Sequence[Point]) -> list[PointResult]:
        return [_outcome(p, utilization=_rate(p) / (1 if p.policy == "las" else 2)) for p in points]

    made = spec(rates="auto:0.25:0.25", utilization_threshold=0.9, cluster="1:1:1")
    assert made.automatic == Automatic(0.9, 0.25, 0.25)
    result = run_sweep(made, run)
    top = {
        line: max(c.load or 0 for c in result.cells if c.line == line)
        for line in ("las", "las_aware")
    }
    assert top == {"las": 1.0, "las_aware": 2.0}

    def diverge(points: Sequence[Point]) -> list[PointResult]:
        return [_outcome(p, Status.DIVERGED if _rate(p) > 0.6 else Status.COMPLETE) for p in points]

    assert [c.load for c in run_sweep(made, diverge).cells if c.line == "las"] == [0.25, 0.5, 0.75]


def test_the_automatic_step_goes_with_the_devices() -> None:
    small = Point("las", input=SimulationInput(generate="gavel", cluster="2:2:2", window="0:1"))
    large = Point(
        "las", input=SimulationInput(generate="gavel,multi-gpu", cluster="20:20:20", window="0:1")
    )
    assert 0.005 < step_of(small) < 0.05
    assert 3 < step_of(large) / step_of(small) < 10


# --- what comes out ------------------------------------------------------------------------------


def test_a_load_is_sustained_up_to_twice_the_jct() -> None:
    jct = {0.5: 10.0, 1.0: 12.0, 1.5: 19.9, 2.0: 20.1, 2.5: 15.0}
    made = Spec(("las",), seeds=(0, 1), loads=tuple(jct))
    cells = [
        SweepCell(
            "las", load, seed, _outcome(made.point("las", load, seed), avg_jct_s=value + seed - 0.5)
        )
        for load, value in jct.items()
        for seed in (0, 1)
    ]
    rows = summarise(SweepResult("", made, (), tuple(cells)))
    assert (rows[0].jct_s, rows[0].jct_low_s, rows[0].jct_high_s) == (10.0, 9.5, 10.5)
    assert sustainable(rows, "las") == 1.5
    cells[3] = SweepCell("las", 1.0, 1, _outcome(cells[3].outcome.point, Status.DIVERGED))
    rows = summarise(SweepResult("", made, (), tuple(cells)))
    assert rows[1].statuses == {Status.COMPLETE: 1, Status.DIVERGED: 1}
    assert sustainable(rows, "las") == 0.5


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rates = [1", "not valid TOML"),
        ("clusters = 1\nrates = 1", "clusters: is not a key of a sweep"),
        ("rates = -1", "rates: expected a number > 0 or LOW:HIGH:POINTS, got -1.0"),
        ('rates = "2:1:4"', "rates: expected LOW:HIGH:POINTS"),
        ('rates = "auto:0:1"', "rates: expected auto or auto:FIRST:STEP, got 'auto:0:1'"),
        ("jobs = 2.5", "jobs: expected a whole number > 0"),
        ("rates = 1\njobs = 1", "rates: goes without jobs"),
        ("seeds = [0]", "give loads: rates, jobs, or a trace"),
        ("rates = 1\nseeds = [-1]", "seeds: must be >= 0, got -1"),
        ('rates = 1\nround = "long"', "round: expected a number, got 'long'"),
        ('rates = 1\nideal = "yes"', "ideal: expected true or false, got 'yes'"),
        ('rates = 1\nwindow = "0:5"\npolicies = ["lass"]', "lass: policy 'lass': no such policy"),
        ("rates = 1", "las: an endless stream of jobs needs --window"),
        ('rates = 1\nwindow = "0:5"\ncutoff = "no.json"', "cutoff: no.json: cannot be read"),
        ("rates = 1\nutilization_threshold = 0.9", "utilization_threshold: goes with rates = auto"),
        ("jobs = 3\nrestart_cost = -1", "expected a number of seconds from 0 to 1e+10, got '-1'"),
        ("jobs = 3\nrestart_cost = true", "expected seconds or FAMILY=SECONDS, or a list of them"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    assert call("sweep", str(path), "--out", str(tmp_path / "out")) == 2
    error = capsys.readouterr().err
    assert re.match(rf"fairlead: {path}:([1-9]:)? ", error)
    assert says in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--rates", "x", "--window", "0:5"], "sweep: rates: expected a number > 0"),
        (
            ["--rates", "1", "--seeds", "0", "one"],
            "--seeds: expected a whole number >= 0, got 'one'",
        ),
        (["--rates", "1", "--timeout", "0"], "timeout: must be a number of seconds > 0, got 0"),
        (["--rates", "1", "--memory", "0"], "memory: must be at least 1 MiB, got 0"),
        (["--resume", "nowhere"], "--resume: nowhere holds no sweep: it has no spec.json"),
        (["--jobs", "3", "--utilization-threshold", "2"], "utilization_threshold: goes with rates"),
        (["--jobs", "3", "--out", __file__], f"--out: {__file__} is not a directory"),
        (["--resume", "x", "--rates", "1"], "it takes no option that says what is swept"),
        (["--rates", "1", "--ray-address", "x", "--window", "0:5"], "goes with --executor ray"),
    ],
)
def test_what_is_wrong_with_options_is_one_sentence(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("sweep", *options) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_point_out_of_bounds_is_an_error_of_its_own() -> None:
    with pytest.raises(ConfigError, match="sweep: las_aware: window 0:50: only 20 jobs"):
        spec(policies="las_aware", jobs=20, window="0:50", cluster="1:1:1")


# --- the command ---------------------------------------------------------------------------------


def test_options_and_a_file_are_the_same_sweep(tmp_path: Path) -> None:
    """Without points, for its cutoffs are below all of its rates."""
    cutoff = tmp_path / "cutoffs.json"
    cutoff.write_text('{"1:1:1": {"fifo_aware": 0.1, "las_aware": 0.1}}')
    toml = tmp_path / "sweep.toml"
    toml.write_text(
        'policies = ["fifo_aware", "las_aware"]\nprofiles = "gavel"\nseeds = [0, 1]\n'
        f'rates = "0.4:6.0:16"\ncluster = "1:1:1"\nwindow = "4000:5000"\nround = [360, 720]\n'
        f'restart_cost = [20, "A3C=5"]\ncutoff = "{cutoff}"\n'
    )
    options = [
        *SMALL,
        *("--profiles", "gavel", "--seeds", "0", "1", "--rates", "0.4:6.0:16"),
        *("--window", "4000:5000", "--round", "360", "720"),
        *("--restart-cost", "20", "A3C=5", "--cutoff", str(cutoff)),
    ]
    assert call("sweep", "--out", str(tmp_path / "a"), *options) == 0
    assert call("sweep", "--out", str(tmp_path / "b"), str(toml)) == 0
    assert call("sweep", str(toml), "--out", str(tmp_path / "c"), "--seeds", "2") == 0
    told = json.loads((tmp_path / "c" / "spec.json").read_bytes())
    assert told["seeds"] == [2], "an option wins over the file"
    for name in ("spec.json", "sweep.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_load_of_nothing_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cutoffs.json"
    path.write_text('{"1:1:1": {"fifo_aware": 1, "las_aware": 1}}')
    options = [*SMALL, "--cutoff", str(path), "--out", str(tmp_path / "out"), "--jobs", "0:6:3"]
    assert call("sweep", *options) == 0
    assert "fairlead: jobs 0:6:3: a load of 0 is left out\n" in capsys.readouterr().err


def test_terminated_it_says_how_to_go_on(tmp_path: Path) -> None:
    """As with Ctrl-C; no worker is left."""
    what = [*SMALL, "--rates", "0.1", "--window", "900:1000", "--processes", "1"]
    what += ["--generate", "gavel,duration=36000", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "fairlead", "sweep", *what]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 600
    while not (workers := psutil.Process(process.pid).children()) and time.monotonic() < until:
        time.sleep(0.02)
    process.terminate()
    _, message = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"go on with: fairlead sweep --resume {tmp_path / 'out'}\n" in message
    assert workers
    assert not psutil.wait_procs(workers, timeout=120)[1]


def test_a_point_that_fails_does_not_take_the_sweep_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = [*SMALL, "--jobs", "3", "--out", str(out), "--generate", "gavel,duration=600"]
    options += ["--processes", "1"]
    assert call("sweep", *options, "--memory", "20") == 1
    message = capsys.readouterr().out
    assert "Without a result" in message
    assert "took more memory than it may" in message
    assert call("sweep", *options, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [one["statuses"] for one in printed["points"]] == [{"complete": 1}] * 2
    assert (out / "report.html").exists()


def test_killed_halfway_it_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """-9, that is: no farewell. Its workers end with it."""
    what = [*SMALL, "--seeds", "0", "1", "--rates", "0.1", "--window", "50:60"]
    what += ["--generate", "gavel,duration=36000", "--processes", "1"]
    command = [sys.executable, "-m", "fairlead", "sweep", *what, "--out"]
    process = subprocess.Popen([*command, str(tmp_path / "killed")])
    points = tmp_path / "killed" / "points"
    until = time.monotonic() + 600
    while len(_results(points)) < 4 and time.monotonic() < until:  # a table and a result each
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert workers
    assert not psutil.wait_procs(workers, timeout=120)[1]
    half = _results(points)
    assert 4 <= len(half) < 8
    assert call("sweep", "--resume", str(tmp_path / "killed"), "--processes", "1") == 0
    assert call("sweep", *what, "--out", str(tmp_path / "whole")) == 0
    whole = _results(tmp_path / "whole" / "points")
    assert len(whole) == 8
    assert _results(points) == whole
    assert half.items() <= whole.items()
    texts = [(tmp_path / name / "sweep.json").read_bytes() for name in ("killed", "whole")]
    assert texts[0] == texts[1]
    assert all(c.outcome.status is Status.COMPLETE for c in read_sweep(tmp_path / "whole").cells)


def _results(folder: Path) -> dict[str, bytes]:
    """The files that say what came out, whole ones only."""
    return {
        path.name: path.read_bytes()
        for path in folder.glob("*")
        if not path.name.startswith(".") and not path.name.endswith(".timing.json")
    }


def _outcome(point: Point, status: Status = Status.COMPLETE, **metrics: float) -> PointResult:
    known = {"avg_jct_s": 1.0, "utilization": 0.1} | metrics
    return PointResult(point, status, known if status is Status.COMPLETE else {})


def _noted(points: Sequence[Point], asked: list[Point]) -> list[PointResult]:
    asked += points
    return [_outcome(one) for one in points]


def _rate(point: Point) -> float:
    return 3600 / float((point.input.generate or "").rpartition("=")[2])
