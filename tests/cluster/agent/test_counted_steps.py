"""What a rank 0 that dies has done is told to its last step, though it tells of its steps at intervals."""

import asyncio
import os
import socket
import struct
import sys
from pathlib import Path

import pytest
from tests.cluster.agent.cluster import RunningAgent, Server, job
from tests.cluster.agent.conftest import Play

from fairlead.client.messages import Loaded
from fairlead.cluster.agent.counted_steps import counted_steps
from fairlead.cluster.agent.rank_server import RankConnections

# All its steps take less time than there is between two words of them.
DIES = """
import os, signal, sys, time
from fairlead import Lease

def save(path):
    path.write_text("x")

with Lease(load=lambda path: None, save=save, total_steps=1000) as lease:
    while lease.next():
        if lease.step == 9:
            lease.checkpoint()
        if lease.step == 44:
            {end}
"""
HOLDS = "if os.fork() == 0: time.sleep(1000)"


@pytest.mark.parametrize(
    ("number", "end", "code"),
    [
        (901, "os._exit(3)", 3),
        (902, "os._exit(0)", 0),
        (903, "os.kill(os.getpid(), signal.SIGKILL)", -9),
        (904, f"{HOLDS}\n            os._exit(3)", 3),
    ],
    ids=["exits", "exits with 0", "killed", "child with its connection"],
)
def test_a_rank_0_that_dies_has_told_all_its_steps(
    play: Play, tmp_path: Path, number: int, end: str, code: int
) -> None:
    script = tmp_path / "dies.py"
    script.write_text(DIES.format(end=end))

    async def scenario(server: Server, agent: RunningAgent) -> None:
        await server.order(job(number, command=(sys.executable, str(script)), total_steps=1000))
        status = await server.until_state((number, 1), "ended")
        assert (status.exit_code, status.step, status.saved_step) == (code, 44, 10)

    play(scenario)


def count(folder: Path, *numbers: int) -> int:
    """What is found where the file of steps holds these numbers, by a start from step 20."""
    (folder / "steps").write_bytes(struct.pack(f"<{len(numbers)}q", *numbers))
    return asyncio.run(counted_steps(folder, 7, Loaded(1, 20, 0.0, lost_steps=5)))


def test_a_count_that_is_no_count_of_this_start_is_not_used(tmp_path: Path) -> None:
    assert count(tmp_path, 7, 5, 31) == 31
    assert count(tmp_path, 8, 5, 31) == -1  # of another job
    assert count(tmp_path, 7, 4, 31) == -1  # of an earlier start
    assert count(tmp_path, 7, 5, 19) == -1
    assert count(tmp_path, 7, 5) == -1
    assert count(tmp_path, 7, 5, 31, 0) == -1
    (tmp_path / "steps").unlink()
    os.mkfifo(tmp_path / "steps")
    assert asyncio.run(counted_steps(tmp_path, 7, Loaded(1, 20, 0.0, lost_steps=5))) == -1


def test_a_connection_that_is_closed_already_has_nothing_more_to_say() -> None:
    """It is, of a rank that was killed because it did not end in time: the agent died of that."""

    async def scenario() -> None:
        ours, others = socket.socketpair()
        _, writer = await asyncio.open_unix_connection(sock=ours)
        connections = RankConnections()
        connections.add((1, 1), writer)
        writer.close()
        await writer.wait_closed()
        others.close()
        await connections.drain((1, 1), limit_s=60.0)

    asyncio.run(scenario())
