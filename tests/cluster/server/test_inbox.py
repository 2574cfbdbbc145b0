"""What comes to the driver's thread, and how much of it at once."""

from fairlead.cluster.server.inbox import NODES, Inbox


def test_news_of_many_nodes_are_taken_over_a_part_at_a_time() -> None:
    """So that who waits for a commit does not wait for all of them."""
    inbox, done = Inbox(pace_s=0.0), []
    names = {f"n{i}" for i in range(2 * NODES + 1)}
    for name in names:
        inbox.notify(name)
    first = inbox.collect(60.0)
    inbox.put(lambda: done.append("errand"))
    second = inbox.collect(60.0)
    assert done == ["errand"]
    third = inbox.collect(60.0)  # nothing new comes: it is not waited for
    assert [len(part) for part in (first, second, third)] == [NODES, NODES, 1]
    assert first | second | third == names
    assert inbox.collect(0.0) == set()
