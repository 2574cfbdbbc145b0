"""Forecasts are kept for all who ask, and nobody is kept waiting by one."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cluster.cluster import until
from tests.cluster.forecasting.test_forecast import (
    jobs,
    middle,
    setup,
)
from tests.cluster.served import Served, served

from fairlead.cluster.forecasting import forecast_process
from fairlead.cluster.forecasting.arrivals import History
from fairlead.cluster.forecasting.forecast import ForecastQuery, ForecastRun, running_jobs
from fairlead.cluster.forecasting.forecast_outcomes import Outcomes
from fairlead.cluster.forecasting.forecast_process import (
    ForecastError,
    ForecastProcess,
    ForecastTask,
    within_time,
    without_rounds,
)
from fairlead.cluster.forecasting.forecaster import Forecaster, MadeForecast
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import FairleadError
from fairlead.model.commands import EndJobs, JobEnd

LIMIT_S = 180.0


def task(count: int = 12, **question: object) -> ForecastTask:
    state, _ = middle(setup(), jobs(count), 20)
    asked = ForecastQuery(now_s=state.time_s, **question)  # type: ignore[arg-type]
    return ForecastTask(setup(), state, asked, (0, 1, 2), wall_s=np.inf)


@pytest.fixture(scope="module")
def process() -> Iterator[ForecastProcess]:
    one = ForecastProcess("test")
    yield one
    one.close()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    kept = Outcomes(tmp_path_factory.mktemp("outcomes") / "forecasts.db")
    kept.open()
    yield kept
    kept.close()


@pytest.fixture(scope="module")
def forecaster(outcomes: Outcomes, process: ForecastProcess) -> Iterator[Forecaster]:
    copied = task()
    one = Forecaster(lambda: (copied.state.time_s, copied), 360.0, outcomes, process)
    one.start()
    yield one
    one.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


def test_the_process_answers_as_this_one_does(process: ForecastProcess) -> None:
    asked = task()
    assert process.run(asked) == within_time(asked)
    wrong = replace(asked, query=replace(asked.query, policy="nobody"))
    with pytest.raises(FairleadError, match="nobody"):
        process.run(wrong)
    for limited in (replace(asked, cpu_s=0.0), replace(asked, wall_s=0.0)):
        assert process.run(limited)[0].exact_s == 0.0


def test_a_forecast_that_does_not_end_is_answered_by_the_coarse_one(
    process: ForecastProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit is CPU time: a process that computes for ever is ended, one that waits is not."""
    asked = task()
    process.run(asked)
    monkeypatch.setattr(forecast_process, "STARTING_CPU_S", 1.0)
    endless = History(tuple((float(i), (jobs(1)[0].job,)) for i in range(50)))
    forever = replace(asked.query, history=endless, horizon_s=1e15)
    huge = jobs(1)[0].job
    forever = replace(forever, add_jobs=[replace(huge, id=999, total_steps=1e18)])  # type: ignore[arg-type]
    found = process.run(ForecastTask(asked.setup, asked.state, forever, (0,), 0.5))
    assert found[0].coarse
    assert set(found[0].finish_s) >= set(asked.state.ledger.jobs["id"].tolist())


@pytest.mark.long
def test_a_process_that_dies_is_an_error_and_the_next_one_works(process: ForecastProcess) -> None:
    asked = task()
    process.run(asked)
    child = process._process
    assert child is not None
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            process.run(asked)
        except ForecastError as problem:
            failed.append(problem)

    thread = threading.Thread(target=ask)
    before = process._number
    thread.start()
    until(lambda: process._number > before, what="the question")
    os.kill(child.pid, signal.SIGKILL)
    thread.join(LIMIT_S)
    assert failed
    assert process.run(asked)


def test_all_who_ask_are_told_from_one_forecast(forecaster: Forecaster) -> None:
    job = 11
    assert forecaster.forecast_of(job) is None, "nothing is waited for"
    until(lambda: (told := forecaster.forecast_of(job)) is not None and told.kind == "exact")
    latest = forecaster.latest
    assert latest is not None
    told = [forecaster.forecast_of(job) for _ in range(100)]
    assert all(one is not None and one.interval is not None for one in told)
    assert forecaster.latest is latest or forecaster.latest.at >= latest.at + latest.cost_s  # type: ignore[union-attr]
    one = told[0]
    assert one is not None
    assert one.kind == "exact"
    assert one.interval is not None
    assert 0 < one.interval.low_s <= one.interval.left_s <= one.interval.high_s
    assert forecaster.forecast_of(12345) is None


