"""Each workload, preempted twice, ends with the weights of an uninterrupted run, to the last bit."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.ranks import run_ranks
from tests.workloads.needs import NEEDS_GYMNASIUM, NEEDS_TORCH
from tests.workloads.trained_job import NEVER, STEPS, TrainedJob, start, train

from fairlead.workloads.registry import WORKLOADS

pytestmark = NEEDS_TORCH
STOPS = (7, 22)
FAST = ("lm", "recommendation", "a3c")
HAVE_BUFFERS = ("resnet18", "cyclegan")
NAMES = [
    pytest.param(
        name,
        marks=[
            *([] if name in FAST else [pytest.mark.long]),
            *([NEEDS_GYMNASIUM] if name == "a3c" else []),
        ],
    )
    for name in WORKLOADS
]


@pytest.mark.parametrize("name", NAMES)
def test_preempted_twice_it_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    whole = train(name, tmp_path / "whole")
    parts = train(name, tmp_path / "parts", STOPS)
    assert len(whole.rows) == whole.steps == STEPS
    assert parts == whole


def test_parked_after_every_step_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 20, "mode": "gns"}
    whole = train("lm", tmp_path / "whole", **options)
    assert train("lm", tmp_path / "parked", parks=True, **options) == whole


@pytest.mark.parametrize(
    ("mode", "name", "batch_size", "stops"),
    [("accordion", "recommendation", 1024, (3, 10)), ("gns", "lm", 5, (45, 60))],
)
def test_a_job_that_adapts_goes_on_with_its_batch_size_and_its_memory(
    mode: str, name: str, batch_size: int, stops: tuple[int, ...], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"mode": mode, "accordion_interval": 1, "batch_size": batch_size}
    options["steps"] = 4 * STEPS
    whole = train(name, tmp_path / "whole", **options)
    parts = train(name, tmp_path / "parts", stops, **options)
    assert parts == whole
    assert batch_size in whole.batch_sizes
    assert batch_size < whole.batch_sizes[-1] <= WORKLOADS[name].batch_sizes[-1]
    samples = sum(map(len, whole.rows))
    assert 0 <= samples - 4 * STEPS * batch_size < whole.batch_sizes[-1], "as many as it was to see"


def test_without_a_number_of_steps_it_is_one_pass_over_the_data(tmp_path: Path) -> None:
    job = train("lm", tmp_path, steps=None, batch_size=30)
    samples = [row for rows in job.rows for row in rows]
    assert (job.steps, len(samples)) == (7, 210)
    assert set(samples) == set(range(200))
    assert samples[200:] == samples[:10], "the last step is filled up"


def test_another_seed_gives_other_batches_and_other_weights(tmp_path: Path) -> None:
    first = train("lm", tmp_path / "first", steps=2)
    second = train("lm", tmp_path / "second", steps=2, seed=1)
    assert first.rows != second.rows
    assert first.weights != second.weights


def rank(rank: int, name: str, folder: Path, mode: str, stop: int) -> None:
    """A rank of one start of a job."""
    file = folder / f"rank-{rank}.json"
    job = TrainedJob(**json.loads(file.read_text())) if file.exists() else TrainedJob()
    start(job, name, folder / "checkpoints", stop, mode=mode)
    file.write_text(json.dumps(asdict(job)))


def train_ranks(name: str, folder: Path, mode: str, stops: Sequence[int]) -> list[TrainedJob]:
    """What each of two ranks has done. Each start has new processes, as two starts cannot share a port."""
    folder.mkdir()
    for stop in [*stops, NEVER]:
        assert run_ranks(2, rank, name, folder, mode, stop) == [0, 0]
    files = (folder / f"rank-{i}.json" for i in range(2))
    return [TrainedJob(**json.loads(file.read_text())) for file in files]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("lm", "gns"),
        pytest.param("a3c", "static", marks=[pytest.mark.long, NEEDS_GYMNASIUM]),
        pytest.param("cyclegan", "static", marks=pytest.mark.long),
        pytest.param("resnet18", "accordion", marks=pytest.mark.long),
    ],
)
def test_two_ranks_preempted_end_with_the_same_bits(name: str, mode: str, tmp_path: Path) -> None:
    whole = train_ranks(name, tmp_path / "whole", mode, ())
    parts = train_ranks(name, tmp_path / "parts", mode, STOPS[:1])
    assert parts == whole
    first, second = whole
    if name not in HAVE_BUFFERS:  # which are rank 0's from the next step on
        assert first.weights == second.weights
    assert first.rows == second.rows
    assert first.losses != second.losses, "both ranks have trained on the same part"


def shares(rank: int, folder: Path, batch_size: int) -> None:
    train("lm", folder / "checkpoints", steps=3, batch_size=batch_size)
    (folder / f"done-{rank}").touch()


@pytest.mark.parametrize("batch_size", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_batch_may_have_fewer_samples_than_ranks_or_not_as_many_for_each(
    batch_size: int, tmp_path: Path
) -> None:
    assert run_ranks(2, shares, tmp_path, batch_size) == [0, 0]
    assert len(list(tmp_path.glob("done-*"))) == 2
