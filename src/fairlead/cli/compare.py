"""``fairlead compare``: several policies on the same input, side by side."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.cli import options as o
from fairlead.cli.comparison import ComparedRun, Comparison, command_to_resume, read_comparison
from fairlead.cli.option_records import takes_records
from fairlead.cli.run_sources import is_sweep, read_runs
from fairlead.cli.simulate import RunArguments, run_arguments
from fairlead.errors import ConfigError, FairleadError
from fairlead.simulator.simulation_input import SimulationInput

if TYPE_CHECKING:
    from fairlead.analysis.report.job_differences import JobDifferences
    from fairlead.analysis.report.run_charts import PlottedRun
    from fairlead.simulator.simulation_run import SimulationRun

REFERENCE = "shockwave"  # the default reference of the ratios
POLICIES = ("fifo", "fifo_aware", "isolated", "las", "las_aware")
JOBS = "gavel,jobs=200,interarrival=3000"


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Policies to compare, and how they are shown."""

    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME[:ARG]",
            help=f"May be given several times. Default: {', '.join(POLICIES)}.",
        ),
    ] = None
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            metavar="NAME,...",
            help="Several at once; those whose ARG has a comma need --policy.",
        ),
    ] = None
    relative_to: Annotated[
        str | None,
        typer.Option(
            "--relative-to",
            metavar="NAME",
            help="Show ratios to this one of the policies. Default: shockwave, if it is among them.",
        ),
    ] = None
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            metavar="default|gavel|shockwave",
            help="How shares become rounds; give it twice to compare both. Default: default.",
        ),
    ] = None


@takes_records
@o.takes_input
def compare(
    given: SimulationInput,
    *,
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Folders of runs that are there already; then nothing is run.",
            show_default=False,
        ),
    ] = None,
    options: CompareOptions,
    out: o.OutOption = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="DIR", help="Go on with an interrupted comparison."),
    ] = None,
    json: o.JsonOption = False,
) -> None:
    """Compare several policies on the same jobs and cluster.

    Without options: generated jobs, the built-in catalogue of measured rates, a small mixed cluster
    and five policies. Writes a folder with one run per policy and report.html.

    With folders of runs: compares these, and writes report.html into a new folder. They must be complete.
    """
    if resume is not None:
        if folders or out is not None or options != CompareOptions() or given != SimulationInput():
            raise ConfigError(
                "--resume goes on as the comparison began: it takes no other option but --json"
            )
        _run_comparison(read_comparison(resume), resume, json)
        return
    named = [*(options.policy or ()), *([options.policies] if options.policies else ())]
    if folders and named and not any(map(Path.exists, folders)):
        names = ",".join([*named, *map(str, folders)])
        raise ConfigError(
            f"several policies are written with commas between them, as --policies {names}; "
            f"got {str(folders[0])!r} apart"
        )
    if folders:
        if options != CompareOptions(relative_to=options.relative_to) or given != SimulationInput():
            raise ConfigError(
                "compare: folders of runs are compared as they are, without options of a simulation"
            )
        _compare_folders(folders, options.relative_to, out, json)
        return
    if given.trace is None and given.generate is None:
        given = replace(given, generate=JOBS)
    _compare_policies(given, options, out, json)


def _compare_policies(
    given: SimulationInput, options: CompareOptions, out: Path | None, json: bool
) -> None:
    """Run the policies one after the other, and compare the runs."""
    names = _names(options.policy, options.policies)
    profiles = list(dict.fromkeys(options.profile or ["default"]))
    labels = [
        name if len(profiles) == 1 else f"{name} ({kind})" for kind in profiles for name in names
    ]
    reference = _reference(labels, names, options.relative_to)
    chosen = [(name, kind) for kind in profiles for name in names]
    made = [given.prepare(*one) for one in chosen]  # says what is wrong with any before one is run
    folder = o.new_folder(out, f"compare-{Path(made[0].jobs.name).stem}")
    runs = tuple(
        ComparedRun(
            folder=f"{number}-{name.partition(':')[0]}-{kind}",
            label=label,
            arguments=msgspec.convert(run_arguments(given, name, kind), RunArguments),
        )
        for number, (label, (name, kind)) in enumerate(zip(labels, chosen, strict=True), 1)
    )
    comparison = Comparison(runs=runs, reference=reference)
    comparison.write(folder)
    _run_comparison(comparison, folder, json, made)


def _run_comparison(
    comparison: Comparison, folder: Path, json: bool, prepared: Sequence["SimulationRun"] = ()
) -> None:
    """Run what has not been run to its end, and show all of it. prepared: the runs with their inputs read,
    where they are."""
    try:
        runs = comparison.finish(folder, prepared)
        for line in runs.skipped:
            print(f"fairlead: {line}", file=sys.stderr)
        failed = {label: _labelled(label, str(error)) for label, error in runs.errors.items()}
        reference = runs.reference(comparison.reference)
        if runs.plotted or json:
            _show(runs.plotted, reference, folder, json=json, failed=failed)
        _raise_first(runs.errors, failed)
    except KeyboardInterrupt:
        print(f"fairlead: interrupted. Go on with: {command_to_resume(folder)}", file=sys.stderr)
        raise typer.Exit(130) from None


