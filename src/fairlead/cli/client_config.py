"""The server that a person uses, written down once by ``fairlead login``."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fairlead.cli.config_files import read_config_file
from fairlead.cli.token_files import write_token
from fairlead.cluster.http_client import DEFAULT_URL, address_problem
from fairlead.errors import ConfigError
from fairlead.model.toml_lines import naming_lines

PATH_VARIABLE = "FAIRLEAD_CONFIG"


class ClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``client.toml``; "" = it is not there."""

    server: str = ""  # URL
    token: str = ""
    ca: str = ""  # path of the certificates to trust


@dataclass(frozen=True)
class Connection:
    """The address of a server, and what it is called with."""

    url: str
    token: str
    ca: str | None


def config_path() -> Path:
    """Return the path of the configuration: ``FAIRLEAD_CONFIG``, or ``fairlead/client.toml`` where
    configurations are kept."""
    if named := os.environ.get(PATH_VARIABLE):
        return Path(named)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return home / "fairlead" / "client.toml"


def read_config() -> ClientConfig:
    """The configuration; an empty one where there is no file. Raises ConfigError."""
    path = config_path()
    if not path.exists():
        return ClientConfig()
    if not (path.is_file() or path.is_dir()):  # a pipe or a device, which may never end
        raise ConfigError(f"{path}: is no regular file")
    config = read_config_file(path, ClientConfig)
    if config.token and path.stat().st_mode & 0o077:
        print(
            f"fairlead: {path}: others can read the token in it: chmod 600 {path}", file=sys.stderr
        )
    if config.server and (problem := address_problem(as_url(config.server))):
        with naming_lines(path):
            raise ConfigError(f"{path}: server: {problem}")
    if not config.token.isascii() or not config.token.isprintable():
        raise ConfigError(f"{path}: token: has characters that no token has")
    return config


def write_config(config: ClientConfig) -> Path:
    """Write it for its owner alone, whole or not at all. Returns where it is. Raises OSError."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in msgspec.structs.asdict(config).items()
        if value
    ]
    write_token(path, "\n".join(lines))
    return path


def find_connection(
    server: str | None, token: str | None, ca: str | None, known: ClientConfig | None = None
) -> Connection:
    """Return the server's URL, token and certificates.
    Each is the argument, else that of ``FAIRLEAD_SERVER``, ``FAIRLEAD_TOKEN`` or ``FAIRLEAD_CA``, else the
    configuration's, whose token and CA go to its own server alone. known: it; None = as its file has it."""
    named = server or os.environ.get("FAIRLEAD_SERVER", "")
    config = read_config() if known is None else known
    url = as_url(named or config.server or DEFAULT_URL)
    if url != as_url(config.server):
        config = ClientConfig()
    if token is None:
        token = os.environ.get("FAIRLEAD_TOKEN", "").strip() or config.token
    return Connection(url, token, ca or os.environ.get("FAIRLEAD_CA") or config.ca or None)


def as_url(server: str) -> str:
    """The address with its scheme, without a slash at the end; "" stays."""
    url = server if "://" in server or not server else f"http://{server}"
    return url.rstrip("/")
