"""When a start makes no progress, and what is done about it."""

from fairlead.cluster.agent.attempt_times import StopOrder
from fairlead.cluster.agent.stacks import RankStack, StackFrame
from fairlead.cluster.agent.stalls import AttemptStall, StallWatch
from fairlead.cluster.protocol.messages import Assignment, Rank

WAITS = (
    StackFrame("/v/lib/python3.11/threading.py", 327, "wait"),
    StackFrame("/home/ann/train.py", 57, "f"),
)
WORKS = (StackFrame("/home/ann/train.py", 80, "evaluate"),)


def assignment(**more: object) -> Assignment:
    given = {
        "job": 1,
        "attempt": 1,
        "command": ("python", "train.py"),
        "env": {},
        "cwd": "/",
        "checkpoint_dir": "",
        "ranks": (Rank(rank=0, devices=(0,)), Rank(rank=1, devices=(1,))),
        "world_size": 2,
        **more,
    }
    return Assignment(**given)  # type: ignore[arg-type]


def stacks(*frames: tuple[StackFrame, ...]) -> dict[int, RankStack]:
    return {rank: RankStack(rank, one, "...") for rank, one in enumerate(frames)}


def trained(step_s: float = 0.1, until: float = 10.0) -> StallWatch:
    """A start that did a step every so often, the first at time 1."""
    watch = StallWatch(0.0)
    watch.loaded(0, 1.0)
    step, now = 0, 1.0
    while now < until:
        step, now = step + 1, now + step_s
        watch.progressed(step, now, saving=False)
    return watch


def look(watch: StallWatch, order: Assignment, now: float, found: dict[int, RankStack]) -> str:
    assert watch.due(order, now)
    return watch.record_stacks(found, order, now)


def test_it_is_told_after_much_more_than_is_usual() -> None:
    watch, order = trained(), assignment()
    now = watch.progression.step_at or 0.0
    assert not watch.due(order, now + 59.0)
    message = look(watch, order, now + 61.0, stacks(WORKS, WAITS))
    assert message.startswith(
        "no step for 61 s, usual 0.1 s; rank 0 is in train.py:80 (evaluate); "
    )
    assert message.endswith("rank 1 is in threading.wait (train.py:57)")
    assert not watch.due(order, now + 62.0)  # not all the time
    assert watch.due(order, now + 200.0)


def test_slow_steps_and_pauses_that_it_had_before_are_no_hang() -> None:
    slow = trained(step_s=30.0, until=300.0)
    now = slow.progression.step_at or 0.0
    assert not slow.due(assignment(), now + 590.0)
    assert slow.due(assignment(), now + 610.0)
    pausing = trained()
    now = (pausing.progression.step_at or 0.0) + 100.0  # an evaluation
    pausing.progressed(200, now, saving=False)
    assert not pausing.due(assignment(), now + 290.0)
    assert pausing.due(assignment(), now + 310.0)


def test_a_step_ends_what_was_said() -> None:
    watch, order = trained(), assignment()
    now = (watch.progression.step_at or 0.0) + 61.0
    look(watch, order, now, stacks(WAITS))
    watch.progressed(500, now + 1.0, saving=False)
    assert not watch.due(order, now + 2.0)
    assert watch.reported == ""


def test_that_rank_0_speaks_is_no_progress() -> None:
    watch, order = trained(), assignment()
    now, step = watch.progression.step_at or 0.0, watch.progression.step
    watch.progressed(step, now + 60.0, saving=False)
    assert watch.due(order, now + 61.0)


def test_a_checkpoint_may_take_its_time() -> None:
    watch, order = trained(), assignment()
    now, step = watch.progression.step_at or 0.0, watch.progression.step
    watch.progressed(step, now, saving=True)
    assert not watch.due(order, now + 500.0)
    assert watch.due(order, now + 700.0)
    watch.progressed(step, now + 500.0, saving=False)
    assert not watch.due(order, now + 501.0)


def test_a_start_is_measured_by_those_before() -> None:
    watch = StallWatch(0.0)
    assert not watch.due(assignment(), 599.0)
    assert look(watch, assignment(), 601.0, {}) == "no first step for 601 s"
    known = assignment(usual_start_s=40.0)
    assert not StallWatch(0.0).due(known, 199.0)
    assert look(StallWatch(0.0), known, 201.0, {}) == "no first step for 201 s, usual 40 s"
    loaded = StallWatch(0.0)
    loaded.loaded(70, 5.0)  # but the first step does not come
    loaded.progressed(70, 6.0, saving=False)
    assert loaded.due(known, 201.0)


