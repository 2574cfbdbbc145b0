"""Paths that a job chose on a file system that does not answer: its start fails, and nobody else notices."""

import asyncio
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.agent import cluster as agents
from tests.cluster.agent.cluster import RunningAgent, Server, cluster, job, plain
from tests.cluster.agent.conftest import Play

from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.protocol.messages import Rank

SLEEP = ("sleep", "1000")
_OTHER = (Rank(rank=0, devices=(1,)),)


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Path]:
    """A directory below which nothing ever answers: a FUSE file system that nobody serves."""
    folder, libc = tmp_path / "dead", ctypes.CDLL(None, use_errno=True)
    folder.mkdir()
    try:
        door = os.open("/dev/fuse", os.O_RDWR)
    except OSError as problem:
        pytest.skip(f"/dev/fuse: {problem.strerror}")
    options = f"fd={door},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"nobody", os.fsencode(folder), b"fuse", 0, options.encode()):
        os.close(door)
        pytest.skip(f"mount: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        os.close(door)  # who hangs there gets an error
        libc.umount2(os.fsencode(folder), 2)


@pytest.mark.parametrize("prefork", [False, True])
def test_a_working_directory_that_hangs_fails_its_start_alone(
    play: Play, dead: Path, prefork: bool
) -> None:
    number = 701 + 10 * prefork

    async def scenario(server: Server, _: RunningAgent) -> None:
        command = (sys.executable, "job.py") if prefork else SLEEP
        bad = plain(number, *command, cwd=str(dead), start_timeout_s=3.0, prepare=prefork)
        good = plain(number + 1, *SLEEP, ranks=_OTHER)
        await server.order(bad)
        await server.until(lambda: (number, 1) in server.statuses)
        await server.order(bad, good)
        await server.until_state((number + 1, 1), "running")
        reports = server.reports
        assert server.statuses[number, 1].state == "starting"
        await server.order(bad)
        await server.until_state((number + 1, 1), "ended")
        assert server.statuses[number, 1].state == "starting", "others begin and end meanwhile"
        status = await server.until_state((number, 1), "ended")
        assert server.reports >= reports + 3, "heartbeats go on"
        assert str(dead) in status.reason
        assert status.reason.endswith("no answer within 3 s")
        await server.order(plain(number + 2, *SLEEP))
        await server.until_state((number + 2, 1), "running")

    play(scenario)


def test_a_checkpoint_directory_that_hangs_fails_its_start_alone(play: Play, dead: Path) -> None:
    async def scenario(server: Server, _: RunningAgent) -> None:
        bad = job(721, checkpoint_dir=str(dead / "a" / "b"), start_timeout_s=2.0)
        await server.order(bad, plain(722, *SLEEP, ranks=_OTHER))
        await server.until_state((722, 1), "running")
        status = await server.until_state((721, 1), "ended")
        assert status.reason == f"checkpoint directory '{dead}/a/b': no answer within 2 s"
        assert server.statuses[722, 1].state == "running"

    play(scenario)


def test_a_checkpoint_directory_that_hangs_later_is_told_of_its_job_alone(
    tmp_path: Path, dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = "import fairlead.cluster.agent.health as h; h.LIMIT_S = 1.0; "
    monkeypatch.setattr(agents, "_MAIN", soon + agents._MAIN)
    (tmp_path / "well").mkdir()
    link = tmp_path / "checkpoints"
    link.symlink_to(tmp_path / "well")

    async def scenario() -> None:
        async with cluster(tmp_path / "s", "--health-interval", "0.2") as (server, _):
            await server.order(
                plain(741, *SLEEP, checkpoint_dir=str(link)), plain(742, *SLEEP, ranks=_OTHER)
            )
            await server.until_state((741, 1), "running")
            await server.until_state((742, 1), "running")
            (tmp_path / "other").symlink_to(dead)
            (tmp_path / "other").rename(link)
            await server.until(lambda: server.statuses[741, 1].directory_problem)
            told = server.statuses[741, 1].directory_problem
            assert told.startswith(f"checkpoint directory '{link}': no answer for ")
            assert server.statuses[742, 1].directory_problem == ""
            reports = server.reports
            await server.until(lambda: server.reports > reports + 20)
            assert server.newest is not None
            assert server.newest.problems == ()

    asyncio.run(scenario())


def test_a_start_that_hangs_can_be_taken_back(play: Play, dead: Path) -> None:
    async def scenario(server: Server, _: RunningAgent) -> None:
        await server.order(plain(731, *SLEEP, cwd=str(dead)))
        await server.until(lambda: (731, 1) in server.statuses)
        await asyncio.sleep(0.3)  # it may be anywhere
        await server.order()
        await server.until_state((731, 1), "ended")

    play(scenario)


def test_a_thread_that_hangs_is_left_to_itself() -> None:
    pipe = os.pipe()

    async def scenario() -> None:
        assert await on_thread(lambda: 7, 60.0) == 7
        with pytest.raises(ZeroDivisionError):
            await on_thread(lambda: 1 // 0, 60.0)
        with pytest.raises(TimeoutError):
            await on_thread(lambda: os.read(pipe[0], 1), 0.1)

    asyncio.run(scenario())
    os.write(pipe[1], b"x")


_BIRTH = """
import json, os, sys, time
from fairlead.cluster.agent.pending_exec import fork_rank
argv, env, cwd, limit_s, output = json.loads(sys.argv[1])
kept = os.open(os.devnull, os.O_RDONLY)
os.dup2(kept, 77)  # inheritable
with open(output, "w") as file:
    pending = fork_rank(argv, env, cwd, output=file.fileno(), keep=[kept], limit_s=limit_s)
leads = os.getsid(pending.pid) == pending.pid
while (said := pending.read()) is None and time.monotonic() < pending.until_s:
    time.sleep(0.01)
if said is None:
    said = pending.hangs
    os.kill(pending.pid, 9)
os.waitpid(pending.pid, 0)
with open(output) as file:
    print(json.dumps([said, file.read(), leads, kept]))
"""


def _born(folder: Path, *argv: str, cwd: str = "/", limit_s: float = 60.0) -> tuple[str, str, int]:
    """What becomes of a process, what it writes, and the descriptor that it was to keep. In a process with
    one thread, as the spawner is."""
    given = json.dumps(
        [argv, {"PATH": "/usr/bin:/bin", "A": "b"}, cwd, limit_s, str(folder / "out")]
    )
    done = subprocess.run(
        [sys.executable, "-c", _BIRTH, given], check=True, capture_output=True, text=True
    )
    message, written, leads, kept = json.loads(done.stdout)
    assert leads, "its session"
    return message, written, kept


def test_a_pending_process_runs_its_program_or_says_why_not(tmp_path: Path) -> None:
    assert _born(tmp_path, "sh", "-c", "pwd; echo $A")[:2] == ("", "/\nb\n")
    absent = f"working directory {str(tmp_path / 'x')!r}: No such file or directory"
    assert _born(tmp_path, "sh", cwd=str(tmp_path / "x"))[:2] == (absent, "")
    assert _born(tmp_path, "no-such-thing")[:2] == ("command not found: 'no-such-thing'", "")
    assert _born(tmp_path, "/")[:2] == ("'/' cannot be started: Permission denied", "")
    assert "embedded null byte" in _born(tmp_path, "sh", "\0")[0]


def test_a_pending_process_has_the_descriptors_that_it_is_to_keep_and_no_others(
    tmp_path: Path,
) -> None:
    _, written, kept = _born(tmp_path, "bash", "-c", "cd /proc/$$/fd; echo *")
    found = set(map(int, written.split()))
    assert {0, 1, 2, kept} <= found
    assert 77 not in found


def test_a_pending_process_that_hangs_says_where(tmp_path: Path, dead: Path) -> None:
    message, written, _ = _born(tmp_path, *SLEEP, cwd=str(dead), limit_s=0.3)
    assert (message, written) == (f"working directory {str(dead)!r}: no answer within 0.3 s", "")
