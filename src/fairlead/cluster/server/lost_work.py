"""The work that is lost by a stop: that of jobs that cannot save it."""

from collections.abc import Iterable, Mapping

from fairlead.cluster.protocol.messages import WOULD_LOSE, AttemptStatus
from fairlead.cluster.server.attempt_statuses import steps_took_s
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.job_registry import JobRegistry
from fairlead.cluster.server.live_progress import latest_status, steps_by_now
from fairlead.cluster.server.save_failures import last_save_failed
from fairlead.cluster.server.storage_waits import is_clusters
from fairlead.cluster.store.failures import storage_error
from fairlead.cluster.store.rows import JobRow
from fairlead.model.duration_text import duration

_UNLESS_UNDRAINED = (
    "and starts again from zero unless the node is undrained before it can run elsewhere"
)
STILL_S = 5.0  # without a step, for an attempt to be warned of; it tells of its steps at intervals
STILL_STEPS = 10.0  # and in times of what a step takes
RECENT_S = 600.0  # for which a save that failed says something of the storage of others


def lost_work(
    state: ClusterState,
    attempts: Iterable[Attempt],
    waits: Mapping[str, str],
    *,
    parks: bool = False,
) -> list[str]:
    """A sentence without a full stop for each of these attempts that would lose work if it were stopped now,
    in order of jobs. waits: directory -> why jobs wait for its storage. parks: whether programs that can be
    parked are."""
    troubles = shared_troubles(state.registry, waits, state.now_s())
    found = {one.row.id: _lost_by(state, one, troubles, parks=parks) for one in attempts}
    return [f"job {job}: {text}" for job, text in sorted(found.items()) if text]


def lost_by_pause(state: ClusterState, row: JobRow, waits: Mapping[str, str]) -> list[str]:
    """Like ``lost_work``, for a job that is to be paused. A program that is parked is ended by that, and what
    it has done is in its memory alone; also where it is about to go on."""
    lost = lost_work(state, state.registry.live.get(row.id, ()), waits)
    return lost or _lost_parked(state, row, "its program was parked, and is ended")


def lost_by_drain(state: ClusterState, node: str, waits: Mapping[str, str]) -> list[str]:
    """Like ``lost_work``, for a node that is to be drained, with the programs that are parked there."""
    lost = lost_work(state, state.registry.on_node.get(node, {}).values(), waits, parks=True)
    rows = [state.registry.jobs.get(job) for job, _ in sorted(state.fleet.parked(node))]
    for row in rows:
        if row is not None and not state.registry.live.get(row.id):
            lost += _lost_parked(state, row, f"its program was parked, {_UNLESS_UNDRAINED}")
    return lost


def _lost_parked(state: ClusterState, row: JobRow, why: str) -> list[str]:
    parked = any((row.id, row.saved_by) in state.fleet.parked(name) for name in state.fleet.nodes)
    steps = round(row.steps)
    if not row.spec.is_suspended or not row.starts_over or not parked or steps < 1:
        return []
    return [f"job {row.id}: its {_counted(steps)} are lost: {why}"]


def why_not_saved(attempt: Attempt) -> str:
    """Return why the work of an attempt is not kept when it is stopped, as far as is known; "" = it is."""
    if attempt.row.starts_over:
        return "it starts again from zero when it is stopped"
    problem = attempt.directory_problems.get(attempt.first_node, "")
    return "" if attempt.row.spec.unmanaged else problem.partition(WOULD_LOSE)[0]


def why_lost(attempt: Attempt, troubles: Mapping[str, str]) -> str:
    """Return why the work of an attempt is not kept when it is stopped, by what it has found itself or, in a
    directory that jobs share, by what others have; "" = it is. troubles: see ``shared_troubles``."""
    spec = attempt.row.spec
    shares = not spec.unmanaged and not spec.checkpoint_dir
    found = troubles.get(attempt.row.checkpoints, "") if shares else ""
    return why_not_saved(attempt) or found


def shared_troubles(
    registry: JobRegistry, waits: Mapping[str, str], now_s: float
) -> dict[str, str]:
    """Directory that jobs share -> why some cannot save there. One that has not tried to since then does not
    know it yet. What is told of other jobs is the error alone: their folders and their texts are theirs."""
    found = {
        directory: f"other jobs wait for its storage ({why})" for directory, why in waits.items()
    }
    for row in list(registry.jobs.values()):
        failure = row.save_failure
        if failure is None or not row.checkpoints or row.spec.checkpoint_dir or not row.open:
            continue
        why = storage_error(failure.why)
        if now_s - failure.at_s <= RECENT_S and why and is_clusters(failure.place, row):
            ago = duration(now_s - failure.at_s)
            found.setdefault(
                row.checkpoints, f"of another job, its last save failed {ago} ago: {why}"
            )
    return found


def _lost_by(
    state: ClusterState, attempt: Attempt, troubles: Mapping[str, str], *, parks: bool
) -> str:
    fleet = state.fleet
    status = latest_status(fleet, attempt)
    last = last_save_failed(attempt.row, state.now_s())
    why = why_not_saved(attempt) or last or why_lost(attempt, troubles)
    runs = status is not None and (status.state == "running" or attempt.runs)
    if not runs or attempt.stopping or attempt.lost or not attempt.ordered:
        return ""
    assert status is not None
    still_s = 0.0 if why else _stands_still_s(fleet, attempt, status)
    if not why and not still_s:
        return ""
    kept = max(attempt.resumable_steps(), 0.0 if attempt.row.starts_over else status.saved_step)
    steps = round(steps_by_now(fleet, attempt) - kept)
    if steps < 1:
        return ""
    lost = _counted(steps)
    if attempt.row.spec.is_suspended and parks:
        return f"its {lost} are lost: it is parked if it can be, {_UNLESS_UNDRAINED}"
    if attempt.row.starts_over:
        return f"its {lost} are lost: {why}"
    these = f"its last {lost}, since step {kept:,.0f}, are lost unless it"
    if still_s:
        grace = duration(attempt.row.spec.grace_s)
        none = f"it has asked for none for {duration(still_s)}"
        return f"{these} comes to its next step, or to its end, within {grace}: {none}"
    return f"{these} can save now: {why}"


def _stands_still_s(fleet: Fleet, attempt: Attempt, status: AttemptStatus) -> float:
    """Return for how many seconds an attempt has asked for no step, where that is far longer than its steps
    take: its script may have left its loop, and saves only where it asks for one. 0 = it is not."""
    told = status.step_age_s >= 0 and not attempt.row.spec.unmanaged and not status.finishing
    steps = status.step - status.loaded_step
    if not told or steps < 1:
        return 0.0
    still_s = status.step_age_s + fleet.report_age_s(attempt.first_node)
    usual_s = steps_took_s(status) / steps
    return still_s if still_s > max(STILL_S, STILL_STEPS * usual_s) else 0.0


def _counted(steps: int) -> str:
    return f"{steps:,} step{'s' * (steps != 1)}"
