"""What is left of a job: the posterior, whole and fractional epochs, calibration."""

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.adapting import Row, snapshot_of_adapting

from fairlead.model.adaptation import Adaptation, Mode
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.policies.shockwave.options import (
    DEFAULT,
    RELEASED,
    EpochTime,
    Predictor,
    ProfileCalibration,
    ShockwaveOptions,
)
from fairlead.policies.shockwave.remaining_work import remaining_work

SAMPLES = 1_000
SIZES = (10, 20, 40, 80)
TABLE = Throughputs(
    (SlotType("v100"), SlotType("k80")),
    tuple(JobType.parse(f"Net (batch size {b})", s) for s in (1, 2) for b in SIZES),
    np.array([[4.0, 1.0], [3.0, 0.5], [2.0, 0.3], [1.4, 0.2]] * 2),
)
ONE = Cluster.of({"v100": 4})
TWO = Cluster.of({"v100": 2, "k80": 6})
NO_CALIBRATION = replace(DEFAULT, calibration=ProfileCalibration.OFF)
BY_THE_BOOK = replace(RELEASED, calibration=ProfileCalibration.OFF)


def growing(epochs: float, *starts: int) -> Adaptation:
    """A job that doubles its batch at these epochs."""
    stages = ((0, 10), *((epoch, SIZES[k + 1]) for k, epoch in enumerate(starts)))
    return Adaptation(Mode.SCHEDULE, SAMPLES, epochs, stages)


def posterior(announced: Adaptation, progress: int) -> float:
    """The release's remaining running time, epoch by epoch as the paper's text has it."""
    epochs = int(announced.epochs)
    sizes = [
        announced.batches[announced.regimes[int(np.searchsorted(announced.starts, e, "right")) - 1]]
        for e in range(epochs)
    ]
    used = sorted(set(sizes))
    rate = dict(zip(SIZES, TABLE.rate[: len(SIZES), 0].tolist(), strict=True))
    epoch_s = {b: max(1.0, round(SAMPLES / b / rate[b])) for b in used}
    strength = {b: epochs / len(used) for b in used}
    for b in sizes[: progress + 1]:
        strength[b] += 1
    # One after the other: Python's own sum compensates its rounding from 3.12 on.
    whole = reduce(add, strength.values())
    expected = {b: epochs * strength[b] / whole for b in used}
    for b in sizes[: progress + 1]:
        if expected[b] >= 1:
            expected[b] -= 1
    left = epochs - progress
    if left <= 0:
        return 1.0
    inflated = max(int(reduce(add, expected.values()) + 1), left)
    return float(reduce(add, (expected[b] * epoch_s[b] for b in used)) * left / inflated)


@given(
    epochs=st.integers(1, 60),
    progress=st.integers(0, 60),
    starts=st.lists(st.integers(1, 59), max_size=3, unique=True).map(sorted),
)
def test_the_release_is_followed_epoch_by_epoch(
    epochs: int, progress: int, starts: list[int]
) -> None:
    announced = growing(epochs, *[e for e in starts if e < epochs])
    progress = min(progress, epochs - 1)
    row = Row("Net (batch size 10)", announced, float(progress))
    view = remaining_work(snapshot_of_adapting([row], ONE, TABLE), BY_THE_BOOK)
    assert view.mean_left_s[0] == pytest.approx(posterior(announced, progress), rel=1e-12)
    assert view.progress[0] == progress


def test_with_a_weak_prior_the_mix_that_was_seen_goes_on() -> None:
    slow, fast = growing(100, 90), growing(100, 10)
    rows = [Row("Net (batch size 10)", job, 50.0) for job in (slow, fast)]
    weak = replace(NO_CALIBRATION, prior=1e-6)
    view = remaining_work(snapshot_of_adapting(rows, ONE, TABLE), weak)
    slow_s, fast_s = 25.0, 50 / 3
    assert view.epoch_s[:, 0] == pytest.approx([slow_s, fast_s])
    assert view.left_s[:, 0] == pytest.approx([50 * slow_s, 10 * slow_s + 40 * fast_s], rel=1e-4)


def test_a_strong_prior_expects_as_much_of_each() -> None:
    row = Row("Net (batch size 10)", growing(100, 90), 50.0)
    strong = replace(NO_CALIBRATION, prior=1e6)
    view = remaining_work(snapshot_of_adapting([row], ONE, TABLE), strong)
    assert view.left_s[0, 0] == pytest.approx(50 * 50 / 3, rel=1e-4)


def test_the_oracle_knows_the_rest() -> None:
    row = Row("Net (batch size 10)", growing(30, 10, 20), 5.5)
    view = remaining_work(
        snapshot_of_adapting([row], ONE, TABLE), replace(NO_CALIBRATION, predictor=Predictor.ORACLE)
    )
    assert view.left_s[0, 0] == pytest.approx(4.5 * 25 + 10 * 50 / 3 + 10 * 25 / 2)


@pytest.mark.parametrize(
    ("which", "seconds"),
    [
        (EpochTime.PRESENT, 50 / 3),
        (EpochTime.HISTORY, (10 * 25 + 5 * 50 / 3) / 15),
    ],
)
def test_the_time_of_an_epoch(which: EpochTime, seconds: float) -> None:
    row = Row("Net (batch size 10)", growing(30, 10), 15.0)
    view = remaining_work(
        snapshot_of_adapting([row], ONE, TABLE), replace(NO_CALIBRATION, epoch_time=which)
    )
    assert view.epoch_s[0, 0] == pytest.approx(seconds)


def test_each_type_has_its_times() -> None:
    row = Row("Net (batch size 10)", growing(10), 4.0)
    view = remaining_work(snapshot_of_adapting([row], TWO, TABLE), NO_CALIBRATION)
    assert dict(zip(TWO.accelerators, view.left_s[0], strict=True)) == pytest.approx(
        {"v100": 6 * 25, "k80": 6 * 100}
    )
    mean_rate = (2 * 4.0 + 6 * 1.0) / 8
    assert view.mean_left_s[0] == pytest.approx(6 * 100 / mean_rate)


@pytest.mark.parametrize(("factor", "corrected"), [(1.05, 1.0), (2.0, 2.0)])
def test_own_running_time_corrects_the_profile(factor: float, corrected: float) -> None:
    waited_s = 50_000.0  # of no account
    announced = growing(20)
    trained_s = 10 * 25.0
    row = Row("Net (batch size 10)", announced, 10.0, age_s=waited_s, ran_s=factor * trained_s)
    view = remaining_work(snapshot_of_adapting([row], ONE, TABLE, now_s=waited_s), DEFAULT)
    assert view.left_s[0, 0] == pytest.approx(corrected * 10 * 25)


@pytest.mark.parametrize("options", [DEFAULT, replace(RELEASED, capped=True)])
def test_a_job_that_has_not_ended_has_something_left(options: ShockwaveOptions) -> None:
    done = Row("Net (batch size 10)", growing(8), 8.0)
    view = remaining_work(snapshot_of_adapting([done], ONE, TABLE), options)
    assert view.progress[0] < 8


def test_jobs_that_do_not_adapt_are_one_epoch() -> None:
    row = Row("Net (batch size 10)", growing(8), 2.0)
    plain = replace(snapshot_of_adapting([row], ONE, TABLE), regimes=None)
    view = remaining_work(plain, NO_CALIBRATION)
    assert view.progress[0] / view.epochs[0] == pytest.approx(0.25)
    assert view.left_s[0, 0] == pytest.approx(6 * 25)
