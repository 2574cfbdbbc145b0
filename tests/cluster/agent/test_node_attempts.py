import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cluster.agent.cluster import job

from fairlead.cluster.agent.addresses import assign_addresses
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.kept_ends import KeptEnds
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.agent.node_attempts import NodeAttempts


def start(number: int = 1, attempt: int = 1, **changes: Any) -> NodeAttempt:
    return NodeAttempt(job(number, attempt, **changes), "t" * 32, NodeLease(10.0), 0.0)


def attempts_of(*starts: NodeAttempt, state: Path = Path("/nowhere")) -> NodeAttempts:
    attempts = NodeAttempts(KeptEnds(state))
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


def test_an_agent_that_is_started_again_knows_of_ends_that_are_not_booked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = start(attempt=3, order_id="a.1.r.x")
    attempts = attempts_of(one, state=tmp_path)
    one.record_exit(time.monotonic())
    attempts.keep_end(one)
    (known,) = attempts.statuses()
    later = time.time() + 100.0
    monkeypatch.setattr(time, "time", lambda: later)
    again = NodeAttempts(KeptEnds(tmp_path))
    (told,) = again.statuses()
    ages = {"ended_age_s": 0.0}
    assert msgspec.structs.replace(told, **ages) == msgspec.structs.replace(known, **ages)
    assert told.state == "ended"
    assert told.ended_age_s == pytest.approx(known.ended_age_s + 100.0, abs=30.0)
    assert not again.is_new(job(1, 3, order_id="a.1.r.x")), "it is not begun again"
    assert again.forget((1, 3))
    assert not again.forget((1, 3))
    assert NodeAttempts(KeptEnds(tmp_path)).statuses() == ()


def test_damaged_ends_count_for_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = start()
    attempts = attempts_of(one, state=tmp_path)
    one.record_exit(1.0)
    attempts.keep_end(one)
    (path,) = (tmp_path / "ends").iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    assert NodeAttempts(KeptEnds(tmp_path)).statuses() == ()
    assert "is damaged" in caplog.text
    assert not path.exists()


def test_an_end_that_cannot_be_kept_is_known_until_the_agent_dies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = start()
    (tmp_path / "ends").write_text("in the way")
    attempts = attempts_of(one, state=tmp_path)
    one.record_exit(1.0)
    attempts.keep_end(one)
    assert "could not be kept" in caplog.text
    assert [status.state for status in attempts.statuses()] == ["ended"]
