"""Fairlead for the Trainer of Hugging Face's transformers (4.46 or later)::

    trainer = Trainer(model=model, args=args, train_dataset=data)
    fairlead = FairleadCallback(trainer)
    trainer.train(resume_from_checkpoint=fairlead.checkpoint)

A step is a step of the optimizer (``state.global_step``). A move ends in the same weights, bit for bit: the
Trainer puts its model, optimizer, scheduler and sampler back; the callback the random generators. A batch is
loaded, and put together by the data collator, with random numbers that depend on the seed, the epoch and its
samples alone, in the process of the Trainer and in workers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch.utils.data as torch_data
from transformers import TrainerCallback

from fairlead.client.json_state import decode_state, encode_state, is_state
from fairlead.client.lease import Lease
from fairlead.client.random_state import (
    RandomStream,
    capture_random,
    derive_seed,
    find_generators,
    restore_random,
    seed_generators,
)
from fairlead.client.rank_environment import read_rank_environment
from fairlead.client.script_state import Position, part_name
from fairlead.errors import ConfigError

SAMPLERS = {"SeedableRandomSampler", "SequentialSampler", "DistributedSampler"}


class FairleadCallback(TrainerCallback):  # type: ignore[misc]
    """Counts steps, keeps the lease, saves through the Trainer, and exits when the job is moved. It adds
    itself to the trainer. Options: as in ``Lease``."""

    def __init__(
        self,
        trainer: Any,
        *,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_s: float = 600.0,
    ) -> None:
        _check(trainer)
        several = read_rank_environment(os.environ).world_size > 1
        self._trainer = trainer
        self._path: str | None = None
        self._entered = False
        self._to_restore: dict[str, Any] | None = None
        self._seeds = BatchSeeds(trainer.args.seed)
        self._samplers: list[Any] = []
        self.lease = Lease(
            load=self._load,
            save=self._save,
            checkpoint_dir=checkpoint_dir,
            checkpoint_s=checkpoint_s,
            save_ranks="all" if several else "zero",  # the Trainer saves on all ranks
        )
        self.lease.position = self._position
        self._get_train_dataloader = trainer.get_train_dataloader
        trainer.get_train_dataloader = self._train_dataloader
        trainer.add_callback(self)

    @property
    def checkpoint(self) -> str | None:
        """For ``trainer.train(resume_from_checkpoint=...)``. None: there is none yet."""
        if not self._entered:
            self._entered = True
            self.lease.__enter__()
            state = self.lease.loaded.loader_state
            self._to_restore = decode_state(state) if is_state(state) else None
        return self._path

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Refuses what would not go on where it was."""
        path = self.checkpoint
        self.lease.warn_of_total(state.max_steps)
        if args.world_size != self.lease.world_size:
            raise ConfigError(
                f"the job has {self.lease.world_size} ranks, the Trainer {args.world_size}"
            )
        if path is not None and not state.global_step:
            raise ConfigError(
                "the checkpoint was not loaded: trainer.train needs "
                "resume_from_checkpoint=callback.checkpoint"
            )

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The order of the samples, and the random numbers of the batches, are those of the epoch."""
        epoch = int((state.epoch or 0) + 1e-6)
        self._seeds.epoch = epoch
        for sampler in self._samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Between two steps: the job may be moved here, all that the Trainer does after a step is done."""
        if self._to_restore is not None:
            restore_random(self._to_restore)
            self._to_restore = None
        if not self.lease.next():
            control.should_training_stop = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The scheduler may want fewer steps than the Trainer."""
        total = self.lease.total_steps
        if total is not None and state.global_step >= total:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The job is done."""
        if not self.lease.completed and self.lease.next():
            self.lease.end_of_data()

    def _save(self, path: Path) -> None:
        """Save as the Trainer does, but below ``path``."""
        trainer = self._trainer
        attributes = {"output_dir": os.fspath(path), "save_only_model": False, "push_to_hub": False}
        before = {name: getattr(trainer.args, name) for name in attributes}
        path.mkdir()
        vars(trainer.args).update(attributes)
        try:
            trainer._save_checkpoint(trainer.model, trial=None)
        finally:
            vars(trainer.args).update(before)

    def _load(self, path: Path) -> None:
        """The Trainer reads it."""
        (saved,) = path.with_name(part_name(0)).glob("checkpoint-*")
        self._path = os.fspath(saved)

    def _position(self) -> Position:
        if self._to_restore is not None:  # no step since
            return self.lease.loaded
        return Position(loader_state=encode_state(capture_random(), "random"))

    def _train_dataloader(self) -> Any:
        """The Trainer's loader, whose batches draw random numbers of their own."""
        loader = self._get_train_dataloader()
        base = vars(loader).get("base_dataloader", loader)
        self._samplers = _samplers_of(base)
        kind = type(self._samplers[-1]).__name__
        if kind not in SAMPLERS:
            raise ConfigError(
                f"the order of a {kind} cannot be put back by the Trainer; leave "
                "train_sampling_strategy and accelerator_config.use_seedable_sampler at their defaults"
            )
        attributes = vars(base)
        attributes["dataset"] = SeededSamples(
            attributes["dataset"], attributes["collate_fn"], self._seeds
        )
        attributes["collate_fn"] = SeededCollate(attributes["collate_fn"], self._seeds)
        return loader


