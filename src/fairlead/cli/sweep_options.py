"""Common parts of the commands that run many points: options, executors, and messages."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.errors import ConfigError

if TYPE_CHECKING:
    from fairlead.analysis.experiments.executor import Limits, SweepExecutor
    from fairlead.analysis.experiments.point import PointResult
    from fairlead.analysis.experiments.result_store import ResultStore

REPORT_EVERY_S = 60.0


class ExecutorKind(StrEnum):
    """The kind of executor that runs the points of an experiment."""

    PROCESSES = "processes"
    RAY = "ray"


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Options of how the points of an experiment are run, and which results are taken for theirs."""

    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="N",
            min=1,
            help="Points that run at once. Default: one for each core.",
        ),
    ] = None
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory",
            metavar="MIB",
            help="What one point may take. Default: an equal part of four fifths of the memory.",
        ),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", help="What one point may take. Default: no limit."
        ),
    ] = None
    executor_kind: Annotated[
        ExecutorKind,
        typer.Option("--executor", help="Run on processes of this machine, or on a Ray cluster."),
    ] = ExecutorKind.PROCESSES
    ray_address: Annotated[
        str | None,
        typer.Option(
            "--ray-address", metavar="ADDRESS", help="Of the Ray cluster. Default: as Ray finds it."
        ),
    ] = None
    any_version: Annotated[
        bool,
        typer.Option(
            "--any-version",
            help="Take kept results of other versions of Fairlead's code, too, and say so.",
        ),
    ] = False

    def limits(self) -> "Limits":
        """The limits of one point. Raises ConfigError."""
        from fairlead.analysis.experiments.executor import Limits

        return Limits(self.timeout, self.memory).checked()

    def executor(self) -> "SweepExecutor":
        """The executor of the points. Raises ConfigError."""
        from fairlead.analysis.experiments.executor import Processes

        if self.executor_kind is ExecutorKind.RAY:
            from fairlead.analysis.experiments.ray_executor import RayExecutor

            return RayExecutor(self.processes, self.ray_address)
        if self.ray_address is not None:
            raise ConfigError("--ray-address goes with --executor ray")
        return Processes() if self.processes is None else Processes(self.processes)

    def store(self, folder: Path) -> "ResultStore":
        """The results kept in a folder."""
        from fairlead.analysis.experiments.result_store import ResultStore

        return ResultStore(folder, any_version=self.any_version)


def make_out(folder: Path) -> None:
    """Make the directory that ``--out`` names, unless it is there, or ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigError(f"--out: {folder} is not a directory") from None
    except OSError as problem:
        raise ConfigError(f"--out: {folder}: cannot be made ({problem.strerror})") from None


class SweepReporter:
    """Reports progress on stderr every ``REPORT_EVERY_S``, where that is no terminal."""

    def __init__(self, points: int) -> None:
        self.points = points
        self._done = 0
        self._began_s = time.monotonic()
        self._next_s = self._began_s + REPORT_EVERY_S

    def __call__(self, _outcome: "PointResult") -> None:
        """A point has ended."""
        self._done += 1
        now_s = time.monotonic()
        if sys.stderr.isatty() or now_s < self._next_s:
            return
        self._next_s = now_s + REPORT_EVERY_S
        left_s = (now_s - self._began_s) / self._done * (self.points - self._done)
        print(
            f"fairlead: {self._done} of {self.points} points, about {left_s / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )


@contextmanager
def keeps_results(resume_command: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block with their exit code and a line that says how to go on; results of
    points that have ended are kept."""
    code = 128 + signal.SIGINT

    def terminate(number: int, _frame: FrameType | None) -> None:
        nonlocal code
        code = 128 + number
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt:
        print(f"fairlead: interrupted; what has ended is kept: {resume_command}", file=sys.stderr)
        raise typer.Exit(code) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def show_failures(outcomes: Sequence["PointResult"]) -> bool:
    """Show a table of the points that have failed or run out of time. Returns whether there are any."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from fairlead.analysis.experiments.executor import label
    from fairlead.analysis.experiments.point import Status
    from fairlead.cli.terminal_views import console

    bad = [one for one in outcomes if one.status in (Status.FAILED, Status.TIMED_OUT)]
    if not bad:
        return False
    table = Table("point", "status", "reason", box=SIMPLE_HEAD, title="Without a result")
    table.columns[2].overflow = "fold"
    for one in bad:
        jobs = one.point.input.trace or one.point.input.generate or ""
        table.add_row(f"{label(one.point)}, {jobs}", one.status.replace("_", " "), one.reason)
    console().print(table)
    return True


def report_foreign(store: "ResultStore") -> None:
    """Print which results were made by other versions."""
    from fairlead.analysis.experiments.result_store import code_version

    for version, count in sorted(store.foreign.items()):
        print(
            f"fairlead: {count} results are of version {version}, this is {code_version()}",
            file=sys.stderr,
        )
