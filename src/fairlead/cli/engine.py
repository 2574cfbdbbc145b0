"""``fairlead engine``: the engine that starts nodes."""

import typer

from fairlead.cli.server_options import JsonOption, asks_server, warn
from fairlead.cli.terminal_views import engine_table, launch_table, print_json, show
from fairlead.cluster.http_client import Client
from fairlead.model.duration_text import duration

engine = typer.Typer(no_args_is_help=True, help="Show the engine that starts nodes. For admins.")


@engine.callback()
def _group() -> None:
    """Show the engine that starts nodes. For admins."""


@engine.command("plan")
@asks_server
def plan(client: Client, json: JsonOption = False) -> None:
    """Show what the engine is asked for now, and why.

    A price is what one device more of a type would bring: jobs at their best rate.
    """
    found = client.engine_plan()
    if json:
        print_json(found)
        return
    asks = "asks for nothing (dry_run)" if found.dry_run else "starts and ends nodes"
    looked = "not looked yet" if found.age_s is None else f"looked {duration(found.age_s)} ago"
    print(f"engine {found.engine}: {asks}; {looked}")
    if found.trouble:
        warn([found.trouble])
    if found.types:
        show(engine_table(found))
    if found.launches:
        show(launch_table(found))
