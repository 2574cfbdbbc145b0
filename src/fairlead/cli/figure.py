"""``fairlead figure``: the figures of the reports as files."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.analysis.report.figure_style import (
    COLUMN_IN,
    FONT_PT,
    GUTTER_IN,
    FigureStyle,
    SeedInterval,
)
from fairlead.cli.option_records import takes_records
from fairlead.cli.run_sources import FoldersArgument, make_out, read_runs, read_sources
from fairlead.errors import ConfigError, RunError

if TYPE_CHECKING:
    from fairlead.analysis.experiments.sweep_charts import Swept
    from fairlead.analysis.report.chart import Chart
    from fairlead.analysis.report.chart_mpl import Format


@dataclass(frozen=True, kw_only=True)
class ContentOptions:
    """Figures to draw, and their content."""

    names: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="NAME",
            help="May be given several times. Default: all that there is data for.",
        ),
    ] = None
    intervals: Annotated[
        SeedInterval,
        typer.Option(
            "--intervals",
            help="Error bars of sweeps: from the least to the greatest seed, or the 95 % confidence "
            "interval of the mean over the seeds.",
        ),
    ] = SeedInterval.RANGE
    relative_to: Annotated[
        str,
        typer.Option(
            "--relative-to",
            metavar="LINE",
            help="Of sweeps: show how far the other lines are from this one, seed by seed, with the 95 % "
            "confidence interval of the mean difference.",
        ),
    ] = ""
    log_x: Annotated[
        bool | None,
        typer.Option(
            "--log-x/--linear-x", help="Scale of the axis. Default: as the values ask for."
        ),
    ] = None
    log_y: Annotated[
        bool | None,
        typer.Option(
            "--log-y/--linear-y", help="Scale of the axis. Default: as the values ask for."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class StyleOptions:
    """The style of the files. Any of these options makes figures for a paper."""

    width: Annotated[
        float | None,
        typer.Option(
            "--width",
            metavar="COLUMNS",
            help="Width in columns of the paper: 1, or 2 for a figure across the page. The file has "
            "exactly this size, so include it without scaling. Default: 1.",
        ),
    ] = None
    column_width: Annotated[
        float | None,
        typer.Option(
            "--column-width",
            metavar="INCHES",
            help=f"Width of a column; {GUTTER_IN:g} inches are between two. Default: {COLUMN_IN:g}, as "
            "in the templates of ACM and USENIX.",
        ),
    ] = None
    height: Annotated[
        float | None,
        typer.Option(
            "--height",
            metavar="INCHES",
            help="Default: 0.65 of the width, up to 3.2, and what a long legend needs.",
        ),
    ] = None
    font_size: Annotated[
        float | None,
        typer.Option("--font-size", metavar="POINTS", help=f"Default: {FONT_PT:g}."),
    ] = None
    line_styles: Annotated[
        bool,
        typer.Option(
            "--line-styles",
            help="Dashes, markers and hatches beside the colours, for prints in grey.",
        ),
    ] = False
    no_titles: Annotated[
        bool, typer.Option("--no-titles", help="No title: the caption says what is shown.")
    ] = False

    def style(self) -> FigureStyle | None:
        """Return the style of a figure for a paper; None if no option asks for one. Raises ConfigError."""
        if self == StyleOptions():
            return None
        defaults = FigureStyle()
        return FigureStyle(
            columns=defaults.columns if self.width is None else self.width,
            column_in=defaults.column_in if self.column_width is None else self.column_width,
            height_in=self.height,
            font_pt=defaults.font_pt if self.font_size is None else self.font_size,
            line_styles=self.line_styles,
            titles=not self.no_titles,
        ).checked()


@takes_records
def figure(
    *,
    folders: FoldersArgument = None,
    content: ContentOptions,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write them.")] = Path(
        "figures"
    ),
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="pdf|png|svg",
            help="May be given several times. Default: png and svg; pdf for a paper.",
        ),
    ] = None,
    appearance: StyleOptions,
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

    The same figures as in the pages of 'fairlead report', as PNG and SVG for slides, or, with --width, as
    PDF at the size of a paper's columns. Their colours are told apart by people with any colour vision.
    """
    of_runs, of_sweeps = _known()
    if listed and not folders:
        _list(("run", of_runs, of_runs), ("sweep", of_sweeps, of_sweeps))
        return
    style = appearance.style()
    chosen = _formats(formats, style)
    runs, sweeps = read_sources(folders or [])
    known = of_sweeps if sweeps else of_runs
    names = _selected(content, known, "sweeps" if sweeps else "runs")
    charts = _charts(runs, sweeps, names, content)
    _check(sweeps, names, dict(charts))
    if listed:
        _list(("sweep" if sweeps else "run", known, dict(charts)))
        return
    _write(charts, out, chosen, style)


