"""Jobs that their owner has go on: paused ones, and those that wait for checkpoints that are gone."""

import numpy as np

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.server.server_loop import ServerLoop
from fairlead.cluster.server.storage_waits import tries_for_checkpoints, waits_for_checkpoints
from fairlead.cluster.store.rows import JobRow
from fairlead.model.events import JobsPaused


def resume(engine: ServerLoop, row: JobRow, accepted_by: str) -> None:
    """A job takes part again, on the driver's thread. accepted_by: who has its next attempt begin with
    whatever checkpoints there are, "" = nobody. Raises ConflictError where there is nothing to do."""
    away = waits_for_checkpoints(row) or tries_for_checkpoints(
        row, engine.state.registry.newest(row.id)
    )
    waits = bool(accepted_by) and (away or bool(row.loss_accepted))
    if row.state != "paused" and not waits:
        other = ", and does not wait for its checkpoints" if accepted_by else ""
        raise ConflictError(f"job {row.id}: is not paused{other}, it is {row.state}")
    if accepted_by and row.starts_over:
        why = "is unmanaged, and has not said that it keeps any checkpoints"
        raise ConflictError(f"job {row.id}: {why}: there is no loss to accept")
    retries, admission = engine.parts.jobs.retries, engine.parts.jobs.admission
    engine.state.registry.dirty_jobs.add(row.id)
    row.loss_accepted = accepted_by or row.loss_accepted
    if row.state != "paused":
        if row.retry_s is not None:
            retries.try_now(row)
        return
    retries.forget(row.id)
    row.state, row.reason = row.off_devices, ""
    engine.state.capacity_changed = True
    now = engine.state.now_s()
    if not admission.is_outside(row.id):
        engine.state.emit(JobsPaused(now, np.array([row.id]), False))
    admission.held.look_again(row)
    if engine.state.setup is not None:
        admission.refit(now)
