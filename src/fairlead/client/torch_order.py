"""The order of the samples of a ``DataLoader``, and the seeds with which workers load them.

Passes can be opened again in their middle.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.utils.data as torch_data

from fairlead.client.passes import (
    NO_STREAM,
)
from fairlead.client.random_state import (
    RandomStream,
    capture_start,
    derive_seed,
    find_generators,
    fingerprint,
    restore_random,
    restore_start,
    seed_generators,
    seed_random,
)
from fairlead.errors import ConfigError

SCALARS = (bool, int, float, str, type(None))


class SampleOrder:
    """A sampler whose passes can be opened again in their middle.

    generators: those that the sampler draws from, apart from the global ones.
    seeded: what is given is ``SampleLoad``, an order to a worker, instead of the samples alone.
    """

    def __init__(self, sampler: Any, generator: Any, *, seeded: bool) -> None:
        self.sampler = sampler
        self.seeded = seeded
        self._generator = generator
        self.generators = find_generators(sampler, generator)
        self.draws_at_once = _draws_at_once(sampler)
        self._built = [scalar_attributes(one) for one in _chain_of(sampler)]
        self.is_open = False
        self.epoch = self.position = 0
        self.saved: dict[str, Any] = {}
        self.start: dict[str, Any] = {}  # of the present pass
        self.ready: Any = None  # called when the pass is where it was
        self.digests: dict[int, int] = {}  # batches of this pass -> digest of their samples
        self._pass: OrderedPass | None = None

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "sampler" not in vars(self):
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def __iter__(self) -> OrderedPass:
        self.is_open = True
        self._pass = OrderedPass(self)
        return self._pass

    def plan(self, epoch: int, position: int, saved: dict[str, Any], ready: Any) -> None:
        """Set the next pass. Raises ConfigError where ``saved`` lacks the start of a pass to go on with."""
        self.is_open = False
        self.epoch, self.position, self.saved, self.ready = epoch, position, saved, ready
        self.start, self.digests = {}, {0: 0}
        if position and "start" not in saved:
            raise ConfigError(
                "the checkpoint does not say how its samples were drawn (it is of an earlier version, or "
                f"of another loader): {position} batches of epoch {epoch} cannot be passed over exactly"
            )

    def start_from_here(self) -> None:
        """Open the next pass with the generators as they are now."""
        self.saved = {"start": self.snapshot()}

    def prime(self) -> None:
        """Pass over what is done, at once."""
        assert self._pass is not None
        self._pass.prime()

    def worker_seed(self) -> int:
        """Return the seed from which those of the workers in the pass that begins are derived.
        As without Fairlead it is of the loader's generator or PyTorch's: seeding only that repeats a run."""
        attributes = self._generator
        state = torch.get_rng_state() if attributes is None else attributes.get_state()
        return derive_seed(fingerprint(state), self.epoch)

    def snapshot(self) -> dict[str, Any]:
        """All that the order of a pass depends on."""
        chained = zip(_chain_of(self.sampler), self._built)
        attributes = [changed_attributes(one, built) for one, built in chained]
        return {**capture_start(self.generators), "attributes": attributes}

    def restore(self, start: dict[str, Any]) -> None:
        """The other way round."""
        restore_start(self.generators, start)
        for owner, attributes in zip(_chain_of(self.sampler), start["attributes"]):
            vars(owner).update(attributes)

    def state(self, position: int) -> dict[str, Any]:
        """Return the state for a checkpoint after so many batches of the pass."""
        for done in [done for done in self.digests if done < position]:
            del self.digests[done]
        start = self.start if position else self.snapshot()
        return {"start": start, "digest": self.digests.get(position, 0)}


class OrderedPass:
    """The samples of one pass."""

    def __init__(self, order: SampleOrder) -> None:
        self._order = order
        self._samples: Iterator[Any] | None = None
        self._count = 0
        self._digest = 0
        self._worker_seed = 0
        self._stream: AbstractContextManager[None] = NO_STREAM

    def __iter__(self) -> OrderedPass:
        return self

    def __next__(self) -> Any:
        self.prime()
        samples = self._draw()
        self._order.digests[self._count] = self._digest
        return (
            SampleLoad(samples, derive_seed(self._worker_seed, self._count))
            if self._order.seeded
            else samples
        )

    def prime(self) -> None:
        """Draw the order of the pass, and pass over what is done."""
        if self._samples is not None:
            return
        order = self._order
        if "start" in order.saved:
            order.restore(order.saved["start"])
        order.start = order.snapshot()
        self._worker_seed = order.worker_seed()
        if not order.draws_at_once:
            seed = derive_seed(fingerprint(order.start["random"]), order.epoch)
            self._stream = RandomStream(seed)
        with self._stream:
            self._samples = iter(order.sampler)
        if order.position:
            self._pass_over(order)

    def _pass_over(self, order: SampleOrder) -> None:
        try:
            for _ in range(order.position):
                self._draw()
        except StopIteration:
            self._digest = -1
        if self._digest != order.saved["digest"]:
            raise ConfigError(
                f"the sampler {type(order.sampler).__name__} does not give the samples again that it gave "
                f"in epoch {order.epoch} before the checkpoint: the loader, its data or its seeds have "
                "changed, or its order depends on more than PyTorch's, NumPy's and Python's generators; "
                "give it set_epoch(epoch), or a loader with state_dict and load_state_dict"
            )
        order.digests[self._count] = self._digest
        restore_random(order.saved["now"])
        order.ready()

    def _draw(self) -> Any:
        assert self._samples is not None
        with self._stream:
            samples = next(self._samples)
        self._count += 1
        self._digest = zlib.crc32(repr(samples).encode(), self._digest)
        return samples


class SampleLoad:
    """The samples of a batch for a worker, and the seed with which it loads them."""

    __slots__ = ("samples", "seed")

    def __init__(self, samples: Any, seed: int) -> None:
        self.samples = samples
        self.seed = seed


class SeededDataset:
    """A map-style data set in a worker: each batch is loaded with the seed that comes with its samples."""

    def __init__(self, dataset: Any, collate_fn: Any) -> None:
        vars(self).update(_dataset=dataset, _collate_fn=collate_fn, _own=None)

    def __reduce__(self) -> Any:
        return SeededDataset, (self._dataset, self._collate_fn)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(vars(self)["_dataset"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._dataset, name, value)  # of worker_init_fn, which is given the data set

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, load: Any) -> Any:
        if not isinstance(load, SampleLoad):
            return self._dataset[load]
        self._seed(load.seed)
        return self._dataset[load.samples]

    def __getitems__(self, load: Any) -> Any:
        self._seed(load.seed)
        whole = getattr(self._dataset, "__getitems__", None)
        if whole:
            return whole(load.samples)
        return [self._dataset[sample] for sample in load.samples]

    def _seed(self, seed: int) -> None:
        seed_random(seed)
        seed_generators(self._own_generators(), seed)

    def _own_generators(self) -> list[Any]:
        attributes = vars(self)
        if attributes["_own"] is None:
            attributes["_own"] = find_generators(self._dataset, self._collate_fn)
        own: list[Any] = attributes["_own"]
        return own


def _draws_at_once(sampler: Any) -> bool:
    """Return whether all global random numbers of a pass are drawn before its first sample."""
    if type(sampler) is torch_data.BatchSampler:
        return _draws_at_once(sampler.sampler)
    return type(sampler) in (
        torch_data.SequentialSampler,
        torch_data.RandomSampler,
        torch_data.SubsetRandomSampler,
        torch_data.WeightedRandomSampler,
        torch_data.DistributedSampler,
    )


def _chain_of(sampler: Any) -> list[Any]:
    """A sampler, and those that it is built on."""
    found: list[Any] = []
    while sampler is not None and hasattr(sampler, "__dict__") and len(found) < 8:
        found.append(sampler)
        sampler = getattr(sampler, "sampler", None)
    return found


def changed_attributes(owner: Any, built: dict[str, Any]) -> dict[str, Any]:
    """The plain attributes that are not as they were: a state, where the others are settings."""
    now = scalar_attributes(owner)
    return {name: now[name] for name in now if name not in built or now[name] != built[name]}


def scalar_attributes(owner: Any) -> dict[str, Any]:
    """Return those of an object that are numbers, texts or None, by name."""
    return {name: value for name, value in vars(owner).items() if type(value) in SCALARS}
