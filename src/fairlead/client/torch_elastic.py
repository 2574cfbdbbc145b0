"""A ``DataLoader`` for jobs that go on with another number of ranks: it is given the batch of all of them.

Which samples are in which batch of a pass, in which order, and the random numbers with which each is loaded
follow from the seed, the pass and the place in the batch alone. So nothing of it is kept in a checkpoint, and
it does not matter how many ranks have saved that.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch.utils.data as torch_data

from fairlead.client.arguments import whole_number
from fairlead.client.local_batches import accumulation, micro_batches, share_of
from fairlead.client.passes import known_length
from fairlead.client.random_state import (
    RandomStream,
    capture_random,
    derive_seed,
    find_generators,
    generator_states,
    restore_generators,
    restore_random,
    seed_generators,
)
from fairlead.client.rank_environment import read_rank_environment
from fairlead.client.torch_order import SeededDataset
from fairlead.errors import ConfigError


class LocalBatch:
    """A rank's part of one batch::

        for (x, y), weight in batch.micro_batches(model):
            loss = loss_of(model(x), y) * weight
            loss.backward()

    batch_size: samples of the whole batch, of all ranks together. samples: the indices in the data set of
    those that are this rank's. ``len`` is their number, which may be 0 in the last batch of a pass.
    """

    __slots__ = ("_parts", "batch_size", "samples")

    def __init__(self, parts: list[tuple[Any, float]], samples: list[Any], batch_size: int) -> None:
        self._parts = parts
        self.samples = samples
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.samples)

    def __bool__(self) -> bool:
        return True

    def micro_batches(self, *models: Any) -> Iterator[tuple[Any, float]]:
        """Yield (batch, weight): one, or as many as ``max_local_batch`` makes necessary.

        The weight is that of the mean loss over these samples in the mean over the whole batch, where the
        gradients of the ranks are averaged as by DistributedDataParallel. It is 0 where a rank has no sample
        of its own: it is given one that counts elsewhere, as all ranks have to take part in the average.
        models: those in DistributedDataParallel; only the last micro-batch averages their gradients.
        """
        last = len(self._parts) - 1
        for i, part in enumerate(self._parts):
            with ExitStack() as apart:
                for model in models if i < last else ():
                    if hasattr(model, "no_sync"):
                        apart.enter_context(model.no_sync())
                yield part

    def pin_memory(self) -> LocalBatch:
        """Return it in page-locked memory, as ``pin_memory=True`` of the loader has it."""
        pin = torch_data._utils.pin_memory.pin_memory
        parts = [(pin(batch), weight) for batch, weight in self._parts]
        return LocalBatch(parts, self.samples, self.batch_size)


class ElasticLoader(torch_data.DataLoader):  # type: ignore[misc]
    """Gives each rank its ``LocalBatch`` of every batch, whatever the number of ranks.

    batch_size: samples of a batch, of all ranks together. It stays what it is when the number of ranks
    changes, and so do the batches of a pass and the learning rate.
    shuffle, sampler: the order of the samples; that of a sampler follows from random generators, which are
    seeded here, and ``set_epoch``. seed: of the order, and of all random numbers that are drawn while samples
    are loaded; the same in every rank. max_local_batch: samples that a rank can compute at once; None = all
    that it gets. Everything else is as in ``DataLoader``.

    Every sample is loaded with random numbers of its own. Where the data set has ``__getitems__``, which
    reads several at once, they are those of the micro-batch, and others with another number of ranks.
    Raises ConfigError for what cannot be shared among any number of ranks.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batch_size: int,
        shuffle: bool = False,
        sampler: Any = None,
        seed: int = 0,
        max_local_batch: int | None = None,
        drop_last: bool = False,
        collate_fn: Any = None,
        **options: Any,
    ) -> None:
        _check_source(dataset, sampler, shuffle)
        if max_local_batch is not None:
            max_local_batch = whole_number("max_local_batch", max_local_batch, 1)
        if sampler is None:
            own = torch_data.RandomSampler if shuffle else torch_data.SequentialSampler
            order = ElasticOrder(own(dataset), [], seed)
        else:
            order = ElasticOrder(sampler, find_generators(sampler), seed)
        batches = ElasticBatches(
            order, whole_number("batch_size", batch_size, 1), max_local_batch, drop_last=drop_last
        )
        super().__init__(
            ElasticDataset(dataset, collate_fn or torch_data.default_collate),
            batch_sampler=batches,
            collate_fn=_as_it_is,
            **options,
        )
        self.__dict__["batch_size"] = batches.batch_size  # which DataLoader refuses to be told

    @property
    def rank(self) -> int:
        """Rank of this process, below ``world_size``."""
        return int(self.batch_sampler.rank)

    @property
    def world_size(self) -> int:
        """Processes of the job."""
        return int(self.batch_sampler.world_size)

    @property
    def local_batch_size(self) -> int:
        """Samples of a full batch that are this rank's."""
        return len(share_of(self.batch_sampler.batch_size, self.rank, self.world_size))

    @property
    def accumulation(self) -> int:
        """Micro-batches of a full batch: the same number in all ranks."""
        batches = self.batch_sampler
        return accumulation(batches.batch_size, batches.world_size, batches.max_local_batch)

    @property
    def learning_rate_factor(self) -> float:
        """By what the learning rate is to be multiplied at this number of ranks: 1, as the batch is the
        same."""
        return 1.0

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this one; ``Iterator`` calls it."""
        self.batch_sampler.begin_at(epoch, 0)


class StepLoad:
    """The samples of a rank's part of a batch, for whoever loads them.

    parts: of each micro-batch (places in the batch, indices in the data set, weight).
    """

    __slots__ = ("batch_size", "parts", "seed")

    def __init__(
        self, parts: list[tuple[range, list[Any], float]], seed: int, batch_size: int
    ) -> None:
        self.parts = parts
        self.seed = seed
        self.batch_size = batch_size


class ElasticOrder:
    """The order of all samples of a pass; generators: those of the sampler, apart from the global ones."""

    def __init__(self, sampler: Any, generators: list[Any], seed: int) -> None:
        self._sampler = sampler
        self._generators = generators
        self.seed = seed

    def __len__(self) -> int:
        return len(self._sampler)

    def of(self, epoch: int) -> list[Any]:
        """Return the indices in their order. The generators are then as they were."""
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        before = generator_states(self._generators)
        seed = derive_seed(self.seed, epoch)
        seed_generators(self._generators, seed)
        with RandomStream(seed):
            found = list(self._sampler)
        restore_generators(self._generators, before)
        return found


class ElasticBatches:
    """The batch sampler of an ``ElasticLoader``: this rank's part of each batch of the pass."""

    def __init__(
        self, order: ElasticOrder, batch_size: int, max_local_batch: int | None, *, drop_last: bool
    ) -> None:
        environment = read_rank_environment(os.environ)
        self.rank, self.world_size = environment.rank, environment.world_size
        self.batch_size = batch_size
        self.max_local_batch = max_local_batch
        self.digest = 0  # of the order of the present pass
        self._order = order
        self._drop_last = drop_last
        self._epoch = self._first = 0  # of the next pass
        self._drawn: tuple[int, list[Any]] = (-1, [])  # a pass, and its order

    def __len__(self) -> int:
        return self._length(len(self._order))

    @property
    def settings(self) -> list[Any]:
        """Return what the batches of a pass depend on, but for the order itself."""
        return [len(self._order), self.batch_size, self._order.seed, self._drop_last]

    def begin_at(self, epoch: int, batch: int) -> None:
        """The next pass is this one, without its first batches."""
        self._epoch, self._first = epoch, batch

    def __iter__(self) -> Iterator[StepLoad]:
        drawn, order = self._drawn
        if drawn != self._epoch:  # a loader with workers asks twice when a pass is opened
            order = self._order.of(self._epoch)
            self._drawn = self._epoch, order
            self.digest = zlib.crc32(repr(order).encode())
        return self._loads(order, self._epoch, self._first)

    def _loads(self, order: list[Any], epoch: int, first: int) -> Iterator[StepLoad]:
        for number in range(first, self._length(len(order))):
            batch = order[number * self.batch_size : (number + 1) * self.batch_size]
            shares = micro_batches(
                len(batch),
                rank=self.rank,
                world_size=self.world_size,
                max_local_batch=self.max_local_batch,
            )
            parts = [(one.places, [batch[i] for i in one.places], one.weight) for one in shares]
            yield StepLoad(parts, derive_seed(self._order.seed, epoch, number), len(batch))

    def _length(self, samples: int) -> int:
        return samples // self.batch_size if self._drop_last else -(-samples // self.batch_size)


