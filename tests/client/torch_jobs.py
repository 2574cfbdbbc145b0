"""PyTorch scripts of almost no work, to be interrupted at any batch; loaders of many kinds."""

import hashlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils import data

import fairlead
from fairlead.client.torch import TrainingState

SAMPLES, BATCH, EPOCHS = 18, 4, 3
PASS = 5  # batches


class Points(data.Dataset[Any]):  # type: ignore[misc]
    """A number each, shifted at random in every pass; tells which samples it has loaded."""

    def __init__(self, how: str = "torch", count: int = SAMPLES) -> None:
        self.how = how
        self.count = count
        self.rng = np.random.default_rng(5)
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.loaded.append(index)
        draw: dict[str, Callable[[], float]] = {
            "none": lambda: 0.0,
            "torch": lambda: torch.rand(()).item(),
            "python": random.random,
            "numpy": np.random.random,
            "own": self.rng.random,
        }
        drawn = draw[self.how]()
        return torch.tensor([float(index), drawn])


class Stream(data.IterableDataset[Any]):  # type: ignore[misc]
    """Points in an order drawn on the way, shared among workers."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.passes += 1
        info = data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, SAMPLES, step):
            yield torch.tensor([float(index + 100 * self.passes), torch.rand(()).item()])


class Shuffled(data.Sampler[int]):  # type: ignore[misc]
    """An order that a user drew: at once, sample by sample, or by counting passes."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.passes = 0
        self.rng = random.Random(3)

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        order = list(range(SAMPLES))
        if self.how == "lazy":
            yield from (random.randrange(SAMPLES) for _ in order)
            return
        shuffle = {
            "python": random.shuffle,
            "numpy": np.random.shuffle,
            "own": self.rng.shuffle,
            "counts": random.Random(self.passes).shuffle,
        }[self.how]
        shuffle(order)
        yield from order


class Batches(data.Sampler[list[int]]):  # type: ignore[misc]
    """A batch sampler of a user."""

    def __len__(self) -> int:
        return PASS

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(SAMPLES).tolist()
        yield from (order[i : i + BATCH] for i in range(0, SAMPLES, BATCH))


def noisy(samples: list[torch.Tensor]) -> torch.Tensor:
    """Draws while it puts samples together."""
    return torch.stack(samples) + random.random()


def loader(points: data.Dataset[Any] | None = None, **more: Any) -> data.DataLoader[Any]:
    return data.DataLoader(points or Points(), **{"batch_size": BATCH, **more})


def own_batches(points: data.Dataset[Any], **more: Any) -> data.DataLoader[Any]:
    return data.DataLoader(points, **more)


def weights() -> list[float]:
    return [float(i) for i in range(1, SAMPLES + 1)]


def distributed(points: Points) -> data.DistributedSampler[Any]:
    return data.DistributedSampler(points, num_replicas=2, rank=1)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(9)


LOADERS: dict[str, Callable[[], Any]] = {
    "in order": lambda: loader(),
    "shuffled": lambda: loader(shuffle=True),
    "shuffled, generator": lambda: loader(shuffle=True, generator=generator()),
    "shuffled, last dropped": lambda: loader(shuffle=True, drop_last=True),
    "sampler with generator": lambda: loader(
        sampler=data.RandomSampler(Points(), generator=generator())
    ),
    "with replacement": lambda: loader(
        sampler=data.RandomSampler(
            Points(), replacement=True, num_samples=2 * SAMPLES, generator=generator()
        )
    ),
    "weighted": lambda: loader(sampler=data.WeightedRandomSampler(weights(), SAMPLES)),
    "subset": lambda: loader(sampler=data.SubsetRandomSampler(range(3, SAMPLES))),
    "distributed": lambda: loader(sampler=distributed(Points())),
    "own sampler, python": lambda: loader(sampler=Shuffled("python")),
    "own sampler, numpy": lambda: loader(sampler=Shuffled("numpy")),
    "own sampler, its generator": lambda: loader(sampler=Shuffled("own")),
    "own sampler, lazy": lambda: loader(sampler=Shuffled("lazy")),
    "own sampler, counts": lambda: loader(sampler=Shuffled("counts")),
    "own batches": lambda: own_batches(Points(), batch_sampler=Batches()),
    "no batches": lambda: loader(shuffle=True, batch_size=None),
    "python noise": lambda: loader(Points("python"), shuffle=True),
    "numpy noise": lambda: loader(Points("numpy"), shuffle=True),
    "its own noise": lambda: loader(Points("own"), shuffle=True),
    "noise in collate_fn": lambda: loader(shuffle=True, collate_fn=noisy),
    "stream": lambda: loader(Stream()),
}
WORKERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: loader(shuffle=True, num_workers=2),
    "persistent": lambda: loader(shuffle=True, num_workers=2, persistent_workers=True),
    "generator": lambda: loader(shuffle=True, num_workers=2, generator=generator()),
    "persistent, generator": lambda: loader(
        shuffle=True, num_workers=2, generator=generator(), persistent_workers=True
    ),
    "lazy sampler": lambda: loader(Points("python"), sampler=Shuffled("lazy"), num_workers=2),
    "its own noise": lambda: loader(Points("own"), shuffle=True, num_workers=2),
    "numpy noise, no batches": lambda: loader(
        Points("numpy"), shuffle=True, num_workers=2, batch_size=None
    ),
    "noise in collate_fn": lambda: loader(shuffle=True, collate_fn=noisy, num_workers=2),
    "stream": lambda: loader(Stream(), num_workers=2),
}


