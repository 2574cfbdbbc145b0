"""Generated jobs by description: ``gavel,interarrival=2400,multi-gpu`` or ``bursty,jobs=300``."""

from collections.abc import Iterator

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival
from fairlead.model.throughput import Throughputs
from fairlead.sim.arrivals import bursty_arrivals, gavel_arrivals

_NUMBERS = {"interarrival": 600.0, "jobs": None, "duration": None}
_FLAGS = ("multi-gpu", "priorities", "deadlines", "full")


def generate(
    spec: str, throughputs: Throughputs, cluster: Cluster, seed: int
) -> tuple[Iterator[Arrival], int | None]:
    """Arrivals, and how many (None: without end).

    spec: KIND[,KEY=VALUE | FLAG ...] with kind ``gavel`` (Gavel's generator) or ``bursty``; keys
    ``jobs``, ``interarrival`` (mean seconds between arrivals) and, for gavel, ``duration`` (seconds,
    the same for all); flags, for gavel, multi-gpu, priorities, deadlines and full (begin with jobs
    that fill the cluster). Raises ConfigError.
    """
    kind, *rest = [part.strip() for part in spec.split(",")]
    if kind not in ("gavel", "bursty"):
        raise ConfigError(f"generate: {kind!r} is not known (choose gavel or bursty)")
    numbers: dict[str, float | None] = dict(_NUMBERS)
    flags = set()
    for part in rest:
        key, _, value = part.partition("=")
        if key in _NUMBERS and value:
            numbers[key] = _number(key, value)
        elif part in _FLAGS:
            flags.add(part)
        else:
            known = ", ".join([f"{key}=N" for key in _NUMBERS] + list(_FLAGS))
            raise ConfigError(f"generate: {part!r} is not known (choose from {known})")
    jobs = None if numbers["jobs"] is None else int(numbers["jobs"])
    mean_s = numbers["interarrival"] or 0.0
    if kind == "bursty":
        if flags or numbers["duration"] is not None:
            raise ConfigError("generate: bursty takes only jobs=N and interarrival=SECONDS")
        rng = np.random.default_rng(seed)
        return bursty_arrivals(throughputs, mean_interarrival_s=mean_s, rng=rng, jobs=jobs), jobs
    arrivals = gavel_arrivals(
        throughputs,
        mean_interarrival_s=mean_s,
        seed=seed,
        jobs=jobs,
        multi_gpu="multi-gpu" in flags,
        multi_priority="priorities" in flags,
        slos="deadlines" in flags,
        steady_state=cluster if "full" in flags else None,
        fixed_duration_s=numbers["duration"],
    )
    return arrivals, jobs


def _number(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0 <= number < float("inf") or (key == "jobs" and (number < 1 or number % 1)):
        raise ConfigError(f"generate: {key} must be a number in range, got {value!r}")
    return number
