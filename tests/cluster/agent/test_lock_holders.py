"""Locks of devices that are passed on to processes that have no claim to them."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.agent.cluster import RunningAgent, Server, plain
from tests.cluster.agent.conftest import Play

from fairlead.cluster.agent import locks
from fairlead.cluster.agent.lock_holders import lock_holders
from fairlead.cluster.protocol.messages import Rank

SLEEP = ("sleep", "1000")
RECEIVE = """
import os, socket, sys, time
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[1]); door.listen(); print("listens", flush=True)
peer, _ = door.accept()
kept = socket.recv_fds(peer, 1, 64)
print("has", len(kept[1]), "locks", flush=True)
time.sleep(1000)
"""
PASS_ON = """
import os, socket, sys
locks = [n for n in map(int, os.listdir("/proc/self/fd")) if n > 2
         and os.path.exists(f"/proc/self/fd/{n}") and ".lock" in os.readlink(f"/proc/self/fd/{n}")]
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
socket.send_fds(peer, [b"x"], locks)
"""


def python(script: str, *words: str) -> tuple[str, ...]:
    return sys.executable, "-c", script, *words


def test_who_has_the_open_file_of_a_lock_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with subprocess.Popen(SLEEP, pass_fds=[file.fileno()]) as child:
            found = lock_holders([path, tmp_path / "b.lock"])
            assert {one.pid: status for one, status in found.items()} == {child.pid: path}
            child.kill()
    with path.open("w") as file, subprocess.Popen(SLEEP, pass_fds=[file.fileno()]) as child:
        assert lock_holders([path]) == {}, "open, and not locked"
        child.kill()


def test_a_job_that_was_passed_the_lock_of_a_device_is_ended_for_it(
    play: Play, tmp_path: Path
) -> None:
    door = str(tmp_path / "door")
    other = (Rank(rank=0, devices=(1,)),)

    async def scenario(server: Server, _: RunningAgent) -> None:
        receiver = plain(601, *python(RECEIVE, door), ranks=other)
        await server.order(receiver)
        await server.until_output(601, "listens")
        await server.order(receiver, plain(602, *python(PASS_ON, door)))
        await server.until_output(601, "locks")
        await server.until_state((602, 1), "ended")
        await server.order(receiver, plain(603, *SLEEP))
        await server.until_state((603, 1), "running")
        status = await server.until_state((601, 1), "ended")
        assert "held the lock of device 0, which is not the job's" in status.reason
        assert status.failure is not None
        assert status.failure.kind == "signal", "not for the node to answer for"

    play(scenario)


WRITE = """
import os
for n in map(int, os.listdir("/proc/self/fd")):
    if os.path.exists(f"/proc/self/fd/{n}") and ".lock" in os.readlink(f"/proc/self/fd/{n}"):
        try:
            os.write(n, b"x")
            print("wrote", flush=True)
        except OSError as problem:
            print(problem.strerror, flush=True)
print("done", flush=True)
"""


def test_no_job_can_write_to_the_lock_files_that_it_inherits(play: Play) -> None:
    async def scenario(server: Server, _: RunningAgent) -> None:
        await server.order(plain(621, *python(WRITE)))
        said = await server.until_output(621, "done")
        assert set(said.split("\n")) == {"Bad file descriptor", "done", ""}

    play(scenario)


def test_a_stranger_that_was_passed_the_lock_is_told_of(play: Play, tmp_path: Path) -> None:
    door = str(tmp_path / "door")

    async def scenario(server: Server, _: RunningAgent) -> None:
        with subprocess.Popen(python(RECEIVE, door), stdout=subprocess.PIPE) as stranger:
            assert stranger.stdout is not None
            stranger.stdout.readline()
            await server.order(plain(611, *python(PASS_ON, door)))
            await server.until_state((611, 1), "ended")
            assert stranger.stdout.readline() == b"has 3 locks\n"
            await server.order(plain(612, *SLEEP))
            await server.until(
                lambda: (612, 1) in server.statuses and server.statuses[612, 1].obstacle
            )
            told = f"its lock is held by process {stranger.pid}, which is no job's here"
            assert server.statuses[612, 1].obstacle == f"device 0 is not free: {told}"
            os.kill(stranger.pid, 9)
        await server.until_state((612, 1), "running")
        assert server.statuses[612, 1].obstacle == ""

    play(scenario)


def test_where_only_writers_may_lock_a_lock_is_taken_as_a_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS."""
    flock = fcntl.flock

    def of_writers(descriptor: int, operation: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", of_writers)
    taken = locks.take(tmp_path / "a.lock")
    assert taken is not None
    assert locks.take(tmp_path / "a.lock") is None
    locks.release([taken])
