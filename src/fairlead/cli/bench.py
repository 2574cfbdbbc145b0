"""``fairlead bench``: how fast Fairlead is on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fairlead.analysis.report.progress_bar import progress
from fairlead.cli import options as o
from fairlead.cli.option_records import takes_records
from fairlead.errors import ConfigError

if TYPE_CHECKING:
    from fairlead.analysis.elastic_benchmark import ElasticTiming
    from fairlead.analysis.solve_benchmark import SolveTiming
    from fairlead.model.plan import Policy
    from fairlead.model.throughputs import Throughputs

POLICIES = (
    "las_aware",
    "makespan_aware",
    "finish_time_aware",
    "water_filling_aware",
    "las_packed",
)
SIZES = (128, 512, 2_048, 8_192, 131_072, 1_000_000)
DEFAULT_SIZES = 4  # of the sizes are the default
ALL = "all"
SEQUENCE_JOBS = 300  # default number of jobs in a sequence
TYPES = "3,10"
MAX_JOBS, MAX_TYPES = 10_000_000, 100
MAX_RATIO = 1_000.0  # jobs per device
MIN_DEVICES, MAX_DEVICES = 3, 10_000_000  # of elastic jobs

app = typer.Typer(
    name="bench",
    no_args_is_help=True,
    help="Measure how fast Fairlead is on this machine.",
)


@app.callback()
def _bench() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """Problems to solve, and policies that solve them."""

    jobs: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...|all",
            help=f"Numbers of jobs; all: {', '.join(f'{n:,}' for n in SIZES)}. Default: the first "
            f"{DEFAULT_SIZES} of these, and {SEQUENCE_JOBS} with --changes.",
        ),
    ] = None
    types: Annotated[str, typer.Option(metavar="K,K,...", help="Numbers of accelerator types.")] = (
        TYPES
    )
    policies: Annotated[
        str,
        typer.Option(metavar="NAME,NAME,...", help="Policies; `fairlead policies` lists them."),
    ] = ",".join(POLICIES)
    throughputs: o.ThroughputsOption = "builtin"
    distinct_rates: Annotated[
        bool,
        typer.Option("--distinct-rates", help="Every job has rates of its own, as if measured."),
    ] = False
    changes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Instead: the time of N solves together, while jobs leave and come by turns and every "
            "solve begins from the answer before.",
        ),
    ] = None
    seed: o.SeedOption = 0


@app.command("policies")
@takes_records
def policies_command(
    options: SolveOptions,
    json: o.JsonOption = False,
) -> None:
    """Print how long policies take to solve.

    CPU time of one core, for one solve without an earlier answer: the median of 5, shares of all jobs and
    certificate included. The jobs are drawn from the table's job types and ask for three times the devices
    there are. Up to three accelerator types are the table's, further ones are mixes of two. The gap is
    the largest proven distance from the optimum, relative to the objective.
    """
    from fairlead.simulator.traces.throughput_tables import read_throughputs

    table = read_throughputs(options.throughputs)
    timings = _timings(options, table)
    if json:
        content = {"changes": options.changes, "throughputs": table.origin, "timings": timings}
        o.print_json(content)
    else:
        _show(timings, options.changes)


@app.command("elastic")
def elastic_command(
    devices: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of devices, of three types.")
    ] = "64,2048,20000",
    jobs_per_device: Annotated[
        str, typer.Option(metavar="X,X,...", help="Numbers of jobs, relative to the devices.")
    ] = "0.3,4",
    policies: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...", help="Policies of elastic jobs, or of shares that know rates."
        ),
    ] = "sia",
    kinds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=100_000,
            help="Kinds of jobs with the same rates. Default: each job has its own.",
        ),
    ] = None,
    json: o.JsonOption = False,
) -> None:
    """Print how long it takes to decide how many devices of which type each elastic job has.

    CPU time of one core: the median of 5 random rounds, the bound on the optimum included. The gap is the
    largest proven distance from the optimum, relative to the objective; 0: the optimum.
    """
    from fairlead.analysis.elastic_benchmark import policies_of_shares, time_elastic
    from fairlead.policies.elastic.objectives import OBJECTIVES

    sizes = _numbers("--devices", devices, MAX_DEVICES)
    if min(sizes) < MIN_DEVICES:
        raise ConfigError(f"--devices: at least {MIN_DEVICES}, one of each type, got {devices!r}")
    names = list(dict.fromkeys(policies.split(",")))
    known = [*OBJECTIVES, *policies_of_shares()]
    for name in names:
        if name not in known:
            raise ConfigError(f"--policies: expected some of {', '.join(known)}, got {name!r}")
    cells = [
        (name, n, max(1, round(n * x)))
        for name in names
        for n in sizes
        for x in _ratios("--jobs-per-device", jobs_per_device)
    ]
    if (most := max(jobs for *_, jobs in cells)) > MAX_JOBS:
        raise ConfigError(f"--jobs-per-device: at most {MAX_JOBS:,} jobs, got {most:,}")
    timings = []
    with progress("deciding", len(cells)) as update:
        for done, (name, n, jobs) in enumerate(cells):
            update(done, f"{name}, {jobs:,} jobs on {n:,} devices")
            timings.append(time_elastic(name, n, jobs, kinds))
    if json:
        o.print_json({"timings": timings})
    else:
        _show_elastic(timings)


def _show_elastic(timings: "list[ElasticTiming]") -> None:
    table = Table(box=SIMPLE_HEAD)
    for heading in ("policy", "devices", "jobs", "configurations", "CPU ms", "gap"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for one in timings:
        table.add_row(
            one.policy, f"{one.devices:,}", f"{one.jobs:,}", str(one.configurations),
            _ms(one.cpu_s), f"{one.gap:.0e}" if one.gap > 1e-12 else "0",
        )  # fmt: skip
    Console(highlight=False).print(table)


@app.command("switching")
def switching_command(
    state_mb: Annotated[
        int, typer.Option(metavar="MB", min=1, max=100_000, help="State of a job.")
    ] = 100,
    switches: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Switches of each kind.")
    ] = 10,
    json: o.JsonOption = False,
) -> None:
    """Print how long a device is not trained on when it goes from one job to another.

    Two jobs with so much state (PyTorch's, where that is installed) take turns on a simulated device of a
    live cluster on this machine, in rounds of 2 s: first parked in memory, then ended and started anew. Park
    and stop: from the order until the device is free. Resume and start: from there until the job trains.
    Migrate: from the last step of a job on one node to its first on another, where it is started meanwhile.
    """
    from dataclasses import asdict

    from fairlead.cluster.switching_benchmark import measure_switching

    with progress("switching", 3 * switches) as update:
        times = measure_switching(state_mb, switches, lambda done, kind: update(done, kind))
    if json:
        o.print_json(asdict(times))
        return
    table = Table(
        title=f"milliseconds, {state_mb:,} MB of state",
        box=SIMPLE_HEAD, title_justify="left", title_style="",
    )  # fmt: skip
    for name in ("", "median", "p95", "n"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for name, found in asdict(times).items():
        if isinstance(found, dict):
            words = name.replace("_and_", " + ")
            row = f"{found['median_ms']:,.0f}", f"{found['p95_ms']:,.0f}", str(found["n"])
            table.add_row(words, *row)
    Console(highlight=False).print(table)


def _timings(options: SolveOptions, table: "Throughputs") -> list["SolveTiming"]:
    """The timing of each number of types, policy and number of jobs, in this order. Raises ConfigError."""
    from fairlead.analysis.solve_benchmark import problem, sequence, timed

    columns = _numbers("--types", options.types, MAX_TYPES)
    sizes = _sizes(options.jobs, options.changes)
    distinct = options.distinct_rates
    chosen = [_policy(name, distinct) for name in dict.fromkeys(options.policies.split(","))]
    cells = [(k, policy, n) for k in columns for policy in chosen for n in sizes]
    timings = []
    with progress("solving", len(cells)) as update:
        for done, (k, policy, n) in enumerate(cells):
            update(done, f"{policy.name}, {n:,} jobs, {k} types")
            if options.changes is None:
                snapshot = problem(table, n, k, distinct_rates=distinct, seed=options.seed)
                timings.append(timed(policy, snapshot, distinct_rates=distinct))
            else:
                timings.append(
                    sequence(
                        policy, table, n, k, options.changes,
                        distinct_rates=distinct, seed=options.seed,
                    )
                )  # fmt: skip
    return timings


def _policy(spec: str, distinct_rates: bool) -> "Policy":
    from fairlead.model.plan import Policy
    from fairlead.policies import registry
    from fairlead.scheduler.mechanism.settings import DEFAULT, GAVEL

    made = registry.make(spec, seed=0, profile=DEFAULT.name)
    if not isinstance(made, Policy):
        made = registry.make(spec, seed=0, profile=GAVEL.name)  # the form that has shares
    if not isinstance(made, Policy):
        raise ConfigError(f"policy {spec!r}: it plans rounds itself and has no shares to solve for")
    if distinct_rates and made.space_sharing:
        raise ConfigError(f"policy {spec!r}: jobs with rates of their own have none in pairs")
    return made


def _sizes(jobs: str | None, changes: int | None) -> Sequence[int]:
    if jobs is None:
        return SIZES[:DEFAULT_SIZES] if changes is None else (SEQUENCE_JOBS,)
    sizes = SIZES if jobs == ALL else _numbers("--jobs", jobs, MAX_JOBS)
    if changes is not None and min(sizes) < 2:
        raise ConfigError("--jobs: with --changes at least 2, for one leaves before another comes")
    return sizes


def _numbers(option: str, text: str, most: int) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and 1 <= int(part) <= most for part in parts):
        raise ConfigError(f"{option}: expected whole numbers from 1 to {most:,}, got {text!r}")
    return list(dict.fromkeys(map(int, parts)))


def _ratios(option: str, text: str) -> list[float]:
    """Positive numbers. Raises ConfigError."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < x <= MAX_RATIO for x in found):
        raise ConfigError(
            f"{option}: expected numbers above 0, at most {MAX_RATIO:g}, got {text!r}"
        )
    return list(dict.fromkeys(found))


def _show(timings: Sequence["SolveTiming"], changes: int | None) -> None:
    """One table: a row for each number of types and policy, a column for each number of jobs."""
    what = "one solve" if changes is None else f"{changes:,} arrivals and departures together"
    table = Table(
        title=f"CPU milliseconds, {what}", box=SIMPLE_HEAD, title_justify="left", title_style=""
    )
    sizes = dict.fromkeys(timing.jobs for timing in timings)
    for name in ("types", "policy", *(f"{n:,}" for n in sizes), "gap"):
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    rows: dict[tuple[int, str], list[SolveTiming]] = {}
    for timing in timings:
        rows.setdefault((timing.types, timing.policy), []).append(timing)
    for (types, policy), row in rows.items():
        gaps = [timing.gap for timing in row if timing.gap is not None]
        gap = f"{max(gaps):.0e}" if gaps else "-"
        table.add_row(str(types), policy, *(_ms(timing.cpu_s) for timing in row), gap)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    console.print(table)


def _ms(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"