class BatchSeeds:
    """The random numbers of the batch that is being loaded in this process."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.epoch = 0
        self.stream = RandomStream(seed)

    def begin(self, samples: Any, generators: list[Any]) -> None:
        """A batch of these samples follows."""
        seed = derive_seed(self.seed, self.epoch, [int(sample) for sample in samples])
        self.stream = RandomStream(seed)
        seed_generators(generators, seed)


class SeededSamples:
    """A data set that is loaded with the random numbers of the batch."""

    def __init__(self, dataset: Any, collate_fn: Any, seeds: BatchSeeds) -> None:
        self._dataset = dataset
        self._seeds = seeds
        self._generators = find_generators(dataset, collate_fn)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_dataset" not in vars(self):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, sample: Any) -> Any:
        return self._dataset[sample]

    def __getitems__(self, samples: Any) -> Any:
        self._seeds.begin(samples, self._generators)
        whole = getattr(self._dataset, "__getitems__", None)
        with self._seeds.stream:
            return whole(samples) if whole else [self._dataset[sample] for sample in samples]


class SeededCollate:
    """A data collator that goes on with the random numbers of the batch."""

    def __init__(self, collate_fn: Any, seeds: BatchSeeds) -> None:
        self._collate_fn = collate_fn
        self._seeds = seeds

    def __call__(self, samples: Any) -> Any:
        with self._seeds.stream:
            return self._collate_fn(samples)


def _samplers_of(loader: Any) -> list[Any]:
    """The batch sampler of a loader and those that it is built on, the innermost last."""
    found = [loader.batch_sampler]
    while found[-1] is not None and len(found) < 8:
        one = found[-1]
        inner = getattr(one, "batch_sampler", None) or getattr(one, "sampler", None)
        if inner is None:
            break
        found.append(inner)
    return found


def _check(trainer: Any) -> None:
    """Raises ConfigError with what cannot be put back exactly, and what to do."""
    args = trainer.args
    if isinstance(trainer.train_dataset, torch_data.IterableDataset):
        raise ConfigError(
            "train_dataset: an IterableDataset cannot be put back exactly by the Trainer; give one "
            "with a length and an index, or use fairlead.Iterator"
        )
    for name, words in (
        ("deepspeed", "use save_ranks='all' of fairlead.Lease"),
        ("fsdp", "use save_ranks='all' of fairlead.Lease"),
        ("dataloader_persistent_workers", "leave it at False"),
        ("ignore_data_skip", "leave it at False"),
    ):
        if getattr(args, name, None):
            raise ConfigError(f"TrainingArguments.{name} cannot be put back exactly; {words}")
