"""ElasticLoader: the same batches for any number of ranks; and what TrainingState makes of other ranks."""

import importlib.util
import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch
from torch.utils import data

from fairlead.client.checkpoint import Checkpoints, Manifest, sync_parts
from fairlead.client.json_state import encode_state
from fairlead.client.loader_passes import passes_of
from fairlead.client.passes import IterablePasses
from fairlead.client.random_state import by_device
from fairlead.client.torch import RANK_GRADIENTS, ElasticLoader, LocalBatch, TrainingState
from fairlead.errors import CheckpointError, ConfigError
from tests.client.torch_jobs import Job

pytestmark = pytest.mark.torch
SAMPLES, BATCH = 22, 8
Patch = pytest.MonkeyPatch


class Noisy(data.Dataset[Any]):  # type: ignore[misc]
    """Each sample with a number of every generator that a data set may use."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        drawn = [random.random(), np.random.random(), torch.rand(()).item(), self.rng.random()]  # noqa: NPY002
        return torch.tensor([float(index), *drawn], dtype=torch.float64)


class AtOnce(Noisy):
    """Reads several samples at once."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[list[int]] = []

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.read.append(indices)
        return [self[index] for index in indices]


class Counted(data.Sampler[int]):  # type: ignore[misc]
    """An order that depends on how often it was asked for."""

    def __init__(self) -> None:
        self.passes = 0

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        order = list(range(SAMPLES))
        random.Random(self.passes).shuffle(order)
        return iter(order)


def as_rank(patch: Patch, rank: int, world_size: int) -> None:
    patch.setenv("RANK", str(rank))
    patch.setenv("WORLD_SIZE", str(world_size))


def loaders(patch: Patch, ranks: int, make: Callable[..., Any], **options: Any) -> list[Any]:
    """The loader of each rank."""
    made = []
    for rank in range(ranks):
        as_rank(patch, rank, ranks)
        made.append(make(**{"batch_size": BATCH, "shuffle": True, **options}))
    return made


def of_points(dataset: Callable[[], Any] = Noisy, **options: Any) -> Any:
    return ElasticLoader(dataset(), **options)


def batches(ranks: list[Any], epoch: int = 0) -> list[list[list[float]]]:
    """The samples of each batch of a pass as they were loaded, of all ranks together."""
    for one in ranks:
        one.set_epoch(epoch)
    found = []
    for parts in zip(*ranks, strict=True):
        rows = [b for part in parts for b, weight in part.micro_batches() if weight]
        found.append(torch.cat(rows).tolist())
        assert [int(row[0]) for row in found[-1]] == [s for part in parts for s in part.samples]
        assert {part.batch_size for part in parts} == {len(found[-1])}
        assert sum(map(len, parts)) == len(found[-1])
    return found


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"max_local_batch": 2}], ids=str)
@pytest.mark.parametrize("dataset", [Noisy, lambda: data.Subset(Noisy(), range(SAMPLES))])
def test_samples_and_their_noise_are_those_of_any_number_of_ranks(
    options: dict[str, Any], dataset: Callable[[], Any], monkeypatch: Patch
) -> None:
    several = loaders(monkeypatch, 3, of_points, dataset=dataset, **options)
    (alone,) = loaders(monkeypatch, 1, of_points)
    passes = [batches([alone], epoch) for epoch in range(2)]
    assert [batches(several, epoch) for epoch in range(2)] == passes
    assert passes[0] != passes[1]
    assert sorted(row[0] for batch in passes[1] for row in batch) == list(range(SAMPLES))
    assert len({row[2] for batch in passes[1] for row in batch}) == SAMPLES
    (other,) = loaders(monkeypatch, 1, of_points, seed=1)
    assert batches([other]) != passes[0]