def ends(order: Assignment, *looks: dict[int, RankStack]) -> bool:
    """Is it ended, silent for an hour and looked at thus?"""
    watch = trained()
    now = watch.progression.step_at or 0.0
    for number, found in enumerate(looks):
        look(watch, order, now + 1000.0 * (number + 1), found)
    return watch.is_overdue(order, now + 3600.0)


def test_by_default_only_what_certainly_hangs_is_ended() -> None:
    stuck = stacks(WAITS, WAITS)
    assert ends(assignment(), stuck, stuck, stuck)
    assert not ends(assignment(), stuck, stuck)  # not looked at often enough
    assert not ends(assignment(), stacks(WAITS, WORKS), stuck, stuck)  # something moves
    assert not ends(assignment(), *[stacks(WORKS, WORKS)] * 3)  # nobody waits for anybody
    assert not ends(assignment(), *[stacks(WAITS)] * 3)  # of one rank nothing is known
    assert not ends(assignment(), {}, {}, {})
    assert not ends(assignment(on_stall="report"), stuck, stuck, stuck)
    watch = trained()
    now = watch.progression.step_at or 0.0
    for seconds in (100.0, 200.0, 300.0):
        look(watch, assignment(), now + seconds, stuck)
    assert not watch.is_overdue(assignment(), now + 1700.0)


def test_a_limit_of_the_owner_holds_whatever_it_does() -> None:
    order, watch = assignment(stall_timeout_s=45.0, start_timeout_s=9.0), trained()
    now = watch.progression.step_at or 0.0
    assert not watch.due(order, now + 44.0)
    look(watch, order, now + 45.0, stacks(WORKS))
    assert watch.is_overdue(order, now + 45.0)
    assert not watch.is_overdue(assignment(stall_timeout_s=0.0), now + 1e6)
    begins = StallWatch(0.0)
    look(begins, order, 9.5, {})
    assert begins.is_overdue(order, 9.5)
    assert not begins.is_overdue(assignment(start_timeout_s=9.0, on_stall="report"), 9.5)


def test_a_pause_is_not_taken_for_what_is_usual() -> None:
    watch, order = trained(), assignment()
    now, step = watch.progression.step_at or 0.0, watch.progression.step
    look(watch, order, now + 100.0, stacks(WORKS))
    watch.progressed(step + 1, now + 100.0, saving=False)
    message = look(watch, order, now + 100.0 + 301.0, stacks(WORKS))
    assert message.startswith("no step for 301 s, usual 0.2 s; "), "three times that pause"


def test_a_save_is_told_of_by_what_saves_took_before() -> None:
    watch, order = trained(), assignment()
    now, step = watch.progression.step_at or 0.0, watch.progression.step
    watch.progressed(step, now, saving=True)
    watch.progressed(step, now + 2.0, saving=False)
    watch.progressed(step + 1, now + 2.1, saving=True)
    assert not watch.due(order, now + 60.0)
    assert look(watch, order, now + 64.0, stacks(WORKS)).endswith(
        "usual 0.1 s (it saves); rank 0 is in train.py:80 (evaluate)"
    )
    fresh = trained()
    fresh.progressed(step, now, saving=True)
    earlier = assignment(usual_save_s=9.0)  # of an earlier start
    assert not fresh.due(earlier, now + 89.0)
    assert fresh.due(earlier, now + 91.0)


def test_of_one_that_is_to_stop_it_is_told_where_it_stands() -> None:
    stall = AttemptStall()
    stall.watch_from(0.0)
    stall.loaded(7, 1.0)
    stall.progressed(8, 2.0, saving=True)
    stall.record_stacks_of_stop(stacks(WORKS), 20.0, "preempted")
    assert stall.sentence == (
        "not ended 20 s after it was told to stop (preempted) (it saves); "
        "rank 0 is in train.py:80 (evaluate)"
    )
    assert stall.stacks


def test_one_that_is_to_stop_is_looked_at_before_it_is_killed() -> None:
    short, long = StopOrder(), StopOrder()
    assert not short.due(30.0, 1e6), "it was not told to stop"
    for order in (short, long):
        order.give("preempted", 100.0)
    assert not short.due(30.0, 119.0)
    assert short.due(30.0, 121.0)
    short.record_inspection()
    assert not short.due(30.0, 129.0)
    assert long.due(600.0, 161.0)
    long.record_inspection()
    assert not long.due(600.0, 670.0)
    assert long.due(600.0, 681.0)
