"""The folder of a run: ``run.json``, ``report.html``, the journal and the tables."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from fairlead.analysis.report import run_report as html
from fairlead.errors import RunError
from fairlead.simulator.recording.metrics import Result
from fairlead.simulator.traces.atomic_write import write_atomically

PACKAGES = ("fairlead", "numpy", "numba", "highspy", "polars")


def make_folder(folder: Path) -> Path:
    """Make the folder, and those above it; RunError unless it is new or empty."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(
                f"{folder}: is there already and not an empty folder; choose another --out"
            )
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RunError(f"{folder}: cannot be made ({problem.strerror})") from None
    return folder


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    with write_atomically(path) as partial:
        partial.write_bytes(text + b"\n")


def begin_record(
    folder: Path, config: dict[str, Any], arguments: dict[str, Any] | None
) -> dict[str, Any]:
    """Write ``run.json`` of a run that begins; what is in it. arguments: what ``--resume`` needs."""
    record: dict[str, Any] = {
        "status": "running",
        **({} if arguments is None else {"arguments": arguments}),
        "config": config,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
    }
    write_json(folder / "run.json", record)
    return record


def write_result(folder: Path, record: dict[str, Any], result: Result) -> None:
    """The report of a complete run, then ``run.json`` with the metrics: what that calls complete is."""
    if result.complete:
        page = html.run_report(
            result.config, result.metrics, result.jobs, result.rounds, result.placement_intervals
        )
        (folder / "report.html").write_text(page, encoding="utf-8")
    status = "complete" if result.complete else "interrupted"
    more = {"status": status, "skipped": result.skipped, "metrics": result.metrics}
    write_json(folder / "run.json", record | {"config": result.config} | more)
