import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.cluster.agent.cluster import (
    RunningAgent,
    Server,
    cluster,
)

Scenario = Callable[[Server, RunningAgent], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[asyncio.Runner, Server, RunningAgent]]:
    """One server and one agent for the tests of a module that kill neither."""
    context = cluster(Path(tmp_path_factory.mktemp("agent")) / "s")
    with asyncio.Runner() as runner:
        server, agent = runner.run(context.__aenter__())
        yield runner, server, agent
        runner.run(context.__aexit__(None, None, None))


@pytest.fixture
def play(stage: tuple[asyncio.Runner, Server, RunningAgent]) -> Iterator[Play]:
    """Runs a scenario on the stage, and clears it. Each scenario has job numbers of its own."""
    runner, server, agent = stage

    async def clear() -> None:
        server.grants = True
        await server.order()
        await server.until(lambda: all(h.state == "ended" for h in server.statuses.values()))
        await server.order()
        await server.until(lambda: not server.statuses)

    yield lambda scenario: runner.run(scenario(server, agent))  # type: ignore[arg-type]
    runner.run(clear())
