"""Why a rank ended badly."""

import errno
import json
import signal
from pathlib import Path

import pytest

from fairlead.cluster.agent.rank_failures import (
    MAX_TRACEBACK,
    FailureReport,
    exit_failure,
    first_to_fail,
    read_report,
    sentence,
)
from fairlead.cluster.protocol.messages import Failure

VALUE = FailureReport(
    "ValueError", "no", "/home/ann/train.py", 57, "step", 120, 5.0, "Traceback ..."
)


def ended(
    code: int, output: str = "", report: FailureReport | None = None, ground_truth: int = 1
) -> Failure:
    return exit_failure(0, code, report, output, world_size=ground_truth)


def test_output_that_is_gone_is_said_to_be() -> None:
    failure = exit_failure(0, 3, None, "", world_size=1, output_lost="Not a directory")
    assert sentence(failure, 1) == "exit code 3: its output cannot be read: Not a directory"


def test_an_exception_is_the_reason() -> None:
    failure = ended(1, "nanobind: leaked 3 instances!", VALUE)
    assert sentence(failure, 1) == "ValueError: no (train.py:57)"
    assert sentence(failure, 2) == "rank 0: ValueError: no (train.py:57)"
    assert (failure.kind, failure.step, failure.place) == (
        "exception",
        120,
        "ValueError@/home/ann/train.py:57",
    )


@pytest.mark.parametrize(
    ("code", "output", "told"),
    [
        (3, "one\nPID 26667\n\n", "exit code 3"),
        (3, "one\nerror: no two\n\nbye\n", "exit code 3: error: no two"),
        (
            127,
            "sh: 1: nvcc: command not found\nbye",
            "exit code 127: sh: 1: nvcc: command not found",
        ),
        (
            134,
            "terminate called after throwing an instance\nmore",
            "exit code 134: terminate called",
        ),
        (-signal.SIGSEGV, "step 4", "killed by signal 11 (SIGSEGV)"),
        (-signal.SIGKILL, "PID 4", "killed by signal 9 (SIGKILL)"),
        (1, "\x1b[31mfailed\x07", "exit code 1: failed"),
        (75, "fairlead: rank 3 does not answer\nbye", "exit code 75: rank 3 does not answer"),
        (3, "fairlead: rank 3 does not answer\nbye", "exit code 3"),
    ],
)
def test_else_it_is_what_was_printed(code: int, output: str, told: str) -> None:
    message = sentence(ended(code, output), 1)
    assert message.startswith(told)
    assert message == told or "terminate" in message


def test_a_script_that_is_not_there_is_a_start_that_failed() -> None:
    message = "can't open file '/x/train.py': [Errno 2] No such file or directory"
    missing = ended(2, f"/opt/bin/python3.11: {message}\n")
    assert (missing.kind, missing.place, missing.exit_code) == ("not_started", message, 2)
    assert sentence(missing, 1) == f"exit code 2: {message}"
    assert ended(2, f"python: {message}\nstep 1\n").kind == "exit"
    assert ended(1, f"python: {message}\n").kind == "exit"


def test_want_of_memory_is_told_where_there_is_a_sign_of_it() -> None:
    killed = exit_failure(0, -signal.SIGKILL, None, "PID 4", world_size=1, memory_ran_out=True)
    assert sentence(killed, 1) == "killed by signal 9 (SIGKILL): out of memory?"
    stopped = exit_failure(0, -signal.SIGTERM, None, "", world_size=1, memory_ran_out=True)
    assert sentence(stopped, 1) == "killed by signal 15 (SIGTERM)"
    by_hand = exit_failure(0, -signal.SIGTERM, None, "", world_size=1, terminated=False)
    assert sentence(by_hand, 1) == (
        "killed by signal 15 (SIGTERM): that signal did not come from Fairlead"
    )


def test_a_signal_is_not_explained_by_an_exception_that_was_caught() -> None:
    printed = (
        'Traceback (most recent call last):\n  File "x.py", line 1, in f\nValueError: caught\n'
    )
    assert sentence(ended(1, printed), 1) == "ValueError: caught (x.py:1)"
    assert ended(-9, printed).kind == "signal"


