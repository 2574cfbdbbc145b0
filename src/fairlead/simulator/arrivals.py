"""Generated jobs: Gavel's own generator, draw for draw, and a bursty one shaped like real clusters.

Both are lazy and endless unless told otherwise: the simulation takes as many jobs as it needs.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from fairlead.errors import ConfigError, ThroughputError
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.limits import MAX_JOBS, MAX_SECONDS, MIN_POSITIVE, is_duration
from fairlead.model.throughputs import Throughputs

# The order in which Gavel draws from its families (its JobTable); families that are not in it come
# after them, in the order of the throughput table.
GAVEL_FAMILIES = (
    *(f"ResNet-18 (batch size {n})" for n in (16, 32, 64, 128, 256)),
    *(f"ResNet-50 (batch size {n})" for n in (16, 32, 64, 128)),
    *(f"Transformer (batch size {n})" for n in (16, 32, 64, 128, 256)),
    *(f"LM (batch size {n})" for n in (5, 10, 20, 40, 80)),
    *(f"Recommendation (batch size {n})" for n in (512, 1024, 2048, 4096, 8192)),
    "A3C",
    "CycleGAN",
)
GAVEL_SCALES = (1, 2, 4, 8)


class Reference:
    """Rates that turn a duration into steps: those of the reference accelerator type, or of the
    fastest one where a job type has no rate on it."""

    def __init__(self, throughputs: Throughputs, reference: str) -> None:
        rate = throughputs.fastest
        slot = SlotType(reference)
        if slot in throughputs.slots:
            solo_rate = throughputs.rate[:, throughputs.slots.index(slot)]
            rate = np.where(solo_rate > 0, solo_rate, rate)
        self.origin = throughputs.origin
        self.rate = {
            job_type: one
            for job_type, one in zip(throughputs.job_types, rate.tolist(), strict=True)
            if one > 0  # a job type that runs nowhere is never drawn
        }

    def families(self, scale: int) -> list[str]:
        """Families that run at this scale factor, in the order of Gavel's table, then of ours."""
        here = [one.name for one in self.rate if one.scale_factor == scale]
        known = [name for name in GAVEL_FAMILIES if JobType.parse(name, scale) in self.rate]
        return known + [name for name in here if name not in GAVEL_FAMILIES]


@dataclass(frozen=True, slots=True)
class _GavelOptions:
    multi_gpu: bool
    multi_priority: bool
    slos: bool
    fixed_duration_s: float | None


class _GavelJobs:
    """Gavel's job generator. The order of the draws is the specification: do not reorder them."""

    def __init__(self, reference: Reference, seed: int, options: _GavelOptions) -> None:
        self.reference = reference
        self.options = options
        self.jobs = random.Random(seed + 2)
        self.slo = random.Random(seed + 6)
        self.single = reference.families(1)
        for scale in GAVEL_SCALES if options.multi_gpu else (1,):
            if not any(JobType.parse(family, scale) in reference.rate for family in self.single):
                raise ThroughputError(
                    f"{reference.origin}: no family with a rate on one device has one at scale "
                    f"factor {scale}"
                )

    def sample_job(self, job: JobId) -> Job:
        scale = self._scale()
        duration_s = self._duration_s()
        if not self.options.multi_gpu:
            scale = 1
        family = self._family(scale)
        weight = 1.0
        if self.options.multi_priority and self.jobs.uniform(0, 1) <= 0.2:
            weight = 5.0
        steps = duration_s * self.reference.rate[JobType.parse(family, scale)]
        slo_s = self._slo_multiple() * duration_s if self.options.slos else None
        return Job(
            id=job,
            family=family,
            scale_factor=scale,
            total_steps=steps,
            weight=weight,
            tenant="",
            slo_s=slo_s,
            duration_s=duration_s,
        )

    def _scale(self) -> int:
        """1, 2, 4, 8 devices with 70, 10, 15, 5 %; drawn even where it is not used."""
        u = self.jobs.uniform(0, 1)
        if 0.7 <= u <= 0.8:
            return 2
        if 0.8 <= u <= 0.95:
            return 4
        return 8 if u >= 0.95 else 1

    def _duration_s(self) -> float:
        if self.options.fixed_duration_s is not None:
            return self.options.fixed_duration_s
        if self.jobs.random() >= 0.8:
            return 60.0 * 10 ** self.jobs.uniform(3, 4)
        return 60.0 * 10 ** self.jobs.uniform(1.5, 3)

    def _family(self, scale: int) -> str:
        """One of the families that run on one device, drawn again until it runs on ``scale``."""
        while True:
            family = self.jobs.choice(self.single)
            if JobType.parse(family, scale) in self.reference.rate:
                return family

    def _slo_multiple(self) -> float:
        u = self.slo.uniform(0, 1)
        if u < 0.33:
            return 1.2
        return 2.0 if u < 0.67 else 10.0


