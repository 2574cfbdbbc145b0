"""The heights and uses that shares of water filling give, computed from the jobs' own rates."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Ints1
from fairlead.policies.solve.fill_jobs import FillJobs
from fairlead.policies.solve.water_filling import Rows

MIN_HEIGHT = 1e-8  # heights below this part of the largest are not measured: 0.3 s of a year


@dataclass(frozen=True, slots=True)
class FillCertificate:
    """Heights and uses of shares, computed from the jobs' own rates."""

    least: Floats  # (rows,) the smallest height of a job
    total: Floats  # (rows,) of all jobs
    use: float  # largest part of a job's time or of a type's devices
    jobs_alike: bool  # whether every job has the rates, scale and weight of its row

    def short_of(self, rows: Rows, height: Floats) -> float:
        """The largest shortfall of a job against its row's height, relative to that height."""
        some = height > MIN_HEIGHT * rows.cap
        return max(0.0, float((1.0 - self.least[some] / height[some]).max(initial=0.0)))


class JobShares(NamedTuple):
    """Single jobs, the row that each is in, and its shares."""

    row: Ints1  # (jobs,)
    share: Floats2  # (jobs, slots)
    rate: Floats2  # (jobs, slots) steps/s
    scale: Ints1  # (jobs,) devices
    weight: Floats1  # (jobs,)


class _JobRows(NamedTuple):
    """The rates, scale and weight that the jobs of each row are assumed to have, and the capacities."""

    job_type: Ints1  # (rows,) row of the tables of job types
    type_rate: Floats2  # (job types, slots) steps/s
    type_scale: Floats1  # (job types,) devices
    weight: Floats1  # (rows,) of a job
    unit_rate: Floats1  # (rows,) steps/s of a job at height 1
    accelerator_of_slot: Ints1  # (slots,)
    slot_devices: Floats1  # (slots,) devices of a job there for each one of its scale
    capacity: Floats1  # (types,) devices


def measure(jobs: FillJobs, single: JobShares, weight: Floats) -> FillCertificate:
    """The heights and uses that the shares of single jobs give. weight: (rows,) of a job."""
    rows = _JobRows(
        job_type=jobs.job_type,
        type_rate=jobs.job_types.rate,
        type_scale=jobs.job_types.scale,
        weight=weight,
        unit_rate=jobs.unit_rate,
        accelerator_of_slot=jobs.accelerator_of_slot,
        slot_devices=jobs.slot_devices,
        capacity=jobs.capacity,
    )
    return FillCertificate(*_measure(single, rows))


@kernel("Tuple((f8[::1], f8[::1], f8, b1))(JobShares, _JobRows)")
def _measure(jobs: JobShares, rows: _JobRows) -> tuple[Floats, Floats, float, bool]:
    """The fields of a ``FillCertificate``."""
    row_of, share, rate, scale, weight = jobs
    job_type, unit_rate, capacity = rows.job_type, rows.unit_rate, rows.capacity
    least, total = np.full(len(job_type), np.inf), np.zeros(len(job_type))
    used = np.zeros(len(capacity))
    use = 0.0
    jobs_alike = True
    for i in range(len(row_of)):
        row = row_of[i]
        c = job_type[row]
        jobs_alike = jobs_alike and scale[i] == rows.type_scale[c] and weight[i] == rows.weight[row]
        got = 0.0
        time = 0.0
        for j in range(share.shape[1]):
            k = rows.accelerator_of_slot[j]
            jobs_alike = jobs_alike and (rate[i, j] == rows.type_rate[c, j] or capacity[k] <= 0)
            got += rate[i, j] * share[i, j]
            time += share[i, j]
            used[k] += scale[i] * share[i, j] * rows.slot_devices[j]
        height = got / unit_rate[row] if unit_rate[row] > 0 else 0.0
        least[row] = min(least[row], height)
        total[row] += height
        use = max(use, time)
    for k in range(len(capacity)):
        if capacity[k] > 0:
            use = max(use, used[k] / capacity[k])
        elif used[k] > 0:
            use = np.inf
    return least, total, use, jobs_alike
