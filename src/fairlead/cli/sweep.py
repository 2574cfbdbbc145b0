"""``fairlead sweep``: policies against loads and seeds."""

import hashlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fairlead.analysis.experiments.executor import (
    Limits,
    SweepExecutor,
    run_points,
)
from fairlead.analysis.experiments.point import Point, PointResult
from fairlead.analysis.experiments.result_store import ResultStore
from fairlead.analysis.experiments.sweep import (
    PARTIAL,
    PARTIAL_MEANS,
    RESULT,
    LoadSummary,
    Spec,
    SweepResult,
    run_sweep,
    summarise,
    sustainable,
)
from fairlead.analysis.report import progress_bar as progress
from fairlead.cli import options as o
from fairlead.cli import sweep_options as s
from fairlead.cli.option_records import set_parameters, takes_records
from fairlead.cli.terminal_views import console
from fairlead.errors import ConfigError, RunError
from fairlead.model.duration_text import DASH
from fairlead.model.toml_lines import naming_lines
from fairlead.simulator.simulation_input import SimulationInput
from fairlead.simulator.traces.atomic_write import write_atomically

SPEC = "spec.json"


def _option(field: str) -> str:
    """The name of a field's option, as ``--devices-per-server``."""
    (option,) = o.INPUT_OPTIONS[field].__metadata__
    # Typer keeps the first name in ``default`` until it makes the command.
    names = [str(name) for name in (option.default, *option.param_decls)]
    return next(name for name in names if name.startswith("--")).partition("/")[0]


# Keys of a sweep's file are those of the options, with _ for -.
NAMES = {field.name: _option(field.name)[2:].replace("-", "_") for field in fields(SimulationInput)}
LISTS = ("policies", "profiles", "seeds", "rates", "jobs")
REPEATABLE_OPTIONS = (
    *(f"--{name}" for name in LISTS),
    *(_option(f.name) for f in fields(SimulationInput) if f.type is not bool),
)


