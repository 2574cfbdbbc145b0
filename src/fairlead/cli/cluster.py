"""Commands about the cluster: its status, nodes, policy and users, and ``what-if``."""

import time
from typing import Annotated, get_args

import typer
from rich.live import Live

from fairlead.cli.server_options import (
    JobArgument,
    JsonOption,
    asks_server,
    each,
    warn,
)
from fairlead.cli.terminal_views import (
    comparison_screen,
    console,
    local_time,
    node_table,
    print_json,
    show,
    show_age,
    show_trouble,
    status_screen,
    table,
)
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.access import Role
from fairlead.cluster.protocol.api_models import MAX_ADDED_DEVICES, WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import check_weight, read_spec
from fairlead.errors import ConfigError
from fairlead.model.argument_checks import brief_repr
from fairlead.model.duration_text import DASH
from fairlead.model.option_text import split_option

MAX_DAYS = 100_000  # for which a token may be good
WATCH_S = 1.0  # between two looks
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
NodesArgument = Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes.")]

change = typer.Typer(
    no_args_is_help=True, help="Change a job's weight or the policy of the live cluster."
)
user = typer.Typer(no_args_is_help=True, help="Add, remove and list users. For admins.")


@asks_server
def status(
    client: Client,
    watch: Annotated[bool, typer.Option("--watch", help="Until Ctrl-C.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the cluster in one screen."""
    if json:
        print_json(client.status())
    elif not watch:
        show(status_screen(client.status()))
    elif not console().is_terminal:
        while True:
            show(status_screen(client.status()))
            time.sleep(WATCH_S)
    else:
        with Live(status_screen(client.status()), console=console(), auto_refresh=False) as live:
            while True:
                time.sleep(WATCH_S)
                live.update(status_screen(client.status()), refresh=True)


@asks_server
def nodes(client: Client, json: JsonOption = False) -> None:
    """List the nodes and who holds their devices."""
    found = client.nodes()
    if json:
        print_json(found)
    else:
        show_trouble(client.status())
        show_age(node.age_s for node in found)
        show(node_table(found))


@asks_server
def drain(client: Client, nodes: NodesArgument) -> None:
    """Start nothing more on nodes; their jobs move elsewhere."""
    each("node", nodes, client.drain, "drains")


@asks_server
def undrain(client: Client, nodes: NodesArgument) -> None:
    """Take drained or unhealthy nodes back into use."""
    states = {found.name: found.state for found in client.nodes()}

    def done(node: str) -> str:
        was_up = states.get(node) == "up"
        return "was not drained: it is in use" if was_up else "is in use again"

    each("node", nodes, client.undrain, done)


@asks_server
def remove_node(client: Client, nodes: NodesArgument) -> None:
    """Forget nodes that are drained, offline or lost and will not come back."""
    each("node", nodes, client.remove_node, "removed")


@asks_server
def revoke_node(client: Client, node: NodeArgument) -> None:
    """Refuse a node's token: its agent may hold nothing once its leases are over.

    `fairlead undrain NODE` lets it be enrolled again, with the token of the user agent.
    """
    client.revoke_node(node)
    print(f"node {node}: its token is revoked")


@asks_server
def reload(client: Client, json: JsonOption = False) -> None:
    """Have the server read its configuration file again. For admins.

    Prints which options hold from now on, and which need a restart. Where something is wrong with the file
    nothing changes.
    """
    answer = client.reload()
    if json:
        print_json(answer)
        return
    print(f"changed: {', '.join(answer.changed) or 'nothing'}")
    if answer.needs_restart:
        print(f"needs a restart: {', '.join(answer.needs_restart)}")


@change.command("weight")
@asks_server
def set_weight(
    client: Client,
    job: JobArgument,
    weight: Annotated[float, typer.Argument(metavar="W", help="Share relative to other jobs.")],
) -> None:
    """Give a job another weight."""
    check_weight(weight, "W")
    client.set_weight(job, weight)
    print(f"job {job} has weight {weight:g}")


@change.command("policy")
@asks_server
def set_policy(
    client: Client,
    policy: Annotated[str, typer.Argument(metavar="NAME", help="Of `fairlead policies`.")],
) -> None:
    """Decide by another policy from the next solve on."""
    client.set_policy(policy)
    print(f"policy {policy}")


@asks_server
def what_if(
    client: Client,
    add_job: Annotated[
        list[str] | None,
        typer.Option("--add-job", metavar="JOB.toml", help="This job too; may be repeated."),
    ] = None,
    add_node: Annotated[
        list[str] | None,
        typer.Option("--add-node", metavar="TYPE=N", help="A node more; may be repeated."),
    ] = None,
    remove_node: Annotated[
        list[str] | None,
        typer.Option("--remove-node", metavar="NODE", help="Without this node; may be repeated."),
    ] = None,
    policy: Annotated[str, typer.Option("--policy", metavar="NAME", help="Another policy.")] = "",
    json: JsonOption = False,
) -> None:
    """Ask when the jobs would end, as it is and with changes. Nothing is touched."""
    question = WhatIf(
        add_jobs=tuple(_job(file) for file in add_job or ()),
        add_nodes=_devices(add_node or []),
        remove_nodes=tuple(remove_node or ()),
        policy=policy,
    )
    answer = client.what_if(question)
    if json:
        print_json(answer)
    else:
        show(comparison_screen(answer))


@user.command("add")
@asks_server
def add_user(
    client: Client,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    tenant: Annotated[
        str,
        typer.Option(
            "--tenant", help="Whose jobs the user sees. Needed unless --role says otherwise."
        ),
    ] = "",
    role: Annotated[
        str, typer.Option("--role", metavar="|".join(get_args(Role)), help="What the user may do.")
    ] = "user",
    expires: Annotated[
        float | None,
        typer.Option(
            "--expires",
            metavar="DAYS",
            help="The token is good for so long. Default: until there is another.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Add a user and print the token, once. A known user gets a new one, and is moved where it says so."""
    roles: tuple[Role, ...] = get_args(Role)
    known = next((one for one in roles if one == role), None)
    if known is None:
        raise ConfigError(f"--role: expected one of {', '.join(roles)}, got {role!r}")
    if known == "user" and not tenant:
        raise ConfigError("--tenant: is needed for a user, who sees and submits its jobs")
    if expires is not None and not 0 < expires <= MAX_DAYS:
        raise ConfigError(
            f"--expires: must be above 0 and at most {MAX_DAYS:,} days, got {expires:g}"
        )
    before = next(
        (_membership(one.role, one.tenant) for one in client.users() if one.user == name), ""
    )
    token = client.add_user(name, tenant, known, None if expires is None else expires * 86400.0)
    if json:
        print_json({"token": token})
    else:
        print(token)
    now = _membership(known, tenant)
    if before not in ("", now):
        warn([f"user {name} was {before} and is now {now}; jobs stay where they are"])


def _membership(role: Role, tenant: str) -> str:
    """What a user is, in words."""
    return f"{'a' if role == 'user' else 'an'} {role}" + f" of tenant {tenant}" * bool(tenant)


@user.command("remove")
@asks_server
def remove_user(client: Client, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """End a user's token. Their jobs go on."""
    client.remove_user(name)
    print(f"user {name} removed")


@user.command("list")
@asks_server
def users(client: Client, json: JsonOption = False) -> None:
    """List who may use the cluster."""
    found = client.users()
    if json:
        print_json(found)
    else:
        rows = [(one.user, one.tenant, one.role, _expiry(one.expires_s)) for one in found]
        show(table("user tenant role expires", rows))


def _expiry(time_s: float | None) -> str:
    """When a token is refused, in local time; a dash = never."""
    return DASH if time_s is None else local_time(time_s)


def _job(file: str) -> JobSpec:
    """A job of a file. What is no name of such a file is the option's fault."""
    if not file.endswith((".toml", ".json")):
        raise ConfigError(f"--add-job: expected a .toml or a .json file, got {file!r}")
    return read_spec(file)


def _devices(texts: list[str]) -> dict[str, int]:
    """Devices by type, of ``v100=4`` and the like; a type that is named twice gets both."""
    devices: dict[str, int] = {}
    for text in texts:
        name, number = split_option(text)
        if not (name and number and number.isascii() and number.isdecimal()):
            raise ConfigError(f"--add-node: expected TYPE=N, for example v100=4, got {text!r}")
        # Python reads no number of thousands of digits.
        whole = int(number) if len(number) < 19 else MAX_ADDED_DEVICES + 1
        devices[name] = devices.get(name, 0) + whole
        if not 1 <= whole <= devices[name] <= MAX_ADDED_DEVICES:
            raise ConfigError(
                f"--add-node: from 1 to {MAX_ADDED_DEVICES:,} devices of a type can be added, got "
                f"{brief_repr(text)}"
            )
    return devices
