"""Gradients accumulated over several batches: interrupted at any of them, the weights are the same."""

import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
    ),
]
WINDOW, BATCHES, EPOCHS = 4, 10, 2


class Script:
    """Accumulates over ``WINDOW`` batches, over the end of a pass too (10 batches are 2.5 windows)."""

    def __init__(self, folder: Path, sparse: bool) -> None:
        self.folder = folder
        self.sparse = sparse

    def run(self, *stops: int, **options: Any) -> tuple[list[Any], int]:
        """The weights at the end, and starts. stops: steps (from 0) during which it is told to stop."""
        for start, stop in enumerate([*stops, -1]):
            weights = self._start(stop, options)
            if weights is not None:
                return weights, start + 1
        raise AssertionError("it did not come to its end")

    def _start(self, stop: int, options: dict[str, Any]) -> list[Any] | None:
        import torch
        from torch import nn

        from fairlead.client.torch import TrainingState

        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Embedding(40, 6, sparse=self.sparse), nn.Dropout(0.2), nn.Linear(6, 1)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = TrainingState(model=model, optimizer=optimizer, **options)
        data = torch.utils.data.TensorDataset(torch.arange(4 * BATCHES))
        loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
        batches = state.iterator(
            loader, epochs=EPOCHS, checkpoint_dir=self.folder, on_stop="return"
        )
        for _ in batches.epochs():
            for i, (x,) in batches.indexed():
                assert i == batches.batch_index
                loss: Any = model(x).square().mean()
                loss.backward()
                if (i + 1) % WINDOW == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                if batches.step == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
            if batches.preempted:
                return None
        return [weight.detach() for weight in model.parameters()]


def equal(first: list[Any], second: list[Any]) -> bool:
    import torch

    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_interrupted_at_any_batch_of_a_window_the_weights_are_the_same(
    sparse: bool, tmp_path: Path
) -> None:
    expected, _ = Script(tmp_path / "whole", sparse).run()
    for stop in range(EPOCHS * BATCHES - 1):
        weights, starts = Script(tmp_path / str(stop), sparse).run(stop)
        assert starts == 2
        assert equal(weights, expected), f"stopped at {stop}"
    weights, starts = Script(tmp_path / "often", sparse).run(*range(EPOCHS * BATCHES - 1))
    assert starts == EPOCHS * BATCHES
    assert equal(weights, expected)


def test_gradients_can_be_left_out(tmp_path: Path) -> None:
    expected, _ = Script(tmp_path / "whole", False).run()
    weights, _ = Script(tmp_path / "at", False).run(WINDOW - 1, keep_gradients=False)
    assert equal(weights, expected)  # none are there at the end of a window
    weights, _ = Script(tmp_path / "within", False).run(WINDOW, keep_gradients=False)
    assert not equal(weights, expected)


def test_gradients_that_were_not_there_go(tmp_path: Path) -> None:
    import torch

    from fairlead.client.torch import TrainingState

    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    state = TrainingState(optimizer=torch.optim.SGD(weights, lr=0.1))
    weights[0].grad = torch.full((2,), 3.0)
    state.save(tmp_path / "state")
    weights[0].grad, weights[1].grad = torch.zeros(2), torch.ones(2)
    state.load(tmp_path / "state")
    assert weights[0].grad.tolist() == [3.0, 3.0]
    assert weights[1].grad is None
