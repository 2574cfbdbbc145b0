"""The rules by which batch sizes change, on gradients that are made up."""

import importlib.util
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
    ),
]


def accordion(norms: list[float], **options: Any) -> list[int]:
    """The batch sizes after passes of two steps, in which the mean gradient has these norms."""
    import torch

    from fairlead.workloads.adaptation import AccordionRule

    rule = AccordionRule(**{"small": 16, "large": 256, "interval": 1, **options})
    sizes, size = [], 16
    for norm in norms:
        for part in (0.5, 1.5):  # their mean counts, not how many there are
            rule.observe(torch.tensor([0.0, part * norm]), size)
        size = rule.next_batch_size(size)
        sizes.append(size)
    return sizes


def test_accordion_takes_the_large_batch_where_gradients_change_slowly() -> None:
    assert accordion([1.0, 0.9, 0.8]) == [16, 256, 256]


def test_accordion_returns_to_the_small_batch_in_a_critical_regime() -> None:
    assert accordion([1.0, 0.9, 0.4, 0.3, 0.6]) == [16, 256, 16, 256, 16]


def test_a_change_of_just_the_threshold_is_critical() -> None:
    assert accordion([1.0, 0.5]) == [16, 16]
    assert accordion([1.0, 0.5], threshold=0.6) == [16, 256]


def test_accordion_looks_once_per_interval() -> None:
    assert accordion([1.0] * 6, interval=3) == [16, 16, 16, 16, 16, 256]


def test_accordion_never_leaves_a_batch_larger_than_the_papers_largest() -> None:
    assert accordion([1.0, 1.0], small=512) == [16, 512]


def noise_scale(signal: float, noise: float, batch: int, steps: int = 4_000) -> float:
    """As it is estimated of gradients of 20 numbers, each with this mean and, per sample, this deviation."""
    import torch

    from fairlead.workloads.adaptation import NoiseScaleRule

    generator = torch.Generator().manual_seed(0)
    rule = NoiseScaleRule(large=1024, decay=0.999)
    for _ in range(steps):
        error = torch.randn(20, generator=generator) * noise / batch**0.5
        rule.observe(signal + error, batch)
    return rule.noise_scale()


@pytest.mark.parametrize("batch", [4, 64])
def test_the_noise_scale_is_variance_over_squared_mean_whatever_the_batch(batch: int) -> None:
    assert noise_scale(0.5, 2.0, batch) == pytest.approx(16, rel=0.1)


def test_the_batch_doubles_while_the_noise_scale_is_at_least_twice_as_large() -> None:
    from fairlead.workloads.adaptation import NoiseScaleRule

    rule = NoiseScaleRule(large=100)
    assert rule.next_batch_size(16) == 16, "before the first estimate"
    rule.memory.update(signal=1.0, noise=64.0)
    assert [rule.next_batch_size(size) for size in (16, 32, 33, 64)] == [32, 64, 33, 64]
    rule.memory.update(noise=1e6)
    assert [rule.next_batch_size(size) for size in (50, 51)] == [100, 51]
    rule.memory.update(signal=-1.0)
    assert rule.next_batch_size(16) == 32, "the noise hides the gradient"


def test_gradients_of_two_batch_sizes_are_not_compared() -> None:
    import torch

    from fairlead.workloads.adaptation import NoiseScaleRule

    rule = NoiseScaleRule(large=100)
    rule.observe(torch.tensor([1.0]), 16)
    rule.observe(torch.tensor([3.0]), 32)
    assert rule.noise_scale() == 0.0
    rule.observe(torch.tensor([1.0]), 32)
    assert rule.noise_scale() == pytest.approx(32 / 2 * 4 / 3)


def test_a_static_job_keeps_its_batch_size() -> None:
    from fairlead.workloads.adaptation import make_rule

    rule = make_rule("static", small=16, large=256, interval=1)
    assert not rule.needs_gradients
    assert rule.next_batch_size(16) == 16
