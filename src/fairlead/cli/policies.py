"""``fairlead policies``: the list of policies."""

import sys
from typing import Annotated

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fairlead.policies import registry


def policies(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the policies and what each optimises.

    In the formulas x_ij is the share of time that job i spends on accelerator type j, T_ij its rate
    there, s_i the devices it uses, w_i its weight, and N_j the number of devices of type j.
    ENTITIES.toml has a table per entity, by the tenants' names, with weight and policy (fairness or
    fifo) and tables of entities inside. docs/policies.md says more.
    """
    known = registry.describe()
    if json:
        sys.stdout.write(msgspec.json.encode(known).decode() + "\n")
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    table = Table(box=SIMPLE_HEAD)
    for name in ("name", "also", "program", "from"):
        table.add_column(name, overflow="fold")
    for one in known:
        name = f"{one.name}:{one.argument}" if one.argument else one.name
        table.add_row(name, ", ".join(one.aliases), one.program, one.source)
    console.print(table)
