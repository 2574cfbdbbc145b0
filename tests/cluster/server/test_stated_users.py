"""Users that a server is told to add when it starts."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from fairlead.cli.serve import _ready
from fairlead.cluster.http_client import Client
from fairlead.cluster.server.options import live_options
from fairlead.cluster.server.server import Listening, Server
from fairlead.cluster.server.user_accounts import read_users
from fairlead.errors import ConfigError

USERS = {"ann": "vision", "ben": "speech"}


def start(directory: Path, users: dict[str, str], *, deliver: bool = True) -> dict[str, str]:
    """Start a server and end it; the tokens that it made, by user. deliver: write them to its directory."""
    options = live_options(None, "las", "default", 2.0, "builtin", 0, 10.0, 0.5, 30.0)

    async def run() -> dict[str, str]:
        server = Server(directory, options, Listening(http_port=0, agent_port=0, users=users))
        await server.start()
        try:
            if deliver:
                _ready(server, None)
                server.service.accounts.tokens_delivered(server.new_tokens)
            loop = asyncio.get_running_loop()
            for user, token in server.new_tokens.items():
                if user in users:
                    with Client(server.url, token) as client:
                        who = await loop.run_in_executor(None, client.me)
                    assert (who.user, who.tenant, who.role) == (user, users[user], "user")
        finally:
            await server.stop()
        return server.new_tokens

    return asyncio.run(run())


def test_each_new_user_has_a_file_with_their_token(tmp_path: Path) -> None:
    tokens = start(tmp_path, USERS)
    assert set(tokens) == {"admin", "agent", "ann", "ben"}
    for user, token in tokens.items():
        file = tmp_path / f"{user}.token"
        assert file.read_text().strip() == token
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert {line["object"] for line in lines} == {f"user {user}" for user in tokens}
    # the next start adds only those that are new
    assert set(start(tmp_path, USERS | {"cho": "ads"})) == {"cho"}


def test_tokens_that_were_not_delivered_are_made_again(tmp_path: Path) -> None:
    lost = start(tmp_path, USERS, deliver=False)
    again = start(tmp_path, USERS)
    assert set(again) == set(lost)
    assert all(again[user] != lost[user] for user in USERS)


def test_a_user_who_is_of_another_tenant_stays_there_and_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start(tmp_path, USERS)
    assert not [one for one in caplog.messages if one.startswith("--users")]
    assert start(tmp_path, USERS | {"ben": "vision"}) == {}
    (told,) = [one for one in caplog.messages if one.startswith("--users")]
    assert told == (
        "--users: ben is user of tenant speech, not of vision, and stays so; "
        "`fairlead user add ben --tenant vision` changes that"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ann", "--users: expected USER=TENANT, got 'ann'"),
        ("ann=vision,ann=speech", "--users: ann is given twice"),
        ("a/b=vision", "--users: user 'a/b': must be 1 to 64 letters"),
        ("ann=", "--users: tenant '': must be 1 to 64 letters"),
        ("ann=others", "--users: tenant 'others': is what a user is shown of all other tenants"),
        ("admin=vision", "--users: admin: each cluster has it already"),
    ],
)
def test_what_is_no_list_of_users_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_users(text)
    assert str(refused.value).startswith(said)


def test_users_are_read(tmp_path: Path) -> None:
    assert read_users("ann=vision, ben=speech") == USERS
    assert read_users("") == {}
