"""A job's story in words and numbers."""

import re

import msgspec
import pytest
from rich.console import Console

from fairlead.cli.job_history import (
    attempt_history,
    expected_end,
    overhead_s,
)
from fairlead.cli.terminal_views import show
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    Explanation,
    JobView,
)
from fairlead.cluster.protocol.attempt_end import AttemptEnd

JOB = JobView(
    id=7,
    name="mine",
    tenant="apes",
    user="ann",
    family="",
    scale_factor=2,
    weight=1.5,
    state="running",
    total_steps=1000.0,
    steps=300.0,
    saved_step=240,
    submitted_s=10.0,
    started_s=11.0,
    ended_s=None,
    node="b",
    accelerator="v100",
    devices=(0, 1),
    attempt=2,
    starts=2,
    preemptions=1,
    failures=0,
    run_s=100.0,
    lost_steps=4.0,
    overhead_s=5.0,
    rates={"v100": 10.0},
    measured_rate=9.5,
    slo_s=None,
    reason="",
)
FIRST = AttemptView(
    job=7,
    attempt=1,
    node="a",
    accelerator="k80",
    devices=(0, 1),
    began_s=10.0,
    ended_s=70.0,
    from_step=0.0,
    to_step=120.0,
    why="preempted",
    wait_s=0.0,
    start_s=0.5,
    load_s=-1.0,
    save_s=0.25,
    stop_s=1.0,
    lost_steps=0.0,
)
SECOND = msgspec.structs.replace(
    FIRST, attempt=2, node="b", began_s=90.0, ended_s=None, why="", wait_s=2.0, load_s=0.125
)
TOLD = Explanation(
    job=JOB,
    why_here="It is owed most.",
    finish_s=400.0,
    finish_low_s=300.0,
    finish_high_s=600.0,
    forecasts=20,
    attempts=(FIRST, SECOND),
    events=((10.0, "submitted"), (70.0, "preempted")),
)


def printed(told: Explanation, now_s: float = 200.0) -> str:
    console = Console(width=160, markup=False, highlight=False)
    with console.capture() as caught:
        console.print(attempt_history(told, now_s))
    return caught.get()


def test_the_parts_of_a_start_are_named_for_what_they_are() -> None:
    heads = next(line for line in printed(TOLD).splitlines() if "began" in line).split()
    assert "wait" not in heads
    assert heads[heads.index("steps") + 1] == "handover"


def test_starts_have_the_numbers_that_events_call_them_by() -> None:
    change = msgspec.structs.replace
    later = change(SECOND, attempt=4, why="failed: no", traceback="ValueError: no")
    text = printed(change(TOLD, attempts=(FIRST, later)))
    assert "Attempt 4:" in text
    assert re.search(r"(?m)^ *4 +b k80:0,1", text)


def test_an_attempt_costs_what_it_did_not_train_for_and_no_part_of_that_twice() -> None:
    assert overhead_s(FIRST) == 0.0 + 0.5 + 0.25 + 1.0
    assert overhead_s(SECOND) == 2.0 + 0.5 + 0.125 + 0.25 + 1.0
    parts = dict.fromkeys(("wait_s", "start_s", "load_s", "save_s", "stop_s"), -1.0)
    assert overhead_s(msgspec.structs.replace(FIRST, **parts)) is None


def test_a_part_of_the_cost_that_is_not_known_is_no_negative_time() -> None:
    unknown = msgspec.structs.replace(FIRST, save_s=-1.0, stop_s=-1.0, start_s=-1.0)
    assert "-1.0" not in printed(msgspec.structs.replace(TOLD, attempts=(unknown,)))


def test_the_story_is_told() -> None:
    text = printed(TOLD)
    for part in (
        "Job 7 mine of ann (apes): 2 devices, weight 1.5",
        "Running on b v100:0,1, step 300 of 1,000 (30%), 9.5 steps/s",
        "It is owed most.",
        "Expected to end in 6 min 40 s, 8 of 10 times between 5 min and 10 min (20 forecasts).",
        "3.9 s",
        "1 min 50 s ago",  # the second start
        "3 min 10 s ago   submitted",
        "2 starts, 1 preemption, 0 failures: 5.0 s of handing over devices",
        "(3.0% of its time on devices), 4 steps done again.",
    ):
        assert part in text


def test_steps_of_a_job_that_was_given_up_are_lost_and_tries_without_checkpoints_are_told() -> None:
    change = msgspec.structs.replace
    away = change(SECOND, end=AttemptEnd.FAILED, why="failed: checkpoint directory c is gone")
    told = change(TOLD, job=change(TOLD.job, state="dropped"), attempts=(FIRST, away))
    text = " ".join(printed(told).split())
    assert "0 failures, 1 attempt without its checkpoints: 5.0 s of" in text
    assert "4 steps lost." in text