def test_a_forecast_of_before_a_change_is_none(
    forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: forecaster.forecast_of(11) is not None)
    latest = forecaster.latest
    assert latest is not None
    assert forecaster.forecast_of(11, changed_s=latest.now_s) is not None
    assert forecaster.forecast_of(11, changed_s=latest.now_s + 1e-3) is None


@pytest.mark.parametrize("cost_s", [1.0, 30.0], ids=["made fast", "made slowly"])
def test_a_question_is_asked_of_no_state_of_long_ago(outcomes: Outcomes, cost_s: float) -> None:
    """Where the forecast of now takes long, its coarse part is what the question is asked of."""
    copied, slow = task(), _Slow()
    slow.go_on.set()
    forecaster = Forecaster(lambda: (copied.state.time_s, copied), 360.0, outcomes, slow)
    forecaster.start()
    try:
        first = forecaster.recent(np.inf)
        assert first.final
        old = replace(first, at=first.at - 151.0, cost_s=cost_s)
        forecaster.latest = forecaster._last = old
        slow.go_on.clear()
        found = forecaster.recent(0.0)
        assert not found.final
        assert found.outcomes[0].coarse
        assert found.at > old.at + 151.0, "it is of now"
        assert forecaster.latest is old, "others are still told the exact one, and how old it is"
        slow.go_on.set()
        until(lambda: forecaster.latest is not old)
        assert forecaster.recent(np.inf).outcomes == first.outcomes
    finally:
        forecaster.close()


