"""Generated jobs that change their batch size: Shockwave's own generator, draw for draw."""

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from math import isclose, log

import numpy as np

from fairlead.errors import ConfigError, ThroughputError
from fairlead.model.adaptation import Mode
from fairlead.model.batch_size_rules import batch_schedule
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.arrivals import (
    Reference,
    check_interarrival,
    first,
)

# In the order in which Shockwave draws from them (its JobTable).
FAMILIES = (
    *(f"ResNet-18 (batch size {n})" for n in (32, 64, 128, 256)),
    *(f"ResNet-50 (batch size {n})" for n in (16, 32, 64)),
    *(f"Transformer (batch size {n})" for n in (16, 32, 64, 128)),
    *(f"LM (batch size {n})" for n in (5, 10, 20, 40, 80)),
    *(f"Recommendation (batch size {n})" for n in (512, 1024, 2048, 4096, 8192)),
)
SCALES = (1, 2, 4, 8)
MIN_ADAPTING_S = 1000.0  # Accordion jobs below this stay static
MODES = (Mode.STATIC, Mode.ACCORDION, Mode.GNS)
MIN_DURATIONS = 5  # so that each class has one
MAX_DURATIONS = 100_000


@dataclass(frozen=True, slots=True)
class Mix:
    """The mix of the jobs of ``adapting_arrivals``. Defaults: the released traces of Shockwave."""

    modes: tuple[float, float, float] = (0.0, 0.5, 0.5)  # parts of ``MODES``
    scales: tuple[float, float, float, float] = (0.6, 0.3, 0.09, 0.01)  # parts of ``SCALES``
    shortest_h: float = 0.2
    longest_h: float = 5.0
    durations: int = 100  # values, evenly spaced between these two
    classes: tuple[tuple[float, float], ...] = (  # (part of jobs, values up to this part of all)
        (0.72, 0.2),
        (0.20, 0.5),
        (0.05, 0.9),
        (0.03, 1.0),
    )


def adapting_arrivals(
    throughputs: Throughputs,
    *,
    mean_interarrival_s: float,
    seed: int = 0,
    jobs: int | None = None,
    multi_gpu: bool = False,
    mix: Mix | None = None,
    reference: str = "v100",
) -> Iterator[Arrival]:
    """Jobs of Shockwave's evaluation, equal to those of its released traces for the same seed and rates.

    Poisson arrivals in whole seconds, the first at 0; a mean of 0 puts all at 0 and needs ``jobs``.
    Durations are whole seconds alone, at the first batch size, on the reference accelerator type.
    multi_gpu: scale factors by ``mix.scales``, for families that have a rate on several devices (where
    they have none at the one that is drawn: on one); otherwise all run on one device.
    """
    check_interarrival(mean_interarrival_s, jobs)
    mix = mix or Mix()
    for name, parts in (("modes", mix.modes), ("scale factors", mix.scales)):
        if min(parts) < 0 or not isclose(sum(parts), 1.0, abs_tol=1e-3):
            raise ConfigError(f"mix of {name}: parts must be >= 0 and add up to 1, got {parts}")
    if not MIN_DURATIONS <= mix.durations <= MAX_DURATIONS:
        raise ConfigError(
            f"durations: must be from {MIN_DURATIONS} to {MAX_DURATIONS}, got {mix.durations}"
        )
    drawn = _Jobs(Reference(throughputs, reference), seed, mix, multi_gpu)
    endless = _stream(drawn, random.Random(seed + 1), mean_interarrival_s)
    return endless if jobs is None else first(endless, jobs)


def _stream(drawn: "_Jobs", gaps: random.Random, mean_s: float) -> Iterator[Arrival]:
    time_s = 0.0
    for n in count():
        yield Arrival(float(int(time_s)), drawn.sample_job(JobId(n)))
        if mean_s > 0:
            time_s += -log(1.0 - gaps.random()) * mean_s


class _Jobs:
    """The order of the draws is the specification: do not reorder them."""

    def __init__(self, reference: Reference, seed: int, mix: Mix, multi_gpu: bool) -> None:
        self.rate = reference.rate
        self.mix = mix
        self.multi_gpu = multi_gpu
        self.families = [family for family in FAMILIES if JobType.parse(family) in self.rate]
        if not self.families:
            raise ThroughputError(f"{reference.origin}: no family of Shockwave has a rate > 0")
        self.family = random.Random(seed)
        self.duration = random.Random(seed + 2)
        self.scale = random.Random(seed + 3)
        self.mode = random.Random(seed + 4)
        self.value = np.random.RandomState(seed)
        self.hours = np.linspace(mix.shortest_h, mix.longest_h, mix.durations)

    def sample_job(self, job: JobId) -> Job:
        family = self.family.choice(self.families)
        scale = self._scale(family) if self.multi_gpu else 1
        duration_s = self._duration_s()
        mode = MODES[_chosen(self.mode.uniform(0, 1), self.mix.modes)]
        if mode is Mode.ACCORDION and duration_s < MIN_ADAPTING_S:
            mode = Mode.STATIC
        steps = float(max(1, int(duration_s * self.rate[JobType.parse(family, scale)])))
        schedule = batch_schedule(family, scale, steps, mode)
        return Job(job, family, scale, steps, duration_s=duration_s, adaptation=schedule)

    def _scale(self, family: str) -> int:
        """Drawn only for families that run on several devices."""
        if not any(JobType.parse(family, scale) in self.rate for scale in SCALES[1:]):
            return 1
        scale = SCALES[_chosen(self.scale.uniform(0, 1), self.mix.scales)]
        return scale if JobType.parse(family, scale) in self.rate else 1

    def _duration_s(self) -> float:
        """A class by its part of the jobs, then one of its values."""
        parts = [part for part, _ in self.mix.classes]
        found = _chosen(self.duration.uniform(0, 1), parts)
        edges = [0, *(round(len(self.hours) * upto) for _, upto in self.mix.classes)]
        hours = self.value.choice(self.hours[edges[found] : edges[found + 1]])
        return float(round(3600 * hours))


def _chosen(u: float, parts: Sequence[float]) -> int:
    """The part that a chance in [0, 1) falls into; the last one takes what rounding leaves."""
    upto = list(accumulate(parts[:-1]))
    return bisect_right(upto, u)
