"""``fairlead report``: a page about runs or sweeps that have ended."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.run_sources import (
    FoldersArgument,
    make_out,
    read_runs,
    read_sources,
)
from fairlead.errors import ConfigError

_BEGINNING = b"<!doctype html>"


def report(
    folders: FoldersArgument = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Its folder is made if it is not there. Default: report.html in the folder named, or, "
            "of several, in the current one.",
        ),
    ] = None,
) -> None:
    """Write a page about runs or sweeps.

    One HTML file that needs no network: figures, tables that a click sorts, and the data behind them to
    download. Of several runs it compares them; of several sweeps it draws all lines together.
    """
    from fairlead.analysis.experiments.sweep_charts import lost_tables
    from fairlead.analysis.experiments.sweep_page import sweep_report
    from fairlead.analysis.report.comparison_report import comparison_report
    from fairlead.analysis.report.run_folders import read_table
    from fairlead.analysis.report.run_report import run_report
    from fairlead.simulator.traces.atomic_write import write_atomically

    named = folders or []
    runs, sweeps = read_sources(named)
    if sweeps:
        for line in lost_tables(sweeps):
            print(f"fairlead: {line}", file=sys.stderr)
        page = sweep_report(sweeps)
    elif len(runs) == 1:
        (run,) = read_runs(runs)
        intervals = read_table(runs[0], "placement_intervals")
        page = run_report(run.config, run.metrics, run.jobs, run.rounds, intervals)
    else:
        given = read_runs(runs)
        page = comparison_report(
            [(one.label, one.config, one.metrics, one.jobs, one.rounds) for one in given]
        )
    path = out or ((named[0] if len(named) == 1 else Path()) / "report.html")
    if path.is_dir():
        raise ConfigError(f"--out: {path} is a folder, give the name of a file")
    make_out(path.parent)
    if out is not None and path.exists() and not _is_page(path):
        raise ConfigError(f"--out: {path} is there already and is no report; choose another name")
    with write_atomically(path) as partial:
        partial.write_text(page, encoding="utf-8")
    print(f"Report: {path}")


def _is_page(path: Path) -> bool:
    """Return whether a file begins as a report does."""
    with path.open("rb") as file:
        return file.read(len(_BEGINNING)).lower() == _BEGINNING
