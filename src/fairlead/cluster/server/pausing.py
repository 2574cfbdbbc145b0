"""Pausing a job, by its owner."""

from collections.abc import Callable

import numpy as np

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.server.lost_work import lost_by_pause
from fairlead.cluster.server.server_loop import ServerLoop
from fairlead.cluster.store.rows import JobRow
from fairlead.model.events import JobsPaused


def pause(engine: ServerLoop, row: JobRow, interrupted: Callable[[int], None]) -> list[str]:
    """An open job saves, stops, and waits to be resumed. Returns sentences about work that is lost.
    interrupted: told of a job whose forecasts say nothing any more."""
    if row.state == "paused":
        return []
    state = engine.state
    lost = lost_by_pause(state, row, engine.parts.jobs.retries.storage.reasons())
    row.state, row.reason = "paused", "paused by its owner"
    state.registry.dirty_jobs.add(row.id)
    interrupted(row.id)
    if not engine.parts.jobs.admission.is_outside(row.id):
        state.emit(JobsPaused(state.now_s(), np.array([row.id]), True))
        # Before the round ends for it: who gets these devices is decided once they have been left
        engine.parts.attempts.orders.stop(row.id, AttemptEnd.without_place(row.state))
    return lost
