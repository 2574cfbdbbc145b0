"""Options that several commands share, and what they stand for."""

import functools
import inspect
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from fairlead.errors import ConfigError, RunError
from fairlead.model.job import RestartCosts
from fairlead.sim.generate import generate
from fairlead.sim.world import World
from fairlead.simulation import Options, Run
from fairlead.traces.atomic import write_atomically
from fairlead.traces.cluster import parse_cluster, parse_prices
from fairlead.traces.throughputs import read_throughputs

TraceOption = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Jobs: Gavel, Philly, Shockwave or ITP trace, generated jobs (.jobs.json.gz), or our CSV "
        "or Parquet; recognised from the content.",
    ),
]
GenerateOption = Annotated[
    str | None,
    typer.Option(
        "--generate",
        metavar="SPEC",
        help="Generate jobs instead: gavel, bursty or shockwave (jobs that change their batch size), "
        "then options, for example 'gavel,interarrival=2400,multi-gpu' (endless, so give --window or "
        "--until), 'bursty,jobs=300' or 'shockwave,jobs=120,interarrival=40,multi-gpu'. Keys: jobs, "
        "interarrival (s); gavel: duration (s), priorities, deadlines, full; shockwave: durations (how "
        "many values), modes=STATIC:ACCORDION:GNS (parts).",
    ),
]
ThroughputsOption = Annotated[
    str,
    typer.Option(
        "--throughputs",
        metavar="FILE|builtin",
        help="Rates of each job family: Gavel's JSON, our CSV, or the built-in catalogue.",
    ),
]
ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="SPEC",
        help="Devices per accelerator type, as v100=8,p100=16,k80=24, or a TOML file.",
    ),
]
PerServerOption = Annotated[
    str | None,
    typer.Option(
        "--devices-per-server",
        metavar="N|TYPE=N,...",
        help="How many devices share a server. Default: 1.",
    ),
]
PricesOption = Annotated[
    str | None,
    typer.Option(
        "--prices", metavar="TYPE=DOLLARS,...", help="Dollars per device-hour, by accelerator type."
    ),
]
RoundOption = Annotated[
    float | None,
    typer.Option("--round", metavar="SECONDS", help="Length of a round, 10 or more. Default: 360."),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="S:E",
        help="Measure jobs S to E-1 by order of submission; the run ends when they have ended.",
    ),
]
UntilOption = Annotated[
    float | None, typer.Option("--until", metavar="SECONDS", help="Stop at this simulated time.")
]
RestartOption = Annotated[
    list[str] | None,
    typer.Option(
        "--restart-cost",
        metavar="SECONDS|FAMILY=SECONDS",
        help="Time that a job loses when it starts again or moves; for all, or for a family. "
        "May be given several times. Default: 0.",
    ),
]
NoiseOption = Annotated[
    float,
    typer.Option(
        "--rate-noise", help="Spread (sigma) of each unit's true rate from round to round."
    ),
]
BiasOption = Annotated[
    float,
    typer.Option("--rate-bias", help="Spread (sigma) of each job's true rates around the table's."),
]
MtbfOption = Annotated[
    float | None,
    typer.Option(
        "--mtbf", metavar="HOURS", help="Mean time between failures of a node. Default: never."
    ),
]
MttrOption = Annotated[
    float, typer.Option("--mttr", metavar="HOURS", help="Mean time to repair a node.")
]
EarlyEndOption = Annotated[
    float,
    typer.Option(
        "--early-end",
        metavar="PROBABILITY",
        help="Chance that a job is killed or crashes before its last step.",
    ),
]
SolveTimeOption = Annotated[
    float,
    typer.Option(
        "--solve-time", metavar="SECONDS", help="Simulated time that a solve takes. Default: 0."
    ),
]
PatienceOption = Annotated[
    float | None,
    typer.Option(
        "--patience",
        metavar="N",
        help="A running job gives way only to one that is owed more by N times what a start costs. "
        "Default: 40.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where to write. Default: a new folder in runs/."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of tables.")
]


@dataclass(frozen=True)
class Input:
    """The options that ``simulate`` and ``compare`` share, as given: plain values, so that ``run.json``
    can hold them. ``takes_input`` puts them on a command."""

    trace: TraceOption = None
    generate: GenerateOption = None
    throughputs: ThroughputsOption = "builtin"
    cluster: ClusterOption = "v100=8,p100=8,k80=8"
    devices_per_server: PerServerOption = None
    prices: PricesOption = None
    round_s: RoundOption = None
    seed: SeedOption = 0
    window: WindowOption = None
    until_s: UntilOption = None
    restart_cost: RestartOption = None
    rate_noise: NoiseOption = 0.0
    rate_bias: BiasOption = 0.0
    mtbf_h: MtbfOption = None
    mttr_h: MttrOption = 1.0
    early_end: EarlyEndOption = 0.0
    solve_time_s: SolveTimeOption = 0.0
    patience: PatienceOption = None

    def run(self, policy: str, profile: str) -> Run:
        """A run with everything read and checked."""
        rates = read_throughputs(self.throughputs)
        prices = None if self.prices is None else parse_prices(self.prices)
        cluster = parse_cluster(self.cluster, self.devices_per_server, prices)
        options = Options(
            throughputs=rates,
            profile=profile,
            round_s=self.round_s,
            seed=self.seed,
            window=_window(self.window),
            until_s=self.until_s,
            world=self._world(),
            solve_s=self.solve_time_s,
            patience=self.patience,
        )
        if (self.trace is None) == (self.generate is None):
            raise ConfigError("give the jobs: either --trace FILE or --generate SPEC")
        if self.trace is not None:
            return Run.of(self.trace, cluster, policy, options)
        assert self.generate is not None
        arrivals, jobs = generate(self.generate, rates.columns(cluster.slots), cluster, self.seed)
        if jobs is None and self.window is None and self.until_s is None:
            raise ConfigError("an endless stream of jobs needs --window, --until or jobs=N")
        source = list(arrivals) if jobs is not None else arrivals
        return Run.of(source, cluster, policy, options, name=f"generated: {self.generate}")

    def _world(self) -> World:
        default, by_family = 0.0, {}
        for text in self.restart_cost or ():
            family, found, seconds = text.rpartition("=")
            value = _seconds("--restart-cost", seconds)
            if found:
                by_family[family] = value
            else:
                default = value
        return World(
            RestartCosts(default, by_family),
            self.rate_noise,
            self.rate_bias,
            None if self.mtbf_h is None else self.mtbf_h * 3600,
            self.mttr_h * 3600,
            self.early_end,
            self.seed,
        )


def takes_input(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is an ``Input`` gets that class's fields as its options."""
    names = [field.name for field in fields(Input)]
    shared = inspect.signature(Input).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(Input(**{name: given.pop(name) for name in names}), **given)

    parameters = [*shared.values(), *own]
    for parameter in parameters:
        run.__annotations__[parameter.name] = parameter.annotation
    by_keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    run.__signature__ = inspect.Signature(by_keyword)  # type: ignore[attr-defined]
    return run


def _seconds(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{option}: expected a number of seconds >= 0, got {text!r}")
    return value


def _window(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, found, stop = text.partition(":")
    if not (found and first.isdecimal() and stop.isdecimal()):
        raise ConfigError(f"--window: expected S:E, two whole numbers, got {text!r}")
    return int(first), int(stop)


def new_folder(out: Path | None, name: str) -> Path:
    """Make the folder to write to: the one asked for, if it is new or empty, else a new one in runs/."""
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise RunError(f"{out}: is there already and not an empty folder; choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        return out
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    for number in range(1, 100_000):
        folder = Path("runs") / (safe if number == 1 else f"{safe}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise RunError(f"runs/{safe}: there are too many runs of this name")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    with write_atomically(path) as partial:
        partial.write_bytes(text + b"\n")


def print_json(content: Any) -> None:
    """One JSON object on standard output."""
    print(msgspec.json.encode(content).decode())


def read_json(path: Path) -> Any:
    """A JSON file, or RunError."""
    try:
        return json.loads(path.read_text())
    except OSError as problem:
        raise RunError(f"{path}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise RunError(f"{path}: is not JSON: {problem}") from None


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Within the block the first Ctrl-C only makes the yielded function say True; a second one ends
    the program at once."""
    asked = False

    def ask(_number: int, _frame: Any) -> None:
        nonlocal asked
        asked = True
        print("stopping at the next event ...", file=sys.stderr)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