def test_a_sampler_gives_the_order_of_all_ranks(monkeypatch: Patch) -> None:
    def weighted(**options: Any) -> Any:
        torch.manual_seed(len(options) + torch.initial_seed())  # each rank has other numbers
        own = torch.Generator().manual_seed(torch.initial_seed())
        sampler = data.WeightedRandomSampler(range(1, SAMPLES + 1), 30, generator=own)
        return ElasticLoader(Noisy(), sampler=sampler, batch_size=BATCH)

    several, alone = loaders(monkeypatch, 4, weighted), loaders(monkeypatch, 1, weighted)
    assert batches(several) == batches(alone)
    assert len(several[0]) == 4


def test_ranks_are_told_what_is_theirs(monkeypatch: Patch) -> None:
    told = [
        (one.rank, one.world_size, one.local_batch_size, one.accumulation, len(one), one.batch_size)
        for one in loaders(monkeypatch, 3, of_points, max_local_batch=2)
    ]
    assert told == [(0, 3, 3, 2, 3, 8), (1, 3, 3, 2, 3, 8), (2, 3, 2, 2, 3, 8)]
    (one,) = loaders(monkeypatch, 1, of_points, drop_last=True)
    assert (one.local_batch_size, one.accumulation, len(one)) == (8, 1, 2)
    assert one.learning_rate_factor == 1
    assert len(list(one)) == 2


def test_a_data_set_that_reads_at_once_does(monkeypatch: Patch) -> None:
    several = loaders(monkeypatch, 3, of_points, dataset=AtOnce, shuffle=False)
    next(iter(several[1]))
    assert several[1].dataset.read == [[3, 4, 5]]
    assert [row[0] for row in batches(several)[2]] == list(range(16, 22))


def test_training_draws_what_it_would_draw_without_a_loader(monkeypatch: Patch) -> None:
    made = Noisy()
    as_rank(monkeypatch, 0, 1)
    torch.manual_seed(1)
    expected = [torch.rand(()).item() for _ in range(3)] + [np.random.default_rng(5).random()]
    torch.manual_seed(1)
    passes = passes_of(ElasticLoader(made, batch_size=BATCH, shuffle=True))
    drawn = [torch.rand(()).item() for _ in passes.open(0, BATCH)]
    assert [*drawn, made.rng.random()] == expected


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"shuffle": True, "sampler": data.SequentialSampler(range(3))}, "not both"),
        ({"sampler": data.DistributedSampler(range(3), 2, 0)}, "DistributedSampler"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_local_batch": 0}, "max_local_batch"),
        ({"dataset": lambda: iter(())}, "cannot be shared"),
    ],
)
def test_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        of_points(**{"batch_size": 4, **options})


class Pinned:
    def __init__(self, pinned: bool = False) -> None:
        self.pinned = pinned

    def pin_memory(self) -> "Pinned":
        return Pinned(True)


def test_what_it_holds_is_pinned() -> None:
    made = LocalBatch([((Pinned(), Pinned()), 0.5)], [3], 2)
    pinned = data._utils.pin_memory.pin_memory(made)
    [(parts, weight)] = pinned.micro_batches()
    assert [one.pinned for one in parts] == [True, True]
    assert (weight, pinned.samples, pinned.batch_size, len(pinned)) == (0.5, [3], 2, 1)


@pytest.mark.parametrize(
    ("saved", "before", "own", "expected"),
    [
        ("ab", 1, 1, "ab"),
        ("ab", 1, 0, "ba"),  # on a node of its own now
        ("a", 0, 2, "aaa"),
        ("abc", 0, 2, "cba"),
        ("", 0, 1, ""),
    ],
)
def test_a_ranks_gpu_goes_on_where_it_was_whatever_its_number(
    saved: str, before: int, own: int, expected: str
) -> None:
    assert by_device([*saved], before, own) == [*expected]


