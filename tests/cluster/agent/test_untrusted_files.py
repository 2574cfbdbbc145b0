"""Jobs that put something else where the agent or the spawner reads and writes: the node goes on."""

import json
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.cluster.agent.cluster import (
    RANK,
    RunningAgent,
    Server,
    job,
    plain,
)
from tests.cluster.agent.conftest import Play

from fairlead.cluster.agent.health import disk_problems
from fairlead.cluster.agent.progress_reader import ProgressError, parse_progress
from fairlead.cluster.agent.rank_failures import (
    error_line,
    exit_failure,
    read_report,
    sentence,
)
from fairlead.cluster.agent.report_limits import SendableCheck
from fairlead.cluster.agent.stacks import read_stack
from fairlead.cluster.agent.survivors import read_records
from fairlead.cluster.agent.tracebacks import last_traceback
from fairlead.cluster.agent.untrusted_files import (
    NotRegularError,
    open_regular,
    open_to_append,
    read_linked,
    read_regular,
    write_anew,
)
from fairlead.cluster.protocol.messages import AttemptStatus, Failure
from fairlead.cluster.server.after_restore import newest_trace

PYTHON = sys.executable
LIMIT_S = 300.0  # for one test with an agent that does nothing any more


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link(path: Path) -> None:
    (path.parent / "other").write_text("{}")
    path.symlink_to(path.parent / "other")


@pytest.fixture
def limit() -> object:
    """A call that never returns ends the test by a signal, and not the run by a time limit."""

    def late(*_: object) -> None:
        raise TimeoutError("it was waited for")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("make", [_pipe, _endless, _link, Path.mkdir])
def test_what_is_no_regular_file_is_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "1-0.failure"
    make(path)
    with pytest.raises(NotRegularError, match="is not a regular file"):
        read_regular(path, 100)
    with pytest.raises(NotRegularError, match="is not a regular file"):
        open_regular(path, os.O_WRONLY | os.O_APPEND)
    assert read_report(path) is None
    descriptor = open_to_append(path)
    os.write(descriptor, b"output")
    assert os.get_blocking(descriptor)
    os.close(descriptor)
    assert stat.S_ISREG(path.lstat().st_mode)
    assert path.read_bytes() == b"output"


@pytest.mark.usefixtures("limit")
def test_a_folder_that_has_become_a_link_is_not_followed(tmp_path: Path) -> None:
    real, folder = tmp_path / "real", tmp_path / "7"
    real.mkdir()
    (real / "1-0.log").write_text("somebody's")
    folder.symlink_to(real)
    with pytest.raises(NotADirectoryError):
        read_regular(folder / "1-0.log", 100)
    os.close(open_to_append(folder / "1-0.log"))
    assert not folder.is_symlink()
    assert (real / "1-0.log").read_text() == "somebody's"


