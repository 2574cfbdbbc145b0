"""Jobs that their owner ends for good."""

from fairlead.cluster.server.server_loop import ServerLoop
from fairlead.cluster.store.rows import JobRow
from fairlead.model.events import JobsCancelled
from fairlead.model.job import JobId


def cancel_job(engine: ServerLoop, row: JobRow) -> None:
    """A job is stopped for good, on the driver's thread."""
    admission = engine.parts.jobs.admission
    admission.unfit.discard(row.id)
    if row.id in admission.unplaced:
        admission.end_outside(row, "cancelled", row.stopped_by)
        engine.parts.attempts.steps.give_up(row)
    else:
        engine.state.emit(JobsCancelled(engine.state.now_s(), (JobId(row.id),)))
