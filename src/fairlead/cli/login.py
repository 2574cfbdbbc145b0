"""``fairlead login`` and ``fairlead logout``."""

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.client_config import (
    ClientConfig,
    config_path,
    find_connection,
    read_config,
    write_config,
)
from fairlead.cli.server_options import CaOption
from fairlead.cli.terminal_views import local_time
from fairlead.cli.token_files import read_token
from fairlead.cluster.http_client import Client


def login(
    server: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL]",
            help="The server. Default: the variable FAIRLEAD_SERVER, else that of the last login.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the token. Default: the variable FAIRLEAD_TOKEN; else it is asked for.",
        ),
    ] = None,
    ca: CaOption = None,
) -> None:
    """Write down which server to use, and as whom.

    The server is asked first whether the token is good. All other commands find it there.
    """
    token = None if token_file is None else read_token(token_file, option="--token-file")
    known = ClientConfig() if server else read_config()  # one that is damaged is written anew
    trusted = None if ca is None else str(Path(ca).absolute())
    found = find_connection(server, token, trusted, known)
    given = found.token if token is not None or found.token else _ask(found.url)
    with Client(found.url, given, found.ca) as client:
        me = client.me()
    path = write_config(ClientConfig(found.url, given, found.ca or ""))
    tenant = f" of tenant {me.tenant}" if me.tenant else ""
    until = "" if me.expires_s is None else f" until {local_time(me.expires_s)}"
    print(f"{found.url}: logged in as {me.role} {me.user}{tenant}{until}; kept in {path}")


def logout() -> None:
    """Forget the server and the token of the last login. The token stays good: an admin can end it."""
    path = config_path()
    try:
        path.unlink()
    except FileNotFoundError:
        print("not logged in")
    else:
        print(f"logged out: {path} is removed")


def _ask(url: str) -> str:
    """The token, from a terminal without showing it, or from standard input."""
    if sys.stdin.isatty():
        return getpass.getpass(f"token for {url}: ").strip()
    return sys.stdin.readline().strip()
