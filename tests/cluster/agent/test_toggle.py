"""The tool that takes what a process has on its devices to the memory of the host."""

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cluster.agent.test_parked_jobs import program_of

from fairlead.cluster.agent import suspension
from fairlead.cluster.agent.attempt_ending import AttemptEnding
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.agent.spawner_messages import EndAttempt


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / suspension.TOOL
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return path


def test_its_end_is_not_taken_for_that_of_an_orphan(tool: Path, tmp_path: Path) -> None:
    """The agent waits for whatever its first thread is the parent of: it has adopted that. A tool that was
    started there ended with 255 where the agent was quicker."""
    begun = tmp_path / "begun"
    tool.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 1\n")
    first = Path(f"/proc/self/task/{os.getpid()}/children")
    before = first.read_text()

    async def run() -> str:
        call = asyncio.create_task(suspension.toggle(1))
        while not begun.exists():
            await asyncio.sleep(0.01)
        assert first.read_text() == before
        return await call

    assert asyncio.run(run()) == ""


def test_what_it_says_as_it_fails_is_told(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool.write_text("#!/bin/sh\necho one\necho no such context\nexit 3\n")
    assert asyncio.run(suspension.toggle(1)) == "exit code 3; no such context"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(suspension, "LIMIT_S", 0.1)
    assert asyncio.run(suspension.toggle(1)) == "no answer within 0.1 s"
    tool.unlink()
    monkeypatch.setenv("PATH", str(tool.parent))
    assert asyncio.run(suspension.toggle(1)) == "No such file or directory"


def test_a_tool_that_hangs_holds_the_devices_for_no_longer_than_the_grace(
    tool: Path, tmp_path: Path
) -> None:
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    told: list[Any] = []
    spawner: Any = SimpleNamespace(send=told.append)
    nobody: Any = SimpleNamespace()
    found = suspension.Suspension(tmp_path, spawner, nobody, nobody)
    attempt = program_of(1)
    attempt.assignment = replace(attempt.assignment, grace_s=0.2)
    found.leaders = lambda: {10**9: (attempt.key, 0), 10**9 + 1: (attempt.key, 1)}

    async def run() -> None:
        found.suspend(attempt)
        await asyncio.gather(*found._tasks)

    asyncio.run(run())
    assert told == [EndAttempt(job=1, attempt=2, terminate=True, kill_after_s=0.0)]


def test_a_program_runs_until_it_is_told_to_stop_however_long_it_is_looked_at_before_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The agent, too, may stand still for a moment."""
    now = [10.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def look(*_: Any) -> bool:
        now[0] += 4.0
        return True

    nobody: Any = SimpleNamespace()
    looks: Any = SimpleNamespace(may_suspend=look, suspend=lambda _: None)
    ending = AttemptEnding(nobody, nobody, nobody, nobody, looks, lambda: None)
    attempt = program_of(1)
    attempt.times.begin(10.0)
    ran_s = attempt.status(now[0]).ran_s
    ending.stop(attempt, "preempted")
    assert attempt.status(now[0]).ran_s == ran_s + 4


def _ordered_to_go_on(tmp_path: Path, toggled: tuple[int, ...]) -> tuple[Any, NodeAttempt]:
    """A program that was parked by attempt 2, and the attempt that has its devices since second 1."""
    nobody: Any = SimpleNamespace(pause=lambda *_: None, resume=lambda *_: None)
    found = suspension.Suspension(tmp_path, nobody, nobody, nobody)
    before = program_of(1)
    found._toggled[before.key] = toggled
    found.parked(before)
    assignment = replace(before.assignment, attempt=3, resumes=2)
    attempt = NodeAttempt(assignment, "t", NodeLease(10.0), 0.0)
    attempt.started(1.0)
    return found, attempt


def test_until_a_parked_program_goes_on_its_time_is_start_and_not_work(tmp_path: Path) -> None:
    found, attempt = _ordered_to_go_on(tmp_path, ())
    found.resumed(attempt, 3.0)
    told = attempt.status(8.0)
    assert (told.state, told.resumed) == ("running", True)
    assert (told.wait_s, told.start_s, told.ran_s) == (1, 2, 5)


def test_what_is_stopped_again_before_it_was_heard_to_go_on_stays_off_its_devices(
    tmp_path: Path,
) -> None:
    found, attempt = _ordered_to_go_on(tmp_path, (1,))
    attempt.stop("preempted", 2.0)
    found.resumed(attempt, 3.0)
    assert not found._tasks
    assert found._toggled == {attempt.key: (1,)}
    assert attempt.status(8.0).ran_s == 0


def test_a_program_that_cannot_come_back_fails_for_that(tool: Path, tmp_path: Path) -> None:
    tool.write_text("#!/bin/sh\necho no such context\nexit 3\n")
    found, attempt = _ordered_to_go_on(tmp_path, (1,))
    sent: list[EndAttempt] = []
    spawner: Any = SimpleNamespace(send=sent.append)
    found._spawner = spawner

    async def run() -> None:
        found.resumed(attempt, 3.0)
        await asyncio.gather(*found._tasks)

    asyncio.run(run())
    assert [one.attempt for one in sent] == [3]
    attempt.exited(0, -15, None, time.monotonic())
    attempt.record_exit(time.monotonic())
    status, why = attempt.status(time.monotonic()), "exit code 3; no such context"
    assert status.unsaved == f"{suspension.TOOL} --toggle --pid 1: {why}"
    assert status.reason.endswith(f": {status.unsaved}; it cannot go on")


@pytest.mark.parametrize("stopped", [False, True])
def test_until_all_is_back_on_the_devices_a_program_does_nothing(
    tool: Path, tmp_path: Path, stopped: bool
) -> None:
    done = tmp_path / "done"
    tool.write_text(f"#!/bin/sh\nwhile [ ! -e {done} ]; do sleep 0.01; done\n")

    async def run() -> NodeAttempt:
        found, attempt = _ordered_to_go_on(tmp_path, (1,))
        found.resumed(attempt, 3.0)
        assert attempt.status(8.0).ran_s == 0
        if stopped:
            attempt.stop("preempted", 9.0)
        done.touch()
        await asyncio.gather(*found._tasks)
        return attempt

    attempt = asyncio.run(run())
    assert attempt.times.hello is not None
    told = attempt.status(attempt.times.hello + 4.0)
    assert told.start_s == attempt.times.hello - 1.0
    assert told.ran_s == pytest.approx(0.0 if stopped else 4.0)