def test_the_rank_that_failed_first_is_to_blame() -> None:
    broken = FailureReport("RuntimeError", "Connection closed by peer [127.0.0.1]", time_s=4.0)
    follower = exit_failure(0, 1, broken, "", world_size=2)
    assert follower.secondary
    first = exit_failure(1, 1, VALUE, "", world_size=2)
    later = exit_failure(2, 1, FailureReport("KeyError", "x", time_s=6.0), "", world_size=2)
    assert first_to_fail([follower, later, first]) is first
    crashed = exit_failure(1, -signal.SIGSEGV, None, "", world_size=2)
    assert first_to_fail([follower, crashed]) is crashed
    assert first_to_fail([follower]) is follower
    assert first_to_fail([]) is None
    assert not ended(1, "", broken).secondary  # a single rank has nobody to follow


def test_reports_are_bounded_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "report"
    assert read_report(path) is None
    path.write_text("{nonsense")
    assert read_report(path) is None
    path.write_text("[" * 100_000)
    assert read_report(path) is None
    long = {"type": "E", "message": "a\nb\x00" * 5000, "traceback": "\x07x\n" * 60_000, "line": -4}
    path.write_text(json.dumps(long)[: 1 << 20])
    assert read_report(path) is None  # cut off
    path.write_text(json.dumps({**long, "traceback": "\x07x\n" * 20_000}))
    report = read_report(path)
    assert report is not None
    failure = exit_failure(0, 1, report, "", world_size=1)
    assert len(failure.message) <= 500
    assert len(failure.traceback) <= MAX_TRACEBACK
    path.write_text(
        json.dumps({"traceback": "begin" + "\N{PILE OF POO}" * 15_000 + "end"}, ensure_ascii=False)
    )
    failure = exit_failure(0, 1, read_report(path), "", world_size=1)
    assert len(failure.traceback.encode()) <= MAX_TRACEBACK
    assert failure.traceback.startswith("begin")
    assert failure.traceback.endswith("end")
    assert "\x07" not in failure.traceback
    assert failure.line == 0


def test_a_rank_whose_checkpoints_are_damaged_says_so() -> None:
    report = FailureReport("DamagedError", "of /x/1:\x07 none is whole", damaged=True)
    failure = exit_failure(0, 73, report, "", world_size=1, checkpoints="/x/1")
    assert sentence(failure, 1) == "of /x/1:  none is whole"
    assert (failure.kind, failure.directory, failure.path) == ("exit", "out_of_order", "/x/1")
    assert failure.of_checkpoints
    assert not exit_failure(0, -11, report, "", world_size=1).of_checkpoints


@pytest.mark.parametrize("code", [-signal.SIGTERM, -signal.SIGKILL])
def test_a_rank_that_is_killed_as_it_leaves_for_its_checkpoints_says_so(code: int) -> None:
    """Its connections close before its process has ended: others that miss it may end first, and it is ended
    for them."""
    damage = FailureReport("DamagedError", "of /x/1: none is whole", damaged=True)
    failure = exit_failure(0, code, damage, "", world_size=3, checkpoints="/x/1")
    assert (failure.directory, failure.of_checkpoints) == ("out_of_order", True)
    storage = FailureReport("OSError", "x", storage=errno.EROFS)
    failure = exit_failure(0, code, storage, "", world_size=3, checkpoints="/x/1")
    assert (failure.directory, failure.secondary) == ("out_of_order", False)


def test_a_rank_that_left_for_storage_says_what_is_the_matter_with_it() -> None:
    def told(number: int, code: int = 73) -> Failure:
        report = FailureReport("OSError", "x", storage=number, traceback="trace")
        return exit_failure(0, code, report, "", world_size=1, checkpoints="/x/1")

    read_only = told(errno.EROFS)
    assert sentence(read_only, 1) == "checkpoint directory '/x/1': Read-only file system"
    assert (read_only.kind, read_only.directory) == ("exit", "out_of_order")
    assert sentence(told(errno.EROFS), 2).startswith("rank 0: checkpoint directory")
    assert told(errno.EROFS, 1).directory == "out_of_order"  # a wrapper has its own exit code
    assert told(errno.EACCES).directory == "wrong_path"
    assert told(0).kind == "exception"
    assert told(-5).directory == ""
    assert "Unknown error" in told(1 << 53).message
    assert exit_failure(0, 73, None, "", world_size=1).directory == "", "it is anybody's exit code"


@pytest.mark.parametrize("code", [73, 74, 75, 76])
def test_a_warning_is_no_reason_to_leave(code: int) -> None:
    warning = (
        "fairlead: warning: the job was submitted with 100 steps, its script has 1000: it ends\n"
    )
    assert exit_failure(0, code, None, warning, world_size=1).message == ""
    left = f"{warning}fairlead: step 7 could not be saved, and the work is lost\n{warning}"
    assert exit_failure(0, code, None, left, world_size=1).message.startswith("step 7 could not")
