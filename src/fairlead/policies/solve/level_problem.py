"""Requirements that fall as one level rises, the jobs that have them, and shares that meet a level."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.policies.solve.breakpoints import find_breakpoints
from fairlead.policies.solve.job_classes import group

STEPS = 60  # of Newton's method
REQUIREMENT_TOLERANCE = 1e-11  # lambda - 1 at which a level counts as met
STALL_TOLERANCE = 1e-13  # relative step below which rounding decides
TOLERANCE = 1e-9  # part of the level, or of the devices, that a second measure may cost


@dataclass(frozen=True, kw_only=True, slots=True)
class ParametricDemand:
    """A problem. Jobs that cannot run, or need nothing, do not count for the level and get nothing."""

    job_type: Ints  # (jobs,) jobs of one job type have the same rates and scale
    rate: Floats  # (jobs, slots) steps/s
    scale: Ints  # (jobs,) devices
    accelerator_of_slot: Ints  # (slots,)
    slot_devices: Floats  # (slots,) devices of a job there for each one of its scale
    capacity: Floats  # (types,) devices
    steps: Floats  # (jobs,) still to do
    age: Floats  # (jobs,)
    isolated: Floats  # (jobs,) > 0

    def slot_cost(self, price: Floats) -> Floats:
        """(slots,) price of as many devices as a job with a scale of 1 has there. price: (types,) of a
        device."""
        return price[self.accelerator_of_slot] * self.slot_devices


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelJobTypes:
    """The job types of a problem's jobs: their rates, and the breakpoints of the cost of a rate."""

    id: Ints  # (job types,)
    of: Ints  # (jobs,) row of each job's job type
    count: Floats  # (job types,) jobs
    scale: Floats  # (job types,)
    rate: Floats  # (job types, slots)
    breakpoints: (
        Floats  # (job types, slots + 1) 0 and its own rates, ascending; 0 for those that repeat
    )

    @property
    def best(self) -> Floats:
        """(job types,) the fastest rate."""
        return np.ascontiguousarray(self.breakpoints[:, -1])


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelShares:
    """Shares that are feasible and meet a level, and the prices that prove it."""

    level: float
    share: Floats  # (jobs, slots)
    price: Floats  # (types,) of a device, times devices adding up to 1
    iterations: int
    warm: bool = False
    basis: tuple[bytes, ...] = ()


def level_job_types(problem: ParametricDemand) -> LevelJobTypes:
    """The job types of a problem's jobs. Types without devices cannot be run on."""
    classes = group(problem.job_type)
    rate = problem.rate[classes.representative]
    rate = np.where((problem.capacity > 0)[problem.accelerator_of_slot], rate, 0.0)
    scale = problem.scale[classes.representative].astype(np.float64)
    return LevelJobTypes(
        id=classes.id,
        of=classes.of,
        count=classes.count,
        scale=scale,
        rate=rate,
        breakpoints=find_breakpoints(rate),
    )
