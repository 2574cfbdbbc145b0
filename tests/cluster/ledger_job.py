"""A job that writes each step it does to a ledger, and a server that is quick to give it up."""

import sys
from pathlib import Path

from fairlead.cluster.protocol.job_spec import JobSpec

_SCRIPT = """
import os, sys, time
from pathlib import Path
import fairlead
steps = []
def say(what):
    attempt = os.environ["FAIRLEAD_JOB"], os.environ["FAIRLEAD_ATTEMPT"]
    with open(sys.argv[1], "a") as file:
        file.write(" ".join((*attempt, str(time.monotonic()), what)) + "\\n")
def load(path):
    steps.extend(path.read_text().split())
def save(path):
    path.write_text(" ".join(steps))
with fairlead.Lease(load=load, save=save) as lease:
    while lease.next():
        time.sleep(0.0 if os.path.exists(sys.argv[1] + ".hurry") else 0.1)
        steps.append(str(len(steps)))
        say(steps[-1])
"""
STEPS = 3_000  # more than there is time for, until a job may hurry
SHORT_GRACE = (
    sys.executable,
    "-c",
    "import fairlead.cluster.server.after_restore as r; r.MIN_GRACE_S = 3.0; "
    "from fairlead.cli.main import main; main()",
)


def ledger_job(folder: Path, total_steps: int = STEPS) -> JobSpec:
    """Jobs of one folder share its ledger; they hurry as soon as ``ledger.hurry`` is there."""
    command = (sys.executable, "-c", _SCRIPT, str(folder / "ledger"))
    return JobSpec(command=command, total_steps=total_steps, cwd="/", grace_s=3.0)


def ledger(folder: Path) -> list[tuple[int, int, float, int]]:
    """(job, attempt, monotonic seconds, step) of every step that was done, in order."""
    path = folder / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(j), int(a), float(t), int(s)) for j, a, t, s in map(str.split, lines)]
