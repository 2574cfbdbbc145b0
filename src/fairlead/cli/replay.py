"""``fairlead replay``: drive a journal through a fresh core and compare the commands."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import read_json
from fairlead.errors import RunError

STORE = "state.db"  # of a live cluster: table journal(seq, segment, record)


def replay(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run directory, a journal, or the state directory of a server."
        ),
    ],
) -> None:
    """Check a run's journal against a fresh scheduler.

    The journal's events must lead it to the same commands; if not, exits with 1 and names the first
    difference. A journal that is damaged is no difference: the exit code is 2 then. No solver is called.
    The store of a live cluster is read and never written; each of its segments is replayed on its own.
    """
    from fairlead.scheduler import journal

    if (run / STORE).is_file():
        _replay_store(run / STORE)
        return
    path = run / "journal" if run.is_dir() else run
    if run.is_dir() and not path.exists():
        _name_runs(run)
    count, left = journal.replay(path)
    record = path.with_name("run.json")
    if run.is_dir() and record.exists():
        metrics = read_json(record).get("metrics")
        recorded = metrics.get("journal_sha256") if isinstance(metrics, dict) else None
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if recorded is not None and recorded != found:
            raise RunError(
                f"{path}: is not as the run left it: its sha256 is {found}, {record} has {recorded}"
            )
    print(f"{path}: {count} records, all commands are the same")
    if left:
        print(f"{path}: cut off: the last {left} bytes are no whole record")


def _name_runs(folder: Path) -> None:
    """RunError where the folder has runs in it, as that of a comparison."""
    from fairlead.analysis.report.run_folders import runs_in

    runs = runs_in(folder)
    if runs and runs != [folder]:
        raise RunError(
            f"{folder}: is no run, but has {len(runs)} in it; replay one of them: "
            + ", ".join(map(str, runs))
        )


def _replay_store(path: Path) -> None:
    from fairlead.cluster.store.database import reader
    from fairlead.cluster.store.replay import replay_segments

    try:
        with closing(reader(path)) as store:
            count, segments = replay_segments(store, path)
    except sqlite3.Error as problem:
        raise RunError(f"{path}: cannot read the journal: {problem}") from None
    print(f"{path}: {count} records in {segments} segments, all commands are the same")
