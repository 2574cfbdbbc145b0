"""The folder of a comparison: the runs that are compared, which of them are complete, and how the others go
on."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.cli import options as o
from fairlead.cli.simulate import RunArguments, execute
from fairlead.errors import FairleadError, RunError

if TYPE_CHECKING:
    from fairlead.analysis.report.run_charts import PlottedRun
    from fairlead.simulator.simulation_run import SimulationRun

FILE = "compare.json"


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One of the runs that are compared."""

    folder: str  # its name, inside that of the comparison
    label: str
    arguments: RunArguments


@dataclass(frozen=True, kw_only=True)
class ComparedRuns:
    """The outcome of the runs of a comparison."""

    plotted: "list[PlottedRun]"  # of the runs that have come to their end
    positions: list[int]  # of these among all that are compared
    skipped: list[str]  # what of their input could not be used
    errors: dict[str, FairleadError]  # of the runs that have not, by label

    def reference(self, position: int | None) -> int | None:
        """Return the index of the run at this position in ``plotted``; None if it is not there."""
        return self.positions.index(position) if position in self.positions else None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a comparison, and the reference among them, as in ``compare.json``."""

    runs: tuple[ComparedRun, ...]
    reference: int | None  # position of the run that the others are related to

    def write(self, folder: Path) -> None:
        """Write ``compare.json``, so that the comparison can go on."""
        from fairlead.analysis.report.run_folder import write_json

        write_json(folder / FILE, self)

    def finish(self, folder: Path, prepared: Sequence["SimulationRun"] = ()) -> ComparedRuns:
        """Run what has not been run to its end; a policy that fails does not keep the others from theirs.
        Interrupted: says how to go on. prepared: the runs with their inputs read, where they are."""
        plotted, positions, skipped = [], [], list[str]()
        errors: dict[str, FairleadError] = {}
        for number, one in enumerate(self.runs):
            at = folder / one.folder
            done = _read(one, at)
            if done is None:
                # An error in what is read here is one of them all, and ends the comparison.
                run = prepared[number] if prepared else one.arguments.run(at)
            try:
                done = done or _execute(one, at, run, command_to_resume(folder))
            except FairleadError as problem:
                errors[one.label] = problem
                continue
            plotted.append(done[0])
            positions.append(number)
            skipped = skipped or done[1]  # it is the same input for all
        return ComparedRuns(plotted=plotted, positions=positions, skipped=skipped, errors=errors)


def command_to_resume(folder: Path) -> str:
    """The command that goes on with the comparison in a folder."""
    return f"fairlead compare --resume {shlex.quote(str(folder))}"


def read_comparison(folder: Path) -> Comparison:
    """The comparison that was begun in a folder. Raises RunError where there is none, or it is complete."""
    path = folder / FILE
    if not path.is_file():
        raise RunError(f"--resume: {folder} holds no comparison: it has no {FILE}")
    try:
        comparison = msgspec.convert(o.read_json(path), Comparison)
    except msgspec.ValidationError as problem:
        raise RunError(f"{path}: does not describe a comparison: {problem}") from None
    names = [one.folder for one in comparison.runs]
    if any(Path(name).name != name or name in ("", "..") for name in names):
        raise RunError(f"{path}: does not describe a comparison: its folders are {names}")
    if comparison.reference is not None and not 0 <= comparison.reference < len(names):
        raise RunError(
            f"{path}: does not describe a comparison: there is no run {comparison.reference}"
        )
    complete = (folder / "report.html").exists()
    if complete and all(_read(one, folder / one.folder) for one in comparison.runs):
        raise RunError(f"{folder}: this comparison is complete, there is nothing to go on with")
    return comparison


def _read(one: ComparedRun, folder: Path) -> tuple["PlottedRun", list[str]] | None:
    """The run in its folder, and what of its input could not be used; None where it is not complete."""
    from fairlead.analysis.report.run_charts import PlottedRun
    from fairlead.analysis.report.run_folders import is_run, read_json_file, read_record, read_table

    if not is_run(folder) or read_json_file(folder / "run.json").get("status") != "complete":
        return None
    record = read_record(folder)
    tables = [read_table(folder, name) for name in ("jobs", "rounds")]
    run = PlottedRun(one.label, record["config"], record["metrics"], *tables)
    return run, list(record.get("skipped", ()))


def _execute(
    one: ComparedRun, folder: Path, run: "SimulationRun", resume_command: str
) -> tuple["PlottedRun", list[str]]:
    """Run it from where it was stopped, or anew where its policy's code has changed since; the run, and what
    of its input could not be used."""
    from fairlead.analysis.report.run_charts import PlottedRun

    arguments: dict[str, Any] = msgspec.to_builtins(one.arguments)
    folder.mkdir(exist_ok=True)
    result = execute(
        run,
        folder,
        arguments,
        json=False,
        resume=_has_begun(folder / "journal") and one.arguments.changed_code is None,
        quiet=True,
        resume_command=resume_command,
    )
    plotted = PlottedRun(one.label, result.config, result.metrics, result.jobs, result.rounds)
    return plotted, list(result.skipped)


def _has_begun(path: Path) -> bool:
    """Return whether there is a journal with a record: a run that was killed earlier begins anew."""
    from fairlead.scheduler import journal

    try:
        return next(journal.records(path), None) is not None
    except RunError:
        return False
