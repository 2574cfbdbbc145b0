"""The states that a node may be in, and when silence raises suspicion."""

import re
from collections.abc import Container
from typing import Literal, TypeAlias, get_args

# up: may be given jobs. suspect: silent for longer than it should be, also since the server was started,
# its leases may run on.
# unhealthy: answers, but a check fails or it was cordoned. waiting: taken over by another agent while jobs
# of the one before may still run, or the cluster was restored and jobs it does not know may, or it is halted.
# drained: an administrator wants nothing there, or it is no longer in the cluster file. offline: its agent
# was told to end, and ends all jobs or has ended them.
# lost: silent for so long that nothing runs there any more.
NodeState: TypeAlias = Literal[
    "up", "suspect", "unhealthy", "waiting", "drained", "offline", "lost", "never seen"
]
SUSPECT_AFTER_S = 1.0  # silence that raises no suspicion, however short heartbeats are
NODE_STATES: tuple[NodeState, ...] = get_args(NodeState)
FAILED = "failed"  # what the states are called together of a node that is out of order, against all wishes
_NAMED_JOB = re.compile(r"\bjob ([0-9]+)\b")
FAILED_STATES: frozenset[NodeState] = frozenset(("suspect", "unhealthy", "lost"))


def silence_s(heartbeat_s: float) -> float:
    """Return the seconds without a report after which a silence is no accident."""
    return 4 * heartbeat_s + 1.0


def suspect_after_s(heartbeat_s: float) -> float:
    """A node that is silent for longer is suspect."""
    return max(2 * heartbeat_s, SUSPECT_AFTER_S)


def without_foreign_jobs(reason: str, mine: Container[int]) -> str:
    """Return the reason of a node's state without the numbers of jobs that are not among ``mine``."""
    return _NAMED_JOB.sub(lambda found: found[0] if int(found[1]) in mine else "a job", reason)
