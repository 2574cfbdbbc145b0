"""A progress bar: on a terminal only, and only for work that takes longer than ``SHOW_AFTER_S``."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SHOW_AFTER_S = 2.0  # shorter waits need no bar
REFRESH_S = 0.1


class Update(Protocol):
    """Shows how far the work is."""

    def __call__(self, done: float, note: str = "") -> None:
        """done: in the unit of ``total``; note: what is being done."""


@contextmanager
def progress(
    description: str, total: float | None, enabled: bool | None = None
) -> Iterator[Update]:
    """A bar on stderr while the block runs; ``total`` None if the total is not known.

    ``enabled`` None means: if stderr is a terminal; True treats it as one. The bar vanishes at the
    end. ``update`` may be called as often as one likes.
    """
    if not (sys.stderr.isatty() if enabled is None else enabled):
        yield _ignore
        return
    bar = _Bar(description, total, enabled)
    try:
        yield bar.update
    finally:
        bar.close()


def _ignore(done: float, note: str = "") -> None:
    """Do nothing: there is no terminal."""


class _Bar:
    """A bar that appears once the work has lasted ``SHOW_AFTER_S``; it draws in the caller's thread."""

    def __init__(self, description: str, total: float | None, terminal: bool | None) -> None:
        self._description = description
        self._total = total
        self._terminal = terminal
        self._start_s = time.monotonic()
        self._next_s = self._start_s + SHOW_AFTER_S
        self._drawn: tuple[Progress, TaskID] | None = None

    def update(self, done: float, note: str = "") -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + REFRESH_S
        if self._drawn is None:
            self._drawn = self._appear()
        progress, task = self._drawn
        progress.update(task, completed=done, note=note)
        progress.refresh()

    def close(self) -> None:
        if self._drawn is not None:
            self._drawn[0].stop()

    def _appear(self) -> tuple[Progress, TaskID]:
        progress = Progress(
            *_columns(self._total),
            console=Console(stderr=True, force_terminal=self._terminal),
            auto_refresh=False,
            transient=True,
            get_time=time.monotonic,
        )
        task = progress.add_task(self._description, total=self._total, note="")
        progress.tasks[0].start_time = self._start_s  # it began before it could be seen
        progress.start()
        return progress, task


def _columns(total: float | None) -> list[ProgressColumn]:
    """Elapsed time if the total is not known, else the share done and the time left."""
    name = TextColumn("{task.description}", markup=False)
    note = TextColumn("{task.fields[note]}", markup=False, style="dim")
    if total is None:
        return [name, BarColumn(), TimeElapsedColumn(), note]
    left = TimeRemainingColumn(elapsed_when_finished=True)
    return [name, BarColumn(), TaskProgressColumn(), TextColumn("ETA"), left, note]
