"""A data loader under a lease: the one line that a training script changes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable
from collections.abc import Iterator as Batches
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Union

from fairlead.client.lease import Lease, Position
from fairlead.client.place import say
from fairlead.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeAlias

Batch = TypeVar("Batch")
Loader: TypeAlias = Union[Iterable[Batch], Callable[[int, int], Iterable[Batch]]]


class Iterator(Generic[Batch]):
    """The batches of a loader, pass after pass, until the job's steps are done or its lease is over::

        for batch in fairlead.Iterator(loader, load=load, save=save, total_steps=1000):
            train(batch)

    loader: anything that can be passed over again and again (a list, a PyTorch DataLoader), or a function of
    (epoch, batch size) that gives the batches of that epoch. An epoch is a pass over the data, from 0.

    After a resume the loop goes on with the very next batch. For that a loader's order may depend on nothing
    but the epoch: its ``set_epoch`` (or its sampler's) is called before every pass, batches that are done
    are skipped; a loader with ``state_dict`` and ``load_state_dict`` is put back without skipping.

    A step is one batch, and counts when the next one is asked for. Without ``total_steps`` (here or from
    the scheduler) the job is one pass over the data. Everything else is as in ``Lease``.
    """

    def __init__(
        self,
        loader: Loader[Batch],
        *,
        load: Callable[[Path], None],
        save: Callable[[Path], None],
        total_steps: int | None = None,
        batch_size: int | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_s: float = 600.0,
        on_stop: Literal["exit", "return"] = "exit",
        save_ranks: Literal["zero", "all"] = "zero",
    ) -> None:
        if batch_size is None:
            own = getattr(loader, "batch_size", None)
            batch_size = own if isinstance(own, int) else 0
        self.epoch = 0  # passes that are done
        self._loader = loader
        self._position = 0  # batches of this pass that are done
        self._length: int | None = None  # batches of a pass, where the loader knows
        self._batches: Batches[Batch] | None = None
        self._lease = Lease(
            load=load,
            save=save,
            total_steps=total_steps,
            batch_size=batch_size,
            checkpoint_dir=checkpoint_dir,
            checkpoint_s=checkpoint_s,
            on_stop=on_stop,
            save_ranks=save_ranks,
        )
        self._lease.position = self._where

    @property
    def step(self) -> int:
        """Steps done, of the whole job."""
        return self._lease.step

    @property
    def total_steps(self) -> int | None:
        """Of the whole job; None = one pass over the data."""
        return self._lease.total_steps

    @property
    def batch_size(self) -> int:
        """Samples per step; 0 = not known."""
        return self._lease.batch_size

    @property
    def rank(self) -> int:
        """Of this process, among ``world_size``."""
        return self._lease.rank

    @property
    def world_size(self) -> int:
        """Processes of the job."""
        return self._lease.world_size

    @property
    def preempted(self) -> bool:
        """The loop ended because the scheduler, or SIGTERM, said so (``on_stop="return"``)."""
        return self._lease.preempted

    @property
    def completed(self) -> bool:
        """The loop ended because no more steps are needed."""
        return self._lease.completed

    @property
    def finished(self) -> bool:
        """All steps are done, here or in an earlier start (see ``Lease.finished``)."""
        return self._lease.finished

    def checkpoint(self) -> bool:
        """Save at the next step; behind the loop at once (see ``Lease.checkpoint``)."""
        return self._lease.checkpoint()

    def complete(self) -> None:
        """No more steps are needed after this one (see ``Lease.complete``)."""
        self._lease.complete()

    def adapt(self, batch_size: int, total_steps: int) -> None:
        """Another batch size from the next step on (see ``Lease.adapt``). A loader that is a function is
        asked for the same epoch again and goes on behind the samples that are done."""
        self._lease.adapt(batch_size, total_steps)

    def __iter__(self) -> Batches[Batch]:
        """The loop. Breaking out of it early, without ``complete``, is no end of the job."""
        lease = self._lease
        if lease.completed or lease.preempted:
            return
        with lease:
            self.epoch, self._position, state = lease.loaded
            size = lease.batch_size
            self._open(state)
            while lease.next():
                if size != lease.batch_size:
                    self._rescale(size)
                    size = lease.batch_size
                batch = self._fetch()
                if batch is _END:
                    lease.end_of_data()
                    return
                yield batch
                self._step_over()

    def _where(self) -> Position:
        """For the checkpoint."""
        take = getattr(self._loader, "state_dict", None)
        state = b""
        if take is not None and hasattr(self._loader, "load_state_dict"):
            with suppress(TypeError, AttributeError, pickle.PicklingError):  # batches are skipped
                state = pickle.dumps(take(), protocol=4)
        return Position(self.epoch, self._position, state)

    def _open(self, state: bytes = b"") -> None:
        """The pass of this epoch, from this position on."""
        loader: Any = self._loader
        _set_epoch(loader, self.epoch)
        if state and hasattr(loader, "load_state_dict"):
            if _is_pickle(state):
                loader.load_state_dict(pickle.loads(state))
            else:
                say(
                    "the loader's state is of an earlier version: batches that are done are skipped"
                )
                state = b""
        passed = loader(self.epoch, self.batch_size) if callable(loader) else loader
        self._length = len(passed) if hasattr(passed, "__len__") else None
        self._batches = iter(passed)
        if not state:
            for _ in range(self._position):
                next(self._batches, None)

    def _fetch(self) -> Any:
        """The next batch, if need be of the next epoch; ``_END`` where one pass was all."""
        if self._batches is None:
            self._open()
        batch = next(self._batches or iter(()), _END)
        if batch is _END and self.total_steps is None:
            return _END
        if batch is _END and self._position:
            self._turn()
            return self._fetch()
        if batch is _END:
            raise ConfigError(
                f"the loader gave no batch in epoch {self.epoch}; it has to give some each time"
            )
        return batch

    def _step_over(self) -> None:
        """A pass whose end is known ends with its last batch, unless the loader keeps books itself."""
        self._position += 1
        keeps_books = hasattr(self._loader, "load_state_dict")
        if self._position == self._length and self.total_steps is not None and not keeps_books:
            self._turn()

    def _turn(self) -> None:
        """The next pass; it is opened when its first batch is asked for."""
        self.epoch, self._position, self._batches = self.epoch + 1, 0, None

    def _rescale(self, before: int) -> None:
        """After a change of the batch size: the same samples are done, in other batches."""
        if callable(self._loader):
            self._position = self._position * before // max(self.batch_size, 1)
            self._open()


_END: Any = object()


def _is_pickle(state: bytes) -> bool:
    """Of protocol 2 or later. Earlier versions of Fairlead wrote msgpack, whose maps never end so."""
    return state[:1] == b"\x80" and len(state) > 2 and state.endswith(pickle.STOP)


def _set_epoch(loader: Any, epoch: int) -> None:
    """Order by epoch, as PyTorch's distributed samplers have it."""
    for owner in (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
        setter = getattr(owner, "set_epoch", None)
        if setter is not None:
            setter(epoch)
            return
