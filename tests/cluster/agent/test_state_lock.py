"""The lock of a state directory that is removed while its agent runs."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest
from tests.cluster.agent.cluster import cluster, job

from fairlead.cluster.agent import locks
from fairlead.cluster.agent.state_directory import StateLock, lock_state, owner_of
from fairlead.errors import ConfigError


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_a_directory_that_was_removed_is_still_its_agents(state: Path) -> None:
    lock = StateLock(state)
    lock.take()
    shutil.rmtree(state)
    lock.hold_again()
    with pytest.raises(ConfigError, match="another agent runs there"):
        lock_state(state)
    assert owner_of(state) is not None
    lock.release()
    os.close(lock_state_of_nobody(state))


def lock_state_of_nobody(state: Path) -> int:
    (state / "owner").unlink()  # it names this process, which lives
    return lock_state(state)


def test_an_agent_whose_directory_another_one_has_taken_is_told(state: Path) -> None:
    lock = StateLock(state)
    lock.take()
    shutil.rmtree(state)
    other = lock_state(state)
    with pytest.raises(ConfigError, match="was removed while this agent ran, and another agent"):
        lock.hold_again()
    os.close(other)
    lock.hold_again()
    lock.release()


def test_an_agent_whose_directory_another_one_has_taken_lets_its_jobs_save_and_ends(
    state: Path,
) -> None:
    async def scenario() -> None:
        async with cluster(state) as (server, agent):
            checkpoints = str(state.with_name("checkpoints"))
            await server.order(job(checkpoint_dir=checkpoints))
            await server.until_state((1, 1), "running")
            await server.until(lambda: server.statuses[1, 1].step > 0)
            os.kill(agent.pid, signal.SIGSTOP)  # or it might be the first to take it
            state.rename(state.with_name("removed"))
            other = lock_state(state)
            theirs = state / "agent.sock"
            theirs.touch()
            os.kill(agent.pid, signal.SIGCONT)
            await server.until_state((1, 1), "ended")
            ended = server.statuses[1, 1]
            assert ended.exit_code == 0
            assert ended.saved_step > 0
            assert await agent.wait() == 2
            assert theirs.is_file(), "it has not put its own socket in the place of theirs"
            os.close(other)

    asyncio.run(scenario())


def test_an_agent_that_cannot_go_on_is_not_said_to_have_been_ended_in_order(tmp_path: Path) -> None:
    """Its server then sees it fall silent, which brings an alarm; its jobs have saved."""

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, agent):
            await server.order(job(1))
            await server.until_state((1, 1), "running")
            path = tmp_path / "s" / "agent.lock"
            path.unlink()
            taken = locks.take(path)
            assert taken is not None
            assert await agent.wait() == 2
            locks.release([taken])
            assert server.statuses[1, 1].state == "ended"
            assert server.newest is not None
            assert not server.newest.leaving

    asyncio.run(scenario())
