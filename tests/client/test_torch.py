"""TrainingState: what it keeps, and what it refuses."""

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import CheckpointError, ConfigError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
    ),
]


def state_of(**objects: Any) -> Any:
    from fairlead.client.torch import TrainingState

    return TrainingState(**objects)


def test_it_keeps_all_that_a_script_has(tmp_path: Path) -> None:
    import numpy as np
    import torch
    from torch import nn

    def make() -> dict[str, Any]:
        model = nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        average = torch.optim.swa_utils.AveragedModel(model)
        return {
            "model": model,
            "average": average,
            "optimizer": optimizer,
            "scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0),
            "scaler": torch.amp.GradScaler("cpu"),
            "torch_generator": torch.Generator().manual_seed(3),
            "numpy_generator": np.random.default_rng(4),
            "python_generator": random.Random(5),
            "numbers": {"best": np.float64(0.5), "curve": np.arange(3), "epochs": [1, (2, None)]},
        }

    first, second = make(), make()
    loss: Any = first["model"](torch.ones(1, 3)).sum()
    loss.backward()
    first["optimizer"].step()
    first["average"].update_parameters(first["model"])
    first["scheduler"].step(np.float64(1.0))
    first["scheduler"].step(np.float64(2.0))
    torch.rand(2, generator=first["torch_generator"])
    first["numpy_generator"].random()
    first["python_generator"].random()
    state_of(**first).save(tmp_path / "state")
    drawn = [torch.rand(()).item(), np.random.random(), random.random()]  # noqa: NPY002
    numbers = second["numbers"]
    second["numbers"].clear()
    state_of(**second).load(tmp_path / "state")
    assert [torch.rand(()).item(), np.random.random(), random.random()] == drawn  # noqa: NPY002
    for name in ("model", "average"):
        for key, weight in first[name].state_dict().items():
            assert torch.equal(weight, second[name].state_dict()[key])
    assert second["scheduler"].state_dict() == first["scheduler"].state_dict()
    assert second["optimizer"].param_groups[0]["lr"] == pytest.approx(0.01)
    assert second["numbers"] is numbers
    assert numbers["curve"].tolist() == [0, 1, 2]
    assert numbers["epochs"] == [1, (2, None)]
    for name in ("torch_generator",):
        expected = torch.rand(2, generator=first[name])
        assert torch.equal(torch.rand(2, generator=second[name]), expected)
    assert second["numpy_generator"].random() == first["numpy_generator"].random()
    assert second["python_generator"].random() == first["python_generator"].random()


@pytest.mark.filterwarnings("ignore")  # of torch.compile's imports
def test_a_wrapped_model_has_the_names_of_the_bare_one(tmp_path: Path) -> None:
    import torch
    from torch import nn

    model, wrapped = nn.Linear(2, 1), nn.DataParallel(nn.Linear(2, 1))
    state_of(model=model).save(tmp_path / "state")
    state_of(model=wrapped).load(tmp_path / "state")
    assert torch.equal(wrapped.module.weight, model.weight)
    compiled: Any = torch.compile(nn.Linear(2, 1))
    state_of(model=compiled).load(tmp_path / "state")
    assert torch.equal(compiled.weight, model.weight)


def test_the_file_holds_no_pickle(tmp_path: Path) -> None:
    import torch
    from torch import nn

    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state_of(model=model, optimizer=optimizer).save(tmp_path / "state")
    assert set(torch.load(tmp_path / "state", weights_only=True)) == {
        "format",
        "gradients",
        "objects",
        "random",
    }


class Odd:
    """Has a state that only pickle could keep."""

    def state_dict(self) -> dict[str, Any]:
        return {"path": Path("/")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def test_what_it_refuses(tmp_path: Path) -> None:
    from torch import nn

    with pytest.raises(ConfigError, match="at least one object"):
        state_of()
    with pytest.raises(ConfigError, match="number: a int has no state_dict"):
        state_of(number=3)
    with pytest.raises(ConfigError, match=r"odd\['path'\]: a pathlib\.\S+ cannot be saved"):
        state_of(odd=Odd()).save(tmp_path / "state")
    state_of(odd=Odd(), weights_only=False).save(tmp_path / "pickled")
    state_of(model=nn.Linear(1, 1)).save(tmp_path / "state")
    with pytest.raises(CheckpointError, match="the checkpoint has no 'other'"):
        state_of(model=nn.Linear(1, 1), other={}).load(tmp_path / "state")
    with pytest.raises(CheckpointError, match="TrainingState has no 'model'"):
        state_of(other={}).load(tmp_path / "state")


def test_a_lease_without_a_loader_goes_on_with_the_same_random_numbers(tmp_path: Path) -> None:
    import os
    import signal

    import torch

    def run(folder: Path, *stops: int) -> list[float]:
        seen: list[float] = []
        for start, stop in enumerate([*stops, -1]):
            torch.manual_seed(start)
            lease = state_of(numbers={}).lease(
                total_steps=9, checkpoint_dir=folder, on_stop="return"
            )
            with lease:
                while lease.next():
                    seen.append(torch.rand(()).item())
                    if lease.step == stop:
                        os.kill(os.getpid(), signal.SIGTERM)
        return seen

    assert run(tmp_path / "parts", 0, 4, 7) == run(tmp_path / "whole")
