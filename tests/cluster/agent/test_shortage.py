"""An agent for which there is no file descriptor for a while goes on, and so do its jobs."""

import asyncio
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.cluster.agent.cluster import Server, cluster, job, plain

from fairlead.cluster.protocol.messages import Rank

SECOND = (Rank(rank=0, devices=(1,)),)


@pytest.mark.parametrize("spare", [0, 1, 2, 3, 8])
def test_an_agent_outlasts_a_lack_of_file_descriptors(tmp_path: Path, spare: int) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=30.0) as (server, agent):
            await server.order(job(1))
            await server.until_state((1, 1), "running")
            process = psutil.Process(agent.pid)
            limits = process.rlimit(psutil.RLIMIT_NOFILE)
            highest = max(int(one.name) for one in Path(f"/proc/{agent.pid}/fd").iterdir())
            process.rlimit(psutil.RLIMIT_NOFILE, (highest + 1 + spare, limits[1]))
            await server.order(job(1), plain(2, "true", ranks=SECOND))
            await asyncio.sleep(4.0)
            assert process.status() != psutil.STATUS_ZOMBIE
            process.rlimit(psutil.RLIMIT_NOFILE, limits)
            await server.order(job(1), plain(2, "true", ranks=SECOND))
            assert (await server.until_state((2, 1), "ended")).completed
            assert process.status() != psutil.STATUS_ZOMBIE

    asyncio.run(scenario())


def test_an_agent_outlasts_a_lack_of_memory(tmp_path: Path) -> None:
    """There is none for the stack of a thread, or for the thread to begin with."""

    async def scenario() -> None:
        health = ("--health", "true", "--health-interval", "1")
        async with cluster(tmp_path / "s", *health, lease_s=30.0) as (server, agent):
            await server.order(job(1))
            await server.until_state((1, 1), "running")
            process = psutil.Process(agent.pid)
            limits = process.rlimit(psutil.RLIMIT_AS)
            process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms, limits[1]))
            await server.order(job(1), plain(2, "true", ranks=SECOND))
            await asyncio.sleep(8.0)
            process.rlimit(psutil.RLIMIT_AS, limits)
            await server.order(job(1), plain(2, "true", ranks=SECOND))
            assert (await server.until_state((2, 1), "ended")).completed
            assert server.statuses[1, 1].state == "running"

    asyncio.run(scenario())


def test_a_job_is_not_blamed_for_a_spawner_without_file_descriptors(tmp_path: Path) -> None:
    """However many are left, the start waits or succeeds."""

    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=60.0) as (server, agent):
            (spawner,) = (
                one
                for one in psutil.Process(agent.pid).children()
                if any("spawner" in word for word in one.cmdline())
            )
            limits = spawner.rlimit(psutil.RLIMIT_NOFILE)
            highest = max(int(one.name) for one in Path(f"/proc/{spawner.pid}/fd").iterdir())
            for spare in range(14):
                key = (spare + 1, 1)
                order = plain(key[0], "true", ranks=SECOND)
                spawner.rlimit(psutil.RLIMIT_NOFILE, (highest + 1 + spare, limits[1]))
                await server.order(order)
                await server.until(partial(tells, server, key))
                spawner.rlimit(psutil.RLIMIT_NOFILE, limits)
                ended = await server.until_state(key, "ended")
                assert ended.completed, (spare, ended)

    asyncio.run(scenario())


def tells(server: Server, key: tuple[int, int]) -> bool:
    """Whether the node has said what came of an order to start."""
    status = server.statuses.get(key)
    return status is not None and bool(status.obstacle or status.state == "ended")
