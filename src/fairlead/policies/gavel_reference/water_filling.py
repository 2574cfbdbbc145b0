"""Water filling as Gavel's release answers: the analytic centre of the shares that give the levels."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.arrays import Bools, Floats
from fairlead.policies.solve.fill_jobs import FillJobs
from fairlead.policies.solve.interior_point import MaxMinClasses, max_min
from fairlead.policies.water_filling import AgnosticWaterFilling, Filling, WaterFilling

CENTRED = 1e-7  # the centre must have the heights to this, relatively


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedWaterFilling(WaterFilling):
    """``WaterFilling`` with the analytic centre of the shares that give the levels."""

    def choose_allocation(
        self, filling: Filling, shares: Callable[[], Floats], report: SolveReport
    ) -> Allocation:
        """The analytic centre; where it was not found, the shares that the simplex method ends at."""
        return _centre_allocation(filling, report) or filling.allocation(shares(), report)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedAgnosticWaterFilling(AgnosticWaterFilling):
    """``AgnosticWaterFilling`` with the analytic centre of the shares that give the times."""

    def choose_allocation(self, filling: Filling, share: Floats, report: SolveReport) -> Allocation:
        """The analytic centre; where it was not found, the shares spread as the devices are."""
        return _centre_allocation(filling, report) or filling.allocation(share, report)


def _centre_allocation(filling: Filling, report: SolveReport) -> Allocation | None:
    """The analytic centre of all shares that give the heights; None where it was not found precisely."""
    share, steps = _filling_analytic_centre(filling.jobs, filling.filled.height)
    found = filling.allocation(share, replace(report, iterations=report.iterations + steps))
    return found if found.report.gap is not None and found.report.gap <= CENTRED else None


def _filling_analytic_centre(jobs: FillJobs, height: Floats) -> tuple[Floats, int]:
    """(rows, slots) the analytic centre of all shares of a job that give these heights, as near as the
    interior-point method comes, and its steps."""
    demand = jobs.demand(height)
    there: Bools = jobs.capacity > 0
    usable = there[jobs.accelerator_of_slot]
    some = np.flatnonzero(demand > 0)
    rate = jobs.job_types.rate[jobs.job_type[some]][:, usable]
    inner, _, _, steps = max_min(
        MaxMinClasses(
            worth=np.ascontiguousarray(rate / demand[some, None]),
            class_size=jobs.count[some],
            scale=jobs.job_types.scale[jobs.job_type[some]],
            accelerator_of_slot=(np.cumsum(there) - 1)[jobs.accelerator_of_slot[usable]],
            slot_devices=jobs.slot_devices[usable],
            capacity=jobs.capacity[there],
        ),
        1e-9,
    )
    inner[rate <= 0] = 0.0
    share = np.zeros((len(demand), len(usable)))
    share[np.ix_(some, usable)] = inner
    return share, steps
