"""The slowdown of two jobs on the same device by each other, for tables with rates of jobs alone only.

    progress of a beside b  =  1 / (1 + contention_t * pressure_b / pressure_a ** PROTECTION)

the rate beside b over the rate alone, on accelerator type t. A pair fits if the memory of both fits the
device; if it does not, both rates are 0. Pressure is how much of the device a family claims: the more its
neighbour claims the slower a job is, and the more it claims itself the less it suffers; two jobs of one
family get the same. Contention falls as devices grow, since small steps leave more of a large one idle.

Jobs on several devices are left without pairs: nobody has published measurements (Gavel's table has 0 for
all of them), and two that wait for their slowest device would slow each other at every step.

Parameters: simulator/traces/data/families.csv and simulator/traces/data/accelerators.csv, fitted on
Gavel's measured pairs by
``benchmarks/interference.py``, which prints the errors too (docs/formats.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files

import numpy as np

from fairlead.errors import ThroughputError
from fairlead.model.arrays import Bools, Floats
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.fields import above_zero
from fairlead.simulator.traces.source import (
    HeaderColumns,
    Source,
    csv_rows,
)

PROTECTION = 0.518  # fitted together with the pressures


@dataclass(frozen=True, slots=True)
class Interference:
    """The model's parameters. A family or accelerator type that is not in them has no pairs."""

    families: dict[str, tuple[float, float]]  # memory in GB, pressure (1 = Gavel's geometric mean)
    accelerators: dict[str, tuple[float, float]]  # memory in GB, contention

    def colocated_rate(self, table: Throughputs) -> Floats:
        """(job_types, job_types, slots) steps/s of the first job type co-located with the second."""
        pair = np.zeros((len(table.job_types), len(table.job_types), len(table.slots)))
        single = [i for i, one in enumerate(table.job_types) if self._known(one)]
        need, pressure = _columns([self.families[table.job_types[i].name] for i in single])
        for t, slot in enumerate(table.slots):
            if slot.accelerator not in self.accelerators:
                continue
            memory, contention = self.accelerators[slot.accelerator]
            rate = table.rate[single, t]
            able = fits(need, memory) & (rate > 0)[:, None] & (rate > 0)
            pair[np.ix_(single, single, [t])] = np.where(
                able, rate[:, None] * progress(pressure, contention), 0.0
            )[:, :, None]
        return pair

    def _known(self, job_type: JobType) -> bool:
        return job_type.scale_factor == 1 and job_type.name in self.families


def progress(pressure: Floats, contention: float, protection: float = PROTECTION) -> Floats:
    """(families, families) rate of the first beside the second, over its rate alone."""
    out: Floats = 1 / (1 + contention * pressure / pressure[:, None] ** protection)
    return out


def fits(need_gb: Floats, memory_gb: float) -> Bools:
    """(families, families) whether both fit into the device's memory."""
    both: Bools = need_gb[:, None] + need_gb <= memory_gb
    return both


def builtin_interference() -> Interference:
    """The parameters that ship with the catalogue."""
    return Interference(
        _read("families.csv", "family", "pressure"),
        _read("accelerators.csv", "accelerator", "contention"),
    )


def _read(name: str, key: str, parameter: str) -> dict[str, tuple[float, float]]:
    key_path = (key, "memory_gb", parameter)
    with as_file(files("fairlead.simulator.traces.data") / name) as path:
        source = Source(path, ThroughputError)
        rows = csv_rows(source)
        columns = HeaderColumns(source, *next(rows), key_path)
        out = {}
        for line, row in rows:
            columns.check(line, row)
            cell = {column: row[columns.index[column]] for column in key_path}
            memory = above_zero(source, line, "memory_gb", cell["memory_gb"])
            out[cell[key]] = memory, above_zero(source, line, parameter, cell[parameter])
    return out


def _columns(rows: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    first, second = np.array(rows, np.float64).reshape(-1, 2).T
    return first, second
