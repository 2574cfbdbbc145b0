"""A data loader under a lease: the one line that a training script changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from collections.abc import Iterator as Batches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Union

from fairlead.client.arguments import whole_number
from fairlead.client.json_state import decode_state, encode_state, is_state
from fairlead.client.lease import Lease
from fairlead.client.loader_passes import passes_of
from fairlead.client.passes import END
from fairlead.client.rank_environment import print_to_log
from fairlead.client.script_state import Position
from fairlead.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeAlias

Batch = TypeVar("Batch")
# In the state of a checkpoint: where this rank is, which may not be where rank 0 is
_PLACE = "place"
_LEFT = "left"  # in the state of a checkpoint: the script leaves its loops itself
Loader: TypeAlias = Union[Iterable[Batch], Callable[[int, int], Iterable[Batch]]]


class Iterator(Generic[Batch]):
    """The batches of a loader, pass after pass, until the job's steps are done or its lease is over::

        for batch in fairlead.Iterator(loader, load=load, save=save, total_steps=1000):
            train(batch)

    With ``epochs`` each ``for`` over it is one pass, and the job is over after so many::

        batches = fairlead.Iterator(loader, load=load, save=save, epochs=3)
        for epoch in batches.epochs():
            for batch in batches:
                train(batch)
            evaluate()

    loader: a PyTorch DataLoader; anything else that can be passed over again and again; or a function of
    (epoch, batch size) that gives the batches of that epoch. An epoch is a pass over the data, from 0.

    After a resume the loop goes on with the very next batch, and with the random numbers that would have come
    next, as if nothing had happened. An ordinary DataLoader is passed on by the indices of its samples; a
    loader with ``state_dict`` and ``load_state_dict`` is put back; of others the batches that are done are
    loaded and dropped. ``set_epoch`` (of the loader or its sampler) is called before every pass. What cannot
    be put back exactly is refused with a ConfigError.

    A step is one batch, and counts when the next one is asked for, another loop begins, or the process ends
    by itself. A pass whose loop the script leaves (``break``, ``islice``) is over. Without ``total_steps``
    (here or from the scheduler) and ``epochs`` the job is one pass over the data. Else it is as ``Lease``.
    """

    def __init__(
        self,
        loader: Loader[Batch],
        *,
        load: Callable[[Path], None],
        save: Callable[[Path], None],
        total_steps: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_s: float = 600.0,
        on_stop: Literal["exit", "return"] = "exit",
        save_ranks: Literal["zero", "all"] = "zero",
        exit: Literal["quick", "clean"] = "quick",
        on_park: Callable[[], None] | None = None,
        on_resume: Callable[[], None] | None = None,
    ) -> None:
        if batch_size is None:
            own = getattr(loader, "batch_size", None)
            batch_size = own if isinstance(own, int) and own > 0 else 0
        self._loader = loader
        self._passes = passes_of(loader)
        self._epochs = None if epochs is None else whole_number("epochs", epochs, 1)
        self._epoch = 0  # the present pass
        self._position = 0  # batches of this pass that are done
        self._batches: Batches[Any] | None = None  # None = the pass is not open
        self._saved: dict[str, Any] | None = None  # with which to open the pass again
        self._state_is_tried = False
        self._entered = False
        self._loop: object = None  # the newest ``for``
        self._was_left = False  # have loops been left by the script, in this start or before?
        self._next_pass: int | None = (
            None  # that the next ``for`` is; None = the script has not asked
        )
        self._replaying = False
        self.rank_state: Callable[[], dict[str, Any]] = dict  # kept with the state of the loader
        self._lease = Lease(
            load=load,
            save=save,
            total_steps=_total_steps(self._passes.expected_length(), total_steps, self._epochs),
            batch_size=batch_size,
            checkpoint_dir=checkpoint_dir,
            checkpoint_s=checkpoint_s,
            on_stop=on_stop,
            save_ranks=save_ranks,
            exit=exit,
            on_park=on_park,
            on_resume=on_resume,
        )
        self._lease.position = self._make_position

    @property
    def epoch(self) -> int:
        """The pass that is under way, from 0, in ``epochs()`` the one that it gave last; else with ``epochs``
        after a pass that pass. After the last one of ``epochs()`` their number."""
        if self._epochs is not None and not self._entered:
            self._enter()
            self._next_pass = self._epoch
        if self._replaying and self._next_pass:
            return self._next_pass - 1
        return self._epoch

    @property
    def batch_index(self) -> int:
        """The batch of the pass that is under way, from 0."""
        return self._position

    @property
    def replaying(self) -> bool:
        """The pass was done in an earlier start, and is empty (see ``epochs``)."""
        return self._replaying

    def epochs(self) -> Batches[int]:
        """The passes that are to be done, the one that was interrupted first.

        The code after a pass belongs to it: a process that is told to stop during the last batch of a pass
        stops when that code has run. After the last pass the state is saved once more, so that a process
        that is started again has no pass left; one that was killed within the code after it finds it empty.

        ``range(batches.epoch, 3)`` is the same, but for what is saved after the last pass. With ``range(3)``,
        passes that were done in an earlier start are empty, but Python runs the code behind them again: it
        finds the state of the checkpoint, which is read again before the first pass that is not empty, so
        the training is exact; what that code prints or writes for those passes is not what it was.
        ``replaying`` is true meanwhile.
        """
        if self._epochs is None:
            raise ConfigError("epochs(): the iterator has to be made with epochs=, their number")
        self._enter()
        first = self._epoch
        if (
            first == self._epochs and not self.completed
        ):  # only the code after the last pass is left
            self._lease.end_of_data()
        for epoch in range(first, self._epochs):
            if self.preempted or (self.completed and epoch > first):
                break
            if epoch > self._epoch and not self.completed:  # the one before is over, and its loop
                self._lease.count_left_step()
                self._loop = object()
                self._turn(epoch)
            self._next_pass = epoch
            yield epoch
        if self._epoch + 1 == self._epochs and self._lease.in_step:
            self._turn(self._epochs)  # the script has left the last pass
            self._lease.leave_loop()
        elif self.completed and self._epoch + 1 == self._epochs and self._pass_is_over():
            self._turn(self._epochs)
            self._lease.save_after_loop()

    def __len__(self) -> int:
        """Batches of a ``for`` from its beginning. Raises TypeError where that is not known."""
        length = self.total_steps
        if self._epochs is not None or length is None:
            length = self._passes.length or self._passes.expected_length()
        if length is None:
            raise TypeError("the loader does not know its length")
        return length

    def __bool__(self) -> bool:
        return True

    @property
    def step(self) -> int:
        """Steps done, of the whole job. Asked before the first loop, it loads the newest checkpoint."""
        self._enter()
        return self._lease.step

    @property
    def total_steps(self) -> int | None:
        """Total steps of the job; None for one pass over the data."""
        return self._lease.total_steps

    @property
    def batch_size(self) -> int:
        """Samples per step; 0 = not known."""
        return self._lease.batch_size

    @property
    def rank(self) -> int:
        """Rank of this process, below ``world_size``."""
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
        """Save at the next step; after the loop at once (see ``Lease.checkpoint``)."""
        return self._lease.checkpoint()

    def complete(self) -> None:
        """Note that no steps are needed after this one (see ``Lease.complete``)."""
        self._lease.complete()

    def adapt(self, batch_size: int, total_steps: int) -> None:
        """Another batch size from the next step on (see ``Lease.adapt``). A loader that is a function is
        asked for the same epoch again and goes on behind the samples that are done."""
        self._lease.adapt(batch_size, total_steps)

    def __iter__(self) -> Batches[Batch]:
        """The loop. Breaking out of it early, without ``complete``, is the end of the pass; it is that of the
        job only if the process ends without another loop."""
        return self._all_passes() if self._epochs is None else self._one_pass(self._epochs)

    def indexed(self) -> Batches[tuple[int, Batch]]:
        """The loop with the index of each batch in its pass, from 0: what ``enumerate`` would give if the job
        were never interrupted. ``enumerate(batches)`` itself begins at 0 after every move."""
        for batch in self:
            yield self.batch_index, batch

    @property
    def lease(self) -> Lease:
        """The lease under which it runs."""
        return self._lease

    @property
    def loaded_state(self) -> dict[str, Any]:
        """Return what this rank kept with the loaded checkpoint, its loader's state included; or {}."""
        state = self._lease.loaded.loader_state
        return decode_state(state) if is_state(state) else {}

    def close(self) -> None:
        """Let go of the lease, where a script with ``epochs`` does no more steps (see ``Lease``)."""
        if not self.completed and not self.preempted:
            self._lease.__exit__(None, None, None)

    def _all_passes(self) -> Batches[Batch]:
        lease = self._lease
        if not self._begin_all_passes():
            return
        loop = self._loop = object()
        job, passes = lease.job_size, self._passes
        size = job.batch_size
        try:
            while lease.next():  # written out: each call of a method would be felt by quick steps
                if job.batch_size != size:
                    size = self._rescale(size)
                batches = self._batches
                if batches is None or (batch := next(batches, END)) is END:
                    batch = self._fetch(batches is not None, turns=lease.total_steps is not None)
                    if batch is END:
                        lease.end_of_data()
                        return
                yield batch
                if loop is not self._loop:
                    raise _followed()
                self._position += 1
                if self._position == passes.length and self._turns():
                    self._turn(self._epoch + 1)
        except BaseException as problem:
            self._leave_loop(loop, problem)
            raise
        self._batches = None  # its workers may go

    def _begin_all_passes(self) -> bool:
        """A loop over all that is left begins. False: nothing is to be done in it."""
        lease = self._lease
        if lease.completed and not self._was_left:
            raise ConfigError(
                f"all {lease.step} steps were done in the loop before this one; for a loop in each epoch "
                "the iterator has to be made with epochs=, their number"
            )
        if lease.preempted or lease.completed:
            return False
        self._enter()
        if self._batches is not None:  # the script has left the loop before this one
            self._was_left = True
            self._turn(self._epoch + 1)
        return True

    def _one_pass(self, epochs: int) -> Batches[Batch]:
        lease = self._lease
        if lease.preempted or not self._begin(epochs):
            return
        loop = self._loop = object()
        job = lease.job_size
        size = job.batch_size
        try:
            while lease.next():
                if job.batch_size != size:
                    size = self._rescale(size)
                batches = self._batches
                if batches is None or (batch := next(batches, END)) is END:
                    batch = self._fetch(batches is not None, turns=False)
                if batch is END:
                    self._end_pass(epochs)
                    return
                yield batch
                if loop is not self._loop:
                    raise _followed()
                self._position += 1
                if self._position == self._passes.length and self._epoch + 1 < epochs:
                    lease.pass_ends()
        except BaseException as problem:
            self._leave_loop(loop, problem)
            raise
        self._batches = None  # its workers may go

    def _leave_loop(self, loop: object, problem: BaseException) -> None:
        """A loop is left for this: the script does not go on with it, or the loader has given no batch."""
        if loop is not self._loop:
            return
        if not isinstance(problem, GeneratorExit):
            self._lease.no_step()
        elif self._lease.is_completing:
            self._lease.complete_left()

    def _begin(self, epochs: int) -> bool:
        """Go to the pass that this ``for`` is. False: nothing is to be done in it."""
        self._enter()
        index = self._next_pass or 0
        if index >= epochs:
            raise ConfigError(
                f"all {epochs} epochs are done, and the script asks for another: its outer loop has to be "
                "`for epoch in batches.epochs()` or `range(batches.epoch, ...)`"
            )
        self._next_pass = index + 1
        if self._epoch == epochs and not self._lease.completed:
            self._lease.end_of_data()
        if self._lease.completed:
            return False
        if index < self._epoch:
            self._replay(index)
            return False
        if self._replaying:
            self._replaying = False
            self._lease.reload()
        if index > self._epoch:
            self._turn(index)
        return True

    def _pass_is_over(self) -> bool:
        length = self._passes.length or self._passes.expected_length()
        return length is None or self._position >= length

    def _end_pass(self, epochs: int) -> None:
        if self._position == 0:
            raise _no_batch(self._epoch)
        if self._epoch + 1 == epochs:
            self._lease.end_of_data()
        else:
            self._lease.no_step()

    def _replay(self, index: int) -> None:
        if not self._replaying:
            print_to_log(
                f"epochs 0 to {self._epoch - 1} were done in an earlier start: their loops are empty, "
                "but the code behind them runs again; `for epoch in batches.epochs()` leaves them out"
            )
        self._replaying = index < self._epoch

    def _enter(self) -> None:
        if self._entered:
            return
        self._entered = True  # before the script's ``load``, which may ask for the step
        self._lease.__enter__()
        self._restore_position()

    def _restore_position(self) -> None:
        """Set the position to that of the checkpoint."""
        loaded, state = self._lease.loaded, self.loaded_state
        self._epoch, self._position = loaded.loader_epoch, loaded.batches
        # The data of this rank may have more batches than rank 0's
        if loaded.world_size == self.world_size:
            self._epoch, self._position = state.get(_PLACE, (self._epoch, self._position))
        self._was_left = _LEFT in state
        if self._lease.step or self._position:
            self._saved = state

    def _make_position(self) -> Position:
        """Return the position for a checkpoint."""
        own = {_PLACE: [self._epoch, self._position]} if self.rank else {}
        if self._epoch == self._epochs:
            state = {**self.rank_state(), **own}
            return Position(self._epoch, 0, encode_state(state, "the state of the rank"))
        if self._batches is None and self._saved is not None:  # not opened since it was loaded
            return self._lease.loaded
        state = {**self._passes.state(self._position), **self.rank_state(), **own}
        if self._was_left:
            state[_LEFT] = True
        encoded = encode_state(state, "the state of the loader") if state else b""
        return Position(self._epoch, self._position, encoded)

    def _open(self) -> Batches[Any]:
        """The pass of this epoch, from this position on."""
        where = self._epoch, self._lease.batch_size
        saved, self._saved = self._saved, None
        if saved is None:
            self._batches = self._passes.open(*where)
        else:
            self._batches = self._resume(*where, saved)
        return self._batches

    def _resume(self, epoch: int, batch_size: int, saved: dict[str, Any]) -> Batches[Any]:
        """The pass that was interrupted. Raises ConfigError where it cannot be put back exactly."""
        before, now = self._lease.loaded.world_size, self._lease.world_size
        try:
            return self._passes.resume(epoch, batch_size, self._position, saved)
        except ConfigError as problem:
            if before == now or "elastic" in saved:
                raise
            raise ConfigError(
                f"{problem}; {before} ranks saved the checkpoint and this job has {now}, with which a loader "
                "of one rank's samples cannot go on within a pass: use ElasticLoader of "
                "fairlead.client.torch"
            ) from None

    def _fetch(self, ended: bool, turns: bool) -> Any:
        """The first batch of a pass; ``END`` where it has none, or the one before has ``ended``, and nothing
        turns."""
        batch = END if ended else next(self._open(), END)
        if batch is END and turns:
            if not self._position:
                raise _no_batch(self._epoch)
            self._turn(self._epoch + 1)
            return self._fetch(False, turns)
        if not self._state_is_tried:
            self._state_is_tried = True
            self._make_position()  # a state that cannot be saved shows now, not at the first checkpoint
        return batch

    def _turns(self) -> bool:
        """Return whether the next pass begins as soon as the last batch of this one is done. It does not if
        the loader keeps account itself and reports when a pass is over."""
        return self._passes.knows_its_end and self._lease.total_steps is not None

    def _turn(self, epoch: int) -> None:
        """Another pass; it is opened when its first batch is asked for."""
        self._epoch, self._position, self._batches = epoch, 0, None

    def _rescale(self, before: int) -> int:
        """After a change of the batch size: the same samples are done, in other batches. The size now."""
        size = self._lease.batch_size
        if callable(self._loader) and self._position:
            self._saved = self._passes.state(self._position)
            self._position = self._position * before // max(size, 1)
            self._open()
        return size


def _total_steps(length: int | None, total_steps: int | None, epochs: int | None) -> int | None:
    """Return the total steps of the job. Raises ConfigError if the options contradict each other."""
    if epochs is None:
        return total_steps
    if total_steps is not None:
        raise ConfigError("epochs, total_steps: one of the two says how long the job is, not both")
    return None if length is None else epochs * length


def _followed() -> ConfigError:
    return ConfigError(
        "another loop over the iterator has begun since: this one is over, and its pass with it"
    )


def _no_batch(epoch: int) -> ConfigError:
    return ConfigError(f"the loader gave no batch in epoch {epoch}; it has to give some each time")
