"""The least time that jobs take from now on, before which no end is told. Of elastic jobs it is not known:
they may have more devices at any time."""

from collections.abc import Mapping, Sequence

from fairlead.cluster.protocol.api_models import JobView
from fairlead.cluster.server.attempt_statuses import measured_rate
from fairlead.cluster.server.attempts import holder
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_progress import latest_status, steps_by_now
from fairlead.cluster.server.rates import by_accelerator, job_type_of_row, stated_rates
from fairlead.cluster.store.rows import JobRow
from fairlead.model.job import Job
from fairlead.scheduler.setup import Setup


def least_s(left: float, rates: Mapping[str, float], measured: float | None, on: str) -> float:
    """Seconds that so many steps take at the best rate of a job; 0 = not known. rates: accelerator type ->
    steps/s believed; measured: steps/s, None = not known; on: the type on which that was measured."""
    here, best = rates.get(on, 0.0), max(rates.values(), default=0.0)
    if measured:
        best = measured * (best / here if here > 0 else 1.0)
    return max(left, 0.0) / best if best else 0.0


def least_of(job: JobView) -> float:
    """Seconds that the steps that are left take at the job's best rate, measured or else believed; 0 = not
    known."""
    if job.may_have:
        return 0.0
    return least_s(job.total_steps - job.steps, job.rates, job.measured_rate, job.measured_on)


def least_times(state: ClusterState, setup: Setup, added: Sequence[Job] = ()) -> dict[int, float]:
    """Open job, or one of those that would be added -> seconds that it takes at least under a setup."""
    live = state.registry.live.copy()
    found = {}
    for row in state.registry.jobs.copy().values():
        if row.spec.devices:
            continue
        attempt = holder(list(live.get(row.id, ())))
        known = attempt is not None and not attempt.lost
        steps = steps_by_now(state.fleet, attempt) if known and attempt is not None else row.steps
        measured, on = newest_rate(state, row)
        found[row.id] = least_s(row.total_steps - steps, rates_in(setup, row), measured, on)
    for job in added:
        at = setup.throughputs.row(job.job_type)
        if at is not None and not job.devices:
            rates = by_accelerator(setup.throughputs.slots, setup.throughputs.rate[at])
            found[int(job.id)] = least_s(job.total_steps, rates, None, "")
    return found


def newest_rate(state: ClusterState, row: JobRow) -> tuple[float | None, str]:
    """steps/s as a job was measured last, None = it was not, and on which accelerator type."""
    attempt = holder(list(state.registry.live.get(row.id, ())))
    if attempt is not None and not attempt.is_colocated:
        status = latest_status(state.fleet, attempt)
        now = None if status is None else measured_rate(status, attempt.solo_since)
        if now is not None:
            return now, attempt.record.accelerator
    return row.measured_rate, row.measured_on


def rates_in(setup: Setup, row: JobRow) -> dict[str, float]:
    """Accelerator type -> steps/s of a job under a setup."""
    table = setup.throughputs
    at = table.row(job_type_of_row(row))
    rate = stated_rates(row.spec, table.slots) if at is None else table.rate[at]
    return by_accelerator(table.slots, rate)
