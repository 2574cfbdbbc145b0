"""How a spawner takes the place of those before it: nothing that they started is left then."""

import time
from pathlib import Path

from fairlead.cluster.agent import locks
from fairlead.cluster.agent.adopted import end_adopted
from fairlead.cluster.agent.machine import AgentFiles, clear
from fairlead.cluster.agent.running_attempts import Ground
from fairlead.cluster.agent.spawner_messages import Ready
from fairlead.cluster.agent.survivors import end_survivors, read_records

_RETRY_S = 0.05  # between tries to take the lock


def take_over(
    state: Path, record: AgentFiles, ground: Ground, adopts: int
) -> tuple[list[int], Ready]:
    """Wait for the last spawner, which is ending its ranks; then end what none has ended, of this agent's
    earlier spawners and of earlier agents of this node on this machine. Returns the locks, and what the agent
    is to be told.

    state, record: of the agent; adopts: its pid, where it adopts what a spawner leaves behind, else 0.
    """
    while (lock := locks.take(state / "spawner.lock")) is None:
        time.sleep(_RETRY_S)
    mine = record.take_spawner_lock()
    assert mine is not None  # it waits without limit
    survivors = sum(
        end_survivors(folder, read_records(folder), record.incarnation) for folder in ground.starts
    )
    cleared = []
    for before in record.predecessors():
        ended = clear(before)
        if ended is not None:
            survivors += ended
            cleared.append(before.incarnation)
    survivors += end_adopted(adopts)
    return [lock, mine], Ready(survivors=survivors, cleared=tuple(cleared))
