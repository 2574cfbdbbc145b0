"""An agent whose server has a state that is older than what the agent was told of."""

import asyncio
from pathlib import Path

import msgspec
from tests.cluster.agent.cluster import RunningAgent, Server, cluster, job

from fairlead.cluster.agent.position_memory import NAME
from fairlead.cluster.protocol.messages import Orders, StorePosition

POSITION = StorePosition(cluster="a", timeline=1, run=2, run_id="r", commit=7, time_s=1.8e9)
LEASE_S = 2.0


def test_what_runs_goes_on_with_its_lease_and_nothing_else_is_begun_or_ended(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s", lease_s=LEASE_S) as (server, _):
            await server.order(job(1))
            await server.until_state((1, 1), "running")
            wanted = (job(2, command=("sleep", "9")),)  # which no halted server sends
            server.orders = Orders(seq=99, desired=wanted, halted="it is an older copy")
            reports = server.reports
            await asyncio.sleep(2 * LEASE_S)
            await server.until(lambda: server.reports > reports + 10)
            assert [(key, status.state) for key, status in server.statuses.items()] == [
                ((1, 1), "running")
            ]
            assert server.newest is not None
            assert server.newest.orders_seq < 99, "they are no orders to follow"
            server.grants = False  # its leases end as they do without a server
            status = await server.until_state((1, 1), "ended")
            assert status.reason == "lease expired"
            server.grants = True
            await server.order()
            await server.until(lambda: not server.statuses)

    asyncio.run(scenario())


def test_an_agent_that_is_killed_says_what_it_was_told_of(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            assert server.registered[0].seen is None
            server.orders = msgspec.structs.replace(server.orders, position=POSITION)
            await server.order(job(1))  # written at once with new orders
            server.orders = msgspec.structs.replace(server.orders, position=POSITION)
            await _until_written(agent)
            await _killed_and_started(server, agent)
            assert server.registered[-1].seen == POSITION

    asyncio.run(scenario())


async def _until_written(agent: RunningAgent) -> None:
    async with asyncio.timeout(60.0):
        while not (agent.state / NAME).exists():
            await asyncio.sleep(0.05)


async def _killed_and_started(server: Server, agent: RunningAgent) -> None:
    assert agent.process is not None
    count = len(server.registered)
    agent.process.kill()
    await agent.wait()
    agent.start()
    await server.until(lambda: len(server.registered) > count)
