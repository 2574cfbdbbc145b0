"""``fairlead trace``: look at traces, convert them, generate them."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.cli.option_records import takes_records
from fairlead.errors import ConfigError
from fairlead.model.duration_text import duration
from fairlead.model.limits import MAX_SEED

if TYPE_CHECKING:
    from rich.table import Table

    from fairlead.model.cluster import Cluster
    from fairlead.model.job import Arrival
    from fairlead.model.throughputs import Throughputs
    from fairlead.simulator.traces.describe import TraceDescription
    from fairlead.simulator.traces.trace import Trace

app = typer.Typer(
    name="trace",
    no_args_is_help=True,
    help="Describe, convert or generate a trace of jobs.\n\n"
    "A trace says which job arrives when, how many devices it uses and how much work it is. "
    "The formats of Gavel, Shockwave, Philly and ITP and Fairlead's own are recognised from the "
    "content; docs/formats.md describes them.",
)

ThroughputsOption = Annotated[
    str,
    typer.Option(
        metavar="builtin|FILE",
        help="How fast each model family runs on each accelerator type: the catalogue that ships "
        "with Fairlead, or a file (our CSV or Gavel's JSON).",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="Keep to jobs that can run on this cluster: v100=8,p100=16,k80=24 or a TOML file.",
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        min=0, max=MAX_SEED, help="Where random choices start; the same seed gives the same jobs."
    ),
]
VcOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Read one virtual cluster only (Philly traces have several)."
    ),
]


ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite OUT if it is there.")]


class GeneratorKind(StrEnum):
    """Names of the generators of jobs."""

    GAVEL = "gavel"
    BURSTY = "bursty"
    SHOCKWAVE = "shockwave"


# Options that not every generator has.
_OPTIONS_OF = {
    GeneratorKind.GAVEL: ("--priorities", "--deadlines", "--duration", "--full", "--multi-gpu"),
    GeneratorKind.BURSTY: (),
    GeneratorKind.SHOCKWAVE: ("--multi-gpu",),
}


@app.command("describe")
def describe_command(
    file: Annotated[Path, typer.Argument(help="The trace.")],
    throughputs: ThroughputsOption = "builtin",
    cluster: ClusterOption = None,
    seed: SeedOption = 0,
    vc: VcOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what is in a trace: how many jobs, how long, how wide, how bursty."""
    from fairlead.simulator.traces.describe import describe
    from fairlead.simulator.traces.read_trace import read_trace
    from fairlead.simulator.traces.trace import usable

    table, on = _rates(throughputs, cluster)
    trace = read_trace(file, table, seed=seed, vc=vc)
    usable_trace = usable(trace, table, on)
    if usable_trace.arrivals or on is not None:
        trace = usable_trace
    else:
        note = "the throughput table has no rate for any of the jobs: they cannot be run with it"
        trace = replace(trace, notes=(*trace.notes, note))
    _warn(trace)
    figures = describe(trace, table)
    if json:
        sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
    else:
        _show(figures)


@app.command("convert")
def convert_command(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The trace to read.")],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="The file to write: .csv, .parquet or .trace (Gavel's or Shockwave's columns).",
        ),
    ],
    throughputs: ThroughputsOption = "builtin",
    cluster: ClusterOption = None,
    seed: SeedOption = 0,
    vc: VcOption = None,
    force: ForceOption = False,
) -> None:
    """Read a trace in any known format and write it in another."""
    from fairlead.simulator.traces.read_trace import read_trace
    from fairlead.simulator.traces.trace import usable
    from fairlead.simulator.traces.write_trace import write_trace

    _refuse_to_overwrite(target, force)
    table, on = _rates(throughputs, cluster)
    trace = read_trace(source, table, seed=seed, vc=vc)
    if on is not None:
        trace = usable(trace, table, on)
    _warn(trace)
    write_trace(trace, target, table)
    _say(f"{len(trace.arrivals)} jobs written to {target}")


@dataclass(frozen=True, kw_only=True)
class GeneratorOptions:
    """Options of generated jobs."""

    kind: Annotated[
        GeneratorKind,
        typer.Option(
            help="gavel: Poisson arrivals and log-uniform durations, equal to Gavel's own generator. "
            "bursty: sweeps submitted together and heavy-tailed durations, as on real clusters. "
            "shockwave: jobs that change their batch size, equal to Shockwave's own generator."
        ),
    ] = GeneratorKind.GAVEL
    jobs: Annotated[int, typer.Option(min=1, help="How many jobs.")] = 200
    interarrival: Annotated[
        float, typer.Option(metavar="SECONDS", help="Mean time between arrivals; 0 = none.")
    ] = 600.0
    seed: SeedOption = 0
    throughputs: ThroughputsOption = "builtin"
    cluster: ClusterOption = None
    multi_gpu: Annotated[
        bool,
        typer.Option(
            "--multi-gpu",
            help="30 % (gavel) or 40 % (shockwave) of the jobs use 2, 4 or 8 devices.",
        ),
    ] = False
    priorities: Annotated[
        bool, typer.Option("--priorities", help="gavel: 20 % of the jobs have weight 5.")
    ] = False
    deadlines: Annotated[
        bool, typer.Option("--deadlines", help="gavel: deadlines of 1.2, 2 or 10 durations.")
    ] = False
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="gavel: the same duration for all jobs.")
    ] = None
    full: Annotated[
        bool, typer.Option("--full", help="gavel: start with jobs that fill --cluster.")
    ] = False


