"""Runs that go on in their folder, and what a refusal leaves there."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.small import TABLE, job

from fairlead.analysis.simulate import simulate
from fairlead.errors import ConfigError, ResumeError, RunError
from fairlead.simulator.recording.metrics import Result

JOBS = [job(number, 100.0 * number, 5000.0) for number in range(4)]


def files(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def complete(folder: Path) -> Callable[..., Result]:
    """A run in a folder that has ended; what runs it again with other options."""
    given: dict[str, Any] = {"throughputs": TABLE, "out": folder}
    simulate(JOBS, "fast=2", "las", **given)
    return partial(simulate, resume=True, **given)


def test_another_option_is_named_and_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    again = complete(tmp_path / "o")
    before = files(tmp_path / "o")
    for policy, options, said in (
        ("fifo", {}, "the run there had policy 'las', this one has 'fifo'"),
        ("las", {"seed": 3}, "the run there had seed 0, this one has 3"),
        ("las", {"round_s": 60.0}, "the run there had round_s 360.0, this one has 60.0"),
    ):
        with pytest.raises(RunError, match=said):
            again(JOBS, "fast=2", policy, **options)
        assert files(tmp_path / "o") == before
    with pytest.raises(RunError, match=r"had cluster {'fast': 2}, this one has {'fast': 1}"):
        again(JOBS, "fast=1", "las")
    assert files(tmp_path / "o") == before


def test_another_trace_or_table_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    again = complete(tmp_path / "o")
    before = files(tmp_path / "o")
    with pytest.raises(
        ResumeError, match=r"record 1 differs from the run.*: its trace, or the code"
    ):
        again(JOBS[1:], "fast=2", "las")
    assert files(tmp_path / "o") == before
    other = TABLE.learned(TABLE.job_types[:1], TABLE.slots[:1], TABLE.rate[:1, :1] + 1.0)
    with pytest.raises(ResumeError, match=r"had another throughputs$"):
        again(JOBS, "fast=2", "las", throughputs=other)
    assert files(tmp_path / "o") == before
    assert again(JOBS, "fast=2", "las").metrics["n_completed"] == len(JOBS)


def test_without_a_run_there_is_nothing_to_go_on_with(tmp_path: Path) -> None:
    for folder in (tmp_path / "absent", tmp_path):
        with pytest.raises(RunError, match="there is no run to go on with"):
            simulate(JOBS, "fast=2", "las", throughputs=TABLE, out=folder, resume=True)
    assert not files(tmp_path)
    with pytest.raises(ConfigError, match="resume goes on with the run in the folder out"):
        simulate(JOBS, "fast=2", "las", throughputs=TABLE, resume=True)
