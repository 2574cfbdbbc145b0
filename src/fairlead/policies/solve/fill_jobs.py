"""The jobs of water filling's rows: job types, demands in proportion to heights, and devices."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.policies.solve.breakpoints import JobTypeRates


@dataclass(frozen=True, kw_only=True, slots=True)
class FillJobs:
    """The jobs of each row, all alike, and the devices that they share."""

    job_types: JobTypeRates
    job_type: Ints  # (rows,) row of job types
    count: Floats  # (rows,)
    unit_rate: Floats  # (rows,) steps/s of a job at height 1
    accelerator_of_slot: Ints  # (slots,)
    slot_devices: Floats  # (slots,) devices of a job there for each one of its scale
    capacity: Floats  # (types,) devices
    agnostic: bool = False  # whether every rate counts as 1

    def demand(self, height: Floats) -> Floats:
        """(rows,) steps/s of a job at a height."""
        return np.minimum(height * self.unit_rate, self.job_types.best[self.job_type])
