"""Profiles of jobs that adapt, and how long they run."""

from math import ceil, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adapting_families import families, name, rules, scales, steps

from fairlead.errors import ConfigError
from fairlead.model.adaptation import Mode, epochs_between
from fairlead.model.batch_size_rules import (
    MAX_BATCH_SIZES,
    adaptation_fault,
    batch_schedule,
    epoch_s,
    exclusive_run_times,
)
from fairlead.model.cluster import SlotType
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs


@given(families, scales, rules, st.floats(0.01, 700))
def test_a_schedule_starts_small_and_ends_in_time(
    family: tuple[str, int], scale: int, mode: Mode, epochs: float
) -> None:
    made = batch_schedule(name(family), scale, steps(family, epochs), mode)
    assert adaptation_fault(made, name(family)) is None
    assert made.schedule[-1][0] < made.epochs
    assert set(made.batches) <= {family[1], *range(MAX_BATCH_SIZES.get(family[0], family[1]) + 1)}
    assert made.epochs_in.sum() == pytest.approx(made.epochs)
    assert all(a[1] != b[1] for a, b in zip(made.schedule, made.schedule[1:], strict=False))


def test_accordion_keeps_the_small_batch_early_and_in_critical_regimes() -> None:
    made = batch_schedule(
        "ResNet-50 (batch size 32)", 1, steps(("ResNet-50", 32), 65), Mode.ACCORDION
    )
    assert made.schedule == ((0, 32), (20, 128), (30, 32), (40, 128), (60, 32))  # 0.3 x 65 = 19.5


def test_gns_doubles() -> None:
    ours = batch_schedule("LM (batch size 10)", 1, steps(("LM", 10), 22.5), Mode.GNS)
    assert (ours.epochs, ours.schedule) == (22.5, ((0, 10), (11, 20), (21, 40)))


def test_a_schedule_of_the_owner_is_cut_at_the_end_of_the_job() -> None:
    stages = ((0, 32), (2, 64), (9, 256))
    made = batch_schedule(
        "net (batch size 32)", 1, 350.0, Mode.SCHEDULE, samples=3200, schedule=stages
    )
    assert (made.epochs, made.schedule) == (3.5, ((0, 32), (2, 64)))
    assert made.epochs_in.tolist() == [2.0, 1.5]


def test_running_alone() -> None:
    """1,000 samples in batches of 300 and 600: 4 and 2 steps an epoch; 1.5 epochs of the second."""
    family = "net (batch size 300)"
    one = JobType.parse(family)
    kinds = (one, one.with_batch_size(600))
    slots = (SlotType("fast"), SlotType("slow"), SlotType("never"))
    table = Throughputs(slots, kinds, np.array([[2.0, 1.0, 1.0], [1.0, 0.5, 0.0]]))
    own = batch_schedule(
        family, 1, 14.0, Mode.SCHEDULE, samples=1000, schedule=((0, 300), (2, 600))
    )
    assert epoch_s(own, one, table).tolist() == [[2.0, 4.0, 4.0], [2.0, 4.0, inf]]
    assert exclusive_run_times(own, one, table).tolist() == [7.0, 14.0, inf]
    assert exclusive_run_times(own, JobType.parse(family, 2), table).tolist() == [inf, inf, inf]


@pytest.mark.parametrize(
    ("family", "mode", "options", "message"),
    [
        ("A3C", Mode.STATIC, {}, "A3C: the name states no batch size"),
        ("net (batch size 8)", Mode.STATIC, {}, "samples per epoch is not known"),
        ("net (batch size 8)", Mode.GNS, {"samples": 9}, "no rule for mode gns; there is one for"),
        ("LM (batch size 5)", Mode.SCHEDULE, {}, "must start with epoch 0, got no stage"),
        ("LM (batch size 5)", Mode.SCHEDULE, {"schedule": ((1, 5),)}, "with epoch 0, got 1"),
        (
            "LM (batch size 5)",
            Mode.SCHEDULE,
            {"schedule": ((0, 10),)},
            "must start with the family's batch size 5, got 10",
        ),
        (
            "LM (batch size 5)",
            Mode.SCHEDULE,
            {"schedule": ((0, 5), (7, 10), (7, 20))},
            "the epochs of the schedule must increase",
        ),
        (
            "LM (batch size 5)",
            Mode.SCHEDULE,
            {"schedule": ((0, 5), (7, 0))},
            "batch sizes must be >= 1, got 0",
        ),
        (
            "LM (batch size 5)",
            Mode.SCHEDULE,
            {"schedule": tuple((n, 5 + n) for n in range(17))},
            "at most 16 batch sizes, got 17",
        ),
    ],
)
def test_what_cannot_be_profiled(
    family: str, mode: Mode, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        batch_schedule(family, 1, 100.0, mode, **options)  # type: ignore[arg-type]


@given(families, rules, st.floats(0.5, 300), st.floats(0, 1), st.floats(0, 1))
def test_epochs_between_add_up(
    family: tuple[str, int], mode: Mode, epochs: float, one: float, other: float
) -> None:
    made = batch_schedule(name(family), 1, steps(family, epochs), mode)
    first, last = sorted((one * made.epochs, other * made.epochs))
    parts = [epochs_between(made, a, b) for a, b in ((0.0, first), (first, last))]
    assert np.sum(parts) == pytest.approx(last)
    assert np.sum(parts, axis=0) == pytest.approx(epochs_between(made, 0.0, last))
    assert ceil(last) <= ceil(made.epochs)
