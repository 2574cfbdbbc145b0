"""Interrupted anywhere, a DataLoader gives the batches that it would have given, and the same weights."""

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
if importlib.util.find_spec("torch"):
    from tests.client.torch_jobs import LOADERS, WORKERS, Job
else:
    LOADERS = WORKERS = {}


def whole(make: Any, folder: Path, style: str) -> Any:
    return Job(make, folder / "whole").run(style=style)


@pytest.mark.parametrize("name", LOADERS)
def test_interrupted_anywhere_it_is_exact(name: str, tmp_path: Path) -> None:
    make = LOADERS[name]
    expected = whole(make, tmp_path, "epochs")
    steps = len(expected.batches)
    last = steps // 3 - 1  # of the first pass
    for i, stops in enumerate([(0,), (last - 1, last), (last + 1, steps - 2), (2, 3, last + 3)]):
        ran = Job(make, tmp_path / str(i)).run(*stops)
        assert ran._replace(starts=1) == expected
        assert ran.starts == len(stops) + 1


@pytest.mark.parametrize("name", WORKERS)
def test_so_it_is_with_workers(name: str, tmp_path: Path) -> None:
    make = WORKERS[name]
    expected = whole(make, tmp_path, "epochs")
    ran = Job(make, tmp_path / "parts").run(1, 4, 7)
    assert ran._replace(starts=1) == expected


@pytest.mark.long
@pytest.mark.parametrize("style", ["flat", "epochs", "range", "naive"])
@pytest.mark.parametrize("name", [*LOADERS, *(f"{name}, workers" for name in WORKERS)])
def test_exact_at_every_batch(name: str, style: str, tmp_path: Path) -> None:
    make = LOADERS.get(name) or WORKERS[name.removesuffix(", workers")]
    expected = whole(make, tmp_path, style)
    for stop in range(len(expected.batches)):
        ran = Job(make, tmp_path / str(stop)).run(stop, style=style)
        assert ran._replace(starts=1) == expected, f"stopped at {stop}"


@pytest.mark.parametrize("style", ["flat", "epochs", "range", "naive"])
def test_each_way_to_write_the_loop_is_exact(
    style: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make = LOADERS["shuffled"]
    expected = whole(make, tmp_path, style)
    assert expected.ends == ([] if style == "flat" else [0, 1, 2])
    for stops in [(4,), (6,), (9, 10), (14,)]:
        ran = Job(make, tmp_path / str(stops)).run(*stops, style=style)
        assert ran.batches == expected.batches
        assert ran.weights == expected.weights
        assert ran.ends == expected.ends
    message = capfd.readouterr().err
    assert ("epochs 0 to 0 were done in an earlier start" in message) == (style == "naive")


def test_what_is_done_is_not_loaded_again(tmp_path: Path) -> None:
    job = Job(LOADERS["shuffled"], tmp_path)
    job.run(8)
    first, second = (len(one.dataset.loaded) for one in job.loaders)
    assert (first, second) == (18 + 4 * 4, 2 + 18)


def test_the_order_is_that_of_the_script_without_fairlead(tmp_path: Path) -> None:
    from tests.client.torch_jobs import EPOCHS, digest, seed

    seed(0)
    job = Job(LOADERS["shuffled"], tmp_path / "plain")
    _, model = job.prepare()
    plain = job.make()
    for _ in range(EPOCHS):
        for batch in plain:
            job.step(batch)
        job.scheduler.step()
    converted = whole(job.make, tmp_path, "epochs")
    assert converted.batches == job.seen
    assert converted.weights == digest(*model.parameters())


@pytest.mark.parametrize("of", ["PyTorch", "the loader"])
def test_workers_draw_the_same_in_each_run_with_the_same_seed(of: str) -> None:
    """As without Fairlead: NumPy and Python, which a script may never seed, have no part in it."""
    import random

    import torch

    from fairlead.client.torch_loader import torch_passes
    from tests.client import torch_jobs

    def batches(others: int) -> list[str]:
        torch_jobs.seed(others)
        own = {"generator": torch_jobs.generator()} if of == "the loader" else {}
        if not own:
            torch.manual_seed(5)
        made = torch_jobs.loader(torch_jobs.Points("python"), shuffle=True, num_workers=2, **own)
        random.seed(others)
        return [torch_jobs.digest(one) for one in torch_passes(made).open(0, torch_jobs.BATCH)]

    assert batches(1) == batches(2)


def interrupted(make: Any, folder: Path, at: int) -> Any:
    """A job that has been interrupted; what it goes on with."""
    job = Job(make, folder)
    state, _ = job.prepare()
    assert not job.start(state, at, "epochs")
    return job


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda jobs: jobs.loader(jobs.Points(count=20), shuffle=True),
            "has 20 samples; it had 18",
        ),
        (lambda jobs: jobs.loader(shuffle=True, batch_size=3), "does not give the samples again"),
        (lambda jobs: jobs.loader(shuffle=False), "does not give the samples again"),
    ],
)
def test_other_data_are_refused_in_the_middle_of_a_pass(
    change: Any, words: str, tmp_path: Path
) -> None:
    from fairlead.errors import ConfigError
    from tests.client import torch_jobs

    job = interrupted(LOADERS["shuffled"], tmp_path, 7)
    job.make = lambda: change(torch_jobs)
    state, _ = job.prepare()
    with pytest.raises(ConfigError, match=words):
        job.start(state, -1, "epochs")


def test_what_cannot_be_put_back_is_refused_at_once(tmp_path: Path) -> None:
    import fairlead
    from fairlead.errors import ConfigError
    from tests.client.torch_jobs import Stream, loader

    for made, words in [
        (loader(num_workers=2, in_order=False), "in_order"),
        (loader(Stream(), num_workers=1, persistent_workers=True), "persistent_workers"),
    ]:
        with pytest.raises(ConfigError, match=words):
            fairlead.Iterator(made, load=lambda _: None, save=Path.touch, epochs=1)


def test_a_loader_that_draws_in_secret_is_refused(tmp_path: Path) -> None:
    import random

    import fairlead
    from fairlead.errors import ConfigError

    class Secret:
        """Draws from the second batch on."""

        def __iter__(self) -> Any:
            yield 0
            yield from (random.random() for _ in range(5))

    def start(stop: int) -> None:
        batches = fairlead.Iterator(
            Secret(),
            load=lambda _: None,
            save=Path.touch,
            epochs=2,
            checkpoint_dir=tmp_path,
            on_stop="return",
        )
        for _ in batches:
            if batches.step == stop:
                os.kill(os.getpid(), signal.SIGTERM)

    start(3)
    with pytest.raises(ConfigError, match="draws random numbers of the training process"):
        start(-1)
