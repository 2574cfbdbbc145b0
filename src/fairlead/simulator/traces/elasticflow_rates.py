"""ElasticFlow's tables of rates: a folder with a CSV file per model, rates by global batch size and devices.

``throughputs_A100/resnet50.csv`` with the columns ``global_batch_size,1,2,4,...`` has the rates in iterations
per second of the families ``resnet50 (batch size N)`` on the accelerator type ``a100``, which is what the
folder's name ends in.
"""

from pathlib import Path

import numpy as np

from fairlead.errors import ThroughputError
from fairlead.model.cluster import SlotType
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.fields import at_least_zero, whole
from fairlead.simulator.traces.source import (
    HeaderColumns,
    Source,
    csv_rows,
)

BATCH = "global_batch_size"


def read_rates(folder: Path) -> Throughputs:
    """The table in a folder. Raises ThroughputError with file, line and value."""
    files = sorted(folder.glob("*.csv"))
    accelerator = folder.name.rpartition("_")[2].lower()
    if not files or not accelerator:
        raise ThroughputError(
            f"{folder}: is a folder without CSV files: expected a file, or a folder with one per model"
        )
    found: dict[JobType, float] = {}
    for path in files:
        found.update(_rates(Source(path, ThroughputError), path.stem, found))
    rate = np.array(list(found.values()))[:, None]
    return Throughputs((SlotType(accelerator),), tuple(found), rate, origin=str(folder))


def _rates(source: Source, model: str, known: dict[JobType, float]) -> dict[JobType, float]:
    rows = csv_rows(source)
    line, header = next(rows, (1, []))
    columns = HeaderColumns(source, line, header, (BATCH,), tuple(name.strip() for name in header))
    scales = {
        i: whole(source, line, "devices", name, least=1)
        for name, i in columns.index.items()
        if name != BATCH
    }
    found: dict[JobType, float] = {}
    for line, row in rows:
        columns.check(line, row)
        batch = whole(source, line, BATCH, row[columns.index[BATCH]], least=1)
        for i, scale in scales.items():
            job_type = JobType(model, batch, scale)
            if job_type in found or job_type in known:
                raise source.fault(line, f"{BATCH}: {batch} appears twice")
            found[job_type] = at_least_zero(source, line, f"rate on {scale}", row[i].strip() or 0)
    return found
