"""The best batch: within its limits, and as good as any other that these allow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.estimation.goodput.best_batch import (
    BatchLimits,
    GradientNoise,
    best_batch,
)
from fairlead.estimation.goodput.fit_step_time import MeasuredStep, ReplicaSetting
from fairlead.estimation.goodput.job_goodput import JobGoodput
from fairlead.estimation.goodput.step_time_model import StepTimeModel

positive = st.floats(1e-4, 1.0)


@st.composite
def models(draw: st.DrawFn) -> StepTimeModel:
    return StepTimeModel(
        compute_s=draw(positive),
        compute_per_sample_s=draw(positive),
        across_nodes_s=draw(positive),
        across_nodes_per_replica_s=draw(positive),
        in_node_s=draw(positive),
        in_node_per_replica_s=draw(positive),
        overlap=draw(st.floats(1.0, 10.0)),
    )


@st.composite
def limits(draw: st.DrawFn) -> BatchLimits:
    smallest = draw(st.integers(1, 64))
    least = draw(st.integers(1, smallest))
    return BatchLimits(
        smallest=smallest,
        largest=smallest * draw(st.integers(1, 40)),
        min_local=least,
        max_local=least * draw(st.integers(1, 16)),
    )


@given(models(), limits(), st.floats(0.0, 1e3), st.integers(1, 16), st.integers(1, 4))
def test_within_the_limits_and_no_worse_than_what_they_allow(
    model: StepTimeModel, given_limits: BatchLimits, variance: float, per_node: int, nodes: int
) -> None:
    noise = GradientNoise(1.0, variance)
    replicas = per_node * nodes
    found = best_batch(model, noise, given_limits, np.array([nodes]), np.array([replicas]))
    goodput, local, steps = found.goodput[0], found.local[0], found.accumulation_steps[0]
    total = replicas * local * (steps + 1)
    if goodput == 0:
        least = max(given_limits.smallest, given_limits.min_local * replicas)
        # Rounding up what replicas have may exceed the largest batch where the two are near.
        assert least + replicas > given_limits.largest
        return
    assert total <= given_limits.largest
    assert local <= given_limits.max_local
    if replicas == 1 and total > given_limits.smallest:
        assert steps >= 1
    # With the smallest batch there is, for comparison.
    share = -(-max(given_limits.smallest, given_limits.min_local * replicas) // replicas)
    accumulated = -(-share // given_limits.max_local) - 1
    share = -(-share // (accumulated + 1))
    if replicas * share * (accumulated + 1) <= given_limits.largest:
        arrays = (np.array([float(x)]) for x in (nodes, replicas, share, accumulated))
        step_s = float(model.step_s(*arrays)[0])
        scale = replicas * share * (accumulated + 1) / given_limits.smallest
        assert goodput >= noise.gain(scale) / step_s * (1 - 1e-9)


def test_noisy_gradients_are_worth_large_batches() -> None:
    model = StepTimeModel(
        compute_s=0.1,
        compute_per_sample_s=1e-3,
        across_nodes_s=0.1,
        across_nodes_per_replica_s=1e-3,
        in_node_s=0.05,
        in_node_per_replica_s=1e-3,
        overlap=1.0,
    )
    room = BatchLimits(smallest=32, largest=4096, min_local=8, max_local=256)
    nodes, replicas = np.array([1, 1, 4]), np.array([1, 4, 16])
    quiet = best_batch(model, GradientNoise(1.0, 0.0), room, nodes, replicas)
    noisy = best_batch(model, GradientNoise(1e-4, 1.0), room, nodes, replicas)
    assert (replicas * quiet.local * (quiet.accumulation_steps + 1) <= [32, 32, 128]).all()
    assert (replicas * noisy.local * (noisy.accumulation_steps + 1) >= 512).all()
    assert noisy.goodput[2] > noisy.goodput[1] > noisy.goodput[0]


def test_nothing_is_told_before_it_is_known() -> None:
    job = JobGoodput(BatchLimits(smallest=8, largest=64, min_local=4, max_local=16))
    assert not job.is_known
    with pytest.raises(ValueError, match="noise of the gradients"):
        job.best_alone(1, 1)
    before = job.version
    job.observe(ReplicaSetting(1, 1, 8), MeasuredStep(0.5, 0.0))
    assert not job.is_known
    job.noise = GradientNoise(1.0, 2.0)
    assert job.is_known
    assert job.version != before
    assert job.best_alone(1, 1)[0] <= 16
