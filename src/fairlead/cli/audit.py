"""``fairlead audit``: who did what."""

import difflib
import json as json_text
import time
from typing import Annotated

import msgspec
import typer

from fairlead.cli.server_options import asks_server
from fairlead.cli.time_option import TIME_HELP, read_time
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.audit import ACTIONS, AuditEntry
from fairlead.cluster.protocol.plausible import one_line
from fairlead.errors import ConfigError

FOLLOW_S = 1.0  # between two looks for new entries


@asks_server
def audit(
    client: Client,
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Of this user only.")] = "",
    action: Annotated[
        str,
        typer.Option("--action", metavar="NAME", help="Of this kind only, as cancel or submit."),
    ] = "",
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help=f"From then on: {TIME_HELP}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Before then; as --since.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print lines of JSON.")] = False,
) -> None:
    """Print the audit log: who changed what, when and from where, and who was refused. For admins."""
    since_s, until_s = read_time(since, "--since"), read_time(until, "--until")
    if since_s is not None and until_s is not None and until_s <= since_s:
        raise ConfigError(f"--until: must be after --since, got {until!r}")
    if action and not follow:
        _check_action(client, action)
    cursor, more = "", True
    while more or follow:
        page = client.audit(user=user, action=action, since=since_s, until=until_s, cursor=cursor)
        for entry in page.entries:
            print(_json(entry) if json else _text(entry), flush=follow)
        cursor, more = page.cursor, page.more
        if follow and not more:
            time.sleep(FOLLOW_S)


def _check_action(client: Client, action: str) -> None:
    """Raise ConfigError for an action that nobody has ever taken, and that people cannot take: a slip of the
    pen, for which nothing would be printed."""
    if action in ACTIONS:
        return
    page = client.audit(action=action)
    while page.more and not page.entries:
        page = client.audit(action=action, cursor=page.cursor)
    if not page.entries:
        close = difflib.get_close_matches(action, ACTIONS, n=1)
        meant = f"; did you mean {close[0]}?" if close else f"; actions are {', '.join(ACTIONS)}"
        raise ConfigError(f"--action: the log has none of this name, got {action!r}{meant}")


def _json(entry: AuditEntry) -> str:
    """In ASCII: no name in it reaches the terminal as anything else than letters."""
    return json_text.dumps(msgspec.to_builtins(entry), ensure_ascii=True)


def _text(entry: AuditEntry) -> str:
    """One line for people."""
    who = entry.user or "nobody known"
    whose = f" of {entry.tenant}" if entry.tenant else ""
    whose += f", by {entry.actor}" if entry.actor else ""
    token = f" {entry.token_kind} token {entry.token_id}".rstrip() if entry.token_kind else ""
    forwarded = f" (forwarded for {entry.forwarded_for})" if entry.forwarded_for else ""
    status = f" {entry.status}" if entry.status else ""
    reason = f": {entry.reason}" if entry.reason else ""
    others = f" (and {entry.left_out} like it)" if entry.left_out else ""
    parts = (
        f"{entry.time}  {who}{whose}",
        f"[{entry.source}{forwarded};{token}]",
        f"{entry.action} {entry.object}".rstrip(),
        f"{entry.outcome}{status}{reason}{others}",
    )
    return one_line("  ".join(parts))
