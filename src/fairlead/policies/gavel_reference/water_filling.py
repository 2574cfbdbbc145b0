"""Water filling as Gavel's release answers: the analytic centre of the shares that give the levels."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.arrays import Floats
from fairlead.policies.solve.water_filling import centre_problem
from fairlead.policies.water_filling import AgnosticWaterFilling, Filling, WaterFilling

CENTRED = 1e-7  # the centre must have the heights to this, relatively


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedWaterFilling(WaterFilling):
    """``WaterFilling`` with the analytic centre of the shares that give the levels."""

    def chosen(
        self, filling: Filling, shares: Callable[[], Floats], report: SolveReport
    ) -> Allocation:
        """The analytic centre; where it was not found, the shares that the simplex method ends at."""
        return _at_centre(filling, report) or filling.allocation(shares(), report)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedAgnosticWaterFilling(AgnosticWaterFilling):
    """``AgnosticWaterFilling`` with the analytic centre of the shares that give the times."""

    def chosen(self, filling: Filling, share: Floats, report: SolveReport) -> Allocation:
        """The analytic centre; where it was not found, the shares spread as the devices are."""
        return _at_centre(filling, report) or filling.allocation(share, report)


def _at_centre(filling: Filling, report: SolveReport) -> Allocation | None:
    """The analytic centre of all shares that give the heights; None where it was not found precisely."""
    share, steps = centre_problem(filling.jobs, filling.filled.height)
    found = filling.allocation(share, replace(report, iterations=report.iterations + steps))
    return found if found.report.gap is not None and found.report.gap <= CENTRED else None