def test_forecasts_are_held_against_what_came_of_them(
    forecaster: Forecaster, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.cluster.forecasting.forecaster.MIN_INTERVAL_S", 0.05)
    monkeypatch.setattr("fairlead.cluster.forecasting.forecaster.INTERVAL_COST_FACTOR", 0.0)
    forecaster.forecast_of(11)
    until(lambda: forecaster.forecast_of(11) is not None and forecaster.latest.final)  # type: ignore[union-attr]
    latest = forecaster.latest
    assert latest is not None
    ends = np.array([latest.now_s + 5_000.0, latest.now_s + 6_000.0])
    completed, dropped = int(JobEnd.COMPLETED), int(JobEnd.DROPPED)
    assert 7 in latest.running
    assert 11 not in latest.running
    which, how = np.array([11, 7, 10]), np.array([completed, completed, dropped])
    forecaster.track_record.ended(EndJobs(ends[1], which, how, ends[[0, 1, 1]]))
    forecaster.track_record.interrupted(9)

    def known() -> bool:
        forecaster.forecast_of(11)
        return [one.job for one in outcomes.all()] == [11, 7]

    until(known, what="the outcomes of jobs 11 and 7, and of no other")
    found, ran = outcomes.all()
    assert (found.running, ran.running) == (False, True)
    assert found.actual_s == pytest.approx(5_000.0)
    assert found.left_s == pytest.approx(latest.outcomes[0].finish_s[11], rel=0.2)


class _Slow(ForecastProcess):
    """Has the coarse forecast at once, and the exact one when it is let go on."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.go_on = threading.Event()

    def run(
        self,
        task: ForecastTask,
        patience_s: float = float("inf"),
        early: Callable[[list[ForecastRun]], None] = lambda _: None,
    ) -> list[ForecastRun]:
        early(without_rounds(task))
        assert self.go_on.wait(LIMIT_S)
        return within_time(task)


def test_a_coarse_forecast_is_not_told_where_there_is_an_exact_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each submission had the intervals of all jobs as wide as those of coarse forecasts for a moment."""
    monkeypatch.setattr("fairlead.cluster.forecasting.forecaster.MIN_INTERVAL_S", 0.0)
    outcomes, slow, copied = Outcomes(tmp_path / "forecasts.db"), _Slow(), task()
    outcomes.open()
    one = Forecaster(lambda: (copied.state.time_s, copied), 360.0, outcomes, slow)
    one.start()

    def kind() -> str:
        told = one.forecast_of(11)
        return "none" if told is None else told.kind

    try:
        until(lambda: kind() == "coarse", what="the first, while a better one is made")
        slow.go_on.set()
        until(lambda: kind() == "exact")
        slow.go_on.clear()
        one.outdate()
        until(lambda: kind() != "none" and one.latest is not None and not one.latest.final)
        assert kind() == "exact", "the one before"
        one._last = None
        assert kind() == "coarse"
        threading.Timer(0.2, slow.go_on.set).start()
        waited = one.forecast_of(11, wait_s=LIMIT_S)
        assert waited is not None
        assert waited.kind == "exact"
    finally:
        slow.go_on.set()
        one.close()
        outcomes.close()


def test_a_job_that_ends_within_the_rounds_that_were_simulated_is_told_exactly(
    forecaster: Forecaster,
) -> None:
    """Though there was no time to simulate them to the end of all jobs."""
    until(lambda: forecaster.latest is not None and forecaster.latest.final)
    latest = forecaster.latest
    assert latest is not None
    (first, *_) = latest.outcomes
    soon, late = (of(first.finish_s, key=first.finish_s.__getitem__) for of in (min, max))
    partly = replace(latest, outcomes=(replace(first, exact_s=first.finish_s[soon] + 1.0),))
    assert latest.kind_of(late) == partly.kind_of(soon) == "exact"
    assert partly.kind_of(late) == "coarse"
    told = forecaster._job_forecast(partly, late, 0.0)
    assert told.exact_s is not None
    assert forecaster._job_forecast(partly, soon, 0.0).exact_s is None
    assert partly.kind_of(12345) == "coarse"


def test_no_end_is_told_before_the_steps_are_done(forecaster: Forecaster) -> None:
    until(lambda: (told := forecaster.forecast_of(7)) is not None and told.kind == "exact")
    told = forecaster.forecast_of(7, least_s=1e6)
    assert told is not None
    assert told.interval is not None
    assert told.interval.left_s >= 1e6
    assert 0.8e6 < told.interval.low_s < 1e6 < told.interval.high_s


@pytest.mark.parametrize(("within_s", "final"), [(3600.0, True), (3600.0, False), (0.0, True)])
def test_a_question_compares_forecasts_of_one_kind(
    server: Served,
    process: ForecastProcess,
    monkeypatch: pytest.MonkeyPatch,
    within_s: float,
    final: bool,
) -> None:
    """Where either had no time for rounds, both are told without them, and that is said."""
    asked = task()
    coarse, exact = without_rounds(asked)[0], within_time(asked)[0]
    assert coarse.mean_left_s != pytest.approx(exact.mean_left_s)
    jobs = frozenset(exact.finish_s)
    told = exact if final else coarse
    latest = MadeForecast(
        at=np.inf,  # of now, whenever that is
        now_s=asked.state.time_s,
        task=asked,
        jobs=jobs,
        running=running_jobs(asked.state),
        outcomes=(told,),
        cost_s=1.0,
        final=final,
        coarse=coarse,
    )
    outlooks = server.server.service.forecasting
    monkeypatch.setattr(outlooks.forecaster, "recent", lambda until: latest)
    monkeypatch.setattr(server.server.service.engine.state, "setup", asked.setup)
    monkeypatch.setattr(outlooks, "_questions", process)
    monkeypatch.setattr(outlooks, "_open_of", frozenset)  # its jobs are of no server
    monkeypatch.setattr("fairlead.cluster.server.forecasting.ANSWER_TIMEOUT_S", within_s)
    monkeypatch.setattr("fairlead.cluster.server.forecasting.QUESTION_CPU_S", np.inf)
    same = asked.setup.policy
    answer = outlooks.compare(Caller("admin", "", "admin"), WhatIf(policy=same))
    assert answer.forecast_kind == ("exact" if within_s and final else "coarse")
    expected = exact if within_s and final else coarse
    assert answer.now.finish_s == pytest.approx(dict(expected.finish_s))
    # The same policy: nothing changes.
    assert answer.then.finish_s == pytest.approx(dict(expected.finish_s), rel=0.05)
    assert bool(answer.notes) == (answer.forecast_kind == "coarse")


def test_a_reason_is_given_while_the_driver_stands_still(server: Served) -> None:
    spec = JobSpec(command=("true",), total_steps=10, rates={"v100": 1.0}, cwd="/")
    with server.client() as client:
        ids = client.submit([spec] * 200)
        go = threading.Event()
        stuck = server.server.service.engine.call(lambda: go.wait(LIMIT_S))
        try:
            told = [client.explain(job) for job in ids[:20]]
            assert not stuck.done(), "the driver stood still all the time"
        finally:
            go.set()
        assert all(one.facts and one.why_here for one in told)
        stuck.result(LIMIT_S)


def test_a_question_that_cannot_be_answered_is_refused(server: Served) -> None:
    admin = Caller("admin", "", "admin")
    with pytest.raises(FairleadError, match="no nodes yet"):
        server.server.service.what_if(admin, WhatIf(policy="fifo"))