@app.command("generate")
@takes_records
def generate_command(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="The file to write: .csv, .parquet or .trace (Gavel's or Shockwave's columns).",
        ),
    ],
    options: GeneratorOptions,
    force: ForceOption = False,
) -> None:
    """Generate a trace."""
    from fairlead.simulator.traces.trace import Trace, usable
    from fairlead.simulator.traces.write_trace import write_trace

    _refuse_to_overwrite(target, force)
    table, on = _rates(options.throughputs, options.cluster)
    name = f"generated ({options.kind.value}, seed {options.seed})"
    arrivals = list(_arrivals(options, table, on))
    trace = usable(Trace(name, options.kind.value, arrivals), table, on)
    _warn(trace)
    write_trace(trace, target, table)
    _say(f"{len(trace.arrivals)} jobs written to {target}")


def _arrivals(
    options: GeneratorOptions, table: "Throughputs", on: "Cluster | None"
) -> Iterator["Arrival"]:
    """Jobs of the chosen generator, on the accelerator types of the cluster if there is one."""
    import numpy as np

    from fairlead.simulator.adapting_arrivals import adapting_arrivals
    from fairlead.simulator.arrivals import bursty_arrivals, gavel_arrivals

    _refuse_foreign(options)
    if options.kind is GeneratorKind.BURSTY:
        return bursty_arrivals(
            table,
            mean_interarrival_s=options.interarrival,
            rng=np.random.default_rng(options.seed),
            jobs=options.jobs,
        )
    if options.kind is GeneratorKind.SHOCKWAVE:
        return adapting_arrivals(
            table,
            mean_interarrival_s=options.interarrival,
            seed=options.seed,
            jobs=options.jobs,
            multi_gpu=options.multi_gpu,
        )
    if options.full and on is None:
        raise ConfigError("--full needs --cluster: the devices that the first jobs fill")
    return gavel_arrivals(
        table,
        mean_interarrival_s=options.interarrival,
        seed=options.seed,
        jobs=options.jobs,
        multi_gpu=options.multi_gpu,
        multi_priority=options.priorities,
        slos=options.deadlines,
        steady_state=on if options.full else None,
        fixed_duration_s=options.duration,
    )


def _refuse_to_overwrite(target: Path, force: bool) -> None:
    if target.exists() and not force:
        raise ConfigError(f"{target}: is there already; choose another name or give --force")


def _refuse_foreign(options: GeneratorOptions) -> None:
    """Refuse options that the chosen generator would ignore."""
    given = {
        "--priorities": options.priorities,
        "--deadlines": options.deadlines,
        "--duration": options.duration is not None,
        "--full": options.full,
        "--multi-gpu": options.multi_gpu,
    }
    allowed = _OPTIONS_OF[options.kind]
    for name, is_given in given.items():
        if is_given and name not in allowed:
            raise ConfigError(f"{name} cannot be used with --kind {options.kind}")


def _rates(throughputs: str, cluster: str | None) -> tuple["Throughputs", "Cluster | None"]:
    """The table, cut to the cluster's accelerator types where there is a cluster."""
    from fairlead.simulator.traces.cluster_files import parse_cluster
    from fairlead.simulator.traces.throughput_tables import read_throughputs

    table = read_throughputs(throughputs)
    if cluster is None:
        return table, None
    on = parse_cluster(cluster)
    return table.columns(on.slots), on


def _warn(trace: "Trace") -> None:
    """Notes and skipped rows, on stderr so that stdout can be piped."""
    from rich.console import Console

    from fairlead.simulator.traces.trace import skipped_summary

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in (*trace.notes, *skipped_summary(trace)):
        console.print(f"{trace.name}: {line}", markup=False)


def _say(text: str) -> None:
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(text, markup=False)


def _show(figures: "TraceDescription") -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    for table in _tables(figures):
        console.print(table)


def _tables(figures: "TraceDescription") -> Iterator["Table"]:
    yield _table(f"{figures.name} ({figures.format})", ("", ""), _summary_rows(figures))
    rows = [(one.devices, _share(one.jobs), _share(one.device_time)) for one in figures.demand]
    yield _table("Demand", ("devices", "share of jobs", "share of device time"), rows)
    for title, counts in (
        ("Model families", figures.families),
        ("Tenants", figures.tenants),
        ("Batch size adapts", figures.adapting),
    ):
        if counts:
            named = [(name, f"{n:,}", _share(n / figures.jobs)) for name, n in counts.items()]
            yield _table(title, ("", "jobs", "share"), named)


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_header=any(columns),
    )
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _summary_rows(figures: "TraceDescription") -> Sequence[tuple[str, ...]]:
    arrivals = figures.arrivals
    rows = [
        ("jobs", f"{figures.jobs:,}"),
        ("rows skipped", f"{figures.skipped:,}"),
        ("jobs with a deadline", f"{figures.with_deadline:,}"),
        ("largest job", f"{figures.largest_demand:,} device{'s' * (figures.largest_demand != 1)}"),
        ("first to last arrival", _time(arrivals.span_s)),
        ("arrivals per hour", _figure(arrivals.jobs_per_hour)),
        ("inter-arrival CV (Poisson: 1)", _figure(arrivals.gap_cv)),
        ("within 10 s of the one before", _share(arrivals.within_10_s)),
        ("hourly Fano factor (Poisson: 1)", _figure(arrivals.hourly_fano)),
        ("busiest hour over mean", _figure(arrivals.peak_hour)),
    ]
    if (durations := figures.durations) is not None:
        basis = "stated" if durations.stated else "on the fastest type"
        rows.append((f"duration ({basis}), mean", _time(durations.mean_s)))
        rows += [
            (f"duration, {percent} % of jobs below", _time(value))
            for percent, value in durations.percentiles_s.items()
        ]
        rows.append(("longer than a day", _share(durations.over_a_day)))
    return rows


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _time(seconds: float) -> str:
    return f"{duration(seconds)} ({seconds:,.0f} s)" if seconds >= 60 else duration(seconds)
