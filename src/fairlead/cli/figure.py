"""``fairlead figure``: the figures of the reports as files."""

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from fairlead.analysis.experiments.sweep_charts import (
    LOAD_FIGURES,
    SAMPLE_FIGURES,
    Swept,
    lost_tables,
    sweep_charts,
)
from fairlead.analysis.report.chart_mpl import (
    FORMATS,
    Format,
    write_chart,
)
from fairlead.analysis.report.run_charts import RUN_FIGURES, run_charts
from fairlead.cli.run_sources import (
    FoldersArgument,
    make_out,
    read_runs,
    read_sources,
)
from fairlead.cli.terminal_views import show, table
from fairlead.errors import ConfigError, RunError

OF_RUNS = {figure.name: figure.title for figure in RUN_FIGURES}
OF_SWEEPS = {figure.name: f"{figure.title} against the load" for figure in LOAD_FIGURES} | {
    figure.name: f"{figure.title}, as a CDF at the highest load that all lines sustain"
    for figure in SAMPLE_FIGURES
}
OF_JOBS = {figure.name for figure in SAMPLE_FIGURES}  # those of sweeps that read tables of jobs


def figure(
    folders: FoldersArgument = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="NAME",
            help="May be given several times. Default: all that there is data for.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write them.")] = Path(
        "figures"
    ),
    kind: Annotated[
        str | None,
        typer.Option("--format", metavar="png|svg", help="Write only this kind. Default: both."),
    ] = None,
    listed: Annotated[
        bool,
        typer.Option(
            "--list",
            help="Write nothing; list what can be drawn of the folders named, or, without any, all that "
            "there is.",
        ),
    ] = False,
) -> None:
    """Write the figures of runs or sweeps as files.

    The same figures as in the pages of 'fairlead report', as PNG and SVG for papers and slides.
    """
    if listed and not folders:
        _list(("run", OF_RUNS, OF_RUNS), ("sweep", OF_SWEEPS, OF_SWEEPS))
        return
    formats = _formats(kind)
    runs, sweeps = read_sources(folders or [])
    known = OF_SWEEPS if sweeps else OF_RUNS
    wanted = list(dict.fromkeys(names or ()))
    for name in wanted:
        if name not in known:
            raise ConfigError(
                f"--figure: {name!r} is not a figure of {'sweeps' if sweeps else 'runs'} "
                f"(choose from {', '.join(known)})"
            )
    charts = sweep_charts(sweeps, *wanted) if sweeps else run_charts(read_runs(runs), *wanted)
    _check(sweeps, wanted, dict(charts))
    if listed:
        _list(("sweep" if sweeps else "run", known, dict(charts)))
        return
    make_out(out)
    for name, chart in charts:
        for path in write_chart(chart, out / name, formats):
            print(path)


def _list(*groups: tuple[str, dict[str, str], Collection[str]]) -> None:
    """Print figures. groups: what they are of, what each shows, and the names of those to print."""
    rows = [(of, name, shows[name]) for of, shows, names in groups for name in names]
    show(table("of name what_it_shows", rows))


def _check(sweeps: list[Swept], wanted: list[str], made: Collection[str]) -> None:
    """Refuse where a figure that was asked for could not be made; say on stderr what else is left out."""
    missing = [name for name in wanted if name not in made]
    lost = [] if wanted and not OF_JOBS.intersection(wanted) else lost_tables(sweeps)
    if lost and OF_JOBS.intersection(missing):
        raise RunError(lost[0])
    if missing:
        raise ConfigError(f"--figure {missing[0]}: there is no data for it in the folders named")
    for line in lost:
        print(f"fairlead: {line}", file=sys.stderr)


def _formats(kind: str | None) -> tuple[Format, ...]:
    chosen = tuple(one for one in FORMATS if kind in (None, one))
    if not chosen:
        raise ConfigError(f"--format: expected {' or '.join(FORMATS)}, got {kind!r}")
    return chosen
