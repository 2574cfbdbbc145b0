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


def test_a_start_is_not_taken_for_another_order_of_its_number(tmp_path: Path) -> None:
    """The server is another one, of another copy of the state: it has not ordered what runs."""

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            mine = msgspec.structs.replace(job(1), order_id="a.1.r.x")
            await server.order(mine)
            assert (await server.until_state((1, 1), "running")).order_id == "a.1.r.x"
            await server.order(msgspec.structs.replace(mine, order_id="a.1.r.y"))
            ended = await server.until_state((1, 1), "ended")
            assert (ended.order_id, ended.reason) == ("a.1.r.x", "preempted")
            await server.order(msgspec.structs.replace(mine, order_id="a.1.r.y", attempt=2))
            status = await server.until_state((1, 2), "running")
            assert status.order_id == "a.1.r.y"

    asyncio.run(scenario())


def test_of_a_halted_server_it_remembers_that_alone(tmp_path: Path) -> None:
    """And what was found of agents before it, until a server that takes it in has heard of it."""

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            older = msgspec.structs.replace(POSITION, run=3, run_id="old")
            for told in (POSITION, older):
                server.orders = msgspec.structs.replace(server.orders, position=told)
                await _until_reported_twice(server)
            server.orders = Orders(seq=99, desired=(), halted="why", halted_run="old")
            await _until_written(agent, b'["old"]')
            await _killed_and_started(server, agent)
            before = server.registered[-1]
            await _until_reported_twice(server)
            await _killed_and_started(server, agent)
            after = server.registered[-1]
            assert (after.seen, after.halted_runs) == (POSITION, ("old",))
            assert set(before.cleared) < set(after.cleared), "it is still to be told"

    asyncio.run(scenario())


async def _until_reported_twice(server: Server) -> None:
    reports = server.reports
    await server.until(lambda: server.reports > reports + 1)


async def _until_written(agent: RunningAgent, text: bytes = b"") -> None:
    path = agent.state / NAME
    async with asyncio.timeout(60.0):
        while not path.exists() or text not in path.read_bytes():
            await asyncio.sleep(0.05)


async def _killed_and_started(server: Server, agent: RunningAgent) -> None:
    assert agent.process is not None
    count = len(server.registered)
    agent.process.kill()
    await agent.wait()
    agent.start()
    await server.until(lambda: len(server.registered) > count)
