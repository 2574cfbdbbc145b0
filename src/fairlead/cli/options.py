"""Options that several commands share, and helpers for what they select."""

import functools
import inspect
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from fairlead.cli.option_records import set_parameters
from fairlead.cli.round_option import round_length
from fairlead.errors import RunError
from fairlead.model.limits import MAX_SEED
from fairlead.simulator.simulation_input import SimulationInput

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
        "--stop-at), 'bursty,jobs=300' or 'shockwave,jobs=120,interarrival=40,multi-gpu'. Keys: jobs, "
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
    str | None,
    typer.Option(
        "--round",
        metavar="SECONDS|auto",
        parser=round_length,
        help="Length of a round, 10 or more; auto: the shortest of which starts take at most 2 % "
        "(--resume-cost, else --restart-cost). Default: 360.",
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, max=MAX_SEED, help="Seed of everything random.")
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="S:E",
        help="Measure jobs S to E-1 by order of submission; the run ends when they have ended.",
    ),
]
StopAtOption = Annotated[
    float | None, typer.Option("--stop-at", metavar="SECONDS", help="Stop at this simulated time.")
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
ResumeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--resume-cost",
        metavar="SECONDS|FAMILY=SECONDS",
        help="The same where the job starts again on the servers on which it ran last. May be given several "
        "times. Default: as --restart-cost.",
    ),
]
NoiseOption = Annotated[
    float,
    typer.Option(
        "--rate-noise", help="Spread (sigma) of each job group's true rate from round to round."
    ),
]
BiasOption = Annotated[
    float,
    typer.Option("--rate-bias", help="Spread (sigma) of each job's true rates around the table's."),
]
MtbfOption = Annotated[
    float | None,
    typer.Option(
        "--mtbf-hours",
        metavar="HOURS",
        help="Mean time between failures of a node. Default: never.",
    ),
]
MttrOption = Annotated[
    float, typer.Option("--mttr-hours", metavar="HOURS", help="Mean time to repair a node.")
]
EarlyEndOption = Annotated[
    float,
    typer.Option(
        "--early-termination",
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
HysteresisOption = Annotated[
    float | None,
    typer.Option(
        "--preemption-hysteresis",
        metavar="N",
        help="A running job gives way only to one that is owed more by N times what a start costs. "
        "Default: 40.",
    ),
]
SolveIntervalOption = Annotated[
    float | None,
    typer.Option(
        "--solve-interval",
        metavar="SECONDS",
        help="Least simulated time between two solves. Default: the profile's (gavel: 1920).",
    ),
]
IdealOption = Annotated[
    bool,
    typer.Option(
        "--ideal",
        help="No rounds: jobs progress at their shares all the time. What rounds come near to.",
    ),
]
EstimatorOption = Annotated[
    str | None,
    typer.Option(
        "--estimator",
        metavar="SPEC",
        help="Where believed rates come from: oracle (the table), users (their --user-estimates), gavel, or "
        "fairlead, then options, as in 'gavel:references=16,profiling=0.2'. Keys of gavel: references "
        "(families), profiling (probability), rank, defect (the release's). Keys of fairlead: known (part "
        "of the table's families that is known), explore (part of the devices), unseen (predict rates "
        "that the table lacks). Default: oracle, or users where these give estimates.",
    ),
]
UserEstimatesOption = Annotated[
    str | None,
    typer.Option(
        "--user-estimates",
        metavar="SPEC",
        help="Estimates that users give of the rates of their jobs, as 'lognormal=0.7,exaggerating=0.3'. "
        "Keys: lognormal (sigma of an estimate's factor; 0.7), common (part of it that all estimates of a "
        "job share; 0), exaggerating (part of the users that exaggerates; 0), factor (by how much; 2), types "
        "(all, fastest or slowest: on which types), users (of jobs that have none; 20).",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where to write. Default: a new folder in runs/."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of tables.")
]


# Option of each field of ``SimulationInput``.
INPUT_OPTIONS: dict[str, Any] = {
    "trace": TraceOption,
    "generate": GenerateOption,
    "throughputs": ThroughputsOption,
    "cluster": ClusterOption,
    "devices_per_server": PerServerOption,
    "prices": PricesOption,
    "round_s": RoundOption,
    "seed": SeedOption,
    "window": WindowOption,
    "stop_at_s": StopAtOption,
    "restart_cost": RestartOption,
    "resume_cost": ResumeOption,
    "rate_noise": NoiseOption,
    "rate_bias": BiasOption,
    "mtbf_h": MtbfOption,
    "mttr_h": MttrOption,
    "early_termination": EarlyEndOption,
    "solve_time_s": SolveTimeOption,
    "preemption_hysteresis": HysteresisOption,
    "estimator": EstimatorOption,
    "user_estimates": UserEstimatesOption,
    "ideal": IdealOption,
    "solve_interval_s": SolveIntervalOption,
}


def takes_input(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a ``SimulationInput`` gets that class's fields as its options."""
    names = [field.name for field in fields(SimulationInput)]
    shared = {
        name: parameter.replace(annotation=INPUT_OPTIONS[name])
        for name, parameter in inspect.signature(SimulationInput).parameters.items()
    }
    own_parameters = list(inspect.signature(command).parameters.values())[1:]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(SimulationInput(**{name: given.pop(name) for name in names}), **given)

    set_parameters(run, [*shared.values(), *own_parameters])
    return run


def new_folder(out: Path | None, name: str) -> Path:
    """Make the folder to write to: the one asked for, if it is new or empty, else a new one in runs/."""
    if out is not None:
        from fairlead.analysis.report.run_folder import make_folder

        return make_folder(out)
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    for number in range(1, 100_000):
        folder = Path("runs") / (safe if number == 1 else f"{safe}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise RunError(f"runs/{safe}: there are too many runs of this name")


def print_json(content: Any) -> None:
    """One JSON object on standard output."""
    print(msgspec.json.encode(content).decode())


def read_json(path: Path) -> Any:
    """A JSON file, or RunError."""
    from fairlead.analysis.report.run_folders import read_json_file

    return read_json_file(path)


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
