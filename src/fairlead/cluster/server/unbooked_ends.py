"""Ends of attempts that nodes have told of, and the server has not booked: it is about to, or cannot
write."""

from collections.abc import Sequence

from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.fleet import Fleet

EXIT_0 = " with exit code 0"


def ended_nodes(fleet: Fleet, attempt: Attempt) -> list[str]:
    """Return the nodes on which nothing of an attempt is left, as they say."""
    return [
        node
        for node in attempt.nodes
        if node in attempt.gone
        or ((status := fleet.status(node, attempt.key)) is not None and status.state == "ended")
    ]


def exit_words(fleet: Fleet, attempt: Attempt, nodes: Sequence[str]) -> str:
    """Return with which exit code an attempt has ended on these nodes, the first that is not 0, as words
    behind "have ended"; "" = that is not known."""
    told = [status for node in nodes if (status := fleet.status(node, attempt.key)) is not None]
    codes = [one.exit_code for one in told]
    if not codes or None in codes:
        return ""
    code = next(filter(None, codes), 0)
    return f" with exit code {code}" if code else EXIT_0


def unbooked_end(fleet: Fleet, attempt: Attempt | None) -> str:
    """Return a clause on the end of an attempt on all of its nodes, as these say; "" = it may go on, or
    nobody knows."""
    if attempt is None or not attempt.ordered or attempt.lost:
        return ""
    ended = ended_nodes(fleet, attempt)
    if len(ended) < len(attempt.nodes) or fleet.status(attempt.first_node, attempt.key) is None:
        return ""
    where = ",".join(ended)
    if attempt.stopping:  # its processes may be parked
        return f"it is over on {where}, which is not booked yet"
    how = exit_words(fleet, attempt, ended)
    return f"its processes on {where} have ended{how}, which is not booked yet"