def _write(
    charts: Sequence[tuple[str, "Chart"]],
    out: Path,
    formats: tuple["Format", ...],
    style: FigureStyle | None,
) -> None:
    from fairlead.analysis.report.chart_mpl import write_chart

    make_out(out)
    for name, chart in charts:
        for path in write_chart(chart, out / name, formats, style):
            print(path)


def _known() -> tuple[dict[str, str], dict[str, str]]:
    """The figures of runs and those of sweeps: what each shows, by name."""
    from fairlead.analysis.experiments.sweep_charts import LOAD_FIGURES, SAMPLE_FIGURES
    from fairlead.analysis.report.run_charts import RUN_FIGURES

    of_sweeps = {one.name: f"{one.title} against the load" for one in LOAD_FIGURES} | {
        one.name: f"{one.title}, as a CDF at the highest load that all lines sustain"
        for one in SAMPLE_FIGURES
    }
    return {one.name: one.title for one in RUN_FIGURES}, of_sweeps


def _selected(content: ContentOptions, known: Collection[str], of: str) -> list[str]:
    """The figures that are asked for, each once."""
    names = list(dict.fromkeys(content.names or ()))
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--figure: {name!r} is not a figure of {of} (choose from {', '.join(known)})"
            )
    if of == "runs" and (content.relative_to or content.intervals is not SeedInterval.RANGE):
        raise ConfigError("--relative-to and --intervals are for sweeps: a run has one seed")
    return names


def _charts(
    runs: list[Path], sweeps: list["Swept"], names: Sequence[str], content: ContentOptions
) -> list[tuple[str, "Chart"]]:
    """The charts that there is data for, by name."""
    from fairlead.analysis.experiments.sweep_charts import sweep_charts
    from fairlead.analysis.report.run_charts import run_charts

    if sweeps:
        charts = sweep_charts(
            sweeps, *names, interval=content.intervals, relative_to=content.relative_to
        )
    else:
        charts = run_charts(read_runs(runs), *names)
    return [(name, _scaled(chart, content)) for name, chart in charts]


def _scaled(chart: "Chart", content: ContentOptions) -> "Chart":
    """The chart with the axes that are asked for; bars have categories along x."""
    if content.log_x is not None and chart.kind == "lines":
        chart = replace(chart, log_x=content.log_x)
    return chart if content.log_y is None else replace(chart, log_y=content.log_y)


def _list(*groups: tuple[str, Mapping[str, str], Collection[str]]) -> None:
    """Print figures. groups: what they are of, what each shows, and the names of those to print."""
    from fairlead.cli.terminal_views import show, table

    rows = [(of, name, shows[name]) for of, shows, names in groups for name in names]
    show(table("of name what_it_shows", rows))


def _check(sweeps: list["Swept"], names: list[str], made: Collection[str]) -> None:
    """Raise where a figure that was asked for could not be made; print on stderr what else is left out."""
    from fairlead.analysis.experiments.sweep_charts import SAMPLE_FIGURES, lost_tables

    of_jobs = {one.name for one in SAMPLE_FIGURES}  # those that read tables of jobs
    missing = [name for name in names if name not in made]
    lost = [] if names and not of_jobs.intersection(names) else lost_tables(sweeps)
    if lost and of_jobs.intersection(missing):
        raise RunError(lost[0])
    if missing:
        raise ConfigError(f"--figure {missing[0]}: there is no data for it in the folders named")
    for line in lost:
        print(f"fairlead: {line}", file=sys.stderr)


def _formats(given: list[str] | None, style: FigureStyle | None) -> tuple["Format", ...]:
    from fairlead.analysis.report.chart_mpl import DEFAULT_FORMATS, FORMATS

    if not given:
        return DEFAULT_FORMATS if style is None else ("pdf",)
    for kind in given:
        if kind not in FORMATS:
            raise ConfigError(f"--format: expected {', '.join(FORMATS)}, got {kind!r}")
    return tuple(kind for kind in FORMATS if kind in given)
