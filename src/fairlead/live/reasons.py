"""Why a job is where it is, or not yet anywhere: the numbers behind the last decision."""

from typing import TYPE_CHECKING

import numpy as np

from fairlead.live.views import JobView
from fairlead.model.job import JobId

if TYPE_CHECKING:
    from fairlead.live.engine import Engine

WORTH_SAYING = 0.1  # relative difference of a stated rate from the measured one


def why(engine: "Engine", job: JobView) -> str:
    """For a job in any state."""
    if job.state in ("completed", "cancelled"):
        return f"It is {job.state}.{stated(job)}"
    if job.state in ("dropped", "killed"):
        return f"It was {job.state}: {job.reason or 'no reason was given'}."
    if job.state == "paused":
        return "It is paused: `fairlead resume` lets it take part again."
    if engine.admission.outside(job.id):
        return f"It waits: there is {job.reason or 'no room for it'}."
    shares = engine.call(lambda: _shares(engine, job.id)).result(30.0)
    given = ", ".join(f"{share:.2f} of the time on {name}" for name, share in shares.items())
    policy = f"Policy {engine.policy} gives it {given or 'no share yet'}."
    if job.state == "finishing":
        return (
            f"All its steps are done; the code behind its training loop runs on {_where(job)}. It is "
            f"complete when that has ended with exit code 0.{stated(job)}"
        )
    if job.state == "running":
        return f"It runs on {_where(job)}{_faster(job)}. {policy}{stated(job)}"
    return f"{policy} {_ahead(engine, job)}{stated(job)}"


def stated(job: JobView) -> str:
    """A sentence that holds what the owner stated against what was measured; "" where either is missing or
    they agree."""
    claimed, measured = job.claimed.get(job.measured_on, 0.0), job.measured_rate
    if not claimed or measured is None or abs(measured - claimed) <= WORTH_SAYING * claimed:
        return ""
    return f" You said {claimed:.3g} steps/s on {job.measured_on}, measured {measured:.3g}."


def _where(job: JobView) -> str:
    many = f"{len(job.devices)} x {job.accelerator}"
    return f"{many} of {job.node}"


def _faster(job: JobView) -> str:
    here = job.rates.get(job.accelerator, 0.0)
    others = {a: r for a, r in job.rates.items() if a != job.accelerator and r > 0}
    if not others or here <= 0:
        return ""
    name, rate = max(others.items(), key=lambda item: item[1])
    if here >= rate:
        return f", where it is {here / rate:.1f} times as fast as on {name}"
    return f", though {name} would be {rate / here:.1f} times as fast"


def _ahead(engine: "Engine", job: JobView) -> str:
    """Who holds the devices, and until when."""
    usable = [name for name, rate in job.rates.items() if rate > 0]
    current = engine.backend.round
    now = engine.clock.now_s()
    running = 0 if current is None else len(current.starts)
    ends = "" if current is None else f"; the round ends in {max(current.end_s - now, 0.0):.0f} s"
    jobs = "1 job that was owed more time holds"
    if running != 1:
        jobs = f"{running} jobs that were owed more time hold"
    return f"In this round {jobs} the devices of {', '.join(usable)}{ends}."


def _shares(engine: "Engine", job: int) -> dict[str, float]:
    """Accelerator type -> share of the time, of the job alone and in pairs; none are left out that are 0."""
    core = engine.scheduler
    if core is None or JobId(job) not in core.ledger:
        return {}
    units = core.ledger.units
    mine = (units.member == core.ledger.row(JobId(job))).any(axis=1)
    share = np.asarray(units.share[mine].sum(axis=0))
    found: dict[str, float] = {}
    for slot, part in zip(core.slots, share.tolist(), strict=True):
        if part > 0.0005:
            found[slot.accelerator] = found.get(slot.accelerator, 0.0) + part
    return found
