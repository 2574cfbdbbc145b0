"""The states of a job, and the only ways from one to the next.

WAITING --> RUNNING --> PREEMPTED --> RUNNING ...
   |           |            |
   +-----------+------------+--> COMPLETED | DROPPED | KILLED | CANCELLED
"""

from enum import IntEnum

import numpy as np

from fairlead.errors import ProtocolError
from fairlead.model.arrays import Bools, Ints


class State(IntEnum):
    """Where a job stands. The last four have the numbers of ``commands.End`` plus two."""

    WAITING = 0  # has not run yet
    RUNNING = 1
    PREEMPTED = 2  # has run and waits
    COMPLETED = 3
    DROPPED = 4
    KILLED = 5
    CANCELLED = 6


_TABLE: dict[State, tuple[State, ...]] = {
    State.WAITING: (State.WAITING, State.RUNNING, State.CANCELLED),
    State.RUNNING: (
        State.RUNNING,
        State.PREEMPTED,
        State.COMPLETED,
        State.DROPPED,
        State.KILLED,
        State.CANCELLED,
    ),
    State.PREEMPTED: (State.PREEMPTED, State.RUNNING, State.CANCELLED),
}
ALLOWED: Bools = np.zeros((len(State), len(State)), np.bool_)  # [from, to]
for _state, _next in _TABLE.items():
    ALLOWED[_state, list(_next)] = True


def move(state: Ints, to: Ints, jobs: Ints) -> None:
    """Set (jobs,) states in place; ProtocolError names the first job whose move is not in the table."""
    bad = np.flatnonzero(~ALLOWED[state, to])
    if bad.size:
        i = int(bad[0])
        raise ProtocolError(
            f"job {jobs[i]}: cannot go from {State(int(state[i])).name} to {State(int(to[i])).name}"
        )
    state[:] = to
