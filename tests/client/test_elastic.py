"""Jobs whose number of ranks changes from one start to the next: every sample once, and the same training."""

import importlib.util
import random
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch

from tests.client.elastic_jobs import (
    BATCH,
    EPOCHS,
    PREPARED,
    SAMPLES,
    STEPS,
    Job,
    Ran,
    Start,
    draw,
    run,
    share_by_sampler,
)
from tests.ranks import run_ranks

pytestmark = pytest.mark.torch
PASS = STEPS // EPOCHS
# Sums over the samples of a batch are taken in another order by other numbers of ranks, which changes the
# last bits (1e-16 of a number); 42 steps of Adam make them larger, by less than this.
ROUNDING = 1e-10


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The job on one rank, never interrupted."""
    return run(Job(tmp_path_factory.mktemp("fixed") / "job"), [Start(1)])


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    starts = [Start(4, "killed"), Start(2, "stopped"), Start(1, "killed"), Start(4)]
    return run(Job(tmp_path_factory.mktemp("moved") / "job", max_local_batch=4), starts)


def test_every_sample_is_trained_once_a_pass_at_any_number_of_ranks(moved: Ran) -> None:
    assert sorted(moved.samples) == list(range(STEPS))
    assert moved.repeated >= 4  # two or more by each of those that were killed
    for epoch in range(EPOCHS):
        steps = range(epoch * PASS, (epoch + 1) * PASS)
        indices = [one[0] for step in steps for one in moved.samples[step]]
        assert sorted(indices) == list(range(SAMPLES))
        assert [len(moved.samples[step]) for step in steps] == [BATCH] * (PASS - 1) + [3]


def test_a_batch_is_the_same_at_any_number_of_ranks_down_to_its_noise(
    moved: Ran, fixed: Ran
) -> None:
    assert moved.samples == fixed.samples
    assert fixed.samples[0] != fixed.samples[PASS]


def test_the_training_is_the_same_but_for_rounding(moved: Ran, fixed: Ran) -> None:
    assert fixed.losses[STEPS - 2] < 0.8 * fixed.losses[0]  # it does train
    for step in range(STEPS):
        assert moved.losses[step] == pytest.approx(fixed.losses[step], rel=ROUNDING)
    for one, other in zip(moved.weights, fixed.weights, strict=True):
        torch.testing.assert_close(one, other, rtol=ROUNDING, atol=ROUNDING)


def test_ranks_that_were_not_there_draw_numbers_of_their_own(moved: Ran) -> None:
    numbers = [number for step in range(STEPS) for number in moved.drawn[step]]
    assert len(numbers) > STEPS
    assert len(set(numbers)) == len(numbers)


def test_at_the_same_number_of_ranks_it_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    whole = run(Job(tmp_path / "whole", dropout=0.3), [Start(3)])
    starts = [Start(3, "killed"), Start(3, "stopped"), Start(3)]
    parts = run(Job(tmp_path / "parts", dropout=0.3), starts)
    assert parts.repeated >= 2
    assert (parts.samples, parts.losses, parts.drawn) == (
        whole.samples,
        whole.losses,
        whole.drawn,
    )
    assert all(
        torch.equal(one, other) for one, other in zip(parts.weights, whole.weights, strict=True)
    )


def test_without_a_loader_new_ranks_draw_numbers_of_their_own_too(tmp_path: Path) -> None:
    for start, (ranks, until) in enumerate([(1, 3), (3, -1)]):
        assert run_ranks(ranks, draw, tmp_path, start, until, prepared=PREPARED) == [0] * ranks
    numbers = [line for log in tmp_path.glob("draws-*") for line in log.read_text().splitlines()]
    first = len((tmp_path / "draws-0-0").read_text().splitlines())
    assert 3 < first < 40
    assert len(numbers) == first + 3 * (40 - first)
    assert len(set(numbers)) == len(numbers)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_so_it_is_after_any_moves(seed: int, tmp_path: Path, fixed: Ran) -> None:
    draws = random.Random(seed)
    starts = [Start(draws.choice([1, 2, 3, 4]), draws.choice(["killed", "stopped"])) for _ in "abc"]
    job = Job(tmp_path / "job", max_local_batch=draws.choice([None, 1, 3]))
    ran = run(job, [*starts, Start(draws.choice([1, 2, 3, 4]))])
    assert ran.samples == fixed.samples
    assert list(ran.losses.values()) == pytest.approx(list(fixed.losses.values()), rel=ROUNDING)


def test_a_script_that_is_not_elastic_is_told_so(tmp_path: Path) -> None:
    assert run_ranks(2, share_by_sampler, tmp_path, 1, prepared=PREPARED) == [0, 0]
    assert not [*tmp_path.glob("refused-*")]
    assert run_ranks(3, share_by_sampler, tmp_path, -1, prepared=PREPARED) == [0, 0, 0]
    for rank in range(3):
        why = (tmp_path / f"refused-{rank}").read_text()
        assert why.endswith(
            "; 2 ranks saved the checkpoint and this job has 3, with which a loader of one rank's samples "
            "cannot go on within a pass: use ElasticLoader of fairlead.client.torch"
        )
