"""An agent for which there is no file descriptor for a while goes on, and so do its jobs."""

import asyncio
from pathlib import Path

import psutil
import pytest
from tests.cluster.agent.cluster import cluster, job, plain

from fairlead.cluster.protocol.messages import Rank

SECOND = (Rank(rank=0, devices=(1,)),)


@pytest.mark.parametrize("spare", [0, 1, 2, 3])
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
