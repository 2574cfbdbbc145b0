"""``fairlead reproduce``: reproductions of published results."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.option_records import takes_records
from fairlead.cli.options import JsonOption
from fairlead.cli.sweep_options import (
    ExecutionOptions,
    keeps_results,
    make_out,
    report_foreign,
    show_failures,
)
from fairlead.errors import ConfigError, FairleadError

if TYPE_CHECKING:
    from fairlead.analysis.experiments.experiment_context import RunContext
    from fairlead.analysis.experiments.findings import Findings, Reproduction
    from fairlead.analysis.experiments.point import PointResult
    from fairlead.analysis.experiments.reproduce import ReproductionRecord


class ScaleName(StrEnum):
    """Scale of a reproduction."""

    SMALL = "small"
    PAPER = "paper"


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """The options of a reproduction: its scale, and the folders of results and data."""

    scale: Annotated[
        ScaleName, typer.Option("--scale", help="A minute or two, or the sizes of the paper.")
    ] = ScaleName.SMALL
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where results are kept and written.")
    ] = Path("runs/reproduce")
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Real traces and reference results, where they are needed.",
        ),
    ] = None


@takes_records
def reproduce(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...", help="What to reproduce, or 'all'; --list has the names."
        ),
    ] = None,
    options: ReproduceOptions,
    execution: ExecutionOptions,
    list_: Annotated[bool, typer.Option("--list", help="List what there is.")] = False,
    results: Annotated[
        Path | None,
        typer.Option(
            "--write-results",
            metavar="DIR",
            help="Write pages of results (Markdown) into DIR from the folders given in place of names.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Reproduce published results.

    Writes DIR/NAME-SCALE: the figure (PNG, SVG), the table (CSV, Markdown), findings.json, and the exact
    configuration of every simulation (points.json). Simulations are kept in DIR: what was stopped goes on.
    """
    from fairlead.analysis.experiments import reproduce as r

    if list_:
        _list()
        return
    if not names:
        raise ConfigError("give a name, or 'all' ('fairlead reproduce --list' has the names)")
    if results is not None:
        r.write_results(results, [Path(name) for name in names])
        print(f"Results: {results}")
        return
    _run_all(r.select_reproductions(names), options, execution, json=json)


def _run_all(
    chosen: Sequence["Reproduction"],
    options: ReproduceOptions,
    execution: ExecutionOptions,
    *,
    json: bool,
) -> None:
    """Run and show them one after the other, or all records as one JSON object by name at the end; exit with
    1 if one fails."""
    from fairlead.analysis.experiments.experiment_context import RunContext

    limits = execution.limits()
    if options.data is not None and not options.data.is_dir():
        raise ConfigError(f"--data: {options.data} is not a directory")
    executor = execution.executor()
    make_out(options.out)
    store = execution.store(options.out)
    contexts = [
        RunContext(
            name=one.name,
            scale=options.scale.value,
            folder=options.out / f"{one.name}-{options.scale}",
            store=store,
            data=options.data,
            executor=executor,
            limits=limits,
        )
        for one in chosen
    ]
    records: dict[str, ReproductionRecord] = {}
    with keeps_results("run the same command again to go on"):
        failed = [
            not _reproduced(one, context, chosen, records if json else None)
            for one, context in zip(chosen, contexts, strict=True)
        ]
    report_foreign(store)
    if json:
        from fairlead.analysis.experiments.reproduce import as_json

        print(as_json(records), end="")
    if any(failed):
        raise typer.Exit(1)


def _reproduced(
    one: "Reproduction",
    context: "RunContext",
    chosen: Sequence["Reproduction"],
    records: "dict[str, ReproductionRecord] | None",
) -> bool:
    """Run one and show it, or enter it in the records. Among several, one that fails costs only itself."""
    from fairlead.analysis.experiments import reproduce as r

    try:
        findings, record = r.reproduce(one, context)
    except FairleadError as problem:
        if len(chosen) == 1:
            raise
        print(f"fairlead: {one.name}: {problem}", file=sys.stderr)
        return False
    if records is not None:
        records[one.name] = record
    else:
        _show(one, findings)
        points = f"{record.n_points} simulations, " if record.n_points else ""
        took = f"{points}{record.wall_s:.0f} s"
        print(f"{took}. Written to {context.folder}\n")
    unique: dict[str, PointResult] = {context.store.key(o.point): o for o in context.points}
    return not show_failures(list(unique.values()))


def _show(one: "Reproduction", findings: "Findings") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from fairlead.analysis.experiments import reproduce as r
    from fairlead.cli.terminal_views import console

    screen = console()
    screen.print(f"{one.name}: {one.title} ({one.source})")
    for table in findings.tables:
        shown = Table("", "ours", "published", "ratio", "", title=table.title, box=SIMPLE_HEAD)
        for column in shown.columns[1:4]:
            column.justify = "right"
        for row in table.rows:
            shown.add_row(*r.cells(row))
        screen.print(shown)
    for remark in findings.remarks:
        screen.print(f"- {remark}")


def _list() -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from fairlead.analysis.experiments import reproduce as r
    from fairlead.cli.terminal_views import console

    table = Table("name", "what", "source", "needs --data", box=SIMPLE_HEAD)
    for one in r.reproductions().values():
        table.add_row(one.name, one.title, one.source, "yes" if one.needs_data else "")
    console().print(table)
