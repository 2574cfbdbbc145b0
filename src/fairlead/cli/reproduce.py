"""``fairlead reproduce``: a published result, again."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fairlead.analysis.experiments import reproduce as r
from fairlead.analysis.experiments.executor import Limits
from fairlead.analysis.experiments.experiment_context import RunContext
from fairlead.analysis.experiments.findings import Findings, Reproduction
from fairlead.analysis.experiments.point import PointResult
from fairlead.analysis.experiments.result_store import ResultStore
from fairlead.cli.sweep_options import (
    AddressOption,
    AnyVersionOption,
    ExecutorKind,
    ExecutorOption,
    MemoryOption,
    ProcessesOption,
    TimeoutOption,
    executor_of,
    failures,
    interrupted,
    make_out,
    say_foreign,
)
from fairlead.cli.terminal_views import console
from fairlead.errors import ConfigError, FairleadError


class ScaleName(StrEnum):
    """How large."""

    SMALL = "small"
    PAPER = "paper"


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...", help="What to reproduce, or 'all'; --list has the names."
        ),
    ] = None,
    scale: Annotated[
        ScaleName, typer.Option("--scale", help="A minute or two, or the sizes of the paper.")
    ] = ScaleName.SMALL,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where results are kept and written.")
    ] = Path("runs/reproduce"),
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Real traces and reference results, where they are needed.",
        ),
    ] = None,
    processes: ProcessesOption = None,
    memory: MemoryOption = None,
    timeout: TimeoutOption = None,
    engine: ExecutorOption = ExecutorKind.PROCESSES,
    ray_address: AddressOption = None,
    any_version: AnyVersionOption = False,
    list_: Annotated[bool, typer.Option("--list", help="List what there is.")] = False,
    results: Annotated[
        Path | None,
        typer.Option(
            "--write-results",
            metavar="DIR",
            help="Write pages of results (Markdown) into DIR from the folders given in place of names.",
        ),
    ] = None,
) -> None:
    """Reproduce published results.

    Writes DIR/NAME-SCALE: the figure (PNG, SVG), the table (CSV, Markdown), findings.json, and the exact
    configuration of every simulation (points.json). Simulations are kept in DIR: what was stopped goes on.
    """
    if list_:
        _list()
        return
    if not names:
        raise ConfigError("give a name, or 'all' ('fairlead reproduce --list' has the names)")
    if results is not None:
        r.write_results(results, [Path(name) for name in names])
        print(f"Results: {results}")
        return
    limits = Limits(timeout, memory).checked()
    chosen = r.wanted(names)
    if data is not None and not data.is_dir():
        raise ConfigError(f"--data: {data} is not a directory")
    made = executor_of(engine, processes, ray_address)
    make_out(out)
    store = ResultStore(out, any_version=any_version)
    benches = [
        RunContext(
            one.name,
            scale.value,
            out / f"{one.name}-{scale}",
            store,
            data,
            made,
            limits,
        )
        for one in chosen
    ]
    with interrupted("run the same command again to go on"):
        bad = [
            not _reproduced(one, bench, chosen) for one, bench in zip(chosen, benches, strict=True)
        ]
    say_foreign(store)
    if any(bad):
        raise typer.Exit(1)


def _reproduced(one: Reproduction, bench: RunContext, chosen: Sequence[Reproduction]) -> bool:
    """Run one and show it. Among several, one that fails costs only itself."""
    try:
        findings, record = r.reproduce(one, bench)
    except FairleadError as problem:
        if len(chosen) == 1:
            raise
        print(f"fairlead: {one.name}: {problem}", file=sys.stderr)
        return False
    _show(one, findings)
    print(f"{record.n_points} simulations, {record.wall_s:.0f} s. Written to {bench.folder}\n")
    unique: dict[str, PointResult] = {bench.store.key(o.point): o for o in bench.points}
    return not failures(list(unique.values()))


def _show(one: Reproduction, findings: Findings) -> None:
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
    table = Table("name", "what", "source", "needs --data", box=SIMPLE_HEAD)
    for one in r.reproductions().values():
        table.add_row(one.name, one.title, one.source, "yes" if one.needs_data else "")
    console().print(table)
