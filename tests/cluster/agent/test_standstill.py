"""An agent, or a spawner, that stands still for a while: no job is to blame for what comes of it."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
from tests.cluster.agent.cluster import cluster, gone, job, plain

from fairlead.cluster.agent.lease import ToldLease

TRAINS = """
import pathlib, time
from fairlead.client.lease import Lease

def load(path): pass
def save(path): path.write_text("state")

with Lease(load=load, save=save, total_steps=10**6) as lease:
    while lease.next():
        time.sleep(0.02)
"""


def test_a_rank_whose_lease_ends_while_its_agent_stands_still_has_not_failed(
    tmp_path: Path,
) -> None:
    script = tmp_path / "trains.py"
    script.write_text(TRAINS)

    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=6.0) as (server, agent):
            await server.order(job(1, command=(sys.executable, str(script))))
            await server.until_state((1, 1), "running")
            await asyncio.sleep(3.0)  # less than half of its lease is left, and nearly all of ours
            os.kill(agent.pid, signal.SIGSTOP)
            await asyncio.sleep(4.0)
            os.kill(agent.pid, signal.SIGCONT)
            held = await server.until_state((1, 1), "ended")
            assert (held.reason, held.failure) == ("lease expired", None)

    asyncio.run(scenario())


def test_what_a_rank_knows_of_its_lease_is_what_it_was_told_last() -> None:
    told = ToldLease(10.0)
    assert not told.is_short(5.0), "nothing was told"
    told.tell(100.0, 10.0)
    assert not told.is_short(107.0)
    assert told.is_short(108.0)
    assert told.is_short(120.0)
    told.tell(121.0, 10.0)  # too late for what ended before
    assert told.is_short(120.0)
    assert not told.is_short(122.0)


STILL = "the process that owns the ranks stands still"


def test_a_spawner_that_stands_still_is_told_of_and_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=3.0) as (server, agent):
            await server.order(plain(1, "sleep", "1000", grace_s=1.0))
            await server.until_state((1, 1), "running")
            first = agent.spawner
            first.suspend()
            await server.until(lambda: server.newest and STILL in server.newest.problems)
            held = await server.until_state((1, 1), "ended")
            assert held.reason == "the process that owned the ranks died"
            await server.until(lambda: server.newest and not server.newest.problems)
            assert agent.spawner != first
            await server.order(plain(2, "true"))
            assert (await server.until_state((2, 1), "ended")).exit_code == 0

    asyncio.run(scenario())


def test_what_ended_as_the_spawner_stood_still_has_not_failed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=2.0) as (server, agent):
            await server.order(plain(1, "sleep", "1000", grace_s=5.0))
            await server.until_state((1, 1), "running")
            spawner = agent.spawner
            (rank,) = (p for p in spawner.children() if "1000" in p.cmdline())
            spawner.suspend()
            ended = psutil.STATUS_ZOMBIE
            assert await gone(lambda: rank.status() == ended), "its warden hears of no lease"
            spawner.resume()
            held = await server.until_state((1, 1), "ended")
            assert (held.reason, held.failure) == ("lease expired", None)

    asyncio.run(scenario())


def test_an_agent_leaves_though_its_spawner_stands_still(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            agent.spawner.suspend()
            await server.until(lambda: server.newest and STILL in server.newest.problems)
            assert await agent.stop() == 0

    asyncio.run(scenario())
