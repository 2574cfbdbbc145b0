"""Views of jobs and their starts, made from rows and what is known besides."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from fairlead.cluster.protocol.api_models import (
    AttemptView,
    FailureView,
    JobState,
    JobView,
    NoEnd,
)
from fairlead.cluster.protocol.attempt_end import BY_ITSELF, LOST_ENDS, AttemptEnd
from fairlead.cluster.protocol.deadlines import standing
from fairlead.cluster.protocol.messages import AttemptStatus, Failure
from fairlead.cluster.protocol.plausible import one_line, several_lines
from fairlead.cluster.store.restore_note import ATTEMPTS
from fairlead.cluster.store.rows import AttemptRow, JobRow


def job_view(
    row: JobRow,
    attempt: AttemptRow | None,
    now_s: float,
    *,
    under_way_s: float,
    state: JobState,
    ended_s: float | None,
    reason: str,
    steps: float,
    rates: dict[str, float],
    measured_rate: float | None,
    measured_on: str,
    status: AttemptStatus | None = None,
    progress_age_s: float | None = None,
    rate_known: bool = True,
    no_end: NoEnd = "",
    least_s: float = 0.0,
) -> JobView:
    """A job. attempt: its attempt that has its devices; under_way_s: run time that is not booked yet; rates:
    believed, by accelerator type; status: what the first node of the attempt said last that has its devices;
    least_s: that its steps take at its best rate, 0 = not known."""
    run_s = row.run_s + under_way_s
    in_all_s = (now_s if ended_s is None else ended_s) - row.submitted_s
    unsaved = row.save_failure if row.open else None
    until_s = now_s if ended_s is None else ended_s
    left_s = None if row.deadline_s is None else row.deadline_s - until_s
    return JobView(
        id=row.id,
        name=row.name,
        tenant=row.tenant,
        user=row.user,
        family=row.spec.family,
        scale_factor=row.scale_factor,
        may_have=row.spec.devices,
        weight=row.weight,
        state=state,
        total_steps=row.total_steps,
        steps=steps,
        saved_step=row.saved_step,
        submitted_s=row.submitted_s,
        started_s=row.started_s,
        ended_s=ended_s,
        node="" if attempt is None else attempt.node,
        accelerator="" if attempt is None else attempt.accelerator,
        devices=() if attempt is None else attempt.devices,
        attempt=row.attempt if attempt is None else attempt.attempt,
        starts=row.starts,
        preemptions=row.preemptions,
        failures=row.failures,
        run_s=run_s,
        queued_s=max(in_all_s - run_s, 0.0),
        lost_steps=row.lost_steps,
        overhead_s=row.overhead_s + (0.0 if status is None else overhead_s(status)),
        rates=rates,
        measured_rate=measured_rate,
        slo_s=row.spec.slo_s,
        reason=reason,
        rho=row.rho,
        user_estimates={
            name: rate * row.spec.speedup(row.scale_factor) for name, rate in row.spec.rates.items()
        },
        starts_over=row.starts_over,
        is_suspended=row.spec.is_suspended,
        measured_on=measured_on,
        failure=_failure(row.failure),
        retry_in_s=None if row.retry_s is None else max(row.retry_s - now_s, 0.0),
        progress_age_s=progress_age_s,
        rate_known=rate_known,
        no_end=no_end,
        origin=row.origin,
        after=row.spec.after,
        array=None if row.array < 0 else row.array,
        array_index=None if row.array < 0 else row.array_index,
        array_count=None if row.array < 0 else row.array_count,
        search=None if row.search < 0 else row.search,
        trial=None if row.search < 0 else row.trial,
        parameters=row.parameters,
        save_failed="" if unsaved is None else unsaved.why,
        save_failed_s=None if unsaved is None else unsaved.at_s,
        deadline_left_s=left_s,
        deadline="" if left_s is None else standing(state, left_s, ended_s is not None, least_s),
    )


def under_way_s(attempts: Iterable[AttemptRow], now_s: float) -> float:
    """Run time of those of a job that have not ended: one that is being stopped still holds its devices, one
    that waits for them does not, nor does one that waited for that time."""
    lasts = [
        row
        for row in attempts
        if row.ordered and row.ended_s is None and (row.wait_s >= 0 or row.trained_s is not None)
    ]
    return sum(max(now_s - row.since_s - max(row.wait_s, 0.0), 0.0) for row in lasts)


def cannot_start(obstacles: Mapping[str, str]) -> str:
    """Return what keeps an attempt from beginning, by node, as a reason; "" where nothing does."""
    return "; ".join(f"node {node} cannot start it: {why}" for node, why in obstacles.items())


def overhead_s(start: AttemptStatus | AttemptRow) -> float:
    """Seconds for which an attempt had devices, or waited for them, and did not train."""
    parts = (start.wait_s, start.start_s, start.load_s, saves_s(start), start.stop_s)
    return sum(max(part, 0.0) for part in parts)


def saves_s(start: AttemptStatus | AttemptRow) -> float:
    """Seconds of all saves of an attempt, the last one included; -1 = there was none, or that is not
    known."""
    if isinstance(start, AttemptStatus) and start.saving_s >= 0:
        return start.saving_s
    return start.save_s


def reported_so_far(
    row: AttemptRow, status: AttemptStatus, to_step: float, *, unmanaged: bool
) -> AttemptRow:
    """A copy of the record of an attempt that has not ended, with what its first node said last. to_step:
    where it has come to."""
    from_step = row.from_step
    if status.loaded_step >= 0:
        loaded = float(status.loaded_step)
        from_step = min(loaded, from_step) if unmanaged else loaded
    return replace(
        row,
        from_step=from_step,
        to_step=max(to_step, from_step),
        wait_s=status.wait_s,
        start_s=status.start_s,
        load_s=status.load_s,
        save_s=saves_s(status),
        stop_s=status.stop_s,
    )


def attempt_views(
    rows: Iterable[AttemptRow], as_now: Callable[[AttemptRow], AttemptRow]
) -> list[AttemptView]:
    """All starts of a job that were ordered of their nodes, oldest first: of others no process ever ran.
    as_now: the record of one with what is known of it by now."""
    return _settled([attempt_view(as_now(row)) for row in rows if row.ordered])


def _settled(views: list[AttemptView]) -> list[AttemptView]:
    """All that an attempt has kept is known when the next one says what it goes on from, and all that it has
    done when that one says what was lost: processes train and save after the last word that was heard of
    them."""
    next_from_step: float | None = None
    lost = 0.0  # by the attempt, as the next one says
    for position in range(len(views) - 1, -1, -1):
        view = views[position]
        following = views[position + 1] if position + 1 < len(views) else None
        if following is not None and _given_up_between(view, following):
            next_from_step, lost = None, 0.0  # others did that, of which nothing is known here
        if next_from_step is not None and next_from_step > view.to_step:
            idle = _did_nothing(view, views[position - 1] if position else None)
            view = views[position] = replace(
                view,
                from_step=next_from_step if idle else view.from_step,
                to_step=next_from_step,
                reached_step=max(view.reached_step, next_from_step),
            )
        if next_from_step is not None and lost > 0 and view.trained_s is not None:
            views[position] = replace(
                view, reached_step=max(view.reached_step, next_from_step + lost)
            )
        next_from_step, lost = view.from_step, 0.0 if view.lost_own else view.lost_steps
    return views


def _given_up_between(view: AttemptView, following: AttemptView) -> bool:
    """Return whether a restore has given up what was done between these attempts, of which the first had
    ended before."""
    restored = following.attempt - view.attempt >= ATTEMPTS
    return restored and view.end is not AttemptEnd.RESTORED


def _did_nothing(view: AttemptView, before: AttemptView | None) -> bool:
    """Return whether an attempt that has ended did no steps, as far as is known. A lost attempt counts only
    if the one before it had trained and was lost too: the steps are more likely of that one."""
    if before is None or view.trained_s is not None or view.reached_step > view.from_step:
        return False
    return view.end not in LOST_ENDS or (before.trained_s is not None and before.end in LOST_ENDS)


def attempt_view(row: AttemptRow) -> AttemptView:
    """One attempt of a job."""
    return AttemptView(
        job=row.job,
        attempt=row.attempt,
        node=row.node,
        accelerator=row.accelerator,
        devices=row.devices,
        began_s=row.since_s,
        ended_s=row.ended_s,
        from_step=row.from_step,
        to_step=row.to_step,
        end=row.end,
        why=row.why,
        wait_s=row.wait_s,
        start_s=row.start_s,
        load_s=row.load_s,
        save_s=row.save_s,
        stop_s=row.stop_s,
        lost_steps=row.lost_steps,
        trained_s=row.trained_s,
        traceback=several_lines(row.traceback),  # as its node told it
        reached_step=row.reached_step,
        lost_own=row.lost_own,
        origin=row.origin,
        nodes=row.nodes,
    )


def _failure(failure: Failure | None) -> FailureView | None:
    if failure is None:
        return None
    told: dict[str, Any] = {}
    for name in FailureView.__struct_fields__:
        value = getattr(failure, name)
        told[name] = one_line(value) if isinstance(value, str) else value
    return FailureView(**told)


def _at(attempt: AttemptView) -> str:
    """The step at which an attempt ended, and what of it was kept."""
    if attempt.is_step_unknown:
        return "at a step that is not known"
    reached = max(attempt.reached_step, attempt.to_step)
    text = f"at step {reached:.0f}"
    if reached > attempt.to_step:
        text += f"{' or later' * attempt.is_step_least}, {attempt.to_step:.0f} kept"
    return text if attempt.trained_s is not None or reached > 0 else f"{text}, not seen to train"


def story(job: JobView, attempts: Sequence[AttemptView]) -> tuple[tuple[float, str], ...]:
    """Return what happened to a job as (time, words), oldest first; seconds of the cluster's time."""
    events = [(job.submitted_s, f"submitted by {job.user} for {job.tenant}")]
    left = 0.0  # steps that the attempt before has lost of its own
    least = ""  # where nobody knows how many it had done
    for attempt in attempts:
        redone = left if attempt.lost_own else left + attempt.lost_steps
        left = attempt.lost_steps if attempt.lost_own else 0.0
        devices = ",".join(map(str, attempt.devices))
        where = f"{attempt.accelerator} {devices} of {attempt.node}"
        steps = f"{redone:.0f} step{'s' * (round(redone) != 1)}"
        again = f", does {least}{steps} again" if redone > 0 else ""
        least = "at least " if attempt.is_step_unknown or attempt.is_step_least else ""
        events.append((attempt.began_s, f"attempt {attempt.attempt} on {where}{again}"))
        if attempt.origin:  # of an unmanaged one nobody knows when it trained
            began_s = attempt.began_s if attempt.trained_s is None else attempt.trained_s
            events.append((began_s, f"attempt {attempt.attempt} {attempt.origin}"))
        if attempt.ended_s is not None:
            detailed = ": " in attempt.why or "; " in attempt.why
            how = f"{attempt.why}{'; it ended' if detailed else ''} {_at(attempt)}"
            how = attempt.why if attempt.why.startswith(BY_ITSELF) else how
            events.append((attempt.ended_s, f"attempt {attempt.attempt} {how}"))
    if job.ended_s is not None:
        events.append((job.ended_s, job.state))
    return tuple(sorted(events, key=lambda event: event[0]))