def _raise_first(errors: Mapping[str, FairleadError], sentences: Mapping[str, str]) -> None:
    """Raise the first error, and print the others, as the sentences by the labels of their runs have them.
    No error: do nothing."""
    for label in list(errors)[1:]:
        print(f"fairlead: {sentences[label]}", file=sys.stderr)
    for label, problem in errors.items():
        raise type(problem)(sentences[label]) from problem


def _labelled(label: str, sentence: str) -> str:
    return sentence if sentence.startswith(f"policy {label!r}") else f"{label}: {sentence}"


def _compare_folders(
    folders: list[Path], relative_to: str | None, out: Path | None, json: bool
) -> None:
    """Compare runs that are there already."""
    from fairlead.analysis.report.run_folders import read_record, runs_in

    sweeps = [str(folder) for folder in dict.fromkeys(folders) if is_sweep(folder)]
    if sweeps:
        raise ConfigError(
            f"compare: {sweeps[0]} is a sweep, not a run; see sweeps, one or several together, with: "
            f"fairlead report {shlex.join(sweeps)}"
        )
    missing = next((folder for folder in folders if not runs_in(folder)), None)
    if missing is not None:
        read_record(missing)  # says why
    named = read_runs(list(dict.fromkeys(run for folder in folders for run in runs_in(folder))))
    if len(named) < 2:
        raise ConfigError(f"compare: expected two runs or more, got only {folders[0]}")
    labels = [run.label for run in named]
    reference = _reference(labels, [str(run.config.get("policy")) for run in named], relative_to)
    _show(named, reference, o.new_folder(out, "compare"), json=json)


def _show(
    named: list["PlottedRun"],
    reference: int | None,
    folder: Path,
    *,
    json: bool,
    failed: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the page, print the tables. failed: label -> why there is no such run."""
    if named:
        _write_page(named, reference, folder)
    if json:
        form = _json_content(named, reference)
        o.print_json({**form, "failed": dict(failed), "out": str(folder)})
        return
    from fairlead.analysis.report import terminal_tables as tables

    shown = [(run.label, run.metrics) for run in named]
    tables.show(tables.comparison_table(shown, tables.terminal_width()))
    if reference is not None:
        tables.show(tables.ratio_table(shown, reference))
    if (differences := _differences(named)) is not None:
        print(differences.sentence)
    print(f"Report: {folder / 'report.html'}")


def _differences(named: Sequence["PlottedRun"]) -> "JobDifferences | None":
    """The differences per job of two runs of the same jobs; None for others."""
    from fairlead.analysis.report.job_differences import job_differences

    if len(named) != 2:
        return None
    first, second = named
    return job_differences((first.label, second.label), first.jobs, second.jobs)


def _write_page(named: list["PlottedRun"], reference: int | None, folder: Path) -> None:
    from fairlead.analysis.report.comparison_report import comparison_report
    from fairlead.simulator.traces.atomic_write import write_atomically

    page = comparison_report(
        [(one.label, one.config, one.metrics, one.jobs, one.rounds) for one in named], reference
    )
    with write_atomically(folder / "report.html") as partial:
        partial.write_text(page, encoding="utf-8")


def _names(one_by_one: list[str] | None, together: str | None) -> list[str]:
    """The policies that were asked for, each once."""
    several = [] if together is None else [name.strip() for name in together.split(",")]
    if not all(several):
        raise ConfigError(f"--policies: expected names with commas between them, got {together!r}")
    return list(dict.fromkeys([*several, *(one_by_one or ())])) or list(POLICIES)


def _reference(labels: list[str], names: list[str], reference: str | None) -> int | None:
    """Position of the run that the others are related to; of the first profile if it has several."""
    if reference is not None:
        for known in (labels, names):
            if reference in known:
                return known.index(reference)
        raise ConfigError(
            f"--relative-to: {reference!r} is not one of the policies compared ({', '.join(labels)})"
        )
    policies = [name.partition(":")[0] for name in names]
    return policies.index(REFERENCE) if REFERENCE in policies else None


def _json_content(named: list["PlottedRun"], reference: int | None) -> dict[str, Any]:
    """The content of ``--json``: configuration and metrics of each run, and ratios to the reference where
    there is one."""
    from fairlead.analysis.report.fairness import metrics_for_json
    from fairlead.analysis.report.relative_metrics import relative_metrics

    runs = {
        run.label: {"config": run.config, **metrics_for_json(dict(run.metrics))} for run in named
    }
    differences = _differences(named)
    found = {"runs": runs} | ({} if differences is None else {"differences": differences.as_json()})
    if reference is None:
        return found
    rows = relative_metrics([run.metrics for run in named], reference)
    ratios = {
        run.label: {"_".join(map(str, row.metric.path)): row.ratios[i] for row in rows}
        for i, run in enumerate(named)
    }
    return {**found, "relative_to": named[reference].label, "ratios": ratios}
