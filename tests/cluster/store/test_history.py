"""Which seen positions contradict the history of a state."""

import msgspec
import pytest

from fairlead.cluster.protocol.messages import StorePosition
from fairlead.cluster.store.history import MAX_RUNS, MAX_TIMELINE, StoreHistory
from fairlead.cluster.store.schema import Commit

replace = msgspec.structs.replace


def commit(number: int) -> Commit:
    return Commit(number, 1.8e9, b"", b"", b"")


def after(*bases: int) -> StoreHistory:
    """With a run since each of these commits."""
    history = StoreHistory.decode(None)
    for number, base in enumerate(bases, 1):
        history = history.begin_run(number, base)
    return history


def test_what_a_state_has_been_in_contradicts_nothing() -> None:
    first = after(0)
    seen = [first.position(commit(number)) for number in (1, 50, 100)]
    history = first.begin_run(2, 100)
    seen += [history.position(commit(number)) for number in (101, 120)]
    assert [history.contradiction(one, 120) for one in seen] == [""] * 5
    again = StoreHistory.decode(history.encode())
    assert again == history


def test_a_clock_before_1970_is_told_in_a_way_that_agents_can_read() -> None:
    position = after(0).position(Commit(7, -5.0, b"", b"", b""))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(position), type=StorePosition) == position


def test_a_state_that_lacks_commits_of_a_run_is_older() -> None:
    copy = after(0)
    newer = copy.position(commit(101))
    history = copy.begin_run(2, 100)
    for newest in (100, 101, 5000):  # it has gone on since, with commits of other contents
        found = history.contradiction(newer, newest)
        assert found == "this state had come to commit 100 then"
    assert history.contradiction(copy.position(commit(100)), 100) == ""
    # The memory of a machine that was put back: the run is the same, and knows less.
    assert copy.contradiction(newer, 100) == "this state had come to commit 100 then"


def test_a_run_that_a_state_does_not_know_is_of_a_newer_copy() -> None:
    copy = after(0)
    newer = copy.begin_run(2, 100).position(commit(101))
    for history in (copy, copy.begin_run(2, 100), copy.begin_run(2, 100).begin_run(3, 300)):
        assert "knows nothing of the run" in history.contradiction(newer, 400)


def test_what_is_of_another_cluster_or_a_forgotten_run_says_nothing() -> None:
    history = after(0, 10)
    position = history.position(commit(12))
    assert history.contradiction(replace(position, cluster="another", commit=999), 12) == ""
    many = after(*range(0, 10 * MAX_RUNS, 5))
    assert len(many.runs) == MAX_RUNS
    assert many.contradiction(replace(position, cluster=many.cluster), 10**5) == ""


def test_what_was_given_up_knowingly_says_nothing_and_the_opposite_does() -> None:
    copy = after(0)
    newer = copy.begin_run(2, 100).position(commit(130))
    branch = copy.branch(100, 0)
    assert (branch.cluster, branch.parent, branch.parent_commit) == (copy.cluster, 1, 100)
    restored = branch.begin_run(2, 101)
    assert restored.contradiction(newer, 101) == ""
    assert restored.abandoned_commits(newer) == 30
    assert restored.abandoned_commits(copy.position(commit(90))) == 0
    seen = restored.position(commit(105))
    assert "from before the restore" in copy.begin_run(3, 140).contradiction(seen, 140)
    assert restored.contradiction(replace(seen, timeline=MAX_TIMELINE + 1), 105) == ""


def test_the_later_of_two_restores_of_one_backup_counts() -> None:
    backup = after(0)
    first = backup.branch(10, 0)
    seen = first.begin_run(2, 11).position(commit(500))
    second = backup.branch(10, 0)
    if second.timeline == first.timeline:  # within a millisecond
        second = backup.branch(10, first.timeline)
    assert second.begin_run(2, 11).contradiction(seen, 11) == ""
    behind = replace(second, timeline=first.timeline - 1).begin_run(2, 11)  # the clock was set back
    assert "from before the restore" in behind.contradiction(seen, 11)
    assert behind.branch(20, seen.timeline).timeline > first.timeline


@pytest.mark.parametrize("field", ["timeline", "run", "commit"])
def test_positions_are_in_order(field: str) -> None:
    position = after(0).position(commit(7))
    later: StorePosition = replace(position, **{field: 100})
    assert later.order > position.order
