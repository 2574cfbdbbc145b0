"""The server of a person is written down once, and found by every command."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.cluster import Running, running

from fairlead.cli.client_config import (
    ClientConfig,
    config_path,
    find_connection,
    read_config,
    write_config,
)
from fairlead.cli.main import main
from fairlead.errors import ConfigError


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("login")) as found:
        yield found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person without a configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    for name in ("CONFIG", "SERVER", "TOKEN", "CA"):
        monkeypatch.delenv(f"FAIRLEAD_{name}", raising=False)
    return tmp_path / "home"


def call(line: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    code = ended.value.code
    return code if isinstance(code, int) else 0


def test_after_a_login_commands_need_no_options(
    cluster: Running, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text(cluster.admin_token)
    assert call("status") in (1, 2)
    assert call(f"login {cluster.url}/ --token-file {token}") == 0
    kept = home / "fairlead" / "client.toml"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert f"{cluster.url}: logged in as admin admin; kept in {kept}" in capsys.readouterr().out
    assert call("status") == 0
    assert call("user add ann --tenant apes") == 0
    ann = capsys.readouterr().out.split()[-1]
    assert call("user add ann --tenant apes") == 0
    known = capsys.readouterr()
    ann = known.out.split()[-1]
    assert known.err == ""
    token.write_text(ann)
    assert call(f"login --token-file {token}") == 0, "the same server"
    assert "logged in as user ann of tenant apes; kept" in capsys.readouterr().out
    assert call("user list") == 2
    assert "only an admin may do this" in capsys.readouterr().err
    assert call("logout") == 0
    assert not kept.exists()
    assert call("logout") == 0


def test_a_login_says_how_long_the_token_is_good(
    cluster: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAIRLEAD_TOKEN", cluster.admin_token)
    assert call(f"user add guest --tenant apes --expires 90 --server {cluster.url}") == 0
    token = tmp_path / "token"
    token.write_text(capsys.readouterr().out.split()[-1])
    assert call(f"login {cluster.url} --token-file {token}") == 0
    said = capsys.readouterr().out
    assert re.search(r"user guest of tenant apes until \d{4}-\d\d-\d\d \d\d:\d\d; kept in", said)


def test_a_token_that_is_not_good_is_not_kept(
    cluster: Running,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAIRLEAD_TOKEN", "wrong")
    assert call(f"login {cluster.url}") == 2
    assert "fairlead: server" in capsys.readouterr().err
    assert not home.exists()


def test_the_token_of_one_server_is_not_shown_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(ClientConfig("https://mine:1", "secret", "/ca.pem"))
    mine = find_connection(None, None, None)
    assert (mine.url, mine.token, mine.ca) == ("https://mine:1", "secret", "/ca.pem")
    assert find_connection("https://mine:1/", None, None).token == "secret"
    other = find_connection("https://other:1", None, None)
    assert (other.url, other.token, other.ca) == ("https://other:1", "", None)
    monkeypatch.setenv("FAIRLEAD_SERVER", "other:2")
    assert find_connection(None, None, None).token == ""
    monkeypatch.setenv("FAIRLEAD_TOKEN", "theirs")
    monkeypatch.setenv("FAIRLEAD_CA", "/theirs.pem")
    found = find_connection(None, None, None)
    assert (found.url, found.token, found.ca) == ("http://other:2", "theirs", "/theirs.pem")
    found = find_connection("https://third", "given", "/given.pem")
    assert (found.url, found.token, found.ca) == ("https://third", "given", "/given.pem")


def test_strange_characters_survive(home: Path) -> None:
    config = ClientConfig("http://h", 'q"\\', "/a b/ü.pem")
    assert write_config(config) == config_path()
    assert read_config() == config


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("server = 5", "client.toml:1: server: expected"),
        (
            'token = "x"\nserver = "ftp://x"',
            "client.toml:2: server: 'ftp://x': is no address of the",
        ),
        (
            'server = "https://a:pw@x"',
            "client.toml:1: server: '...@x': has a user or a password in it",
        ),
        ('server = "x y"', "client.toml:1: server: 'http://x y': is no address of the"),
        ('sever = "x"', "client.toml:1: sever: "),
        ("server", "client.toml:1: is not valid TOML"),
        ('server = "x"\n= 3', "client.toml:2: is not valid TOML"),
        ('token = "é"', "client.toml: token: has characters that no token has"),
    ],
)
def test_a_damaged_configuration_is_named(home: Path, content: str, told: str) -> None:
    path = config_path()
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(ConfigError) as refused:
        read_config()
    assert told in str(refused.value)


@pytest.mark.parametrize("device", [True, False])
def test_a_configuration_that_may_never_end_is_not_read(home: Path, device: bool) -> None:
    path = config_path()
    path.parent.mkdir(parents=True)
    if device:
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    with pytest.raises(ConfigError, match=f"^{path}: is no regular file$"):
        read_config()


def test_a_configuration_that_others_can_read_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write_config(ClientConfig("http://h", "secret"))
    read_config()
    assert capsys.readouterr().err == ""
    path.chmod(0o644)
    assert read_config().token == "secret"
    assert f"{path}: others can read the token in it" in capsys.readouterr().err


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(ClientConfig("http://h", "secret"))
    monkeypatch.setenv("FAIRLEAD_TOKEN", "")
    assert find_connection(None, None, None).token == "secret"


def test_a_user_who_is_given_another_tenant_or_role_is_said_to_have_been_moved(
    cluster: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text(cluster.admin_token)
    by = f"--server {cluster.url} --token-file {token}"
    assert call(f"user add cat --tenant robots {by}") == 0
    assert capsys.readouterr().err == ""
    assert call(f"user add cat --tenant speech --json {by}") == 0
    said = capsys.readouterr()
    assert said.out.startswith('{"token":')
    assert said.err == (
        "fairlead: user cat was a user of tenant robots and is now a user of tenant speech; jobs stay "
        "where they are\n"
    )
    assert call(f"user add cat --role admin {by}") == 0
    assert "cat was a user of tenant speech and is now an admin; jobs" in capsys.readouterr().err