def gavel_arrivals(
    throughputs: Throughputs,
    *,
    mean_interarrival_s: float,
    seed: int = 0,
    jobs: int | None = None,
    multi_gpu: bool = False,
    multi_priority: bool = False,
    slos: bool = False,
    steady_state: Cluster | None = None,
    fixed_duration_s: float | None = None,
    reference: str = "v100",
) -> Iterator[Arrival]:
    """Gavel's generated jobs, equal to those of its release for the same seed and rates.

    Poisson arrivals, the first at 0; a mean of 0 puts all at 0 and needs ``jobs``. Durations are
    log-uniform, half an hour to a week on the reference accelerator type. ``steady_state`` puts jobs
    at 0 before the others until their devices fill each accelerator type of that cluster.
    """
    check_interarrival(mean_interarrival_s, jobs)
    if fixed_duration_s is not None and not MIN_POSITIVE <= fixed_duration_s <= MAX_SECONDS:
        raise ConfigError(
            f"fixed duration: must be above 0 and at most {MAX_SECONDS:g} s, got {fixed_duration_s}"
        )
    options = _GavelOptions(multi_gpu, multi_priority, slos, fixed_duration_s)
    generator = _GavelJobs(Reference(throughputs, reference), seed, options)
    endless = _gavel_stream(generator, random.Random(seed + 3), mean_interarrival_s, steady_state)
    return endless if jobs is None else first(endless, jobs)


def _gavel_stream(
    generator: _GavelJobs, gaps: random.Random, mean_s: float, full: Cluster | None
) -> Iterator[Arrival]:
    ids = (JobId(n) for n in count())
    for devices in [] if full is None else full.capacity.tolist():
        taken = 0
        while taken < devices:
            job = generator.sample_job(next(ids))
            taken += job.scale_factor
            yield Arrival(0.0, job)
    time_s = 0.0
    while True:
        yield Arrival(time_s, generator.sample_job(next(ids)))
        if mean_s > 0:
            time_s += gaps.expovariate(1.0 / mean_s)


def first(arrivals: Iterator[Arrival], jobs: int) -> Iterator[Arrival]:
    """Yield the first ``jobs`` arrivals; the rest of the stream is not consumed."""
    for _, arrival in zip(range(jobs), arrivals, strict=False):
        yield arrival


def check_interarrival(mean_s: float, jobs: int | None) -> None:
    """ConfigError unless the stream gets on in time or ends."""
    if not is_duration(mean_s):
        raise ConfigError(
            f"mean inter-arrival time: must be from 0 to {MAX_SECONDS:g} s, got {mean_s}"
        )
    if mean_s == 0 and jobs is None:
        raise ConfigError("mean inter-arrival time 0 needs a number of jobs: all arrive at once")
    if jobs is not None and not 1 <= jobs <= MAX_JOBS:
        raise ConfigError(f"number of jobs: must be from 1 to {MAX_JOBS}, got {jobs}")


@dataclass(frozen=True, slots=True)
class Shape:
    """The burstiness, lengths and widths of the jobs of ``bursty_arrivals``.

    Defaults: durations and demand of Philly (Microsoft, 2017); arrivals between those of Philly and
    of ITP (Microsoft, 2021). A long run then has an inter-arrival CV of about 4, 55 to 60 % of
    arrivals within 10 s of the one before, and an hourly Fano factor of 30 to 50; measured are 3.8
    to 15, 49 to 55 % and 61 to 161 over whole clusters (Poisson: 1, next to none, 1).
    """

    sweep_tail: float = 1.6  # a sweep has at least n jobs with probability n ** -sweep_tail
    largest_sweep: int = 1000  # jobs
    sweep_gap_s: float = 2.0  # mean time between the jobs of a sweep
    pause_sigma: float = 1.4  # log-normal time between sweeps
    demand: tuple[tuple[int, float], ...] = (  # (devices, weight), one draw per sweep
        (1, 93.2),
        (2, 2.2),
        (4, 2.3),
        (8, 2.0),
        (16, 0.25),
        (32, 0.09),
    )
    median_s: tuple[tuple[float, float], ...] = (  # (up to so many devices, median duration)
        (1, 1_117.0),
        (8, 4_398.0),
        (math.inf, 21_137.0),
    )
    duration_sigma: float = 2.2  # log-normal: 1 % of the jobs take two thirds of the time
    sweep_sigma: float = 0.5  # the part of it that jobs of one sweep do not share
    longest_s: float = 60 * 86_400.0