class ElasticJob(Job):
    """Takes its batches out of what an ElasticLoader gives one rank."""

    def step(self, batch: Any) -> None:
        [(rows, weight)] = batch.micro_batches()
        assert weight == 1
        super().step(rows[:, :2].float())


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}], ids=str
)
@pytest.mark.parametrize("style", ["epochs", "flat"])
def test_interrupted_anywhere_it_is_exact(
    options: dict[str, Any], style: str, tmp_path: Path
) -> None:
    def make() -> Any:
        return of_points(batch_size=5, shuffle=True, **options)

    whole = ElasticJob(make, tmp_path / "whole").run(style=style)
    parts = ElasticJob(make, tmp_path / "parts").run(0, 3, 4, 11, style=style)
    assert parts._replace(starts=1) == whole
    assert len(whole.batches) == 15


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (of_points, lambda **options: of_points(seed=1, **options)),
        (of_points, lambda **options: of_points(**{**options, "batch_size": 5})),
        (of_points, lambda **options: of_points(lambda: range(SAMPLES - 1), **options)),
        (
            lambda **options: ElasticLoader(Noisy(), sampler=Counted(), batch_size=4),
            lambda **options: ElasticLoader(Noisy(), sampler=Counted(), batch_size=4),
        ),
        (lambda **options: data.DataLoader(Noisy(), **options), of_points),
    ],
    ids=["seed", "batch size", "data", "sampler that counts", "DataLoader"],
)
def test_another_order_in_the_middle_of_a_pass_is_refused(
    first: Any, second: Any, tmp_path: Path
) -> None:
    made = iter([first, second])

    class NoTraining(Job):
        def step(self, batch: Any) -> None:
            self.optimizer.step()

    def make() -> Any:
        return next(made)(batch_size=4, shuffle=True)

    with pytest.raises(ConfigError, match=r"2 batches (into|of) epoch 1"):
        NoTraining(make, tmp_path).run(7)


def saved_by_two(folder: Path, state: TrainingState, of_rank_1: dict[str, Any]) -> None:
    """A checkpoint that two ranks have saved between two passes. of_rank_1: what it kept for itself."""
    store = Checkpoints(folder)
    assert store.lock()
    partial = store.begin(3)
    state.save(partial / "rank-0")
    (partial / "loader-1").write_bytes(encode_state(of_rank_1, "rank 1"))
    parts = sync_parts(partial, partial / "rank-0") | sync_parts(partial, partial / "loader-1")
    own = encode_state({}, "rank 0")
    store.commit(partial, Manifest(3, loader_epoch=1, loader_state=own, world_size=2, parts=parts))
    store.unlock()


def packed(gradient: torch.Tensor) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save({"model.weight": gradient}, file)
    return {RANK_GRADIENTS: file.getvalue()}


@pytest.mark.parametrize(
    ("gradient", "keep", "refused"),
    [(2.0, True, False), (3.0, True, True), (3.0, False, False)],
    ids=["reduced", "not reduced", "not kept"],
)
def test_gradients_that_are_not_reduced_are_refused_by_other_ranks(
    gradient: float, keep: bool, refused: bool, tmp_path: Path
) -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.full((1, 2), 2.0)
    state = TrainingState(model=model, keep_gradients=keep)
    saved_by_two(tmp_path, state, packed(torch.full((1, 2), gradient)))
    model.weight.grad = None
    loader = of_points(batch_size=BATCH)
    batches = state.iterator(loader, epochs=3, checkpoint_dir=tmp_path)
    if refused:
        with pytest.raises(CheckpointError, match=r"gradients of rank 1 .* of all 2 ranks, and"):
            next(batches.epochs())
        return
    assert next(batches.epochs()) == 1
    assert model.weight.grad is None if not keep else model.weight.grad.tolist() == [[2.0, 2.0]]
    batches.close()


def test_a_rank_that_was_not_there_is_not_given_the_order_of_another(tmp_path: Path) -> None:
    def drawn(epoch: int, batch_size: int) -> list[int]:
        order: list[int] = torch.randperm(SAMPLES).tolist()
        return order

    passes = IterablePasses(drawn)
    order = list(passes.open(0, 1))
    state = passes.state(2)
    assert list(IterablePasses(drawn).resume(0, 1, 2, state)) == order[2:]
    with pytest.raises(ConfigError, match="no random numbers of this rank"):
        IterablePasses(drawn).resume(0, 1, 2, {})
