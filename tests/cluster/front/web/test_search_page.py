"""The pages of searches, from views."""

import xml.etree.ElementTree as ElementTree
from typing import Any, cast

import pytest
from tests.cluster.front.web.test_web_rendering import ADMIN, HOSTILE, STATUS

from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.web.layout import Page, document
from fairlead.cluster.front.web.page_request import PageRequest
from fairlead.cluster.front.web.search_page import (
    parallel_coordinates,
    search_page,
    searches_page,
)
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.study import ParameterRange, SearchView, StudySpec, TrialView
from fairlead.errors import InputError

STUDY = StudySpec(
    metric="loss",
    parameters={
        "lr": ParameterRange(low=1e-4, high=1.0, log=True),
        "layers": ParameterRange("int", low=1, high=5),
        "kind": ParameterRange("categorical", choices=("a", HOSTILE, 1, True)),
    },
    job=JobSpec(command=("x",), total_steps=1),
    trials=9,
)


def trial(number: int, value: float | None, **more: Any) -> TrialView:
    parameters = {
        "lr": 0.01 * (number + 1),
        "layers": number + 1,
        "kind": ("a", HOSTILE, True)[number],
    }
    given: dict[str, Any] = {"state": "completed", "step": 7, "parameters": parameters} | more
    return TrialView(number=number, job=number + 10, value=value, **given)


TRIALS = [trial(0, 0.5), trial(1, 0.25), trial(2, 0.75, state="pruned", reason=HOSTILE)]


def view(trials: list[TrialView], **more: Any) -> SearchView:
    given: dict[str, Any] = {
        "id": 3,
        "name": HOSTILE,
        "user": "ada",
        "tenant": "vision",
        "state": "running",
    }
    known = {"reason": "", "started_s": 1.0, "ended_s": None, "study": STUDY, "counts": {}}
    best = trials[1] if len(trials) > 1 else None
    return SearchView(**(given | known | more), best=best, trials=trials)


class _Facade:
    """One search."""

    def __init__(self, shown: SearchView) -> None:
        self.shown = shown
        self.status = lambda _: STATUS
        self.searches = lambda _: [shown]

    def search(self, _: Caller, number: int) -> SearchView:
        assert number == 3
        return self.shown

    def search_curves(self, _: Caller, number: int) -> dict[int, MetricCurve]:
        assert number == 3
        curve = MetricCurve(
            name="loss", steps=[1, 7], times_s=[0, 1], values=[1.0, 0.5], last=0.5, last_step=7
        )
        return {one.number: curve for one in self.shown.trials}


def html(page: Page, caller: Caller = ADMIN) -> str:
    return document(page, caller, "nonce")


def shown(one: SearchView, caller: Caller = ADMIN, number: str = "3") -> str:
    ask = PageRequest(caller, {"search": number})
    return html(search_page(cast(Facade, _Facade(one)), ask), caller)


def test_a_search_is_shown_with_its_best_trial_and_curves() -> None:
    text = shown(view(TRIALS))
    assert "Best: trial 1" in text
    assert "loss 0.25" in text
    assert 'href="/jobs/11"' in text
    assert text.count("<polyline") == 6, "a curve and a line of its parameters for each trial"
    assert 'action="/searches/3/stop"' in text
    assert "<script>alert" not in text


def test_what_has_ended_or_is_not_the_callers_cannot_be_stopped() -> None:
    ended = view(TRIALS, state="completed", reason="all 3 trials have ended", ended_s=50.0)
    assert "/searches/3/stop" not in shown(ended)
    assert "All 3 trials have ended." in shown(ended)
    assert "/searches/3/stop" not in shown(view(TRIALS), Caller("eve", "other", "user"))
    assert "/searches/3/stop" in shown(view(TRIALS), Caller("bob", "vision", "user"))


def test_a_search_without_trials() -> None:
    text = shown(view([]))
    assert "No trial has completed yet." in text
    assert "No trial has a value yet." in text
    assert "Nothing has been reported yet." in text


@pytest.mark.parametrize("number", ["x", "-1", "9" * 30])
def test_an_address_without_a_number_is_refused(number: str) -> None:
    with pytest.raises(InputError):
        shown(view([]), number=number)


def test_the_list_names_all_searches() -> None:
    text = html(searches_page(cast(Facade, _Facade(view(TRIALS))), PageRequest(ADMIN)))
    assert 'href="/searches/3"' in text
    assert "0.25" in text
    assert "<script>alert" not in text


def test_parallel_coordinates_are_well_formed_and_the_best_is_on_top() -> None:
    root = ElementTree.fromstring(str(parallel_coordinates(view(TRIALS))))
    lines = [one for one in root.iter() if one.tag.endswith("polyline")]
    assert len(lines) == 3
    widths = [line.get("stroke-width") for line in lines]
    assert widths == ["1.2", "1.2", "2.4"]
    points = [pair.split(",") for pair in (lines[-1].get("points") or "").split()]
    assert len(points) == 4, "three parameters and the metric"
    assert len({x for x, _ in points}) == 4


@pytest.mark.parametrize("value", [-1.7e308, 0.0, 1.7e308])
def test_any_values_can_be_drawn(value: float) -> None:
    drawn = str(parallel_coordinates(view([trial(0, value), trial(1, 1.7e308)])))
    assert "nan" not in drawn
    assert "inf" not in drawn
