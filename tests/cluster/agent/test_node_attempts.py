from pathlib import Path
from typing import Any

from tests.cluster.agent.cluster import job

from fairlead.cluster.agent.addresses import assign_addresses
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.agent.node_attempts import NodeAttempts


def start(number: int = 1, attempt: int = 1, **changes: Any) -> NodeAttempt:
    return NodeAttempt(job(number, attempt, **changes), "t" * 32, NodeLease(10.0), 0.0)


def attempts_of(*starts: NodeAttempt) -> NodeAttempts:
    attempts = NodeAttempts()
    for one in starts:
        attempts.add(one)
    return attempts


def test_what_has_not_ended_is_not_forgotten() -> None:
    one = start()
    attempts = attempts_of(one)
    assert not attempts.forget(one.key)
    one.record_exit(1.0)
    assert attempts.forget(one.key)
    assert attempts.get(one.key) is None
    assert not attempts.forget(one.key)


def test_a_start_that_was_forgotten_is_not_new_again() -> None:
    one = start(attempt=3)
    attempts = attempts_of(one)
    one.record_exit(1.0)
    attempts.forget(one.key)
    assert not attempts.is_new(job(1, 3))
    assert not attempts.is_new(job(1, 2))
    assert attempts.is_new(job(1, 4))
    assert attempts.is_new(job(2, 1))


def test_what_was_never_launched_keeps_no_agent_alive() -> None:
    """Else one whose name another agent has taken, and that waits for a lease, asks for ever."""
    one = start()
    attempts = attempts_of(one)
    assert not attempts.busy
    one.launched = True
    assert attempts.busy
    one.record_exit(1.0)
    assert not attempts.busy


def test_another_timeline_numbers_attempts_anew() -> None:
    attempts = attempts_of(start(attempt=3, order_id="a.1.r.x"))
    assert not attempts.is_new(job(1, 2, order_id="a.1.s.y"))
    assert attempts.is_new(job(1, 2, order_id="a.2.s.y"))
    assert attempts.is_new(job(1, 2, order_id="b.1.s.y"))


def test_ports_are_free_again_when_their_start_has_ended() -> None:
    one = start()
    one.addresses = assign_addresses(one.assignment, "127.0.0.1")
    attempts = attempts_of(one)
    assert one.addresses.ports
    assert attempts.ports == one.addresses.ports
    one.record_exit(1.0)
    assert attempts.ports == set()
    assert not attempts.busy


def test_what_waits_for_the_node_is_told_sooner_than_what_waits_for_its_devices() -> None:
    full, queued = start(1), start(2)
    full.waits("No space left on device", 0.0, obstacle=True)
    queued.waits("what ran there before has not ended", 0.0)
    attempts = attempts_of(full, queued)
    assert attempts.obstructed(9.0) == []
    assert attempts.obstructed(11.0) == ["job 1 cannot start: No space left on device"]
    assert len(attempts.obstructed(301.0)) == 2
    full.started(302.0)
    assert attempts.obstructed(303.0) == ["job 2 cannot start: what ran there before has not ended"]


def test_a_directory_is_news_once() -> None:
    one, other = start(1, checkpoint_dir="/a"), start(2, checkpoint_dir="/b")
    attempts = attempts_of(one, other)
    named = {Path("/a"): one.assignment, Path("/b"): other.assignment}
    assert attempts.checkpoint_directories() == named
    assert attempts.note_directories({Path("/a"): "no answer"})
    assert (one.directory_problem, other.directory_problem) == ("no answer", "")
    assert not attempts.note_directories({Path("/a"): "no answer"})
    assert attempts.note_directories({})
    assert one.directory_problem == ""