def _takes_lists(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command every option of a simulation, each with any number of values and none by default."""
    shared = []
    for field in fields(SimulationInput):
        if field.name == "seed":
            continue
        kind, option = get_args(o.INPUT_OPTIONS[field.name])
        one = _without_none(kind)
        several = one if one is bool or get_origin(one) is list else list[one]  # type: ignore[valid-type]
        shared.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[several | None, option],
            )
        )
    own_parameters = list(inspect.signature(command).parameters.values())[1:]

    def run(**given: Any) -> None:
        command({one.name: given.pop(one.name) for one in shared}, **given)

    set_parameters(run, [*own_parameters, *shared])
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.repeatable = REPEATABLE_OPTIONS  # type: ignore[attr-defined]  # for ``lazy_commands.Command``
    return run


def _without_none(kind: Any) -> Any:
    """The type without None."""
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (one for one in get_args(kind) if one is not type(None))
    return kind


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The options of a sweep, besides those of a simulation."""

    policies: Annotated[
        list[str] | None,
        typer.Option("--policies", metavar="NAME...", help="Default: las las_aware."),
    ] = None
    profiles: Annotated[
        list[str] | None,
        typer.Option(
            "--profiles", metavar="default|gavel|shockwave...", help="How shares become rounds."
        ),
    ] = None
    seeds: Annotated[
        list[str] | None, typer.Option("--seeds", metavar="N...", help="Default: 0.")
    ] = None
    rates: Annotated[
        list[str] | None,
        typer.Option(
            "--rates",
            metavar="RATE...|LOW:HIGH:POINTS|auto",
            help="Jobs per hour. auto, or auto:FIRST:STEP, goes up until the devices are in use or the "
            "queue grows without bound.",
        ),
    ] = None
    jobs: Annotated[
        list[str] | None,
        typer.Option(
            "--jobs",
            metavar="N...|LOW:HIGH:POINTS",
            help="Numbers of jobs, all there at the start.",
        ),
    ] = None
    utilization_threshold: Annotated[
        float | None,
        typer.Option("--utilization-threshold", help="Where --rates auto ends. Default: 0.98."),
    ] = None
    cutoff: Annotated[
        str | None,
        typer.Option(
            "--cutoff",
            metavar="FILE",
            help='JSON as {"36:36:36": {"las": 5.8}}: no rate from there on.',
        ),
    ] = None

    def table(self) -> dict[str, Any]:
        """The values given, by the keys of a sweep's file. Raises ConfigError."""
        table = {key: value for key, value in asdict(self).items() if value is not None}
        if self.seeds is not None:
            table["seeds"] = [_whole("--seeds", text) for text in self.seeds]
        return table


@_takes_lists
@takes_records
def sweep(
    given: dict[str, Any],
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.toml]",
            help="What to sweep; its keys are the options' names with _ for -. Options go before it.",
        ),
    ] = None,
    swept: SweepOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Where results are kept; what is there is not run again. Default: a folder in runs/ "
            "named by what is swept.",
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="DIR", help="Go on with a sweep.")
    ] = None,
    execution: s.ExecutionOptions,
    json: o.JsonOption = False,
) -> None:
    """Run policies against loads and seeds.

    Continuous (--rates, with --window) or from a full queue (--jobs), or on a trace (--trace). An option
    with several values draws a line for each of them. Results are kept as they come: the same command
    again goes on where it was stopped, and costs nothing once it is done.
    """
    limits = execution.limits()
    table = {NAMES[name]: value for name, value in given.items() if value is not None}
    spec, folder = _spec_and_folder(table | swept.table(), file, out, resume)
    executor = execution.executor()
    s.make_out(folder)
    _write(folder / SPEC, spec)
    store = execution.store(folder)
    from fairlead.analysis.experiments.sweep_charts import Swept
    from fairlead.analysis.experiments.sweep_page import sweep_report

    with s.keeps_results(f"go on with: fairlead sweep --resume {folder}"):
        result, outcomes = _run(spec, store, executor, limits)
        _write(folder / RESULT, result)
        with write_atomically(folder / "report.html") as partial:
            partial.write_text(sweep_report([Swept(folder, result)]), encoding="utf-8")
    _show(result, folder, json)
    s.report_foreign(store)
    if s.show_failures(outcomes):
        raise typer.Exit(1)


def _spec_and_folder(
    table: dict[str, Any], file: Path | None, out: Path | None, resume: Path | None
) -> tuple[Spec, Path]:
    """Return the spec and the folder of results of a sweep: of one that goes on, or of a new one."""
    if resume is None:
        spec = _spec(file, table)
        if out is not None:
            _check_holds_sweep(out)
        return spec, out or Path("runs") / f"sweep-{_name(spec)}"
    if table or file is not None or out is not None:
        raise ConfigError(
            "--resume goes on as the sweep began: it takes no option that says what is swept"
        )
    return _read_resumed(resume), resume


