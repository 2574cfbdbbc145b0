import asyncio
import logging
import re
import shutil
from pathlib import Path

import pytest
from tests.cluster.agent.cluster import RunningAgent, cluster, job

from fairlead.cluster.agent.state_directory import identity_of
from fairlead.errors import ConfigError


def test_an_identity_stays(tmp_path: Path) -> None:
    first = identity_of(tmp_path)
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert identity_of(tmp_path) == first


@pytest.mark.parametrize(
    "damage", [b"", b"0123abcd", b"\0" * 16, b"\xff" * 16, b"no identity here"]
)
def test_a_damaged_identity_is_made_anew_with_a_warning(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "identity").write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        made = identity_of(tmp_path)
    assert re.fullmatch("[0-9a-f]{16}", made)
    assert "identity: is damaged" in caplog.text
    assert identity_of(tmp_path) == made


def test_an_identity_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "identity").mkdir()
    with pytest.raises(ConfigError, match="identity: is not a regular file"):
        identity_of(tmp_path)


def test_an_agent_does_not_start_with_a_copy_of_the_state_of_one_that_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path / "s") as (server, _):
            await server.order(job(1))
            await server.until_state((1, 1), "running")
            shutil.copytree(tmp_path / "s", tmp_path / "copy", ignore=lambda *_: ["agent.sock"])
            newcomer = RunningAgent(server, tmp_path / "copy")
            newcomer.start()
            assert await newcomer.wait() == 2
            reports = server.reports
            await server.until(lambda: server.reports > reports + 3)
            assert server.statuses[1, 1].state == "running"

    asyncio.run(scenario())
    assert "copy: is the state of an agent that runs, process " in capfd.readouterr().err
    shutil.copytree(tmp_path / "s", tmp_path / "later")
    assert identity_of(tmp_path / "later") == identity_of(tmp_path / "s"), (
        "a copy of one that has ended"
    )
