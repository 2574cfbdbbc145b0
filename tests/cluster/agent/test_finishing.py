"""A rank that exits with 0 after its loop because it got a SIGTERM has not done what comes after it."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.agent.cluster import RunningAgent, cluster, gone, job, lives, processes_of

FINISHES = """
import os, signal, sys, time
from fairlead.client.lease import Lease

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with Lease(load=lambda path: None, save=lambda path: path.write_text("x"), total_steps=3) as lease:
    while lease.next():
        pass
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.write(1, b"after its loop\\n")
time.sleep(1000)
"""
QUIET = """
import os, time
from fairlead.client.lease import Lease

with Lease(load=lambda path: None, save=lambda path: path.write_text("x"), total_steps=3) as lease:
    while lease.next():
        pass
os.write(1, b"after its loop\\n")
while not os.path.exists("go"):
    time.sleep(0.02)
"""
Act = Callable[[RunningAgent], None]


def end_spawner(agent: RunningAgent) -> None:
    agent.spawner.send_signal(signal.SIGTERM)


def suspend_agent(agent: RunningAgent) -> None:
    os.kill(agent.pid, signal.SIGSTOP)


def suspend_agent_and_spawner(agent: RunningAgent) -> None:
    suspend_agent(agent)
    agent.spawner.suspend()


@pytest.mark.parametrize("act", [end_spawner, suspend_agent, suspend_agent_and_spawner])
def test_what_is_told_to_end_after_its_loop_has_not_completed(tmp_path: Path, act: Act) -> None:
    script = tmp_path / "finishes.py"
    script.write_text(FINISHES)
    command = (sys.executable, str(script))

    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=6.0) as (server, agent):
            await server.order(job(1, command=command, total_steps=3, finish_grace_s=3.0))
            await server.until_output(1, "after its loop")
            (rank,) = (p for p in processes_of(tmp_path / "s") if str(script) in p.cmdline())
            spawner = agent.spawner
            act(agent)
            try:
                assert await gone(lambda: not lives(rank))
            finally:
                if act is suspend_agent_and_spawner:
                    spawner.resume()
                os.kill(agent.pid, signal.SIGCONT)
            status = await server.until_state((1, 1), "ended")
            assert not status.completed

    asyncio.run(scenario())


def test_what_comes_to_its_end_after_its_spawner_was_told_to_end_has_completed(
    tmp_path: Path,
) -> None:
    script = tmp_path / "quiet.py"
    script.write_text(QUIET)
    wanted = job(
        1,
        command=(sys.executable, str(script)),
        total_steps=3,
        finish_grace_s=1000.0,
        cwd=str(tmp_path),
    )

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(wanted)
            await server.until_output(1, "after its loop")
            end_spawner(agent)
            await asyncio.sleep(1.0)
            (tmp_path / "go").touch()
            assert (await server.until_state((1, 1), "ended")).completed

    asyncio.run(scenario())
