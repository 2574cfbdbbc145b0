"""Generated jobs by description: ``gavel,interarrival=2400,multi-gpu`` or ``shockwave,jobs=120``."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.argument_checks import TEXT, WHOLE_NUMBER, check_arguments, instance_of
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival
from fairlead.model.limits import MAX_JOBS, MAX_SECONDS, check_seed
from fairlead.model.option_text import split_option
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.adapting_arrivals import (
    MAX_DURATIONS,
    Mix,
    adapting_arrivals,
)
from fairlead.simulator.arrivals import bursty_arrivals, gavel_arrivals

# What each kind of generator takes: (keys with a number, keys with a list of parts, flags).
_COMMON = ("jobs", "interarrival")
_INTEGER_OPTIONS = ("jobs", "durations")
_MAX_VALUES = {"jobs": MAX_JOBS, "durations": MAX_DURATIONS, "modes": 1}  # the others: seconds
_KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "gavel": ((*_COMMON, "duration"), (), ("multi-gpu", "priorities", "deadlines", "full")),
    "bursty": (_COMMON, (), ()),
    "shockwave": ((*_COMMON, "durations"), ("modes",), ("multi-gpu",)),
}


_TYPES = {
    "spec": TEXT,
    "throughputs": (instance_of(Throughputs), "Throughputs"),
    "cluster": (instance_of(Cluster), "a Cluster"),
    "seed": WHOLE_NUMBER,
}


@dataclass(slots=True)
class _Given:
    """Values of a description, by key."""

    kind: str
    numbers: dict[str, float] = field(default_factory=dict)
    parts: dict[str, tuple[float, ...]] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)


def generate(
    spec: str, throughputs: Throughputs, cluster: Cluster, seed: int
) -> tuple[Iterator[Arrival], int | None]:
    """Arrivals, and how many (None: without end).

    spec: KIND[,KEY=VALUE | FLAG ...] with kind ``gavel`` (Gavel's generator), ``bursty`` or ``shockwave``
    (jobs that change their batch size); keys ``jobs`` and ``interarrival`` (mean seconds between
    arrivals). gavel: ``duration`` (seconds, the same for all); flags multi-gpu, priorities, deadlines and
    full (begin with jobs that fill the cluster). shockwave: ``durations`` (how many values),
    ``modes=STATIC:ACCORDION:GNS`` (parts that add up to 1); flag multi-gpu. Raises ConfigError.
    """
    check_arguments(
        "generate",
        {"spec": spec, "throughputs": throughputs, "cluster": cluster, "seed": seed},
        _TYPES,
    )
    given = _parsed(spec)
    check_seed(seed)
    jobs = int(given.numbers["jobs"]) if "jobs" in given.numbers else None
    mean_s = given.numbers.get("interarrival", 600.0)
    match given.kind:
        case "bursty":
            rng = np.random.default_rng(seed)
            arrivals = bursty_arrivals(throughputs, mean_interarrival_s=mean_s, rng=rng, jobs=jobs)
        case "shockwave":
            arrivals = adapting_arrivals(
                throughputs,
                mean_interarrival_s=mean_s,
                seed=seed,
                jobs=jobs,
                multi_gpu="multi-gpu" in given.flags,
                mix=_mix(given),
            )
        case _:
            arrivals = gavel_arrivals(
                throughputs,
                mean_interarrival_s=mean_s,
                seed=seed,
                jobs=jobs,
                multi_gpu="multi-gpu" in given.flags,
                multi_priority="priorities" in given.flags,
                slos="deadlines" in given.flags,
                steady_state=cluster if "full" in given.flags else None,
                fixed_duration_s=given.numbers.get("duration"),
            )
    return (EndlessArrivals(arrivals) if jobs is None else arrivals), jobs


class EndlessArrivals(Iterator[Arrival]):
    """Arrivals without end: a run of them has to be told when to stop."""

    def __init__(self, arrivals: Iterator[Arrival]) -> None:
        self._arrivals = arrivals

    def __next__(self) -> Arrival:
        return next(self._arrivals)


def _parsed(spec: str) -> _Given:
    generator, *parts = [part.strip() for part in spec.split(",")]
    if generator not in _KINDS:
        raise ConfigError(f"generate: {generator!r} is not known (choose from {', '.join(_KINDS)})")
    numbers, lists, flags = _KINDS[generator]
    given = _Given(generator)
    for part in parts:
        key, value = split_option(part)
        if key in given.numbers or key in given.parts or part in given.flags:
            raise ConfigError(f"generate: {key} is given twice in {spec!r}")
        if key in numbers and value:
            given.numbers[key] = _number(key, value)
        elif key in lists and value:
            given.parts[key] = tuple(_number(key, one) for one in value.split(":"))
        elif part in flags:
            given.flags.add(part)
        else:
            known = [f"{one}=N" for one in numbers] + [f"{one}=A:B:C" for one in lists]
            raise ConfigError(
                f"generate: {generator} does not take {part!r} (choose from "
                f"{', '.join([*known, *flags])})"
            )
    return given


def _mix(given: _Given) -> Mix:
    mix = Mix(durations=int(given.numbers.get("durations", Mix().durations)))
    if "modes" not in given.parts:
        return mix
    modes = given.parts["modes"]
    if len(modes) != len(mix.modes):
        raise ConfigError(f"generate: modes must be three parts, got {len(modes)}")
    static, accordion, gns = modes
    return Mix((static, accordion, gns), durations=mix.durations)


def _number(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    most = _MAX_VALUES.get(key, MAX_SECONDS)
    if key in _INTEGER_OPTIONS and not (1 <= number <= most and number % 1 == 0):
        raise ConfigError(f"generate: {key} must be a whole number from 1 to {most}, got {value!r}")
    if not 0 <= number <= most:
        raise ConfigError(f"generate: {key} must be a number from 0 to {most:g}, got {value!r}")
    return number
