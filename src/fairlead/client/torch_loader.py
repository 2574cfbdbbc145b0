"""PyTorch's ``DataLoader`` put back exactly: same batches, same augmentations, nothing loaded twice.

The order of a pass is drawn when it is opened, from generators whose states are kept until the pass is over.
To go on in the middle of a pass they are set back, the sampler is run without loading anything, what it gave
is compared with what it gave before, and all generators are set to what they were at the checkpoint.

In worker processes each batch is loaded with seeds that depend on the pass and on the batch alone: which
worker loads it, and what that worker has loaded before, do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.utils.data as torch_data

from fairlead.client.passes import (
    END,
    Passes,
    StatefulPasses,
    known_length,
    set_epoch,
    skip,
    streamed,
)
from fairlead.client.random_state import (
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
from fairlead.client.torch_elastic import ElasticLoader, ElasticPasses
from fairlead.client.torch_order import (
    SampleOrder,
    SeededDataset,
    changed_attributes,
    scalar_attributes,
)
from fairlead.errors import ConfigError


def torch_passes(loader: Any) -> Passes:
    """Return the passes over this DataLoader. Raises ConfigError where it cannot be put back exactly."""
    if loader.num_workers > 1 and not getattr(loader, "in_order", True):
        raise ConfigError(
            "DataLoader(in_order=False) gives its batches in an order that cannot be repeated; "
            "leave in_order at True"
        )
    if isinstance(loader, ElasticLoader):
        return ElasticPasses(loader)
    if hasattr(loader, "load_state_dict"):
        return _stateful_passes(loader)
    if isinstance(loader.dataset, torch_data.IterableDataset):
        return StreamedPasses(loader)
    return SampledPasses(loader)


class SampledPasses:
    """Passes over a DataLoader with a map-style data set, by the indices that its sampler gives."""

    knows_its_end = True

    def __init__(self, loader: Any) -> None:
        self.length: int | None = None
        self._loader = loader
        self._attribute = "sampler" if loader.batch_sampler is None else "batch_sampler"
        self._order = SampleOrder(
            getattr(loader, self._attribute), loader.generator, seeded=loader.num_workers > 0
        )
        self._dataset = SeededDataset(loader.dataset, loader.collate_fn)
        self._fresh = True  # no pass was opened in this process

    def expected_length(self) -> int | None:
        return known_length(self._loader)

    def open(self, epoch: int, batch_size: int) -> Iterator[Any]:  # noqa: ARG002
        return self._begin(epoch, 0, {})

    def resume(
        self,
        epoch: int,
        batch_size: int,  # noqa: ARG002
        position: int,
        state: dict[str, Any],
    ) -> Iterator[Any]:
        if "samples" in state and position and state["samples"] != self._samples():
            raise ConfigError(
                f"the data set has {self._samples()} samples; it had {state['samples']} when the "
                f"checkpoint was saved, {position} batches into epoch {epoch}"
            )
        if position:
            return self._begin(epoch, position, state)
        if "start" in state:
            self._order.restore(state["start"])
            restore_random(state["now"])
            restore_generators(self._data_generators(), state["data_generators"])
        return self._begin(epoch, 0, {})

    def state(self, position: int) -> dict[str, Any]:
        return {
            **self._order.state(position),
            "samples": self._samples(),
            "now": capture_random(),
            "order_generators": generator_states(self._order.generators),
            "data_generators": generator_states(self._data_generators()),
        }

    def _begin(self, epoch: int, position: int, state: dict[str, Any]) -> Iterator[Any]:
        loader, order = self._loader, self._order
        set_epoch(loader, epoch)
        if self._fresh and getattr(loader, "_iterator", None) is not None:
            loader._iterator = None  # of a pass before ours, whose workers do not know of us
        self.length = known_length(loader)
        order.plan(epoch, position, state, lambda: self._restore_base_state(state))
        if self._fresh and epoch and not position and getattr(loader, "persistent_workers", False):
            order.start_from_here()  # a loader that lived on would not draw seeds for new workers
        self._fresh = False
        with self._installed():
            batches: Iterator[Any] = iter(loader)
            if not order.is_open:  # its __iter__ is a generator
                return self._late(batches)
        if position:
            order.prime()
        return batches

    def _late(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield batches of a loader that opens its pass when its first batch is requested."""
        with self._installed():
            first = next(batches, END)
        if not self._order.is_open:
            raise ConfigError(
                f"{type(self._loader).__name__} does not load by its sampler, so it cannot be put back; "
                "give a torch.utils.data.DataLoader, or a loader with state_dict and load_state_dict"
            )
        if first is not END:
            yield first
            yield from batches

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """The loader takes its samples and data from us while it opens a pass. (It refuses assignments.)"""
        attributes = vars(self._loader)
        before = {name: attributes[name] for name in (self._attribute, "dataset")}
        attributes[self._attribute] = self._order
        if self._loader.num_workers > 0:
            attributes["dataset"] = self._dataset
        try:
            yield
        finally:
            attributes.update(before)

    def _restore_base_state(self, state: dict[str, Any]) -> None:
        restore_generators(self._data_generators(), state["data_generators"])
        if self._loader.num_workers == 0:  # workers are given samples in advance
            restore_generators(self._order.generators, state["order_generators"])

    def _data_generators(self) -> list[Any]:
        """Return the generators that the data set and ``collate_fn`` keep; none where workers use these."""
        loader = self._loader
        return [] if loader.num_workers else find_generators(loader.dataset, loader.collate_fn)

    def _samples(self) -> int | None:
        return known_length(self._loader.dataset)


