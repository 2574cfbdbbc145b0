"""An agent enrols its node once, and calls the server with the node's own token from then on."""

import asyncio
import logging
import os
from pathlib import Path

import pytest
from tests.cluster.agent.cluster import TOKEN, RunningAgent, cluster, gone, job, processes_of

from fairlead.cluster.agent.node_token import NodeToken


def test_the_token_of_a_node_outlives_its_agent(tmp_path: Path) -> None:
    async def scenario() -> None:
        state = tmp_path / "s"
        async with cluster(state) as (server, agent):
            await server.until(lambda: server.reports > 1)
            kept = state / "node.token"
            assert kept.read_text() == server.tokens["n1"]
            assert kept.stat().st_mode & 0o777 == 0o600
            assert await agent.stop() == 0
            again = RunningAgent(server, state)
            state.with_name("s.token").write_text("not-the-token-that-enrols\n")
            reports = server.reports
            again.start()
            await server.until(lambda: server.reports > reports)
            assert server.enrolled == [True, False]
            assert await again.stop() == 0

    asyncio.run(scenario())


def test_a_token_file_that_somebody_removes_is_written_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            kept = tmp_path / "s" / "node.token"
            await server.until(lambda: server.reports > 1)
            kept.unlink()
            assert await gone(lambda: kept.exists() and kept.read_text() == server.tokens["n1"])

    asyncio.run(scenario())


def test_a_node_that_its_server_does_not_know_enrols_again_and_its_jobs_go_on(
    tmp_path: Path,
) -> None:
    """The server was restored from a backup of before the node was enrolled, say."""

    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            await server.order(job(1))
            await server.until_state((1, 1), "running")
            server.tokens.clear()
            await server.until(lambda: server.enrolled == [True, True])
            reports = server.reports
            await server.until(lambda: server.reports > reports + 1)
            assert server.statuses[1, 1].state == "running"

    asyncio.run(scenario())


def test_an_agent_whose_token_is_known_nowhere_ends(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            other = RunningAgent(server, tmp_path / "other")
            (tmp_path / "other.token").write_text("wrong\n")
            other.start()
            assert await other.wait() == 2
            assert await gone(lambda: not processes_of(tmp_path / "other"))

    asyncio.run(scenario())
    assert "no valid token came with the call" in capfd.readouterr().err


@pytest.mark.parametrize("damage", [b"", b"two words", b"\xff\xfe", b"x" * 1000])
def test_what_is_no_token_is_not_used(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "node.token").write_bytes(damage)
    assert NodeToken(tmp_path, TOKEN).current == TOKEN


def test_a_token_that_cannot_be_kept_is_good_for_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "node.token").mkdir()
    with caplog.at_level(logging.WARNING):
        token = NodeToken(tmp_path, TOKEN)
        token.keep("mine")
    assert token.current == "mine"
    assert "node.token: cannot be" in caplog.text
    assert token.disown()
    assert token.current == TOKEN
    assert not token.disown()
    assert os.listdir(tmp_path / "node.token") == []