def test_a_file_with_another_name_is_read_but_not_written(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("kept")
    os.link(tmp_path / "one", tmp_path / "two")
    assert read_regular(tmp_path / "two", 3) == b"kep"
    with pytest.raises(NotRegularError):
        open_regular(tmp_path / "two", os.O_RDWR)
    write_anew(tmp_path / "two", b"new")
    assert (tmp_path / "one").read_text() == "kept"


@pytest.mark.parametrize(
    "forged",
    [
        {"step": 2**64 - 1},
        {"line": 2**63},
        {"line": 10**25},
        {"time_s": -1.0},
        {"type": ["no text"]},
    ],
)
def test_a_report_out_of_bounds_is_dropped_with_a_warning(
    tmp_path: Path, forged: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "1-0.failure"
    path.write_text(json.dumps({"type": "ValueError", "message": "no"} | forged))
    assert read_report(path) is None
    assert "is not used" in caplog.text


@pytest.mark.usefixtures("limit")
def test_a_link_of_the_users_own_is_followed_to_a_file_only(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("/envs/a\n")
    (tmp_path / "link").symlink_to(tmp_path / "list")
    assert read_linked(tmp_path / "link", 100) == b"/envs/a\n"
    (tmp_path / "endless").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for name in ("endless", "pipe"):
        with pytest.raises(NotRegularError):
            read_linked(tmp_path / name, 100)


@pytest.mark.usefixtures("limit")
def test_what_a_job_does_to_its_directory_is_no_trouble_of_the_node(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f".fairlead-health-{os.getpid()}")
    assert disk_problems(tmp_path, of_job=True) == []
    gone = tmp_path / "gone"
    assert disk_problems(gone, of_job=True) == []
    assert disk_problems(gone) == [f"cannot write to {gone}: No such file or directory"]


@pytest.mark.usefixtures("limit")
def test_the_disk_that_a_job_chose_is_no_trouble_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    assert disk_problems(tmp_path) != []
    assert disk_problems(tmp_path, of_job=True) == []
    assert disk_problems(tmp_path / ("a" * 300), of_job=True) == []


def test_a_forged_record_is_not_waited_for(tmp_path: Path) -> None:
    forged = {"job": 1, "attempt": 1, "token": "x", "grace_s": 1e300}
    (tmp_path / "1-1.json").write_text(json.dumps(forged))
    assert read_records(tmp_path) == []


def test_a_report_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "1-0.failure"
    text = "x\n\x1b[2J\u202ey"
    path.write_text(json.dumps(dict.fromkeys(("type", "message", "file", "function"), text)))
    failure = exit_failure(0, 3, read_report(path), "", world_size=1)
    assert sentence(failure, 1).isprintable()
    assert all(getattr(failure, n).isprintable() for n in ("type", "message", "file", "function"))


@pytest.mark.parametrize("digits", [25, 5000])
def test_printed_tracebacks_with_absurd_lines_are_none(digits: int) -> None:
    line = f'File "a.py", line {"9" * digits}'
    text = f"Traceback (most recent call last):\n  {line}, in f\nValueError: no\n"
    found = last_traceback(text)
    assert found is not None
    assert (found.type, found.line) == ("ValueError", 0)
    assert read_stack(0, f"Thread 0x1\n  {line} in f\n") is None


def test_long_lines_do_not_take_long() -> None:
    began = time.process_time()
    assert error_line("a" * (1 << 17)) == ""
    assert error_line("ValueError: " + "a" * (1 << 17)).startswith("ValueError: aaa")
    assert read_stack(0, "Thread 0x1\n " + " (:" * (1 << 18)) is None
    assert time.process_time() - began < 5.0  # it was minutes


def test_nested_progress_is_an_error() -> None:
    with pytest.raises(ProgressError):
        parse_progress('{"x": ' + "[" * 4000, 100)


def test_what_cannot_be_told_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    check = SendableCheck()
    good = AttemptStatus(
        job=1, attempt=1, state="ended", exit_code=3, failure=Failure(line=7), reason="no"
    )
    assert check([good]) == (good,)
    for bad in (Failure(line=10**25), Failure(step=2**64 - 1), Failure(type="\ud800")):
        status = AttemptStatus(
            job=2, attempt=1, state="ended", exit_code=3, failure=bad, saved_step=10**30
        )
        assert check([status]) == (AttemptStatus(job=2, attempt=1, state="ended", exit_code=3),)
    assert caplog.text.count("not all can be told") == 1
    check.details = False
    assert check([good]) == (AttemptStatus(job=1, attempt=1, state="ended", exit_code=3),)


def test_ids_of_jobs_that_cannot_be_are_nobodys(tmp_path: Path) -> None:
    for name in ("12", "9" * 200, str(1 << 40)):
        (tmp_path / name).mkdir()
    assert newest_trace(tmp_path) == 12


# --- a real agent --------------------------------------------------------------------------------
FAILURE, STACKS = "FAIRLEAD_FAILURE_FILE", "FAIRLEAD_STACKS_FILE"
# ``where``: of a rank's output, beside which its report used to be
_OUTPUT = f"import os,sys; where = os.environ['{FAILURE}'].replace('/reports/', '/logs/');"
_FORGE = "import json,os,sys;open(os.environ['FAIRLEAD_FAILURE_FILE'],'w').write({!r});sys.exit(3)"


async def _lives(server: Server, agent: RunningAgent, number: int) -> None:
    """The node starts another job, and hears how it ends. Fails by the limit of ``until``."""
    await server.order(plain(number, "true"))
    status = await server.until_state((number, 1), "ended")
    assert status.exit_code == 0
    assert agent.process is not None
    assert agent.process.poll() is None


def _unfreeze(agent: RunningAgent) -> None:
    """One that is frozen would freeze the test's own cleaning up."""
    os.kill(agent.pid, signal.SIGKILL)


def _play(play: Play, scenario: Callable[[Server, RunningAgent], Awaitable[None]]) -> None:
    async def guarded(server: Server, agent: RunningAgent) -> None:
        try:
            await scenario(server, agent)
        except BaseException:
            _unfreeze(agent)
            raise

    play(guarded)


@pytest.mark.parametrize(
    ("number", "script"),
    [
        (900, f"import os,sys; os.mkfifo(os.environ['{FAILURE}']); sys.exit(3)"),
        (902, f"import os,sys; os.symlink('/dev/zero', os.environ['{FAILURE}']); sys.exit(3)"),
        (904, _FORGE.format(json.dumps({"type": "E", "step": 2**64 - 1}))),
        (906, _FORGE.format(json.dumps({"type": "E", "line": 2**63}))),
        (908, _FORGE.format(json.dumps({"type": "E", "line": 10**25}))),
        (
            910,
            "import sys; print('Traceback (most recent call last):\\n  File \"a\", line ' + '9' * 5000"
            " + ', in f\\nValueError: no'); sys.exit(3)",
        ),
        (
            912,
            f"{_OUTPUT} log = where[:-7] + 'log'; os.unlink(log); os.mkfifo(log); sys.exit(3)",
        ),
        (
            914,
            f"{_OUTPUT} log = where[:-11] + '2-0.log'; os.mkfifo(log); sys.exit(3)",
        ),
        (
            916,
            f"{_OUTPUT} d = os.path.dirname(where); os.rename(d, d + 'x');"
            " os.mkfifo(d); sys.exit(3)",
        ),
        (
            918,
            f"{_OUTPUT} d = where\n"
            "for _ in range(2): d = os.path.dirname(d)\n"
            "os.rename(d, d + 'x'); os.mkfifo(d); sys.exit(3)",
        ),
        (
            920,
            f"import os,sys; d = os.path.dirname(os.environ['{FAILURE}']); os.rename(d, d + 'x');"
            " os.mkfifo(d); sys.exit(3)",
        ),
        (
            922,
            f"import os,sys; d = os.path.dirname(os.path.dirname(os.environ['{FAILURE}']));"
            " os.rename(d, d + 'x'); os.mkfifo(d); sys.exit(3)",
        ),
    ],
)
def test_what_a_job_leaves_holds_up_no_agent(play: Play, number: int, script: str) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        await server.order(plain(number, PYTHON, "-c", script))
        status = await server.until_state((number, 1), "ended")
        assert status.exit_code == 3
        if number in (912, 916, 918):
            assert "its output cannot be read: " in status.reason
        await server.order(plain(number, "echo", "again", attempt=2))
        status = await server.until_state((number, 2), "ended")
        assert status.exit_code == 0
        await server.until_output(number, "again", attempt=2)
        await _lives(server, agent, number + 1)

    _play(play, scenario)


def test_a_pipe_for_stacks_does_not_hold_up_the_spawner(play: Play, tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    made = f"import os; p = os.environ['{STACKS}']; os.mkfifo(p)\n"
    script.write_text(made + RANK.read_text().replace("step += 1\n", "time.sleep(3600)\n"))

    async def scenario(server: Server, agent: RunningAgent) -> None:
        hangs = job(950, command=(PYTHON, str(script)), start_timeout_s=3.0)
        await server.order(hangs)
        status = await server.until_state((950, 1), "ended")
        assert status.exit_code == 124
        await _lives(server, agent, 951)

    _play(play, scenario)


def test_a_report_that_is_refused_as_malformed_ends_no_agent(play: Play) -> None:
    async def scenario(server: Server, agent: RunningAgent) -> None:
        server.refuses = lambda told: any(status.failure is not None for status in told.holds)
        await server.order(plain(960, PYTHON, "-c", "raise SystemExit(3)"))
        status = await server.until_state((960, 1), "ended")
        assert server.refused
        assert (status.exit_code, status.failure) == (3, None)
        await _lives(server, agent, 961)

    _play(play, scenario)


def test_what_stands_in_place_of_the_folder_of_all_logs_is_put_aside(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "logs")
    os.close(open_to_append(tmp_path / "logs" / "7" / "1-0.log"))
    assert (tmp_path / "logs" / "7" / "1-0.log").is_file()
    assert any(one.is_fifo() for one in tmp_path.iterdir())
