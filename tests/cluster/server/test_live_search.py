"""What a search decides, from rows and curves alone."""

from typing import Any

import pytest

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.study import ParameterRange, PrunerSpec, StudySpec
from fairlead.cluster.server.live_search import MAX_FAILED, LiveSearch
from fairlead.cluster.store.rows import SearchRow, TrialRow


def search(rows: list[TrialRow], **more: Any) -> LiveSearch:
    given: dict[str, Any] = {
        "metric": "loss",
        "parameters": {"x": ParameterRange(low=0.0, high=1.0)},
        "job": JobSpec(command=("x", "{x}"), total_steps=1),
        "trials": 10,
        "parallel": 3,
        "sampler": "random",
    }
    row = SearchRow(id=3, tenant="t", user="u", study=StudySpec(**(given | more)), started_s=0.0)
    return LiveSearch(row, rows)


def trial(number: int, state: Any = "running", **more: Any) -> TrialRow:
    return TrialRow(
        search=3, number=number, job=100 + number, parameters={"x": 0.5}, state=state, **more
    )


def report(live: LiveSearch, number: int, *values: float) -> None:
    live.note_curve(
        number,
        MetricCurve(
            name="loss",
            steps=list(range(1, len(values) + 1)),
            times_s=[0.0] * len(values),
            values=list(values),
            last=values[-1],
            last_step=len(values),
        ),
    )


def test_as_many_trials_run_as_may_be_at_once() -> None:
    assert search([trial(0), trial(1)]).wants_trial
    assert not search([trial(0), trial(1), trial(2)]).wants_trial
    assert search([trial(0), trial(1, "pruned"), trial(2)]).wants_trial
    assert not search([trial(0), trial(1)], trials=2).wants_trial
    over = search([trial(0)])
    over.row.state = "stopped"
    assert not over.wants_trial


def test_trials_share_the_weight_of_their_search() -> None:
    live = search([trial(0), trial(1, "completed"), trial(2)], weight=3.0)
    assert live.weights() == {0: 1.5, 2: 1.5}
    assert live.weights(more=1) == {0: 1.0, 2: 1.0, 3: 1.0}
    assert live.submission(trial(3), lambda: True).specs[0].weight == 1.0


@pytest.mark.parametrize(("direction", "best"), [("minimize", 1), ("maximize", 2)])
def test_the_best_ones_have_more_of_it(direction: str, best: int) -> None:
    live = search([trial(n) for n in range(4)], favour=1, favour_factor=3.0, direction=direction)
    assert set(live.weights().values()) == {0.25}, "nothing is known of them yet"
    for number, value in ((0, 0.5), (1, 0.1), (2, 0.9)):
        report(live, number, value)
    expected = dict.fromkeys(range(4), 1 / 6) | {best: 0.5}
    assert live.weights() == pytest.approx(expected)


def test_those_that_most_likely_reach_the_target_have_more_of_it() -> None:
    pruner = PrunerSpec("curve", max_step=10, start=2.0)
    more: dict[str, Any] = {"favour": 1, "favour_factor": 3.0, "pruner": pruner, "target": 0.2}
    live = search([trial(0), trial(1)], **more)
    report(live, 0, *[1.0] * 8)  # the better one, which has come to a stand
    report(live, 1, 1.8, 1.4, 1.1)
    assert live.weights() == {0: 0.25, 1: 0.75}
    report(live, 1, 1.8, 1.8, 1.8, 1.8, 1.8, 1.8, 1.8)
    assert live.weights() == {0: 0.75, 1: 0.25}, "of equal chances the better value counts"
    assert live.verdict(1).reason


def test_the_last_or_the_best_value_counts() -> None:
    for value, expected in (("last", (0.4, 3)), ("best", (0.2, 2))):
        live = search([trial(0)], value=value)
        assert live.value(0) is None
        report(live, 0, 0.5, 0.2, 0.4)
        assert live.value(0) == expected


def test_it_is_over_when_its_trials_are_or_its_target_is_reached() -> None:
    done = [trial(n, "completed", value=0.5 - 0.1 * n) for n in range(3)]
    assert search(done).why_over() == ("", True)
    assert search(done, trials=3).why_over() == ("all 3 trials have ended", True)
    assert search([*done, trial(3)], trials=4).why_over() == ("", True)
    assert search(done, target=0.3).why_over() == ("trial 2 has reached 0.3: 0.3", True)
    assert search(done, target=0.45, direction="maximize").why_over()[0].startswith("trial 0 has")
    assert search(done, target=0.1).why_over() == ("", True)
    pruned = [trial(0, "pruned", value=0.0)]
    assert search(pruned, target=0.1).why_over() == ("", True), "it has not been completed"


def test_it_gives_up_when_all_fail() -> None:
    failed = [trial(n, "failed", reason="ValueError: no") for n in range(MAX_FAILED)]
    reason, wished = search(failed, trials=100).why_over()
    assert (reason, wished) == ("the last 10 trials have failed: ValueError: no", False)
    assert search(failed[:-1], trials=100).why_over() == ("", True)
    mixed = [*failed[:-1], trial(MAX_FAILED - 1, "completed", value=1.0)]
    assert search(mixed, trials=100).why_over() == ("", True)


def test_nothing_is_left_once_no_job_of_it_runs() -> None:
    live = search([trial(0, "stopped")])
    live.row.state = "stopped"
    assert not live.is_over, "the job of a trial that is over may still run"
    live.unsettled.clear()
    assert live.is_over


def test_a_pruned_trial_goes_to_the_sampler_with_its_points() -> None:
    live = search([trial(0), trial(1, "completed", value=0.1)], pruner=PrunerSpec("asha"))
    report(live, 0, 0.5, 0.4)
    live.note_trial(trial(0, "pruned", value=0.4))
    first, second = live.task().past
    assert (first.state, first.points) == ("pruned", {1: 0.5, 2: 0.4})
    assert (second.state, second.value, second.points) == ("completed", 0.1, {})
