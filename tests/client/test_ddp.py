"""Three ranks of DistributedDataParallel, moved in the middle of an accumulation: equal to the last bit."""

import contextlib
import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.ranks import run_ranks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
    ),
]
RANKS, WINDOW, EPOCHS = 3, 3, 2


def train(rank: int, folder: Path, stop: int, lets_ranks_differ: bool) -> None:
    """One rank of one start."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    from fairlead.client.torch import TrainingState

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(24, 24), nn.ReLU())]
    model = DistributedDataParallel(
        nn.Sequential(*layers, nn.Linear(24, 1)), find_unused_parameters=True
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = TensorDataset(torch.randn(8 * 4 * RANKS, 24))
    sampler: Any = DistributedSampler(data)
    state = TrainingState(model=model, optimizer=optimizer)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    batches = state.iterator(
        loader, epochs=EPOCHS, checkpoint_dir=folder / "checkpoints", on_stop="return"
    )
    for _ in batches.epochs():
        loss: Any = None
        for i, (x,) in batches.indexed():
            last = (i + 1) % WINDOW == 0
            apart = contextlib.nullcontext() if last or not lets_ranks_differ else model.no_sync()
            with apart:
                loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
                loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
            if rank == 1 and batches.step == stop:
                os.kill(os.getpid(), signal.SIGTERM)
        assert batches.preempted or loss is not None, "a pass was empty"
    if rank == 0 and batches.completed:
        torch.save(model.module.state_dict(), folder / "weights")
    torch.distributed.destroy_process_group()


def weights(folder: Path, stops: list[int], lets_ranks_differ: bool) -> list[Any]:
    """Those at the end."""
    import torch

    folder.mkdir()
    for stop in [*stops, -1]:
        assert run_ranks(RANKS, train, folder, stop, lets_ranks_differ) == [0] * RANKS
        assert (folder / "weights").exists() == (stop == -1)
    return list(torch.load(folder / "weights", weights_only=True).values())


@pytest.mark.parametrize(
    "lets_ranks_differ",
    [True, pytest.param(False, marks=pytest.mark.long)],
    ids=["no_sync", "sync"],
)
def test_three_ranks_moved_in_the_middle_of_an_accumulation(
    lets_ranks_differ: bool, tmp_path: Path
) -> None:
    import torch

    whole = weights(tmp_path / "whole", [], lets_ranks_differ)
    parts = weights(tmp_path / "parts", [3, 7], lets_ranks_differ)
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))
