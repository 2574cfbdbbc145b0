"""``fairlead replay``: drive a journal through a fresh core and compare the commands."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from fairlead import journal
from fairlead.cli.options import read_json
from fairlead.errors import CheckError


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a journal.")],
) -> None:
    """Check a run's journal against a fresh scheduler.

    The journal's events must lead it to the same commands; if not, exits with 1 and names the first
    difference. No solver is called.
    """
    path = run / "journal" if run.is_dir() else run
    count, left = journal.replay(path)
    record = path.with_name("run.json")
    if run.is_dir() and record.exists():
        told = read_json(record).get("metrics", {}).get("journal_sha256")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if told is not None and told != found:
            raise CheckError(f"{path}: its sha256 is {found}, {record} has {told}")
    print(f"{path}: {count} records, all commands are the same")
    if left:
        print(f"{path}: cut off: the last {left} bytes are no whole record")
