"""A loader for frameworks that run the loop themselves: it can be put back at any batch of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fairlead.client.loader_passes import passes_of
from fairlead.client.passes import END


class ExactLoader:
    """Gives the batches of a loader, and knows how each of its last batches came about.

    epoch: called when a pass is opened.
    """

    def __init__(self, loader: Any, epoch: Callable[[], int]) -> None:
        self._loader = loader
        self._epoch = epoch
        self._passes = passes_of(loader)
        self._resume_at: tuple[int, int, dict[str, Any]] | None = None
        self._states: dict[int, dict[str, Any]] = {}  # before the batch of that index was fetched

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_loader" not in vars(self):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def resume_at(self, epoch: int, position: int, state: dict[str, Any]) -> None:
        """The next pass is this one, behind its first ``position`` batches."""
        self._resume_at = epoch, position, state

    def state(self, position: int) -> dict[str, Any]:
        """Return the state for ``resume_at`` to give the batch of this index, of the newest two, again."""
        if position and self._passes.length is None:  # batches may have been fetched in advance
            return self._passes.state(position)
        return self._states[position]

    def state_at_end(self) -> dict[str, Any]:
        """Return the state for ``resume_at`` to open a new pass as it would be opened now."""
        return self._passes.state(0)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the state is kept elsewhere."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""

    def __iter__(self) -> Iterator[Any]:
        size = getattr(self._loader, "batch_size", None) or 0
        resume_at = self._resume_at
        epoch, position, state = resume_at or (self._epoch(), 0, {})
        batches: Iterator[Any] | None = None
        self._states = {}
        while True:
            self._remember(position, state if batches is None and resume_at else None)
            if batches is None and resume_at:
                batches = self._passes.resume(epoch, size, position, state)
                self._resume_at = None
            elif batches is None:
                batches = self._passes.open(epoch, size)
            batch = next(batches, END)
            if batch is END:
                return
            yield batch
            position += 1

    def _remember(self, position: int, state: dict[str, Any] | None) -> None:
        """The state before the next batch is fetched: that of now, unless one is still to be put back."""
        self._states.pop(position - 2, None)
        if state is not None:
            self._states[position] = state
        elif position == 0 or self._passes.length is not None:
            self._states[position] = self._passes.state(position)
