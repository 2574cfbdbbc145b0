"""Which jobs stay parked on a node."""

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.client.messages import Loaded
from fairlead.cluster.agent import parked_jobs
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.agent.parked_jobs import ParkedJobs
from fairlead.cluster.agent.spawner_messages import EndParked
from fairlead.cluster.protocol.messages import Assignment, Rank

ASSIGNMENT = Assignment(
    job=1, attempt=2, command=("x",), env={}, cwd="", checkpoint_dir="", world_size=1,
    ranks=(Rank(rank=0, devices=(0,)),), park=True,
)  # fmt: skip


class Spawner:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[EndParked] = []

    def send(self, message: EndParked) -> bool:
        self.told.append(message)
        return True


def attempt_of(job: int, **more: Any) -> NodeAttempt:
    attempt = NodeAttempt(
        replace(ASSIGNMENT, job=job, **more), f"token {job}", NodeLease(10.0), 0.0
    )
    attempt.loaded(Loaded(2, 5, 0.0), 0.0)
    return attempt


@pytest.fixture
def spawner(monkeypatch: pytest.MonkeyPatch) -> Spawner:
    monkeypatch.setattr(parked_jobs, "_memory_of", lambda pids: 100 * sum(pids))
    return Spawner()


def parked_of(spawner: Spawner, limit_bytes: int | None = 1000) -> ParkedJobs:
    link: Any = spawner
    return ParkedJobs(link, limit_bytes, lambda: None)


def test_over_the_limit_what_was_parked_first_goes(spawner: Spawner) -> None:
    parked = parked_of(spawner)
    for job in (1, 2, 3):
        parked.add(attempt_of(job), {0: 4})
    assert [one.job for one in parked.report()] == [2, 3]
    assert spawner.told == [EndParked(job=1, attempt=2)]
    parked.add(attempt_of(4), {0: 11})  # more than all may have
    assert parked.report() == ()
    assert [one.job for one in spawner.told] == [1, 2, 3, 4]


def program_of(job: int) -> NodeAttempt:
    """One without the iterator, that runs."""
    fields = {"job": job, "park": False, "suspend": True, "unmanaged": True}
    attempt = NodeAttempt(replace(ASSIGNMENT, **fields), f"token {job}", NodeLease(10.0), 0.0)
    attempt.started(0.0)
    return attempt


def test_no_program_goes_for_another_one(spawner: Spawner) -> None:
    """What it has done is in its memory alone: each would undo what the other did, for ever."""
    parked = parked_of(spawner)
    assert parked.may_suspend(program_of(1), "preempted", [6])
    parked.add(program_of(1), {0: 6})
    assert not parked.may_suspend(program_of(2), "preempted", [6])
    assert parked.may_suspend(program_of(2), "preempted", [4])
    parked.add(attempt_of(3), {0: 5})  # its state is durable
    assert [one.job for one in parked.report()] == [1]
    parked.add(attempt_of(4), {0: 3})
    parked.add(program_of(2), {0: 4})
    assert [one.job for one in parked.report()] == [1, 2]
    assert [one.job for one in spawner.told] == [3, 4]


def test_ranks_that_have_ended_need_no_process_to_go_on(spawner: Spawner) -> None:
    """Those of a gang: the others may be parked on other nodes."""
    parked = parked_of(spawner, 0)
    parked.add_ended(program_of(1))
    parked.clear()  # whoever owned processes has died
    (told,) = parked.report()
    assert (told.job, told.attempt, told.memory_bytes) == (1, 2, 0)
    follows = replace(ASSIGNMENT, attempt=5, park=False, suspend=True, unmanaged=True)
    for resumes, expected in ((2, True), (4, True), (0, False)):
        found = parked.goes_on_as(replace(follows, resumes=resumes))
        assert (found is not None and found.has_ended) == expected
    parked.end([(1, 2)])
    assert parked.report() == ()
    assert spawner.told == [], "there is nothing to kill"


def test_only_what_is_preempted_in_its_loop_is_parked(spawner: Spawner) -> None:
    parked = parked_of(spawner)
    assert parked.may_park(attempt_of(1), "preempted")
    for reason in ("moved", "paused", "cancelled", "lease expired", "agent leaves"):
        assert not parked.may_park(attempt_of(1), reason)
    assert not parked.may_park(attempt_of(1, park=False), "preempted")
    assert not parked_of(spawner, 0).may_park(attempt_of(1), "preempted")
    waiting = NodeAttempt(ASSIGNMENT, "token", NodeLease(10.0), 0.0)
    assert not parked.may_park(waiting, "preempted")


def test_an_attempt_goes_on_with_the_token_of_what_is_parked(spawner: Spawner) -> None:
    parked = parked_of(spawner)
    parked.add(attempt_of(1), {0: 1})

    def token(assignment: Assignment) -> str:
        found = parked.goes_on_as(assignment)
        return "" if found is None else found.token

    assert token(replace(ASSIGNMENT, attempt=3, resumes=2)) == "token 1"
    assert token(replace(ASSIGNMENT, attempt=4, resumes=3)) == "", "another checkpoint is newer"
    assert token(replace(ASSIGNMENT, attempt=3, resumes=1)) == ""
    assert token(replace(ASSIGNMENT, attempt=3)) == ""
    assert token(replace(ASSIGNMENT, job=2, attempt=3, resumes=2)) == ""
    parked.end([(1, 2), (7, 7)])
    assert token(replace(ASSIGNMENT, attempt=3, resumes=2)) == ""
    assert spawner.told == [EndParked(job=1, attempt=2)]
    parked.end([(1, 2)])
    assert len(spawner.told) == 1, "once is enough"


def test_a_program_goes_on_that_is_parked_since_an_attempt_before_the_one_that_is_resumed(
    spawner: Spawner,
) -> None:
    """On another node that one went on, and was stopped again; here it never began."""
    parked = parked_of(spawner)
    parked.add(program_of(1), {0: 1})
    follows = replace(ASSIGNMENT, attempt=5, park=False, suspend=True, unmanaged=True)
    for resumes, expected in ((4, 2), (2, 2), (1, None), (0, None)):
        found = parked.goes_on_as(replace(follows, resumes=resumes))
        assert (None if found is None else found.key[1]) == expected


@pytest.mark.parametrize("reason", ["preempted", "paused"])
def test_what_is_about_to_go_on_is_parked_again_if_it_is_preempted(
    spawner: Spawner, reason: str
) -> None:
    """The spawner may have let it go on: the agent has only not heard of that."""
    parked = parked_of(spawner)
    fields = {"park": False, "suspend": True, "unmanaged": True, "attempt": 3, "resumes": 2}
    attempt = NodeAttempt(replace(ASSIGNMENT, **fields), "token", NodeLease(10.0), 0.0)
    assert not parked.may_leave_parked(attempt, reason), "its spawner knows nothing of it"
    attempt.launched = True
    assert parked.may_leave_parked(attempt, reason) == (reason == "preempted")
    attempt.started(0.0)
    assert not parked.may_leave_parked(attempt, reason)
    others = NodeAttempt(replace(ASSIGNMENT, attempt=3, resumes=2), "token", NodeLease(10.0), 0.0)
    others.launched = True
    assert not parked.may_leave_parked(others, reason)


def test_it_takes_a_quarter_of_the_memory_by_default(
    spawner: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Memory:
        total = 4000

    monkeypatch.setattr("psutil.virtual_memory", Memory)
    parked = parked_of(spawner, None)
    parked.add(attempt_of(1), {0: 10})
    assert spawner.told == []
    parked.add(attempt_of(2), {0: 1})
    assert [one.job for one in parked.report()] == [2]
