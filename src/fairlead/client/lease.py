"""The lease of a training process: how many steps, until when, and what to do when it ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import monotonic
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from fairlead.client import crash, stacks
from fairlead.client.checkpoint import Checkpoint, Manifest
from fairlead.client.quick_exit import end_quickly
from fairlead.client.rank_environment import (
    EXIT_MAY_NOT_RUN,
    RankEnvironment,
    leave,
    read_rank_environment,
)
from fairlead.client.rank_sync import RankStatus
from fairlead.client.rank_zero import (
    NEVER,
    OtherRank,
    RankRole,
    RankZero,
    loader_state_of,
    part_name,
)
from fairlead.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from typing import Self


class Position(NamedTuple):
    """Where a loop is in its data."""

    loader_epoch: int = 0  # passes that are done
    batches: int = 0  # of the present pass that are done
    loader_state: bytes = b""  # of this rank's loader
    world_size: int = 1  # ranks that saved it


class Lease:
    """For training loops without a loader (``Iterator`` is for those with one)::

        with Lease(load=load, save=save, total_steps=1000) as lease:
            while lease.next():
                train()

    ``save(path)`` writes the script's state to a file or a folder at ``path``; ``load(path)`` reads it. They
    are called at the right moments: ``load`` when the block is entered and there is a checkpoint, ``save``
    from within ``next``. Under the scheduler ``FAIRLEAD_*`` variables say where and how long; without it the
    script runs to its end and saves every ``checkpoint_s`` seconds if it has a ``checkpoint_dir``.

    A step counts when ``next`` is called again after it. When the scheduler takes the devices away (or on
    SIGTERM) the state is saved and the process exits with 0; with ``on_stop="return"`` the loop ends instead
    and ``preempted`` is true. Several ranks stop and save on the same step; rank 0 saves, or with
    ``save_ranks="all"`` every rank has its own part.

    The job is complete when all its processes have ended with 0 after ``finished`` has become true. What a
    script does after the loop (a last evaluation, an upload) is done at least once: a job that is stopped
    there is started again at its last step, and comes there again. ``checkpoint`` keeps its work there.

    exit: how a process ends that the scheduler stops. "quick": after ``finally`` blocks, threads and
    functions of ``atexit`` it leaves without tearing the interpreter down; "clean": as Python does.
    total_steps: of the whole job, all starts together; None = until ``complete`` is called.
    batch_size: samples per step, told to the scheduler when ``adapt`` changes it; 0 = not known.
    """

    def __init__(
        self,
        *,
        load: Callable[[Path], None],
        save: Callable[[Path], None],
        total_steps: int | None = None,
        batch_size: int = 0,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_s: float = 600.0,
        on_stop: Literal["exit", "return"] = "exit",
        save_ranks: Literal["zero", "all"] = "zero",
        exit: Literal["quick", "clean"] = "quick",
    ) -> None:
        if total_steps is not None and total_steps < 0:
            raise ConfigError(f"total_steps: expected a whole number >= 0, got {total_steps}")
        for name, value, known in (
            ("on_stop", on_stop, ("exit", "return")),
            ("save_ranks", save_ranks, ("zero", "all")),
            ("exit", exit, ("quick", "clean")),
        ):
            if value not in known:
                raise ConfigError(f"{name}: expected {known[0]!r} or {known[1]!r}, got {value!r}")
        self.step = 0
        self.total_steps = total_steps
        self.batch_size = batch_size
        self.preempted = False
        self.completed = False
        self.reason = ""  # why it was preempted
        self.position: Callable[[], Position] = Position  # asked whenever a checkpoint is saved
        self.loaded = Position()  # that of the checkpoint
        self._load, self._save = load, save
        self._checkpoint_dir = os.fspath(checkpoint_dir) if checkpoint_dir is not None else ""
        self._checkpoint_s = checkpoint_s
        self._exits = on_stop == "exit"
        self._sharded = save_ranks == "all"
        self._quick = exit == "quick"
        self._place = RankEnvironment()
        self._side: RankRole | None = None
        self._found: Checkpoint | None = None  # the checkpoint of this start
        self._behind: RankRole | None = None  # the same, once the loop has come to its end
        self._count_step: Callable[[int], None] = _count_nowhere
        self._before: Any = None  # the handler of SIGTERM before ours
        self._running = False  # a step is under way
        self._no_more = False  # complete() was called, or the data have ended
        self._at_end = False
        self._adapted = False
        self._adaptation: tuple[int, int] | None = None
        self._terminated = False
        self._check_step = 0
        self._look_step = 0  # ``next`` is quick before this step
        self._look_at = 0.0  # and before this monotonic time

    @property
    def rank(self) -> int:
        """Of this process, among ``world_size``."""
        return self._place.rank if self._side else read_rank_environment(os.environ).rank

    @property
    def world_size(self) -> int:
        """Processes of the job."""
        return (
            self._place.world_size if self._side else read_rank_environment(os.environ).world_size
        )

    def __enter__(self) -> Self:
        """Get the lease and load the newest checkpoint."""
        self._place = place = read_rank_environment(os.environ)
        crash.install(lambda: self.step)
        stacks.register()
        directory = place.checkpoint_dir or self._checkpoint_dir
        self._side = (
            RankZero(place, self._save, directory, self._checkpoint_s, self._sharded)
            if place.rank == 0
            else OtherRank(place, self._save, self._sharded)
        )
        self._count_step = self._side.count
        self._catch_sigterm()
        try:
            self._resume(self._side)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Let go. A loop that was left early after ``complete`` ends well here."""
        try:
            if self._side and self._no_more and (kind is None or kind is GeneratorExit):
                self._count()
                self._at_end = True
                self._look()
        finally:
            self._release()

    def next(self) -> bool:
        """Count the step that has just been done; is another one to be done?"""
        if self._running:
            self.step += 1
            self._count_step(self.step)
        if self.step < self._look_step and monotonic() < self._look_at:
            self._running = True
            return True
        if self._side is None:
            return self._ended()
        self._running = self._look()
        return self._running

    @property
    def is_completing(self) -> bool:
        """``complete`` was called, and the loop is not over yet."""
        return self._no_more and self._side is not None

    def no_step(self) -> None:
        """The step that ``next`` has begun is none: there was no batch for it."""
        self._running = False

    def reload(self) -> None:
        """Read the checkpoint of this start once more, if there was one."""
        if self._found is not None:
            self._take(self._found)

    def complete(self) -> None:
        """No more steps are needed after the one under way. With several ranks the loop ends at the next
        step on which they agree, within about half a second."""
        self._no_more = True
        self._look_at = 0.0

    @property
    def finished(self) -> bool:
        """The loop is over, and all steps are done: what is left is the code behind it. Also true, without
        a step, in a process that was started again for that code alone; false where it was preempted."""
        return self.completed

    def checkpoint(self) -> bool:
        """Save. In the loop: at the next step. Behind it: now, so that the work done there is kept; rank 0
        saves, for other ranks nothing happens.

        Returns whether the script may go on. After the loop a process that is to stop exits with 0 once it
        has saved, and is started again later; with ``on_stop="return"`` False is returned instead.
        """
        if self._side is not None:
            self._side.want_checkpoint()
            self._look_at = 0.0
            return True
        if self._behind is None:
            return not self.preempted
        if self._sharded and self._place.world_size > 1:
            raise ConfigError(
                "checkpoint: after the loop rank 0 saves alone, which save_ranks='all' does not allow"
            )
        reason = self._behind.save_finishing(self._manifest(finished=True), self._terminated)
        if not reason:
            return True
        self._behind = None
        self.completed, self.preempted, self.reason = False, True, reason
        if self._exits:
            self._leave()
        return False

    def adapt(self, batch_size: int, total_steps: int) -> None:
        """Another batch size from the next step on, so that the whole job has other steps.

        total_steps: of the whole job, those done included. All ranks have to call this on the same step.
        """
        done = self.step + self._running
        if batch_size < 1 or total_steps < done:
            raise ConfigError(
                f"adapt: expected a batch size >= 1 and total steps >= {done}, "
                f"got {batch_size} and {total_steps}"
            )
        self._adaptation = batch_size, total_steps
        self._look_step = 0

    def end_of_data(self) -> None:
        """The data have ended, for all ranks on this step."""
        self._at_end = True
        self._running = False
        if self._side is not None:
            self._look()

    def _look(self) -> bool:
        """Past the quick way: what is due?"""
        side = self._side
        assert side is not None
        self._change_batch(side)
        last = NEVER if self.total_steps is None else self.total_steps
        finished = self._at_end or self.step >= last
        if self._place.world_size > 1 and self.step < self._check_step and not finished:
            self._look_step = min(last, self._check_step)
            return True
        verdict = side.decide(self._standing(finished))
        if verdict.do == "abandon":
            self._release()
            leave(EXIT_MAY_NOT_RUN, f"this process may not run any more: {verdict.reason}")
        if verdict.partial:
            side.save(verdict.partial, self._manifest(verdict.do == "finish"))
        if verdict.do in ("stop", "finish"):
            return self._end(side, verdict.do == "finish", verdict.reason)
        self._look_at, self._check_step = side.go_on(verdict, self.step)
        self._look_step = min(last, self._check_step)
        if self._terminated and self._place.world_size == 1:
            self._look_at = 0.0
        return True

    def _end(self, side: RankRole, completed: bool, reason: str) -> bool:
        side.end(self.step, completed, reason)
        self._release()
        self._behind = side if completed else None
        self.completed, self.preempted, self.reason = completed, not completed, reason
        if self.preempted and self._exits:
            self._leave()
        return False

    def _leave(self) -> NoReturn:
        """The state is durable, and the agent knows."""
        if self._quick and self._place.socket:
            end_quickly()
        raise SystemExit(0)

    def _standing(self, finished: bool) -> RankStatus:
        return RankStatus(
            self.step,
            self.batch_size,
            self.total_steps or 0,
            finished,
            self._no_more,
            self._terminated,
        )

    def _manifest(self, finished: bool = False) -> Manifest:
        epoch, position, state, _ = self.position()
        return Manifest(
            step=self.step,
            loader_epoch=epoch,
            position=position,
            loader_state=state,
            batch_size=self.batch_size,
            total_steps=self.total_steps or 0,
            adapted=self._adapted,
            world_size=self._place.world_size,
            attempt=self._place.attempt,
            finished=finished,
        )

    def _resume(self, side: RankRole) -> None:
        found = self._found = side.open()
        opened = monotonic()
        if found is not None:
            self._take(found)
        change = self._plan(found)
        if found is not None and found.manifest.finished:  # of this total, not of one raised since
            self._no_more = found.manifest.total_steps == (self.total_steps or 0)
        side.loaded(self.step, monotonic() - opened if found else 0.0, change)

    def _take(self, found: Checkpoint) -> None:
        manifest = found.manifest
        if self._sharded and manifest.world_size != self._place.world_size:
            raise CheckpointError(
                f"{found.path} was saved by {manifest.world_size} ranks with save_ranks='all'; "
                f"this job has {self._place.world_size}"
            )
        state = loader_state_of(found, self._place.rank)
        self.loaded = Position(manifest.loader_epoch, manifest.position, state, manifest.world_size)
        self._load(found.path / part_name(self._place.rank if self._sharded else 0))
        self.step = manifest.step

    def _plan(self, found: Checkpoint | None) -> tuple[int, int] | None:
        """Batch size and total steps to go on with: the checkpoint's where the job has changed them; else
        the scheduler's, unless it speaks of a change that this start does not know of (any more).
        What the scheduler has to be told, None: it knows."""
        place = self._place
        if found is not None and found.manifest.adapted:
            self._adapted = True
            self.batch_size = found.manifest.batch_size
            self.total_steps = found.manifest.total_steps
            return self.batch_size, self.total_steps
        if place.batch and self.total_steps is not None and self.batch_size:
            return self.batch_size, self.total_steps
        self.batch_size = place.batch or self.batch_size
        self.total_steps = place.total_steps or self.total_steps
        return None

    def _change_batch(self, side: RankRole) -> None:
        if self._adaptation is not None:
            self.batch_size, self.total_steps = self._adaptation
            self._adaptation, self._adapted = None, True
            side.change(self.step, self.batch_size, self.total_steps)

    def _ended(self) -> bool:
        if not self.completed and not self.preempted:
            raise ConfigError("next: the lease is used outside its with block")
        return False

    def _count(self) -> None:
        if self._running:
            self.step += 1
            self._count_step(self.step)
        self._running = False

    def catch_sigterm(self) -> None:
        """Be the handler of SIGTERM again, after a framework has put its own there."""
        if threading.current_thread() is threading.main_thread() and self._side is not None:
            signal.signal(signal.SIGTERM, self._terminate)

    def _catch_sigterm(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, _: int, __: FrameType | None) -> None:
        self._terminated = True
        if self._place.world_size == 1:
            self._look_at = 0.0

    def _release(self) -> None:
        if self._side is not None:
            self._side.close()
            self._side = None
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None
        self._look_at = -inf


def _count_nowhere(step: int) -> None:
    """Before there is a side."""