class Ran(NamedTuple):
    """What a job has done, over all its starts."""

    batches: list[str]  # digest of each batch
    weights: str  # digest, at its end
    ends: list[int]  # epochs, as the code behind each pass has seen them
    starts: int


class Job:
    """A script with dropout, momentum and a learning rate by epoch, run to its end however often it is
    interrupted."""

    def __init__(self, make: Callable[[], Any], folder: Path) -> None:
        self.make = make
        self.folder = folder
        self.seen: list[str] = []
        self.ends: list[int] = []
        self.loaders: list[Any] = []
        self.why = ""  # its last start was not complete

    def run(self, *stops: int, style: str = "epochs") -> Ran:
        """stops: steps (from 0) during which it gets SIGTERM, one per start."""
        for start, stop in enumerate([*stops, -1]):
            seed(17 * start + 1 if start else 0)
            state, model = self.prepare()
            try:
                completed = self.start(state, stop, style)
            finally:
                end_workers(self.loaders[-1])
            if completed:
                return Ran(self.seen, digest(*model.parameters()), self.ends, start + 1)
        raise AssertionError(f"it did not come to its end: {self.why}")

    def prepare(self) -> tuple[TrainingState, nn.Module]:
        model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        self.optimizer = optimizer
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        self.model = model
        return TrainingState(model=model, optimizer=optimizer, scheduler=self.scheduler), model

    def start(self, state: TrainingState, stop: int, style: str) -> bool:
        """One process. Whether the job is done."""
        made = self.make()
        self.loaders.append(made)
        options: dict[str, Any] = {"checkpoint_dir": self.folder, "on_stop": "return"}
        length = PASS if style == "flat" else None
        if length is not None:
            options["total_steps"] = EPOCHS * length
        else:
            options["epochs"] = EPOCHS
        batches = state.iterator(made, **options)
        outer: Any = {  # type: ignore[no-untyped-call]
            "flat": lambda: [0],
            "epochs": batches.epochs,
            "range": lambda: range(batches.epoch, EPOCHS),
            "naive": lambda: range(EPOCHS),
        }[style]()
        for epoch in outer:
            for batch in batches:
                self.step(batch)
                if batches.step == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
            if batches.preempted:
                self.why = f"stopped at step {batches.step}"
                return False
            if style != "flat":
                self.scheduler.step()
                if not batches.replaying:
                    self.ends.append(epoch)
        self.why = f"at step {batches.step} it is not complete"
        return batches.completed

    def step(self, batch: torch.Tensor) -> None:
        self.seen.append(digest(batch))
        self.optimizer.zero_grad()
        loss: Any = self.model(batch).square().mean()
        torch.autograd.backward(loss)
        self.optimizer.step()


def end_workers(made: Any) -> None:
    """As the end of a process does. Left to the garbage collector, which closes their queues first, workers
    that stay from pass to pass are waited for in the middle of another test, for 5 s each."""
    kept: Any = getattr(made, "_iterator", None)
    if hasattr(kept, "_shutdown_workers"):
        kept._shutdown_workers()


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002


def digest(*tensors: torch.Tensor) -> str:
    text = b"".join(one.detach().contiguous().numpy().tobytes() for one in tensors)
    return hashlib.sha256(text).hexdigest()[:12]


__all__ = ["LOADERS", "WORKERS", "Job", "Ran", "fairlead"]