class ElasticDataset(SeededDataset):
    """A map-style data set that loads a rank's part of a batch, each sample with its own random numbers."""

    def __reduce__(self) -> Any:
        return ElasticDataset, (self._dataset, self._collate_fn)

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]

    def __getitems__(self, load: Any) -> Any:
        if torch_data.get_worker_info() is not None:
            return self._local_batch(load)
        own = self._own_generators()  # which the training script may draw from, too
        before = generator_states(own)
        with RandomStream(load.seed):
            loaded = self._local_batch(load)
        restore_generators(own, before)
        return loaded

    def _local_batch(self, load: StepLoad) -> LocalBatch:
        parts = [
            (self._micro_batch(places, indices, load.seed), weight)
            for places, indices, weight in load.parts
        ]
        samples = [index for _, indices, weight in load.parts if weight for index in indices]
        return LocalBatch(parts, samples, load.batch_size)

    def _micro_batch(self, places: range, indices: list[Any], seed: int) -> Any:
        if _reads_at_once(self._dataset):
            self._seed(derive_seed(seed, places.start))
            return self._collate_fn(self._dataset.__getitems__(indices))
        samples = []
        for place, index in zip(places, indices):
            self._seed(derive_seed(seed, place))
            samples.append(self._dataset[index])
        return self._collate_fn(samples)


