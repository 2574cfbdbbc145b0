"""Which errors a process leaves for because its checkpoints cannot be had, and what its agent is told."""

import errno
import json
import os
from pathlib import Path

import pytest

from fairlead.client import crash
from fairlead.client.rank_environment import EXIT_STORAGE, RankEnvironment
from fairlead.client.storage import own_access, scripts_access
from fairlead.errors import DamagedError

UNDER_AN_AGENT = RankEnvironment(socket="/run/agent", job=7)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "report"
    reporter = crash._Reporter()
    reporter.path, reporter.pid = str(path), os.getpid()
    monkeypatch.setattr(crash, "_reporter", reporter)
    return path


def error(number: int, path: object = None) -> OSError:
    return OSError(number, os.strerror(number), *([] if path is None else [str(path)]))


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.ESTALE, errno.EACCES])
def test_an_agent_is_told_the_number_of_an_error_of_storage(
    tmp_path: Path, report: Path, capfd: pytest.CaptureFixture[str], number: int
) -> None:
    with pytest.raises(SystemExit) as left, own_access(tmp_path, UNDER_AN_AGENT):
        raise error(number, tmp_path / "lock")
    assert left.value.code == EXIT_STORAGE
    assert json.loads(report.read_text())["storage"] == number
    said = f"fairlead: checkpoint directory '{tmp_path}': {os.strerror(number)}\n"
    assert capfd.readouterr().err == said


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.ENOENT])
def test_what_a_process_or_a_path_lacks_is_no_error_of_storage(
    tmp_path: Path, report: Path, number: int
) -> None:
    with pytest.raises(OSError, match="lock"), own_access(tmp_path, UNDER_AN_AGENT):
        raise error(number, tmp_path / "lock")
    assert not report.exists()


def test_an_agent_is_told_that_checkpoints_are_damaged(
    tmp_path: Path, report: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left, own_access(tmp_path, UNDER_AN_AGENT):
        raise DamagedError("none of its 2 checkpoints is whole (step-9: no)")
    assert left.value.code == EXIT_STORAGE
    why = (
        f"checkpoint directory '{tmp_path}': none of its 2 checkpoints is whole (step-9: no); put whole "
        "ones back, or `fairlead resume 7 --accept-loss`, which keeps the damaged ones under other names"
    )
    told = json.loads(report.read_text())
    assert (told["damaged"], told["message"]) == (True, why)
    assert capfd.readouterr().err == f"fairlead: {why}\n"


def test_without_an_agent_the_error_is_the_scripts(tmp_path: Path, report: Path) -> None:
    with pytest.raises(OSError, match="Read-only"), own_access(tmp_path, RankEnvironment()):
        raise error(errno.EROFS, tmp_path / "lock")
    assert not report.exists()


def test_a_script_that_loads_may_fail_elsewhere(tmp_path: Path, report: Path) -> None:
    """Its own full disk is its own."""
    own, others = tmp_path / "own", tmp_path / "own-other"
    for number, path in (
        (errno.ENOSPC, others / "cache"),
        (errno.EIO, "/data/file"),
        (errno.ENOSPC, None),  # of a write: nothing is written to checkpoints here
        (errno.ECONNREFUSED, None),
        (errno.ENOENT, own / "step-000000000001"),
    ):
        with pytest.raises(OSError), scripts_access(own, UNDER_AN_AGENT):  # noqa: PT011
            raise error(number, path)
    assert not report.exists()
    for number, path in ((errno.ESTALE, own / "step-000000000001" / "rank-0"), (errno.EIO, None)):
        with pytest.raises(SystemExit), scripts_access(own, UNDER_AN_AGENT):
            raise error(number, path)
        assert json.loads(report.read_text())["storage"] == number
