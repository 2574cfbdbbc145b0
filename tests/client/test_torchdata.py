"""torchdata's StatefulDataLoader is put back by its own state, and all random numbers with it."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torchdata") is None, reason="torchdata is not installed"
    ),
    pytest.mark.filterwarnings("ignore"),
]


def stateful(points: Any, **more: Any) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(points, batch_size=4, **more)


def points(how: str) -> Any:
    from tests.client.torch_jobs import Points

    return Points(how)


KINDS: dict[str, Callable[[], Any]] = {
    "in order": lambda: stateful(points("torch")),
    "shuffled": lambda: stateful(points("torch"), shuffle=True),
    "its own noise": lambda: stateful(points("own"), shuffle=True),
    "workers": lambda: stateful(points("python"), shuffle=True, num_workers=2),
    "workers, their own noise": lambda: stateful(points("own"), shuffle=True, num_workers=2),
    "every third state": lambda: stateful(
        points("torch"), shuffle=True, num_workers=2, snapshot_every_n_steps=3
    ),
}


@pytest.mark.parametrize("style", ["epochs", "flat"])
@pytest.mark.parametrize("name", KINDS)
def test_it_is_exact(name: str, style: str, tmp_path: Path) -> None:
    from tests.client.torch_jobs import Job

    make = KINDS[name]
    whole = Job(make, tmp_path / "whole").run(style=style)
    parts = Job(make, tmp_path / "parts").run(2, 4, 5, 11, style=style)
    assert parts._replace(starts=1) == whole


def test_a_sampler_without_a_state_is_refused() -> None:
    import fairlead
    from fairlead.errors import ConfigError
    from tests.client.torch_jobs import Shuffled

    made = stateful(points("none"), sampler=Shuffled("python"))
    with pytest.raises(ConfigError, match="Shuffled cannot be put back exactly"):
        fairlead.Iterator(made, load=lambda _: None, save=Path.touch, epochs=1)
