"""The loads of a sweep: as people write them, and as the devices allow."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairlead.analysis.experiments.point import Point
from fairlead.errors import ConfigError

MAX_LOADS = 1000  # points of a range
SAMPLE = 2000  # jobs, to see how much work they are
PARTS = 10  # of what the devices could do: the step of automatic rates


def loads(texts: Sequence[str | float], whole: bool) -> tuple[float, ...]:
    """Loads in rising order, from numbers or from a range LOW:HIGH:POINTS with both ends.

    whole: they are numbers of jobs. A load of 0 at the low end of a range is left out. Raises ConfigError.
    """
    found = [value for text in texts for value in _one(text, whole)]
    if not found:
        raise ConfigError("expected at least one load, got none")
    return tuple(sorted(set(found)))


def leaves_out_zero(text: object) -> bool:
    """Return whether this is a range that begins with a load of 0."""
    low, colon, _ = str(text).partition(":")
    return bool(colon) and _number(low) == 0


def _one(text: str | float, whole: bool) -> list[float]:
    if isinstance(text, str) and ":" in text:
        return _range(text, whole)
    value = _number(text)
    if not 0 < value < math.inf or (whole and value % 1):
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f"expected {kind} > 0 or LOW:HIGH:POINTS, got {text!r}")
    return [value]


def _range(text: str, whole: bool) -> list[float]:
    parts = text.split(":")
    low, high, points = map(_number, parts) if len(parts) == 3 else (math.nan,) * 3
    if not (
        0 <= low <= high < math.inf and 1 <= points <= MAX_LOADS and points % 1 == 0 and high > 0
    ):
        raise ConfigError(
            f"expected LOW:HIGH:POINTS with 0 <= LOW <= HIGH and 1 <= POINTS <= {MAX_LOADS}, got {text!r}"
        )
    every = np.linspace(low, high, int(points)).tolist()
    return [float(round(one, 0 if whole else 10)) for one in every if one > 0]


def _number(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def step_of(point: Point) -> float:
    """Jobs per hour for the automatic steps of a line: a tenth of the rate at which its jobs would keep
    every device busy, if each ran for the same time on every device. point: one of the line, that takes
    generated jobs; its load does not matter."""
    kind = (point.input.generate or "").split(",")
    options = [part for part in kind if part.partition("=")[0] not in ("interarrival", "jobs")]
    spec = ",".join([*options, "interarrival=1", f"jobs={SAMPLE}"])
    run = replace(point.input, generate=spec, window=None).prepare(point.policy, point.profile)
    table, cluster = run.throughputs.columns(run.cluster.slots), run.cluster
    work_s = []  # device-seconds
    for arrival in run.jobs.arrivals:
        job = arrival.job
        row = table.row(job.job_type)
        assert row is not None
        rate = float(np.average(table.rate[row], weights=cluster.capacity))
        work_s.append(job.scale_factor * job.total_steps / rate)
    per_hour = 3600 * float(cluster.capacity.sum()) / float(np.mean(work_s))
    return float(f"{per_hour / PARTS:.2g}")
