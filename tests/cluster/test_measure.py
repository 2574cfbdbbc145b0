import sys
from pathlib import Path

import pytest
from tests.job_types import job_types

from fairlead.cli.main import main
from fairlead.cluster import measure as profiling
from fairlead.cluster.measure import measure
from fairlead.errors import ConfigError
from fairlead.simulator.traces.throughput_tables import read_throughputs

SCRIPT = """
import os, sys, time
from pathlib import Path
import fairlead

step_s = {"fast": 0.005, "slow": 0.02}[os.environ["FAIRLEAD_ACCELERATOR"]]
load = lambda path: time.sleep(0.05)
def save(path):
    time.sleep(0.1)
    path.touch()
with fairlead.Lease(load=load, save=save) as lease:
    while lease.next():
        time.sleep(step_s)
        if lease.step == 100 and "fail" in sys.argv:
            raise SystemExit("out of patience")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "sleeper.py"
    path.write_text(SCRIPT)
    return path


def test_rate_and_restart_cost_of_a_script(script: Path) -> None:
    got = measure([sys.executable, str(script)], "slow", 2, seconds=1.0)
    assert (got.accelerator, got.devices) == ("slow", 2)
    assert 2 < got.steps_per_s < 50  # it cannot be faster; a busy machine is slower
    assert got.intervals >= 3
    assert 0 <= got.stderr < got.steps_per_s
    assert got.save_s > 0.1
    assert got.load_s > 0.05
    assert got.restart_s > got.save_s + got.load_s + got.start_s


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["{python}", "-c", "print('hello')"], "exit code 0 without a word.*last words: hello"),
        (["{python}", "-c", "import nothing_like_it"], "No module named 'nothing_like_it'"),
        (["{python}", "{script}", "fail"], "exit code 1; its last words: out of patience"),
        (["no-such-command"], "cannot be started"),
    ],
)
def test_a_script_that_cannot_be_measured(script: Path, command: list[str], words: str) -> None:
    filled = [word.format(python=sys.executable, script=script) for word in command]
    with pytest.raises(ConfigError, match=words):
        measure(filled, "fast", 1, seconds=1.0)


def test_the_command_line_writes_a_table_that_others_read(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(profiling, "WARM_UP_REPORTS", 1)
    monkeypatch.setattr(profiling, "MIN_INTERVALS", 2)
    table = tmp_path / "rates.csv"
    options = ["--devices", "fast=1", "--seconds", "1", "--out", str(table)]
    with pytest.raises(SystemExit) as left:
        main(["measure", *options, "--", sys.executable, str(script)])
    assert not left.value.code
    message = capsys.readouterr().out
    assert "restart_s" in message
    assert "fast=1" in message
    got = read_throughputs(table)
    assert got.job_types == job_types(("sleeper", 1))
    assert 2 < got.rate[0, 0] < 200
