"""Slurm's way to write durations."""

import re

_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")  # days-hours:minutes:seconds
ENDLESS = ("UNLIMITED", "NOT_SET")


def read_slurm_time(text: str) -> float | None:
    """Return the seconds that squeue means; None = no end, or nothing that can be read."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60.0 + minutes) * 60 + seconds


def slurm_time(seconds: float) -> str:
    """Return a duration as sbatch takes it: minutes and seconds."""
    whole = max(round(seconds), 1)
    return f"{whole // 60}:{whole % 60:02}"
