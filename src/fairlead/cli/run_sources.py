"""Folders with results, as people name them: of runs, of comparisons, of sweeps."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.errors import ConfigError, RunError

if TYPE_CHECKING:
    from fairlead.analysis.experiments.sweep_charts import Swept
    from fairlead.analysis.report.run_charts import PlottedRun

FoldersArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUN|SWEEP...",
        help="Folders of runs, of comparisons (all runs in it), or of sweeps.",
        show_default=False,
    ),
]


def read_sources(folders: Sequence[Path]) -> tuple[list[Path], list["Swept"]]:
    """The folders of runs that are named, or the sweeps; ConfigError where they are both or neither."""
    from fairlead.analysis.experiments.sweep import read_sweep
    from fairlead.analysis.experiments.sweep_charts import Swept
    from fairlead.analysis.report.run_folders import runs_in

    if not folders:
        raise ConfigError("name one folder at least, of a run or of a sweep")
    runs: list[Path] = []
    sweeps: list[Path] = []
    for folder in dict.fromkeys(folders):
        inside = runs_in(folder)
        if is_sweep(folder):
            sweeps.append(folder)
        elif inside:
            runs += inside
        else:
            raise RunError(_why_neither(folder))
    if runs and sweeps:
        raise ConfigError(f"{runs[0]} is a run and {sweeps[0]} a sweep: ask for each of them apart")
    return list(dict.fromkeys(runs)), [Swept(folder, read_sweep(folder)) for folder in sweeps]


def _why_neither(folder: Path) -> str:
    from fairlead.analysis.experiments.sweep import RESULT

    if folder.is_dir():
        why = f"neither run.json nor {RESULT} is in it"
    elif folder.exists():
        return f"{folder}: is a file, expected the folder of a run, of a comparison or of a sweep"
    else:
        why = "there is no such folder"
    return f"{folder}: holds no run and no finished sweep ({why})"


def is_sweep(folder: Path) -> bool:
    """Return whether the folder holds the results of a sweep that has ended."""
    from fairlead.analysis.experiments.sweep import RESULT

    return (folder / RESULT).is_file()


def make_out(folder: Path) -> None:
    """Make the folder that ``--out`` needs, and those above it; ConfigError where a file is in the way."""
    for one in (folder, *folder.parents):
        if one.exists() and not one.is_dir():
            raise ConfigError(f"--out: {one} is a file, expected a folder there")
    folder.mkdir(parents=True, exist_ok=True)


def read_runs(folders: Sequence[Path]) -> list["PlottedRun"]:
    """Complete runs with labels that tell them apart; RunError at the first that is none."""
    from fairlead.analysis.report.run_charts import PlottedRun
    from fairlead.analysis.report.run_folders import read_record, read_table

    records = [read_record(folder) for folder in folders]
    labels = _labels(records, folders)
    return [
        PlottedRun(
            label,
            record["config"],
            record["metrics"],
            read_table(folder, "jobs"),
            read_table(folder, "rounds"),
        )
        for label, record, folder in zip(labels, records, folders, strict=True)
    ]


def _labels(records: Sequence[dict[str, Any]], folders: Sequence[Path]) -> list[str]:
    """The policies, with as much more as tells the runs apart."""

    def field(record: dict[str, Any], name: str) -> str:
        return str(record["config"].get(name, ""))

    label_makers: tuple[Callable[[dict[str, Any], Path], str], ...] = (
        lambda record, _: field(record, "policy"),
        lambda record, _: f"{field(record, 'policy')} ({field(record, 'profile')})",
        lambda record, _: f"{field(record, 'policy')}, seed {field(record, 'seed')}",
        lambda _, folder: folder.name,
    )
    for make_label in label_makers:
        labels = [
            make_label(record, folder) for record, folder in zip(records, folders, strict=True)
        ]
        if len(set(labels)) == len(labels):
            return labels
    return [str(folder) for folder in folders]
