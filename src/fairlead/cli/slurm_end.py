"""When the Slurm job ends that this process is a part of."""

import subprocess
import time
from collections.abc import Mapping

from fairlead.cluster.autoscaling.slurm_time import ENDLESS, read_slurm_time
from fairlead.errors import ConfigError

END = "SLURM_JOB_END_TIME"  # seconds since 1970; not set by Slurm 22.05 and before
JOB = "SLURM_JOB_ID"
ASK_S = 10.0  # that squeue may take


def slurm_end_s(environment: Mapping[str, str]) -> float | None:
    """Return the wall-clock time at which the job ends, by its environment, else by ``squeue``; None = this
    is no Slurm job, or one without an end. Raises ConfigError where nobody can tell."""
    if text := environment.get(END, ""):
        if text.isascii() and text.isdecimal():
            return float(text)
        raise ConfigError(
            f"{END}: expected seconds since 1970, as Slurm sets it, got {text!r}{_HINT}"
        )
    if not (job := environment.get(JOB, "")):
        return None
    left = _ask(job)
    if left in ENDLESS:
        return None
    seconds = read_slurm_time(left)
    if seconds is None:
        raise ConfigError(f"squeue: expected the time left of job {job}, got {left!r}{_HINT}")
    return time.time() + seconds


_HINT = "; --ends-in says in its place when this node is taken away"


def _ask(job: str) -> str:
    """The time that is left of a job, in squeue's words."""
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%L"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ConfigError(f"squeue: cannot tell when job {job} ends ({problem}){_HINT}") from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ConfigError(f"squeue: cannot tell when job {job} ends ({why}){_HINT}")
    return done.stdout.strip()
