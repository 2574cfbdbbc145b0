"""The fit of step times: its gradient, what it recovers, and what it assumes of what was not measured."""

import numpy as np
import pytest

from fairlead.estimation.goodput.fit_step_time import (
    UNSEEN_ACROSS_NODES,
    MeasuredStep,
    ReplicaSetting,
    _Measured,
    _misfit,
    fit_step_time,
)
from fairlead.estimation.goodput.step_time_model import StepTimeModel
from fairlead.estimation.goodput.step_times import StepTimes

TRUTH = StepTimeModel(
    compute_s=0.03,
    compute_per_sample_s=0.002,
    across_nodes_s=0.08,
    across_nodes_per_replica_s=0.004,
    in_node_s=0.03,
    in_node_per_replica_s=0.002,
    overlap=1.6,
)
SETTINGS = [
    ReplicaSetting(nodes, replicas, local)
    for nodes, replicas in ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 16))
    for local in (8, 32, 128)
]


def step_s(model: StepTimeModel, setting: ReplicaSetting, accumulation_steps: int = 0) -> float:
    columns = (np.array([float(x)]) for x in (*setting, accumulation_steps))
    return float(model.step_s(*columns)[0])


def measured(*settings: ReplicaSetting) -> dict[ReplicaSetting, MeasuredStep]:
    """What the true model says, as if it had been measured."""
    found = {}
    for setting in settings:
        whole_s = step_s(TRUTH, setting)
        computing_s = float(TRUTH.computing_s(np.array(float(setting.local_batch))))
        found[setting] = MeasuredStep(whole_s, whole_s - computing_s)
    return found


def test_the_gradient_is_that_of_the_misfit() -> None:
    rows = _Measured(
        across=np.array([False, False, True, False]),
        inside=np.array([False, True, False, True]),
        more=np.array([0.0, 0.0, 3.0, 2.0]),
        local_batch=np.array([128.0, 64.0, 64.0, 32.0]),
        log_step=np.log([0.1, 0.08, 0.09, 0.07]),
        log_compute=np.log([0.1, 0.07, 0.07, 0.05]),
    )
    point = np.array([0.1, 0.01, 0.12, 0.011, 0.09, 0.013, 1.4])
    _, gradient = _misfit(rows, point)
    for k in range(7):
        step = np.zeros(7)
        step[k] = 1e-7
        slope = (_misfit(rows, point + step)[0] - _misfit(rows, point - step)[0]) / 2e-7
        assert gradient[k] == pytest.approx(slope, rel=1e-5)


def test_times_that_follow_the_model_are_told_again() -> None:
    """Nearly, for small overlaps are preferred; also those of settings that were left out."""
    model = fit_step_time(measured(*SETTINGS[::2]))
    for setting in SETTINGS:
        assert step_s(model, setting) == pytest.approx(step_s(TRUTH, setting), rel=0.06)


def test_what_was_not_measured_is_assumed_to_cost_little() -> None:
    """So that a scheduler tries it."""
    alone = fit_step_time(measured(ReplicaSetting(1, 1, 8), ReplicaSetting(1, 1, 32)))
    assert step_s(alone, ReplicaSetting(1, 4, 32)) == pytest.approx(
        step_s(alone, ReplicaSetting(1, 1, 32))
    )
    inside = fit_step_time(
        measured(
            ReplicaSetting(1, 1, 8),
            ReplicaSetting(1, 1, 32),
            ReplicaSetting(1, 2, 32),
            ReplicaSetting(1, 4, 32),
        )
    )
    assert inside.in_node_s > 1e-3
    assert inside.across_nodes_s == pytest.approx(UNSEEN_ACROSS_NODES * inside.in_node_s)
    assert inside.across_nodes_per_replica_s == pytest.approx(
        UNSEEN_ACROSS_NODES * inside.in_node_per_replica_s
    )


def test_one_local_batch_says_nothing_of_its_own_part() -> None:
    """Half of the time is taken to be for the samples, until another batch was measured."""
    one = measured(ReplicaSetting(1, 1, 32))
    model = fit_step_time(one)
    (step,) = one.values()
    assert model.compute_s == pytest.approx(step.step_s / 2)
    assert step_s(model, ReplicaSetting(1, 1, 32)) == pytest.approx(step.step_s, rel=1e-3)


def test_accumulation_repeats_the_computing_alone() -> None:
    setting = ReplicaSetting(2, 8, 32)
    computing_s = float(TRUTH.computing_s(np.array(32.0)))
    assert step_s(TRUTH, setting, 3) == pytest.approx(step_s(TRUTH, setting) + 3 * computing_s)


def test_only_the_first_step_of_a_setting_counts() -> None:
    times = StepTimes()
    setting = ReplicaSetting(1, 2, 8)
    times.observe(setting, MeasuredStep(1.0, 0.5))
    model = times.model()
    times.observe(setting, MeasuredStep(9.0, 0.5))
    assert times.model() is model
    assert times.measured == {setting: MeasuredStep(1.0, 0.5)}
    times.observe(ReplicaSetting(2, 8, 8), MeasuredStep(1.5, 1.0))
    assert times.max_replicas == 8
    assert times.model() is not model
