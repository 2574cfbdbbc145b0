"""The folder of a run: ``run.json``, ``report.html``, the journal and the tables."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from fairlead.analysis.report import run_report as html
from fairlead.analysis.report.run_folders import read_json_file
from fairlead.errors import RunError
from fairlead.model.argument_checks import brief_repr
from fairlead.simulator.recording.metrics import Result
from fairlead.simulator.traces.atomic_write import write_atomically

# Not compared when a run goes on: names of files, which may have moved; the number of jobs of a stream; and
# what the journal checks itself.
_NOT_COMPARED = {"trace", "throughputs", "n_jobs", "version", "command"}
PACKAGES = ("fairlead", "numpy", "numba", "highspy", "polars")


def make_folder(folder: Path) -> Path:
    """Make the folder, and those above it; RunError unless it is new or empty."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(
                f"{folder}: is there already and not an empty folder; choose another folder"
                f"{_to_go_on(folder)}"
            )
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RunError(f"{folder}: cannot be made ({problem.strerror})") from None
    return folder


def _to_go_on(folder: Path) -> str:
    """Return how to go on with what was begun in a folder, where that is not complete."""
    if (folder / "run.json").is_file():
        try:
            record = read_json_file(folder / "run.json")
        except RunError:
            return ""
        if isinstance(record, dict) and record.get("status") == "complete":
            return ""
        return f", or go on with the run there: --resume {folder} (from Python: resume=True)"
    if (folder / "compare.json").is_file() and not (folder / "report.html").is_file():
        return f", or go on with the comparison there: --resume {folder}"
    return ""


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    with write_atomically(path) as partial:
        partial.write_bytes(text + b"\n")


def read_record(folder: Path, config: dict[str, Any]) -> bytes:
    """The content of ``run.json`` of a run that is to go on. RunError where there is none, or
    where an option of the configuration had another value; files and the version are compared by the
    journal."""
    path = folder / "run.json"
    if not path.exists():
        raise RunError(f"{folder}: there is no run to go on with ({path.name} is not there)")
    record = read_json_file(path)
    before = record.get("config") if isinstance(record, dict) else None
    if not isinstance(before, dict):
        raise RunError(f"{path}: not a run that can go on (it has no config)")
    now = msgspec.json.decode(msgspec.json.encode(config))
    for name in sorted({*now, *before} - _NOT_COMPARED):
        if now.get(name) != before.get(name):
            was, is_now = (brief_repr(one.get(name)) for one in (before, now))
            raise RunError(f"{folder}: the run there had {name} {was}, this one has {is_now}")
    return path.read_bytes()


def restore_record(folder: Path, content: bytes) -> None:
    """Write ``run.json`` as ``read_record`` has found it."""
    with write_atomically(folder / "run.json") as partial:
        partial.write_bytes(content)


def begin_record(
    folder: Path, config: dict[str, Any], arguments: dict[str, Any] | None
) -> dict[str, Any]:
    """Write ``run.json`` of a run that begins, and return its content. arguments: what ``--resume`` needs."""
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
    """The report of a complete run, then ``run.json`` with the metrics, last: a run whose ``run.json`` says
    complete has all its files."""
    if result.complete:
        page = html.run_report(
            result.config, result.metrics, result.jobs, result.rounds, result.placement_intervals
        )
        (folder / "report.html").write_text(page, encoding="utf-8")
    status = "complete" if result.complete else "interrupted"
    more = {"status": status, "skipped": result.skipped, "metrics": result.metrics}
    write_json(folder / "run.json", record | {"config": result.config} | more)