def bursty_arrivals(
    throughputs: Throughputs,
    *,
    mean_interarrival_s: float,
    rng: np.random.Generator,
    jobs: int | None = None,
    shape: Shape | None = None,
    reference: str = "v100",
) -> Iterator[Arrival]:
    """Jobs as real clusters see them: sweeps submitted together, heavy-tailed durations, bigger jobs
    running longer. The jobs of a sweep share family, scale factor and most of their duration."""
    shape = shape or Shape()
    check_interarrival(mean_interarrival_s, jobs)
    if mean_interarrival_s <= shape.sweep_gap_s:
        raise ConfigError(
            f"mean inter-arrival time: must be above the {shape.sweep_gap_s} s within a sweep, "
            f"got {mean_interarrival_s}"
        )
    endless = _Sweeps(Reference(throughputs, reference), shape, rng).stream(mean_interarrival_s)
    return endless if jobs is None else first(endless, jobs)


class _Sweeps:
    def __init__(self, reference: Reference, shape: Shape, rng: np.random.Generator) -> None:
        demand = [(n, weight) for n, weight in shape.demand if reference.families(n)]
        if not demand:
            asked = ", ".join(str(n) for n, _ in shape.demand)
            raise ThroughputError(f"{reference.origin}: no rate > 0 at scale factors {asked}")
        self.reference = reference
        self.shape = shape
        self.rng = rng
        self.scales = [n for n, _ in demand]
        weights: Floats = np.array([weight for _, weight in demand])
        self.chances: Floats = weights / weights.sum()
        self.families = {n: reference.families(n) for n in self.scales}

    def stream(self, mean_interarrival_s: float) -> Iterator[Arrival]:
        ids = (JobId(n) for n in count())
        gap_s = self.shape.sweep_gap_s
        sweep = self._mean_sweep()
        pause_s = sweep * mean_interarrival_s - (sweep - 1) * gap_s
        time_s = 0.0
        while True:
            family, scale, median_s = self._job_type()
            for index in range(self._sweep()):
                time_s += self.rng.exponential(gap_s) if index else 0.0
                yield Arrival(time_s, self._job(next(ids), family, scale, median_s))
            sigma = self.shape.pause_sigma
            time_s += pause_s * self.rng.lognormal(-sigma * sigma / 2, sigma)

    def _mean_sweep(self) -> float:
        """Expected jobs in a sweep: the sum of P(at least n)."""
        sizes = np.arange(1, self.shape.largest_sweep + 1, dtype=np.float64)
        return float((sizes**-self.shape.sweep_tail).sum())

    def _sweep(self) -> int:
        """Jobs in the next sweep."""
        u = 1.0 - self.rng.random()  # in (0, 1]
        size = u ** (-1.0 / self.shape.sweep_tail)
        return int(min(size, self.shape.largest_sweep))

    def _job_type(self) -> tuple[str, int, float]:
        """(family, scale factor, median duration) of the next sweep."""
        scale = self.scales[int(self.rng.choice(len(self.scales), p=self.chances))]
        families = self.families[scale]
        family = families[int(self.rng.integers(len(families)))]
        median_s = next(median for most, median in self.shape.median_s if scale <= most)
        between = math.sqrt(self.shape.duration_sigma**2 - self.shape.sweep_sigma**2)
        return family, scale, median_s * self.rng.lognormal(0.0, between)

    def _job(self, job: JobId, family: str, scale: int, median_s: float) -> Job:
        drawn_s = median_s * self.rng.lognormal(0.0, self.shape.sweep_sigma)
        duration_s = min(max(drawn_s, 1.0), self.shape.longest_s)
        steps = duration_s * self.reference.rate[JobType.parse(family, scale)]
        return Job(job, family, scale, steps, duration_s=duration_s)
