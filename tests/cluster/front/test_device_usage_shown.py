"""How busy devices are: from the report of an agent to the page of the job, on a real server."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from tests.cluster.served import LIMIT_S, Served, served

import fairlead
from fairlead.cluster.agent.server_client import AgentClient
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    Assignment,
    AttemptStatus,
    DeviceUsage,
    NodeReport,
    Register,
)
from fairlead.errors import InputError

GIB = 1 << 30


async def play_agent(cluster: Served) -> None:
    """An agent whose device is busy: it starts the first job that it is told to, and tells of it."""
    registration = Register(
        protocol=PROTOCOL, version=fairlead.__version__, node="gpu-1", incarnation="first",
        host="127.0.0.1", accelerator="v100", devices=1,
    )  # fmt: skip
    client = AgentClient(cluster.server.agent_address, cluster.agent)
    async with client, asyncio.timeout(LIMIT_S):
        welcome = await client.register(registration)
        client.use(welcome.token)
        seq, desired = 0, welcome.orders.desired
        while not desired:
            seq += 1
            orders = await client.report(
                NodeReport(node="gpu-1", incarnation="first", seq=seq, holds=())
            )
            desired = orders.desired
            await asyncio.sleep(0.05)
        await client.report(
            NodeReport(node="gpu-1", incarnation="first", seq=seq + 1, holds=(busy(desired[0]),))
        )


def busy(assignment: Assignment) -> AttemptStatus:
    (rank,) = assignment.ranks
    usage = DeviceUsage(
        rank=rank.rank, device=rank.devices[0], busy=0.75, memory_bytes=5 * GIB,
        memory_total_bytes=16 * GIB,
    )  # fmt: skip
    return AttemptStatus(
        job=assignment.job, attempt=assignment.attempt, order_id=assignment.order_id,
        state="running", usage=(usage,),
    )  # fmt: skip


def test_usage_that_an_agent_tells_is_on_the_page_of_its_job(tmp_path: Path) -> None:
    spec = JobSpec(command=("true",), total_steps=1000, rates={"v100": 1.0})
    with served(tmp_path / "state") as cluster, cluster.client() as client:
        (job,) = client.submit([spec], tenant="apes")
        assert client.usage(job) == []
        asyncio.run(play_agent(cluster))
        (usage,) = client.usage(job)
        assert (usage.rank, usage.node, usage.device) == (0, "gpu-1", 0)
        assert (usage.busy, usage.memory_bytes) == ((0.75,), (5 * GIB,))
        cookies = {f"fairlead-{cluster.url.rpartition(':')[2]}": cluster.admin}
        page = httpx.get(f"{cluster.url}/jobs/{job}", cookies=cookies, timeout=LIMIT_S).text
        section = re.search(r'<section id="usage".*?</section>', page, re.DOTALL)
        assert section is not None
        assert "75 %" in section[0]
        assert "5.0 GiB (31 %)" in section[0]
        token = client.add_user("eve", "bees", "user")
        with cluster.client(token) as other, pytest.raises(InputError, match="there is none"):
            other.usage(job)