class StreamedPasses:
    """Passes over a DataLoader with an IterableDataset: batches that are done are loaded again and
    dropped.

    Without workers the data set draws its random numbers from a stream of its own.
    """

    knows_its_end = True

    def __init__(self, loader: Any) -> None:
        if getattr(loader, "persistent_workers", False):
            raise ConfigError(
                "DataLoader(persistent_workers=True) with an IterableDataset cannot be put back: what its "
                "workers keep from earlier passes is not known; leave persistent_workers at False"
            )
        self.length: int | None = None
        self._loader = loader
        self._generators = find_generators(loader.dataset, loader.collate_fn, loader.generator)
        self._built = scalar_attributes(loader.dataset)
        self._start: dict[str, Any] = {}  # of the present pass

    def expected_length(self) -> int | None:
        return None  # what len() says of such a loader is a guess

    def open(self, epoch: int, batch_size: int) -> Iterator[Any]:  # noqa: ARG002
        loader = self._loader
        set_epoch(loader, epoch)
        if hasattr(loader.dataset, "set_epoch"):
            loader.dataset.set_epoch(epoch)
        self._start = self._snapshot()
        seed = derive_seed(fingerprint(self._start["random"]), epoch)
        batches = iter(loader)
        return batches if loader.num_workers else streamed(batches, seed)

    def resume(
        self, epoch: int, batch_size: int, position: int, state: dict[str, Any]
    ) -> Iterator[Any]:
        if "start" in state:
            restore_start(self._generators, state["start"])
            vars(self._loader.dataset).update(state["start"]["attributes"])
        if not position:
            restore_random(state.get("now", {}))
            return self.open(epoch, batch_size)
        batches = self.open(epoch, batch_size)
        skip(batches, position, epoch)
        restore_random(state.get("now", {}))
        return batches

    def state(self, position: int) -> dict[str, Any]:
        return {"start": self._start if position else self._snapshot(), "now": capture_random()}

    def _snapshot(self) -> dict[str, Any]:
        attributes = changed_attributes(self._loader.dataset, self._built)
        return {**capture_start(self._generators), "attributes": attributes}


class StatefulSeededDataset(SeededDataset):
    """A map-style data set in a worker of a stateful loader: the worker's generators are in its state."""

    def __reduce__(self) -> Any:
        return StatefulSeededDataset, (self._dataset, self._collate_fn)

    def __getitem__(self, load: Any) -> Any:
        return self._dataset[load]

    def __getitems__(self, samples: Any) -> Any:
        whole = getattr(self._dataset, "__getitems__", None)
        return whole(samples) if whole else [self._dataset[sample] for sample in samples]

    def state_dict(self) -> dict[str, Any]:
        take = getattr(self._dataset, "state_dict", None)
        return {
            "random": capture_random(devices=False),
            "generators": generator_states(find_generators(self._dataset, self._collate_fn)),
            "dataset": take() if take else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["dataset"] is not None:
            self._dataset.load_state_dict(state["dataset"])
        restore_random(state["random"])
        generators = find_generators(self._dataset, self._collate_fn)
        restore_generators(generators, state["generators"])


class StatefulLoaderPasses(StatefulPasses):
    """Passes over torchdata's StatefulDataLoader."""

    def expected_length(self) -> int | None:
        iterable = isinstance(self._loader.dataset, torch_data.IterableDataset)
        return None if iterable else super().expected_length()

    def resume(
        self, epoch: int, batch_size: int, position: int, state: dict[str, Any]
    ) -> Iterator[Any]:
        if position or "loader" not in state:
            return super().resume(epoch, batch_size, position, state)
        self._loader.load_state_dict(state["loader"])
        self._loader.state_dict()  # takes the state in: of a pass that is over, so that iter opens one
        return super().resume(epoch, batch_size, 0, {**state, "loader": None})

    def open(self, epoch: int, batch_size: int) -> Iterator[Any]:
        loader = self._loader
        if not loader.num_workers or isinstance(loader.dataset, torch_data.IterableDataset):
            return super().open(epoch, batch_size)
        attributes = vars(loader)
        dataset = attributes["dataset"]
        attributes["dataset"] = StatefulSeededDataset(dataset, loader.collate_fn)
        try:
            return super().open(epoch, batch_size)
        finally:
            attributes["dataset"] = dataset


def _stateful_passes(loader: Any) -> Passes:
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    inner = getattr(sampler, "sampler", None)
    for one in (sampler, inner):
        if one is None or _keeps_order(one):
            continue
        raise ConfigError(
            f"{type(loader).__name__} with a {type(one).__name__} cannot be put back exactly, as that "
            "sampler has no state_dict; use torch.utils.data.DataLoader, which may have any sampler"
        )

    def generators() -> list[Any]:
        return [] if loader.num_workers else find_generators(loader.dataset, loader.collate_fn)

    return StatefulLoaderPasses(loader, generators)


def _keeps_order(sampler: Any) -> bool:
    """Return whether a stateful loader can put this sampler back."""
    known = type(sampler).__module__.startswith("torchdata.") or hasattr(sampler, "state_dict")
    fixed = (torch_data.SequentialSampler, torch_data.BatchSampler, torch_data.DistributedSampler)
    endless = type(sampler).__name__ == "_InfiniteConstantSampler"
    return known or endless or isinstance(sampler, fixed)