def test_steps_of_an_attempt_that_died_between_two_words_of_them_are_told_as_the_least() -> None:
    change = msgspec.structs.replace
    died = change(SECOND, ended_s=150.0, end=AttemptEnd.FAILED, reached_step=124.0, lost_steps=4.0)
    least = change(TOLD, attempts=(FIRST, died))
    assert "at least 4 steps done again." in " ".join(printed(least).split())
    own = change(TOLD, attempts=(FIRST, change(died, lost_own=True)))  # its time is its steps
    assert "), 4 steps done again." in " ".join(printed(own).split())


def test_how_a_forecast_was_made_is_told() -> None:
    change = msgspec.structs.replace
    coarse = change(
        TOLD,
        forecast_kind="coarse",
        forecast_age_s=12.0,
        forecast_exact_s=7200.0,
        forecast_error=0.2,
    )
    for part in ("made 12 s ago", "coarse beyond 2 h", "typically 20% off"):
        assert part in printed(coarse)
    young = expected_end(change(TOLD, forecast_outcomes=3))
    assert "probably between 5 min and 10 min" in young
    assert "not calibrated yet: 3 of 20 like forecasts have been checked" in young
    known = expected_end(change(TOLD, forecast_outcomes=20))
    assert "8 of 10 times between 5 min and 10 min (20 forecasts)." in known
    none = change(TOLD, finish_s=None, forecasts=0, forecast_kind="none yet")
    assert "It is owed most." in printed(none)
    assert "The forecast is being made" in printed(none)


def test_a_failure_that_comes_again_and_again_is_told_where_it_came_last() -> None:
    change, why = msgspec.structs.replace, "failed: exit code 1: no such file"
    attempts = [change(FIRST, attempt=n, why=why, end=AttemptEnd.FAILED) for n in (1, 2, 3)]
    other = change(FIRST, attempt=4, why="failed: exit code 2", end=AttemptEnd.FAILED)
    events = [(10.0 * n, f"attempt {n} {why} at step 0") for n in (1, 2, 3)]
    text = printed(change(TOLD, attempts=(*attempts, other), events=tuple(events)))
    assert text.count("no such file") == 3
    assert re.search(r"(?m)^ *3 .* failed: exit code 1: no such file *$", text), "in the table"
    assert re.search(r"(?m)^ *1 .* failed *$", text)
    assert "attempt 3 failed: exit code 1: no such file at step 0" in text
    assert "failed 3 times: exit code 1: no such file" in text
    assert "attempt 2 failed at step 0" in text
    assert "failed: exit code 2" in text


def test_an_end_that_is_not_known_is_not_made_up() -> None:
    change = msgspec.structs.replace
    still = change(TOLD, no_end="stands still", finish_s=None, forecasts=0)
    assert expected_end(still) == "No end is forecast: it stands still."
    after = expected_end(change(TOLD, no_end="finishing", job=change(JOB, state="finishing")))
    assert (
        after == "No end is forecast: nobody knows how long its script takes after the last step."
    )
    none = change(TOLD, finish_s=None, forecasts=0)
    assert expected_end(none) == "No forecast: it takes no part now."
    ended = change(TOLD, no_end="ended", job=change(JOB, state="running", no_end="ended"))
    assert "No end is forecast: its processes have ended, which is not booked yet." in printed(
        ended
    )
    assert "not booked yet, step " in printed(ended)
    assert "Running" not in printed(ended)
    assert "No end within" in expected_end(change(TOLD, finish_s=None))
    assert "8 of 10" not in expected_end(change(TOLD, finish_high_s=None))
    assert expected_end(change(TOLD, job=change(JOB, ended_s=130.0))) == "Ended after 2 min."


def test_the_deadline_is_told_as_a_time() -> None:
    due = msgspec.structs.replace(JOB, slo_s=7200.0, deadline="open", deadline_left_s=7000.0)
    text = printed(msgspec.structs.replace(TOLD, job=due))
    assert re.search(r"Deadline 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d, 2 h after it was submitted", text)
    assert "Deadline" not in printed(TOLD)


def test_what_a_server_sends_takes_no_terminal_over(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;own\x07\x1b[2J\x9b2J\u202e"
    attempt = msgspec.structs.replace(
        FIRST, traceback=f"{evil}first\n  second", why=f"{evil}\nFAKE"
    )
    story = msgspec.structs.replace(
        TOLD, why_here=f"{evil}here", attempts=(attempt,), events=((1.0, evil),)
    )
    show(attempt_history(story, 100.0))
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x07\x9b\u202e")
    assert "first\n  second" in printed
    assert "]0;own" in printed
