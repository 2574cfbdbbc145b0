"""Batch sizes in the released simulator: who is flagged when, and what a change does to the steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job_types import job_types

from fairlead.model.adaptation import Mode, steps_per_epoch
from fairlead.model.batch_size_rules import (
    GNS,
    SAMPLES_PER_EPOCH,
    batch_schedule,
)
from fairlead.model.cluster import SlotType
from fairlead.model.job import Job, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.shockwave_reference.profiles import released_schedule
from fairlead.simulator.shockwave_reference.rescaling import (
    RunRule,
    RunRules,
    rescaled,
    run_rule,
)

SIZES = (5, 10, 20, 32, 40, 64, 80, 128, 256, 512, 1024, 2048, 4096, 8192)
MODELS = ("ResNet-18", "ResNet-50", "LM", "Recommendation", "Transformer")


def table(*missing: str) -> Throughputs:
    """A rate of 1 for every model, batch size and scale factor, but for these families."""
    families = [f"{m} (batch size {b})" for m in MODELS for b in (*SIZES, 16)]
    kinds = tuple((f, s) for f in families if f not in missing for s in (1, 2, 4, 8))
    return Throughputs((SlotType("v100"),), job_types(*kinds), np.ones((len(kinds), 1)))


ALL = table()


def rule(
    model: str, batch: int, mode: Mode, epochs: int = 400, scale: int = 1, rates: Throughputs = ALL
) -> RunRule:
    family = f"{model} (batch size {batch})"
    total = float(epochs * steps_per_epoch(SAMPLES_PER_EPOCH[model], batch))
    own = batch_schedule(family, scale, total, mode)
    return run_rule(Job(JobId(0), family, scale, total, adaptation=own), rates)


def asked(made: RunRule, batch: int, epoch: int) -> int:
    """The batch size that a job asks for in this epoch at this batch size."""
    column = min(epoch, made.requested.shape[1] - 1)
    return made.batches[int(made.requested[made.batches.index(batch), column])]


def test_accordion_knows_no_early_part() -> None:
    """A profile of 400 epochs stays small for 120; the simulator grows in epoch 10."""
    made = rule("ResNet-50", 32, Mode.ACCORDION)
    assert made.batches == (32, 128)
    grows = [epoch for epoch in range(400) if asked(made, 32, epoch) == 128]
    shrinks = [epoch for epoch in range(400) if asked(made, 128, epoch) == 32]
    assert grows == [epoch for epoch in range(400) if epoch % 30 >= 10]
    assert shrinks == [epoch for epoch in range(400) if epoch % 30 < 10]


def test_accordion_forgets_the_late_regimes_of_recommendation() -> None:
    made = rule("Recommendation", 2048, Mode.ACCORDION)
    assert [asked(made, 2048, epoch) for epoch in (0, 39, 40, 65, 85, 399)] == [
        *(2048, 2048),
        *(8192, 8192, 8192, 8192),
    ]
    assert made.requested.shape == (2, 41)  # what follows is the same for ever


def test_accordion_may_use_a_batch_that_the_profile_does_not_reach() -> None:
    """Epochs are counted from 1 here, so that the tenth of ten is number 10, past the critical ones."""
    assert rule("LM", 5, Mode.ACCORDION, epochs=10).batches == (5, 80)
    assert asked(rule("LM", 5, Mode.ACCORDION, epochs=10), 5, 10) == 80


@pytest.mark.parametrize(
    ("model", "batch", "scale"),
    [(m, b, s) for m, rows in GNS.items() for b, row in rows.items() for s in row],
)
def test_gns_doubles_if_the_profile_is_larger_now_or_next(
    model: str, batch: int, scale: int
) -> None:
    """Against the released profile of max(760, epoch + 2) epochs, looked up as the release does."""
    made = rule(model, batch, Mode.GNS, scale=scale)
    family = f"{model} (batch size {batch})"
    for epoch in (*range(230), 757, 758, 759, 760, 5000):
        total = max(760, epoch + 2) * steps_per_epoch(SAMPLES_PER_EPOCH[model], batch)
        schedule = released_schedule(family, scale, total, Mode.GNS).schedule
        table_says = max(
            [b for first, b in schedule if first <= at][-1] for at in (epoch, epoch + 1)
        )
        for now in made.batches:
            wanted = 2 * now if table_says > now else now
            assert asked(made, now, epoch) == wanted, (epoch, now)


def test_jobs_that_never_change() -> None:
    for model, batch, mode in (
        ("LM", 80, Mode.ACCORDION),
        ("LM", 80, Mode.GNS),
        ("Transformer", 64, Mode.ACCORDION),
        ("ResNet-18", 32, Mode.STATIC),
    ):
        made = rule(model, batch, mode)
        assert made.batches == (batch,)
        assert made.requested.tolist() == [[0]]
    assert rule("LM", 20, Mode.GNS, scale=8).batches == (20,)


def test_a_batch_without_a_rate_cannot_be_asked_for() -> None:
    rates = table("LM (batch size 20)", "ResNet-18 (batch size 256)")
    assert rule("LM", 5, Mode.GNS, rates=rates).batches == (5, 10)  # not 40: it doubles
    assert asked(rule("LM", 5, Mode.GNS, rates=rates), 10, 300) == 10
    assert rule("ResNet-18", 64, Mode.ACCORDION, rates=rates).batches == (64,)


def test_a_schedule_is_followed_up_and_down() -> None:
    family = "LM (batch size 20)"
    stages = ((0, 20), (3, 5), (6, 80))
    own = batch_schedule(family, 1, 30_000.0, Mode.SCHEDULE, schedule=stages)
    made = run_rule(Job(JobId(0), family, 1, 30_000.0, adaptation=own), ALL)
    assert (made.batches, made.start) == ((5, 20, 80), 1)
    for now in made.batches:
        assert [asked(made, now, e) for e in (0, 2, 3, 5, 6, 99)] == [20, 20, 5, 5, 80, 80]


def test_many_rules_at_once() -> None:
    several = [
        rule(model, batch, mode, scale=scale)
        for model, batch in (("ResNet-18", 16), ("ResNet-50", 64), ("LM", 5), ("Transformer", 16))
        for mode in (Mode.STATIC, Mode.ACCORDION, Mode.GNS)
        for scale in (1, 2, 4)
    ] * 4
    store = RunRules()
    numbers = np.array([store.add(one) for one in several])
    rng = np.random.default_rng(0)
    epoch = rng.integers(0, 500, len(several))
    position = np.array([int(rng.integers(len(one.batches))) for one in several])
    found = store.requested(numbers, position, epoch)
    for one, at, now, position_found in zip(several, position, epoch, found, strict=True):
        assert one.batches[position_found] == asked(one, one.batches[at], int(now))


def test_the_number_of_epochs_survives_a_change() -> None:
    """3,500 steps of 29 are 121 epochs, the last of them begun; so are 1,815 of 15, but not 1,750."""
    total, done = rescaled(
        np.array([3500.0, 2900.0]),
        np.array([30.0, 0.0]),
        np.array([117_907, 117_907]),
        np.array([4096, 4096]),
        np.array([8192, 8192]),
    )
    assert total.tolist() == [1815.0, 1500.0]
    assert done.tolist() == [30.0, 0.0]  # one step of the second epoch makes two whole ones


@given(
    st.integers(1, 10**6),
    st.floats(0, 1),
    st.sampled_from(
        [(m, a, b) for m in SAMPLES_PER_EPOCH for a in (4, 32, 128) for b in (4, 16, 256)]
    ),
)
def test_a_change_never_loses_steps(total: int, part: float, case: tuple[str, int, int]) -> None:
    model, old, new = case
    samples = np.array([SAMPLES_PER_EPOCH[model]])
    done = float(int(total * part))
    after = rescaled(
        np.array([float(total)]), np.array([done]), samples, np.array([old]), np.array([new])
    )
    before_epoch, after_epoch = (steps_per_epoch(int(samples[0]), b) for b in (old, new))
    assert -(-after[0][0] // after_epoch) == -(-total // before_epoch)
    assert after[1][0] / after_epoch >= done / before_epoch
    assert after[1][0] % after_epoch == 0
