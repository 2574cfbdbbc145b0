"""Views of jobs and their starts, made from rows and what is known besides."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from fairlead.cluster.protocol.api_models import (
    AttemptView,
    FailureView,
    JobState,
    JobView,
)
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.store.rows import AttemptRow, JobRow


def job_view(
    row: JobRow,
    stint: AttemptRow | None,
    now_s: float,
    *,
    state: JobState,
    ended_s: float | None,
    reason: str,
    steps: float,
    rates: dict[str, float],
    measured_rate: float | None,
    measured_on: str,
) -> JobView:
    """A job. stint: its start that runs; now_s: the cluster's time; rates: believed, by accelerator type."""
    run_s = row.run_s + (0.0 if stint is None or not stint.ordered else now_s - stint.since_s)
    in_all_s = (now_s if ended_s is None else ended_s) - row.submitted_s
    return JobView(
        id=row.id,
        name=row.name,
        tenant=row.tenant,
        user=row.user,
        family=row.spec.family,
        scale_factor=row.spec.scale_factor,
        weight=row.weight,
        state=state,
        total_steps=row.total_steps,
        steps=steps,
        saved_step=row.saved_step,
        submitted_s=row.submitted_s,
        started_s=row.started_s,
        ended_s=ended_s,
        node="" if stint is None else stint.node,
        accelerator="" if stint is None else stint.accelerator,
        devices=() if stint is None else stint.devices,
        epoch=row.epoch,
        starts=row.starts,
        preemptions=row.preemptions,
        failures=row.failures,
        run_s=run_s,
        queued_s=max(in_all_s - run_s, 0.0),
        lost_steps=row.lost_steps,
        overhead_s=row.overhead_s,
        rates=rates,
        measured_rate=measured_rate,
        slo_s=row.spec.slo_s,
        reason=reason,
        rho=row.rho,
        claimed=row.spec.rates,
        starts_over=row.starts_over,
        measured_on=measured_on,
        failure=_failure(row.failure),
        retry_in_s=None if row.retry_s is None else max(row.retry_s - now_s, 0.0),
    )


def cannot_start(obstacles: Mapping[str, str]) -> str:
    """What keeps a start from beginning, by node, as a reason; "" where nothing does."""
    return "; ".join(f"node {node} cannot start it: {why}" for node, why in obstacles.items())


def attempt_views(
    rows: Iterable[AttemptRow], to_step: Callable[[AttemptRow], float]
) -> list[AttemptView]:
    """The starts of a job that were ordered of their nodes: of others no process ever ran. to_step: where
    one has come to."""
    return [attempt_view(row, to_step(row)) for row in rows if row.ordered]


def attempt_view(row: AttemptRow, to_step: float) -> AttemptView:
    """One start of a job. to_step: where it has come to."""
    return AttemptView(
        job=row.job,
        epoch=row.epoch,
        node=row.node,
        accelerator=row.accelerator,
        devices=row.devices,
        began_s=row.since_s,
        ended_s=row.ended_s,
        from_step=row.from_step,
        to_step=to_step,
        why=row.why,
        end=row.end,
        wait_s=row.wait_s,
        start_s=row.start_s,
        load_s=row.load_s,
        save_s=row.save_s,
        stop_s=row.stop_s,
        lost_steps=row.lost_steps,
        trained_s=row.trained_s,
        traceback=row.traceback,
        reached_step=row.reached_step,
    )


def _failure(failure: Failure | None) -> FailureView | None:
    if failure is None:
        return None
    names = FailureView.__struct_fields__
    return FailureView(**{name: getattr(failure, name) for name in names})


def _at(stint: AttemptView) -> str:
    """The step at which a start ended, and what of it was kept."""
    reached = max(stint.reached_step, stint.to_step)
    told = f"at step {reached:.0f}"
    if reached > stint.to_step:
        told += f", {stint.to_step:.0f} kept"
    return told if stint.trained_s is not None or reached > 0 else f"{told}, not seen to train"


def story(job: JobView, stints: Sequence[AttemptView]) -> tuple[tuple[float, str], ...]:
    """What happened to a job, oldest first."""
    events = [(job.submitted_s, f"submitted by {job.user} for {job.tenant}")]
    for stint in stints:
        devices = ",".join(map(str, stint.devices))
        where = f"{stint.accelerator} {devices} of {stint.node}"
        again = f", does {stint.lost_steps:.0f} steps again" if stint.lost_steps > 0 else ""
        events.append((stint.began_s, f"start {stint.epoch} on {where}{again}"))
        if stint.ended_s is not None:
            events.append((stint.ended_s, f"start {stint.epoch} {stint.why} {_at(stint)}"))
    if job.ended_s is not None:
        events.append((job.ended_s, job.state))
    return tuple(sorted(events, key=lambda event: event[0]))