def _check_holds_sweep(folder: Path) -> None:
    """Raise ConfigError where a folder holds something, and no sweep: a report there would be replaced."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / SPEC).is_file():
        raise ConfigError(
            f"--out: {folder} is there already and holds no sweep; choose another folder"
        )


def _spec(file: Path | None, table: dict[str, Any]) -> Spec:
    """The sweep that options describe, with the values of a file for those not given."""
    from fairlead.analysis.experiments.sweep_description import described, read_table
    from fairlead.analysis.experiments.sweep_loads import leaves_out_zero

    known = {} if file is None else read_table(file)
    if "jobs" in table or "rates" in table:
        known = {key: value for key, value in known.items() if key not in ("jobs", "rates")}
    whole = known | table
    with naming_lines(file):
        spec = described(whole, "sweep" if file is None else str(file), NAMES)
    for key in ("jobs", "rates"):
        texts = whole.get(key, [])
        for text in texts if isinstance(texts, list) else [texts]:
            if leaves_out_zero(text):
                print(f"fairlead: {key} {text}: a load of 0 is left out", file=sys.stderr)
    return spec


def _whole(option: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{option}: expected a whole number >= 0, got {text!r}")
    return int(text)


def _name(spec: Spec) -> str:
    return hashlib.sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()[:8]


def _read_resumed(folder: Path) -> Spec:
    path = folder / SPEC
    try:
        return msgspec.json.decode(path.read_bytes(), type=Spec)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"--resume: {folder} holds no sweep: it has no {SPEC}") from None
    except OSError as problem:
        raise RunError(f"{path}: cannot be read ({problem.strerror})") from None
    except msgspec.MsgspecError as problem:
        raise RunError(f"{path}: does not describe a sweep: {problem}") from None


def _run(
    spec: Spec, store: ResultStore, executor: SweepExecutor, limits: Limits
) -> tuple[SweepResult, list[PointResult]]:
    """The result, and each outcome once."""
    every: list[PointResult] = []

    def run(points: Sequence[Point]) -> list[PointResult]:
        with progress.progress("sweep", len(points)) as show:
            found = run_points(points, store, executor, limits, show, s.SweepReporter(len(points)))
        every.extend(found)
        return found

    return run_sweep(spec, run), every


def _write(path: Path, content: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(content, order="sorted"), indent=1)
    with write_atomically(path) as partial:
        partial.write_bytes(text + b"\n")


# --- what people see -----------------------------------------------------------------------------


def _show(result: SweepResult, folder: Path, as_json: bool) -> None:
    rows = summarise(result)
    best = {line.name: sustainable(rows, line.name) for line in result.lines}
    if as_json:
        content = {"points": rows, "sustainable": best, "out": str(folder)}
        sys.stdout.write(msgspec.json.encode(content).decode() + "\n")
        return
    console().print(summary_table(result, rows))
    if any(row.is_partial for row in rows):
        print(f"{PARTIAL} {PARTIAL_MEANS}")
    if result.spec.axis == "rates":
        table = Table("line", "sustainable rate (jobs/h)", box=SIMPLE_HEAD)
        for name, rate in best.items():
            table.add_row(name, DASH if rate is None else f"{rate:g}")
        console().print(table)
        print(
            "Sustainable: the highest rate with a mean JCT of at most twice that at the lowest rate."
        )
    print(f"Report: {folder / 'report.html'}")


def summary_table(result: SweepResult, rows: list[LoadSummary]) -> Table:
    """The means of each line at each load; numbers of incomplete rows are marked."""
    axis = {"rates": "jobs/h", "jobs": "jobs", "none": ""}[result.spec.axis]
    table = Table(box=SIMPLE_HEAD)
    table.add_column("line")
    for name in (axis, "mean JCT (h)", "over seeds", "makespan (h)", "utilization", "cost ($)"):
        table.add_column(name, justify="right")
    table.add_column("status")
    before = ""
    for row in rows:
        partial = PARTIAL if row.is_partial else ""
        cells = (
            row.line if row.line != before else "",
            "" if row.load is None else f"{row.load:g}",
            _hours(row.jct_s) + partial,
            _jct_range(row),
            _hours(row.makespan_s) + partial,
            (DASH if row.utilization is None else f"{row.utilization:.3f}") + partial,
            (DASH if row.cost is None else f"{row.cost:,.0f}") + partial,
            _status(row),
        )
        table.add_row(*cells)
        before = row.line
    return table


def _hours(seconds: float | None) -> str:
    return DASH if seconds is None else f"{seconds / 3600:.2f}"


def _jct_range(row: LoadSummary) -> str:
    if row.jct_low_s is None or row.jct_high_s is None or row.seeds < 2:
        return ""
    return f"{row.jct_low_s / 3600:.2f} - {row.jct_high_s / 3600:.2f}"


def _status(row: LoadSummary) -> str:
    whole = sum(row.statuses.values())
    words = []
    for status, count in row.statuses.items():
        word = status.replace("_", " ")
        words.append(word if count == whole else f"{count} {word}")
    return ", ".join(words)
