"""A training script that notes each of its steps."""

import sys
from pathlib import Path

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec

STEPS = """
import time
import fairlead
done = {done!r}
kept = 0
def load(path):
    global kept
    kept = int(path.read_text())
def save(path):
    path.write_text(str(lease.step))
with fairlead.Lease(load=load, save=save, total_steps={steps}) as lease:
    assert lease.step == kept
    while lease.next():
        with open(done, "a") as file:
            print(lease.step, file=file)
        time.sleep({step_s})
"""


def counting_job(directory: Path, *, steps: int = 60, step_s: float = 0.05) -> JobSpec:
    script = directory / "train.py"
    script.write_text(STEPS.format(done=str(directory / "done"), steps=steps, step_s=step_s))
    return JobSpec(command=(sys.executable, str(script)), total_steps=steps, cwd="/")


def steps_done(directory: Path) -> list[int]:
    """The steps that were done, in order of time, each once."""
    path = directory / "done"
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(line) for line in lines]


def completed(client: Client, job: int) -> bool:
    return client.job(job).state == "completed"