class ElasticPasses:
    """Passes over an ``ElasticLoader``: any of them can be opened at any batch, by any number of ranks.

    What a rank keeps are the random generators of its training. A rank that was not there when the checkpoint
    was saved goes on without.
    """

    knows_its_end = True

    def __init__(self, loader: ElasticLoader) -> None:
        self.length: int | None = None
        self._loader = loader

    def expected_length(self) -> int | None:
        return len(self._loader)

    def open(self, epoch: int, batch_size: int) -> Iterator[Any]:  # noqa: ARG002
        return self._begin(epoch, 0)

    def resume(
        self,
        epoch: int,
        batch_size: int,  # noqa: ARG002
        position: int,
        state: dict[str, Any],
    ) -> Iterator[Any]:
        saved = state.get("elastic")
        if position and state and saved is None:
            raise ConfigError(
                "the checkpoint is of another kind of loader than ElasticLoader: "
                f"{position} batches of epoch {epoch} cannot be passed over exactly"
            )
        batches = self._begin(epoch, position)
        if position and saved is not None and saved != self._description():
            raise ConfigError(
                "the data set, its order, the batch size or the seed is not what it was when the checkpoint "
                f"was saved, {position} batches into epoch {epoch}"
            )
        restore_random(state.get("now", {}))
        return batches

    def state(self, position: int) -> dict[str, Any]:  # noqa: ARG002
        return {"elastic": self._description(), "now": capture_random()}

    def _begin(self, epoch: int, position: int) -> Iterator[Any]:
        loader = self._loader
        loader.batch_sampler.begin_at(epoch, position)
        self.length = len(loader)
        with RandomStream(0):  # a DataLoader draws a seed for its workers, which have others
            return iter(loader)

    def _description(self) -> list[Any]:
        batches = self._loader.batch_sampler
        return [*batches.settings, batches.digest]


def _check_source(dataset: Any, sampler: Any, shuffle: bool) -> None:
    if isinstance(dataset, torch_data.IterableDataset) or known_length(dataset) is None:
        raise ConfigError(
            f"ElasticLoader: a {type(dataset).__name__} cannot be shared among any number of ranks; "
            "expected a data set with __len__ and __getitem__"
        )
    if sampler is not None and shuffle:
        raise ConfigError("ElasticLoader: expected shuffle=True or a sampler, not both")
    if isinstance(sampler, torch_data.DistributedSampler):
        raise ConfigError(
            "ElasticLoader: a DistributedSampler gives the samples of one rank alone; expected shuffle=True "
            "or a sampler that gives those of all ranks"
        )


def _reads_at_once(dataset: Any) -> bool:
    while type(dataset) is torch_data.Subset:
        dataset = dataset.dataset
    return hasattr(dataset, "__getitems__")


def _as_it_is(loaded: Any) -> Any:
    return loaded
