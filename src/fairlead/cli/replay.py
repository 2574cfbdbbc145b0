"""``fairlead replay``: drive a journal through a fresh core and compare the commands."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead import journal


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a journal.")],
) -> None:
    """Check that a run's journal leads a fresh scheduler to the same commands.

    Exits with 1 and names the first difference if it does not. No solver is called.
    """
    path = run / "journal" if run.is_dir() else run
    count = journal.replay(path)
    print(f"{path}: {count} records, all commands are the same")
