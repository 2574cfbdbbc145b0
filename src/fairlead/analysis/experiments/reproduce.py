"""The published results by name, and what is written of each."""

import csv
import io
import os
import pkgutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from shutil import copyfile
from typing import Any

import msgspec
import numpy as np

from fairlead.analysis.experiments import published
from fairlead.analysis.experiments.experiment_context import RunContext
from fairlead.analysis.experiments.findings import (
    FindingRow,
    Findings,
    FindingTable,
    Reproduction,
    Scale,
)
from fairlead.analysis.experiments.point import Point, Status
from fairlead.analysis.experiments.result_store import code_version
from fairlead.analysis.report.chart_mpl import write_chart
from fairlead.client.version import __version__
from fairlead.errors import ConfigError, RunError
from fairlead.simulator.traces.atomic_write import write_atomically

RECORD = "findings.json"
_GENERATED = "<!-- Written by fairlead reproduce --write-results: changes are lost. -->\n"
_HEADER = f"""{_GENERATED}# Results in full

One page for each reproduction, written from its run by `fairlead reproduce --write-results`. Each page
has the command that was run, the figures of our run and the published ones, and *ratio*: ours over the
published one. DIR is a directory with files of Gavel's and of Shockwave's release and with the published
cluster traces, which are not part of Fairlead; without it `gavel-*` model the rates of two jobs that share
a device.

"""


def reproductions() -> dict[str, Reproduction]:
    """All of them by name: ``REPRODUCTIONS`` of each module in ``experiments.published``."""
    found: dict[str, Reproduction] = {}
    for info in pkgutil.iter_modules(published.__path__):
        module = import_module(f"{published.__name__}.{info.name}")
        for one in getattr(module, "REPRODUCTIONS", ()):
            assert one.name not in found, one.name
            found[one.name] = one
    return dict(sorted(found.items()))


def select_reproductions(names: Sequence[str]) -> list[Reproduction]:
    """Return the reproductions with these names; "all" selects every one."""
    known = reproductions()
    for name in names:
        if name not in known and name != "all":
            raise ConfigError(
                f"reproduce: {name!r} is not known (choose from all, {', '.join(known)})"
            )
    if "all" in names:
        return list(known.values())
    return [known[name] for name in dict.fromkeys(names)]


@dataclass(frozen=True)
class RunRecord:
    """A point as it was run."""

    key: str
    point: Point
    status: Status
    reason: str
    seconds: float


@dataclass(frozen=True)
class ReproductionRecord:
    """Content of ``findings.json``: what was run, when, and what it showed."""

    name: str
    title: str
    source: str
    scale: Scale
    command: str
    ended: str  # date and time, UTC
    version: str
    code: str
    cores: int
    wall_s: float  # of the last command
    cpu_s: float  # of all points, whenever they ran, and of the last command
    n_points: int
    n_known: int  # points that had been run before the last command
    tables: tuple[FindingTable, ...]
    remarks: tuple[str, ...]
    figures: tuple[str, ...]


def reproduce(one: Reproduction, context: RunContext) -> tuple[Findings, ReproductionRecord]:
    """Run it in the context and write all of it to the context's folder."""
    context.folder.mkdir(parents=True, exist_ok=True)
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    findings = one.run(context)
    findings = replace(findings, remarks=(*findings.remarks, *context.notes.values()))
    points = {context.store.key(outcome.point): outcome for outcome in context.points}
    record = ReproductionRecord(
        name=one.name,
        title=one.title,
        source=one.source,
        scale=context.scale,
        command=command(one, context),
        ended=datetime.now(UTC).isoformat(timespec="minutes"),
        version=__version__,
        code=code_version(),
        cores=len(os.sched_getaffinity(0)),
        wall_s=round(time.monotonic() - began_s, 1),
        cpu_s=round(
            time.process_time() - began_cpu_s + sum(one.seconds for one in points.values()),
            1,
        ),
        n_points=len(points),
        n_known=len(points) - context.fresh,
        tables=findings.tables,
        remarks=findings.remarks,
        figures=tuple(_figures(findings, context.folder)),
    )
    if not context.fresh:
        record = _as_run(record, context.folder / RECORD)
    runs = [RunRecord(key, o.point, o.status, o.reason, o.seconds) for key, o in points.items()]
    _write(context.folder / "points.json", as_json(runs))
    _write(context.folder / "charts.json", as_json(findings.charts))
    _write(context.folder / "table.csv", as_csv(findings.tables))
    _write(context.folder / "table.md", as_markdown(findings.tables))
    _write(context.folder / RECORD, as_json(record))
    return findings, record


def _as_run(record: ReproductionRecord, path: Path) -> ReproductionRecord:
    """With when and how long the simulations ran, from the record of that command, if it is still there:
    a command that only writes the findings again has not run them."""
    try:
        earlier = _read(path)
    except RunError:
        return record
    if earlier.n_points != record.n_points or not record.n_points:
        return record
    names = ("ended", "version", "code", "cores", "wall_s", "cpu_s", "n_known")
    return replace(record, **{name: getattr(earlier, name) for name in names})


