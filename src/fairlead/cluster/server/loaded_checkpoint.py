"""Sentences about what an attempt began from, if that is not the newest checkpoint of its job."""

from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.store.rows import JobRow

RESUMED = "resumed"  # how the description of an attempt begins whose ranks were parked


def describe_loaded_checkpoint(attempt: Attempt, status: AttemptStatus, saved_by: int) -> str:
    """Return what a managed attempt that has just loaded began from, as a sentence without its subject; "" if
    that is the newest checkpoint. Call it before the job's row is updated. saved_by: the job that had saved
    that; -1 = none, or not known."""
    row, step, kept = attempt.row, status.loaded_step, attempt.row.saved_step
    if step < kept:
        began = "began anew" if step == 0 else f"began at step {step}"
        who = attempt.record.loss_accepted
        if who:
            return f"{began}, the loss of {kept - step} steps that were kept was accepted by {who}"
        return f"{began}, of {kept} steps that were kept no more could be loaded"
    if step > 0 and saved_by not in (-1, row.id):
        which = f"job {saved_by} (attempt {status.from_attempt})"
        return f"began at step {step} from a checkpoint that {which} saved"
    if step > 0 and saved_by == -1 and kept == 0:
        return f"began at step {step} from a checkpoint that was there before the job"
    if attempt.resumes:
        return f"{RESUMED} at step {step}, where attempt {attempt.resumes} was parked"
    return ""


def describe_resumed_program(attempt: Attempt) -> str:
    """Return where an attempt goes on whose program was stopped as it was, as a sentence without its
    subject."""
    if attempt.record.origin.startswith(RESUMED):  # known from before a restart of the server
        return attempt.record.origin
    return f"{RESUMED} where attempt {attempt.resumes} was parked"


def describe_accepted_begin(accepted_by: str) -> str:
    """Return what an unmanaged attempt began from, as a sentence without its subject; "" if nobody has
    accepted a loss for it."""
    return (
        accepted_by
        and f"began with what was there, the loss of the rest was accepted by {accepted_by}"
    )


def describe_accepted_loss(row: JobRow) -> str:
    """Return a clause that says who has accepted the loss of the job's checkpoints, until an attempt has
    begun without them; "" if nobody has."""
    return (
        f"the loss of its checkpoints is accepted by {row.loss_accepted}"
        if row.loss_accepted
        else ""
    )
