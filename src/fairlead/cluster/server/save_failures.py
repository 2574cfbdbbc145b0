"""That a job could not save is known until it has saved: an attempt that has not tried yet knows of
nothing."""

from fairlead.cluster.protocol.messages import WOULD_LOSE, AttemptStatus
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.store.rows import JobRow, SaveFailure
from fairlead.model.duration_text import duration


def note_report(attempt: Attempt, status: AttemptStatus, now_s: float) -> bool:
    """Note what the node of rank 0 reports on the saves of an attempt. Returns whether that is news."""
    row, before = attempt.row, attempt.row.save_failure
    why, fails, _ = status.directory_problem.partition(WOULD_LOSE)
    if fails:
        _note(
            attempt,
            SaveFailure(why, now_s, attempt.record.attempt, status.saved_step, status.save_place),
        )
    elif before is not None:
        same = before.attempt == attempt.record.attempt
        if status.saved_step > max(before.saved_step if same else status.loaded_step, 0):
            row.save_failure = None
    return row.save_failure is not before


def note_end(attempt: Attempt, now_s: float) -> None:
    """An attempt has ended, perhaps without having been able to save."""
    if attempt.unsaved and not attempt.row.spec.unmanaged:
        leader, number = attempt.leader, attempt.record.attempt
        saved_step, place = (-1, "") if leader is None else (leader.saved_step, leader.save_place)
        _note(attempt, SaveFailure(attempt.unsaved, now_s, number, saved_step, place))


def last_save_failed(row: JobRow, now_s: float) -> str:
    """Return how long ago a job's last save failed, and why, as a sentence without a full stop; "" = it did
    not."""
    failure = row.save_failure
    if failure is None:
        return ""
    return f"its last save failed {duration(now_s - failure.at_s)} ago: {failure.why}"


def _note(attempt: Attempt, failure: SaveFailure) -> None:
    """The time is that of the first of several that fail for one reason."""
    before = attempt.row.save_failure
    if before is None or (before.why, before.attempt) != (failure.why, failure.attempt):
        attempt.row.save_failure = failure