def command(one: Reproduction, context: RunContext) -> str:
    """Return the command line that runs the experiment again."""
    data = " --data DIR" if one.needs_data or context.used_data else ""
    return f"fairlead reproduce {one.name} --scale {context.scale}{data}"


def _figures(findings: Findings, folder: Path) -> Iterable[str]:
    for old in folder.glob("figure*.*"):
        old.unlink()
    for number, chart in enumerate(findings.charts, 1):
        name = "figure" if len(findings.charts) == 1 else f"figure-{number}"
        for path in write_chart(chart, folder / name):
            yield path.name


# --- as text -------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Format a number for people: four digits, or all before the point."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def cells(row: FindingRow) -> tuple[str, str, str, str, str]:
    """A row for people: what, ours, published, ratio, remark."""
    what = f"{row.what} ({row.unit})" if row.unit else row.what
    ratio = "–" if row.ratio is None else f"{row.ratio:.3f}"
    return what, number(row.ours), number(row.published), ratio, row.remark


def as_csv(tables: Iterable[FindingTable]) -> str:
    """All rows in one table, the numbers whole."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("table", "what", "ours", "published", "ratio", "unit", "remark"))
    for table in tables:
        for row in table.rows:
            writer.writerow(
                (table.title, row.what, row.ours, row.published, row.ratio, row.unit, row.remark)
            )
    return text.getvalue()


def as_markdown(tables: Iterable[FindingTable], level: int = 2) -> str:
    """A heading and a table each."""
    parts = []
    for table in tables:
        lines = ["| | ours | published | ratio | |", "|---|---:|---:|---:|---|"]
        lines += ["| " + " | ".join(map(_escaped, cells(row))) + " |" for row in table.rows]
        parts.append(f"{'#' * level} {table.title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# --- the page of results -------------------------------------------------------------------------


def write_results(folder: Path, runs: Sequence[Path]) -> None:
    """Write one page (Markdown) for each folder that ``reproduce`` has written, their figures in ``images/``,
    and ``index.md``, which lists the pages in this order. ``folder`` is created if it is not there."""
    records = [(run, _read(run / RECORD)) for run in runs]
    images = folder / "images"
    try:
        images.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"--write-results: {folder} is not a directory") from None
    for run, record in records:
        names = []
        for figure in record.figures:
            if figure.endswith(".svg"):
                names.append(f"{record.name}-{figure}")
                copyfile(run / figure, images / names[-1])
        _write(folder / f"{record.name}.md", _page(record, names))
    _write(folder / "index.md", _HEADER + _contents([record for _, record in records]))


def _contents(records: Iterable[ReproductionRecord]) -> str:
    lines = ["| | source | scale | version | date |", "|---|---|---|---|---|"]
    lines += [
        f"| [{one.title}]({one.name}.md) | {_escaped(one.source)} | {one.scale} | {one.version} "
        f"| {one.ended[:10]} |"
        for one in records
    ]
    return "\n".join(lines) + "\n"


def _page(record: ReproductionRecord, images: list[str]) -> str:
    lines = [_GENERATED + f"# {record.title}\n", f"{record.source}.\n"]
    lines.append(f"    {record.command}\n")
    lines.append(
        f"{record.ended[:10]}, version {record.version} ({record.code.partition('+')[2]}): {_took(record)}.\n"
    )
    lines += [f"- {remark}" for remark in record.remarks]
    lines += [""] if record.remarks else []
    lines.append(as_markdown(record.tables))
    lines += [f"![{record.title}](images/{name})\n" for name in images]
    return "\n".join(lines)


def _took(record: ReproductionRecord) -> str:
    points = f"{record.n_points} simulations" if record.n_points else "all"
    if record.n_known:
        return f"{points}, {_minutes(record.cpu_s)} of processor time in several goes"
    cores = f"{record.cores} core{'s' if record.cores > 1 else ''}"
    return f"{points} in {_minutes(record.wall_s)} on {cores}, {_minutes(record.cpu_s)} of processor time"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _read(path: Path) -> ReproductionRecord:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ReproductionRecord)
    except OSError as problem:
        raise RunError(f"{path}: cannot be read ({problem.strerror})") from None
    except msgspec.MsgspecError as problem:
        raise RunError(f"{path}: is not what 'fairlead reproduce' writes: {problem}") from None


def as_json(content: Any) -> str:
    """Return records, arrays in them and all, as JSON; a number that is not finite is null."""

    def as_builtin(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [one if np.isfinite(one) else None for one in value.tolist()]
        if isinstance(value, np.floating):
            return float(value)
        raise NotImplementedError(type(value))

    return (
        msgspec.json.format(msgspec.json.encode(content, enc_hook=as_builtin), indent=1).decode()
        + "\n"
    )


def _write(path: Path, text: str) -> None:
    with write_atomically(path) as partial:
        partial.write_text(text, encoding="utf-8")
