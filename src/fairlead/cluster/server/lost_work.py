"""What a stop loses: the work of jobs that cannot save it."""

from collections.abc import Iterable

from fairlead.cluster.protocol.messages import WOULD_LOSE
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.live_progress import latest_status, steps_by_now
from fairlead.cluster.server.save_failures import last_save_failed


def lost_work(fleet: Fleet, attempts: Iterable[Attempt], now_s: float) -> list[str]:
    """A sentence without a full stop for each of these attempts that would lose work if it were stopped now,
    in order of jobs. now_s: cluster's time."""
    found = {one.row.id: _lost_by(fleet, one, now_s) for one in attempts}
    return [f"job {job}: {text}" for job, text in sorted(found.items()) if text]


def why_not_saved(attempt: Attempt) -> str:
    """Why the work of an attempt is not kept when it is stopped, as far as is known; "" = it is."""
    if attempt.row.starts_over:
        return "it starts again from zero when it is stopped"
    problem = attempt.directory_problems.get(attempt.first_node, "")
    return "" if attempt.row.spec.unmanaged else problem.partition(WOULD_LOSE)[0]


def _lost_by(fleet: Fleet, attempt: Attempt, now_s: float) -> str:
    status = latest_status(fleet, attempt)
    why = why_not_saved(attempt) or last_save_failed(attempt.row, now_s)
    runs = status is not None and status.state == "running"
    if not why or not runs or attempt.stopping or attempt.lost or not attempt.ordered:
        return ""
    assert status is not None
    kept = max(attempt.resumable_steps(), 0.0 if attempt.row.starts_over else status.saved_step)
    steps = round(steps_by_now(fleet, attempt) - kept)
    if steps < 1:
        return ""
    lost = f"{steps:,} step{'s' * (steps != 1)}"
    if attempt.row.starts_over:
        return f"its {lost} are lost: {why}"
    return f"its last {lost}, since step {kept:,.0f}, are lost unless it can save now: {why}"
