"""When a Slurm job ends."""

import os
import time
from pathlib import Path

import pytest

from fairlead.cli.slurm_end import slurm_end_s
from fairlead.errors import ConfigError

JOB = {"SLURM_JOB_ID": "7"}


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "squeue"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return path


def _says(squeue: Path, script: str) -> None:
    squeue.write_text(f"#!/bin/sh\n{script}\n")
    squeue.chmod(0o755)


def test_what_the_job_says_itself_counts() -> None:
    assert slurm_end_s({"SLURM_JOB_END_TIME": "1800000000", **JOB}) == 1_800_000_000
    assert slurm_end_s({}) is None


@pytest.mark.parametrize(
    ("left", "left_s"),
    [("1-02:03:04", 93_784), ("02:03:04", 7_384), ("3:04", 184), ("0:00", 0), ("UNLIMITED", None)],
)
def test_squeue_is_asked_else(squeue: Path, left: str, left_s: float | None) -> None:
    _says(squeue, f'[ "$3" = 7 ] && echo "{left}"')
    found = slurm_end_s(JOB)
    if left_s is None:
        assert found is None
    else:
        assert found is not None
        assert found - time.time() == pytest.approx(left_s, abs=60)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo INVALID", "expected the time left of job 7, got 'INVALID'; --ends-in says"),
        (
            "echo one >&2; echo no controller >&2; exit 1",
            r"when job 7 ends \(no controller\); --ends-in",
        ),
        ("exit 3", r"when job 7 ends \(exit code 3\)"),
    ],
)
def test_what_cannot_be_told_is_said(squeue: Path, script: str, says: str) -> None:
    _says(squeue, script)
    with pytest.raises(ConfigError, match=says):
        slurm_end_s(JOB)
