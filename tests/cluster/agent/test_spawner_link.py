"""The agent's side of the spawner."""

import asyncio

import pytest

from fairlead.cluster.agent.spawner_link import Pings


def test_who_is_cancelled_as_the_spawner_answers_ends() -> None:
    """An agent that had stood still never ended where the server refused it as its spawner answered."""

    async def run() -> None:
        pings = Pings()
        pings.asked()
        waiting = asyncio.create_task(pings.all_answered(60.0))
        await asyncio.sleep(0)
        pings.answered()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
