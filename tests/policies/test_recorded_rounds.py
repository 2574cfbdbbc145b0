"""Rounds of an earlier run."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import ConfigError
from fairlead.scheduler.journal import replay
from tests.small import jct, job, run


def recording(folder: Path, rounds: list[Any], zipped: bool = False) -> str:
    text = json.dumps({"policy": "x", "per_round_schedule": rounds}).encode()
    file = folder / "rounds.json"
    file.write_bytes(gzip.compress(text) if zipped else text)
    return f"recorded:{file}"


@pytest.mark.parametrize("zipped", [False, True])
def test_the_rounds_are_played_in_their_order(tmp_path: Path, zipped: bool) -> None:
    """Types go by device ids; a round may be empty; the journal replays."""
    rounds = [{"0": [0], "1": [1]}, {"0": [1]}, {"1": [0]}]
    jobs = [job(0, 0.0, 3_600.0 + 1_800.0), job(1, 0.0, 1_800.0 + 1_000.0)]
    policy = recording(tmp_path, rounds, zipped)
    result = run(jobs, fast=1, slow=1, policy=policy, out=tmp_path / "run")
    assert jct(result) == {0: pytest.approx(720.0), 1: pytest.approx(820.0)}
    assert result.metrics["n_solves"] == 0
    replay(tmp_path / "run" / "journal")


def test_an_empty_round_waits_for_the_next_arrival(tmp_path: Path) -> None:
    jobs = [job(0, 0.0, 100.0), job(1, 500.0, 100.0)]
    result = run(jobs, policy=recording(tmp_path, [{}, {"1": [0]}, {"0": [0]}]))
    assert jct(result) == {0: pytest.approx(520.0), 1: pytest.approx(10.0)}


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ([{"0": [0]}, {"7": [0]}], r"per_round_schedule\[1\] has job 7, which is not there"),
        ([{"0": [5]}], r"per_round_schedule\[0\] has device 5, the cluster has 1"),
        ([{"0": []}], r"per_round_schedule\[0\]: job 0 has no devices"),
        ([{"x": [0]}], "not a recorded run"),
        ({"0": [0]}, "not a recorded run"),
    ],
)
def test_recordings_that_make_no_sense_are_refused(
    tmp_path: Path, rounds: list[Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run([job(0, 0.0, 1e6)], policy=recording(tmp_path, rounds))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.json: cannot be read"):
        run([job(0, 0.0, 1e6)], policy=f"recorded:{tmp_path / 'gone.json'}")
