"""The passes over a loader's data, and how one is opened again at the batch where it was left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Iterator as Batches
from contextlib import nullcontext
from itertools import chain
from typing import Any, Protocol

from fairlead.client.random_state import (
    RandomStream,
    capture_random,
    capture_start,
    derive_seed,
    find_generators,
    fingerprint,
    generator_states,
    restore_generators,
    restore_random,
    restore_start,
)
from fairlead.errors import ConfigError

END: Any = object()  # instead of a batch: the pass is over


class Passes(Protocol):
    """A loader as ``Iterator`` uses it.

    length: batches of the pass that was opened last, None = not known.
    knows_its_end: a pass whose length is reached is over; else only the loader itself can say so.
    """

    length: int | None
    knows_its_end: bool

    def expected_length(self) -> int | None:
        """Batches of every pass, where that is known beforehand."""
        ...

    def open(self, epoch: int, batch_size: int) -> Batches[Any]:
        """A new pass."""
        ...

    def resume(
        self, epoch: int, batch_size: int, position: int, state: dict[str, Any]
    ) -> Batches[Any]:
        """The pass that ``state`` was taken of, behind its first ``position`` batches. The generators of
        the process are then as they were."""
        ...

    def state(self, position: int) -> dict[str, Any]:
        """Return the state that ``resume`` needs. position: batches of this pass that are done."""
        ...


class IterablePasses:
    """Passes over an object that can be iterated repeatedly, or over a function of (epoch, batch size).

    Batches that are done are skipped by loading them. Where the loader draws random numbers of this process
    when its pass is opened, it is given a stream of its own for the rest of the pass, so that it can be put
    back; one that draws only later is refused when it is put back.
    """

    knows_its_end = True

    def __init__(self, loader: Any) -> None:
        self.length: int | None = None
        self._loader = loader
        self._generators = find_generators(loader)
        self._start: dict[str, Any] | None = None  # of the present pass, if that drew

    def expected_length(self) -> int | None:
        return None if callable(self._loader) else known_length(self._loader)

    def open(self, epoch: int, batch_size: int) -> Batches[Any]:
        set_epoch(self._loader, epoch)
        start = capture_start(self._generators)
        passed = self._loader(epoch, batch_size) if callable(self._loader) else self._loader
        self.length = known_length(passed)
        batches = iter(passed)
        first = next(batches, END)
        draws = fingerprint(start) != fingerprint(capture_start(self._generators))
        self._start = start if draws else None
        if first is END:
            return iter(())
        if draws:
            batches = streamed(batches, derive_seed(fingerprint(start), epoch))
        return chain([first], batches)

    def resume(
        self, epoch: int, batch_size: int, position: int, state: dict[str, Any]
    ) -> Batches[Any]:
        if "start" in state:
            restore_start(self._generators, state["start"])
        if not position:
            restore_random(state.get("now", {}))
            return self.open(epoch, batch_size)
        batches = self.open(epoch, batch_size)
        if self._start is not None and "start" not in state:
            raise ConfigError(
                "the loader draws its order, and the checkpoint has no random numbers of this rank, which "
                f"was not there when it was saved: {position} batches of epoch {epoch} cannot be passed over "
                "exactly; seed the order by epoch"
            )
        before = fingerprint(capture_random(devices=False))
        skip(batches, position, epoch)
        if fingerprint(capture_random(devices=False)) != before:
            raise ConfigError(
                "the loader draws random numbers of the training process while it loads, so its order "
                "cannot be repeated; use a torch.utils.data.DataLoader, or seed its order by epoch"
            )
        restore_random(state.get("now", {}))
        return batches

    def state(self, position: int) -> dict[str, Any]:
        state: dict[str, Any] = {}
        if not position and (self._start is not None or self._generators):
            state["start"] = capture_start(self._generators)
        elif self._start is not None:
            state["start"] = self._start
        if state or "torch" in sys.modules:
            state["now"] = capture_random()
        return state


class StatefulPasses:
    """Passes over a loader with ``state_dict`` and ``load_state_dict``, which is restored without
    skipping."""

    knows_its_end = False

    def __init__(self, loader: Any, generators: Callable[[], list[Any]] = list) -> None:
        self.length: int | None = None
        self._loader = loader
        self._generators = generators  # those whose draws happen in this process

    def expected_length(self) -> int | None:
        return known_length(self._loader)

    def open(self, epoch: int, batch_size: int) -> Batches[Any]:  # noqa: ARG002
        set_epoch(self._loader, epoch)
        self.length = known_length(self._loader)
        return iter(self._loader)

    def resume(
        self,
        epoch: int,
        batch_size: int,
        position: int,
        state: dict[str, Any],
    ) -> Batches[Any]:
        if state.get("loader") is not None:
            self._loader.load_state_dict(state["loader"])
        elif position:
            raise ConfigError(
                "the checkpoint has no state of this loader (it is of an earlier version, or of another "
                f"loader): {position} batches of epoch {epoch} cannot be passed over exactly"
            )
        if not position:  # the pass was not open
            self._restore(state)
            return self.open(epoch, batch_size)
        batches = self.open(epoch, batch_size)
        self._restore(state)
        return batches

    def _restore(self, state: dict[str, Any]) -> None:
        restore_random(state.get("now", {}))
        restore_generators(self._generators(), state.get("generators", []))

    def state(self, position: int) -> dict[str, Any]:  # noqa: ARG002
        state = {
            "loader": self._loader.state_dict(),
            "generators": generator_states(self._generators()),
        }
        if "torch" in sys.modules:
            state["now"] = capture_random()
        return state


def skip(batches: Batches[Any], count: int, epoch: int) -> None:
    """Pass over the first batches of a pass. Raises ConfigError where there are fewer."""
    for done in range(count):
        if next(batches, END) is END:
            raise ConfigError(
                f"the loader gave {done} batches in epoch {epoch}, of which {count} were done when the "
                "checkpoint was saved; its data must be the same in every start"
            )


def streamed(batches: Batches[Any], seed: int) -> Batches[Any]:
    """The batches, with random numbers of their own."""
    stream = RandomStream(seed)
    while True:
        with stream:
            batch = next(batches, END)
        if batch is END:
            return
        yield batch


def known_length(passed: Any) -> int | None:
    """Batches of a pass, None where the loader does not know."""
    try:
        return len(passed)
    except (TypeError, NotImplementedError):
        return None


def set_epoch(loader: Any, epoch: int) -> None:
    """Order by epoch, as PyTorch's distributed samplers have it."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    owners = [loader, getattr(loader, "sampler", None), batch_sampler]
    owners.append(getattr(batch_sampler, "sampler", None))
    for owner in owners:
        setter = getattr(owner, "set_epoch", None)
        if setter is not None:
            setter(epoch)
            return


NO_STREAM = nullcontext()
