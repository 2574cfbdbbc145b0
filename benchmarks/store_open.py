"""How long a server needs to verify its state: python benchmarks/store_open.py [JOBS]."""

import tempfile
import time
from pathlib import Path

from command_line import parser_of, run, whole

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.store.rows import AttemptRow, JobRow
from fairlead.cluster.store.store import Store
from fairlead.cluster.store.verification import verify_file

BATCH = 1000
STARTS = 3  # of a job


def main() -> None:
    """Prints seconds and bytes."""
    parser = parser_of(__doc__)
    parser.add_argument("jobs", metavar="JOBS", nargs="?", type=whole(), default=20_000)
    jobs = parser.parse_args().jobs
    spec = JobSpec(command=("python", "train.py", "--epochs", "90"), total_steps=1000)
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        for first in range(0, jobs, BATCH):
            with store.transaction() as t:
                t.put_jobs(_job(n, spec) for n in range(first, min(first + BATCH, jobs)))
                for attempt in range(1, STARTS + 1):
                    t.put_attempts(
                        _start(n, attempt) for n in range(first, min(first + BATCH, jobs))
                    )
        store.close()
        found = store.marker.read()
        began = time.perf_counter()
        verified = verify_file(store.path, found)
        took_s = time.perf_counter() - began
        size = Path(store.path).stat().st_size
    rows = sum(verified.rows.values())
    print(f"{jobs:,} jobs, {rows:,} rows, {size / 1e6:.0f} MB: verified in {took_s:.2f} s")


def _job(number: int, spec: JobSpec) -> JobRow:
    return JobRow(
        id=number,
        name=f"job-{number}",
        tenant="a",
        user="u",
        spec=spec,
        state="completed",
        submitted_s=1.0,
        total_steps=1000.0,
    )


def _start(number: int, attempt: int) -> AttemptRow:
    return AttemptRow(
        job=number,
        attempt=attempt,
        node="n",
        accelerator="v100",
        devices=(0,),
        began_s=2.0,
        ended_s=3.0,
        why="moved",
    )


if __name__ == "__main__":
    run(main)
