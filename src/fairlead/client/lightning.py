"""Fairlead for Lightning's Trainer (``lightning`` or ``pytorch_lightning``, 2.2 or later)::

    fairlead = FairleadCallback()
    trainer = Trainer(callbacks=[fairlead], ...)
    trainer.fit(model, loader, ckpt_path=fairlead.ckpt_path)

A step is a step of the optimizer, so that a move never falls between accumulated gradients; with manual
optimization it is a batch in which an optimizer stepped. A move ends in the same weights, bit for bit. Means
of training metrics over an epoch cover the batches since the move.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Literal

from fairlead.client.exact_loader import ExactLoader
from fairlead.client.json_state import decode_state, encode_state, is_state
from fairlead.client.lease import Lease
from fairlead.client.rank_environment import read_rank_environment
from fairlead.client.script_state import Position, part_name
from fairlead.errors import ConfigError

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _callback_bases() -> tuple[Any, ...]:
    """The classes of callbacks of the package that the script uses."""
    names = [name for name in PACKAGES if name in sys.modules]
    if names:
        return tuple(sys.modules[name].Callback for name in names)
    for name in PACKAGES:
        if importlib.util.find_spec(name.partition(".")[0]):
            return (importlib.import_module(name).Callback,)
    raise ConfigError(
        "fairlead.client.lightning needs Lightning: install lightning>=2.2 or pytorch_lightning>=2.2"
    )


class FairleadCallback(*_callback_bases()):  # type: ignore[misc]
    """Counts steps, keeps the lease, saves through the Trainer, and stops it. Options: as in ``Lease``."""

    def __init__(
        self,
        *,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_s: float = 600.0,
        on_stop: Literal["exit", "return"] = "exit",
    ) -> None:
        several = read_rank_environment(os.environ).world_size > 1
        self.lease = Lease(
            load=self._load,
            save=self._save,
            checkpoint_dir=checkpoint_dir,
            checkpoint_s=checkpoint_s,
            on_stop=on_stop,
            save_ranks="all" if several else "zero",  # save_checkpoint is called on all ranks
        )
        self.lease.position = self._position
        self._entered = False
        self._path: str | None = None
        self._trainer: Any = None
        self._loader: ExactLoader | None = None
        self._at: tuple[int, int] | None = None  # epoch and batch that is about to be trained
        self._seen_step = -1
        self._sigterm: Any = None  # its handler before ours

    @property
    def ckpt_path(self) -> str | None:
        """The checkpoint to go on from, for ``trainer.fit``. None: there is none yet."""
        if not self._entered:
            self._entered = True
            self._sigterm = signal.getsignal(signal.SIGTERM)
            self.lease.__enter__()
        return self._path

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        self._trainer = trainer
        _ = self.ckpt_path
        if trainer.world_size != self.lease.world_size:
            raise ConfigError(
                f"the job has {self.lease.world_size} ranks, the Trainer {trainer.world_size}: "
                "set Trainer(devices=..., num_nodes=...) to the devices that the job was submitted with"
            )
        if not hasattr(trainer.fit_loop, "_load_combined_loader_states"):
            raise ConfigError("this version of Lightning is not known: 2.2 to 2.6 are")
        trainer.fit_loop._load_combined_loader_states = self._wrap_loader

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self.lease.step and not trainer.global_step:
            raise ConfigError(
                "the checkpoint was not loaded: trainer.fit needs ckpt_path=callback.ckpt_path"
            )
        steps = trainer.estimated_stepping_batches  # inf where nothing bounds them
        self.lease.warn_of_total(int(steps) if steps < float("inf") else None)
        self.lease.catch_sigterm()  # Lightning's own handler would stop without a checkpoint

    def on_train_batch_start(
        self,
        trainer: Any,
        pl_module: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if trainer.global_step == self._seen_step:  # gradients are being accumulated
            return
        self._seen_step = trainer.global_step
        self._at = trainer.current_epoch, batch_idx
        if not self.lease.next():
            trainer.should_stop = True
            raise StopIteration  # this batch is not trained; Lightning ends the epoch

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._ended:
            return
        self._at = None
        if self.lease.next():
            self.lease.end_of_data()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if not self._ended:  # all was done in an earlier start
            self.lease.end_of_data()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit" and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._sigterm)  # the Trainer has put ours back

    def on_save_checkpoint(
        self,
        trainer: Any,
        pl_module: Any,
        checkpoint: dict[str, Any],
    ) -> None:
        """The batch that is about to be trained has not begun, for whoever loads this."""
        if self._at is None or not self._saving:
            return
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        progress["is_last_batch"] = False
        for counted in (progress["total"], progress["current"]):
            counted["ready"] = counted["completed"]

    @property
    def _ended(self) -> bool:
        return self.lease.completed or self.lease.preempted

    _saving = False

    def _save(self, path: Path) -> None:
        self._saving = True
        try:
            self._trainer.save_checkpoint(path)
        finally:
            self._saving = False
        if not path.exists():  # rank 0 has written it
            path.touch()

    def _load(self, path: Path) -> None:
        """The Trainer reads it."""
        self._path = os.fspath(path.with_name(part_name(0)))

    def _position(self) -> Position:
        if self._loader is None:
            return self.lease.loaded
        if self._at is None:
            state = self._loader.state_at_end()
            epoch, batch = self._trainer.current_epoch, 0
        else:
            epoch, batch = self._at
            state = self._loader.state(batch)
        return Position(epoch, batch, encode_state(state, "the state of the loader"))

    def _wrap_loader(self) -> None:
        """The Trainer has made its loaders ready: put ours around the one for training."""
        loaders = self._trainer.fit_loop._combined_loader
        if len(loaders.flattened) != 1:
            raise ConfigError(
                f"{len(loaders.flattened)} loaders for training cannot be put back exactly; give one"
            )
        loader = ExactLoader(loaders.flattened[0], lambda: int(self._trainer.current_epoch))
        first = self._loader is None
        self._loader = loader
        loaders.flattened = [loader]
        loaded = self.lease.loaded
        if first and self._path and is_state(loaded.loader_state):
            state = decode_state(loaded.loader_state)
            loader.resume_at(loaded.loader_epoch, loaded.batches, state)
