"""What are forecasts of ends worth? Forecasts about simulated clusters, held against what then happened.

    python benchmarks/forecast_coverage.py [--jobs 200] [--seeds 1 2 ...]

The truth is a simulation with jobs that come later, of which a forecast knows nothing but those that came
before it, and with rates that vary from round to round. Every few rounds somebody asks for the ends of all
jobs; intervals are calibrated by jobs that have ended by then, as on a live cluster. Printed are, for each
workload, the part of the truths inside the "8 of 10" interval and the median relative error of the
forecasts, of those with rounds (exact) and of those without (coarse). Exits with 1 where coverage is outside
75 to 85 % with right rates, or the median error of exact ones above 15 %.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from command_line import finite, parser_of, whole
from command_line import run as execute

from fairlead.cluster.forecasting.arrivals import Recent
from fairlead.cluster.forecasting.calibration import (
    Calibrated,
    ForecastKind,
    IntervalCalibration,
    Pending,
)
from fairlead.cluster.forecasting.forecast import (
    Question,
    eta,
    forecast,
)
from fairlead.cluster.forecasting.forecaster import SEEDS
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    Command,
    EndJobs,
    JobEnd,
)
from fairlead.model.events import Event, RoundEnded
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.checkpoint import take_checkpoint
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import Setup, build
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.traces.throughput_tables import read_throughputs

CLUSTER = Cluster.of({"v100": 6, "p100": 6, "k80": 6}, 2)
LOAD = 0.8  # of the devices
MEAN_H = 4.0  # of work of a job on the fastest type
RESTART_S = 20.0
LOOKS = 40  # rounds between two looks
MORE = 1.6  # times as many jobs come as are there when the last look is taken: arrivals do not end with it
ASKED = 40  # jobs asked about at each
KINDS: tuple[ForecastKind, ...] = ("exact", "coarse")
COVERAGE, ERROR = (0.75, 0.85), 0.15  # that are wanted


@dataclass(frozen=True)
class Workload:
    """Jobs and how they come."""

    name: str
    policy: str

    def arrivals(
        self, table: Throughputs, jobs: int, rng: np.random.Generator
    ) -> Iterator[Arrival]:
        """So many of them."""
        kinds = [
            k
            for k in table.job_types
            if k.scale_factor in (1, 2, 4) and table.fastest[table.row(k) or 0] > 0
        ]
        kinds = [k for k in kinds if (table.rate[table.row(k) or 0] > 0).all()]
        gap_s = MEAN_H * 3600 / (LOAD * float(CLUSTER.capacity.sum())) * 1.4
        now_s, number = 0.0, 0
        while number < jobs:
            batch = self._batch(rng)
            now_s += float(rng.exponential(gap_s * self._mean_batch()))
            sweep = self._draw(kinds, rng), self._hours(rng)
            for _ in range(batch):
                kind, hours = sweep if batch > 1 else (self._draw(kinds, rng), self._hours(rng))
                scale = kind.scale_factor
                steps = hours * 3600 * float(table.fastest[table.row(kind) or 0]) / scale**0.5
                yield Arrival(now_s, Job(JobId(number), kind.name, scale, max(steps, 1.0)))
                number += 1

    def _draw(self, kinds: list[JobType], rng: np.random.Generator) -> JobType:
        scale = int(rng.choice([1, 2, 4], p=[0.8, 0.15, 0.05]))
        fitting = [kind for kind in kinds if kind.scale_factor == scale] or kinds
        return fitting[int(rng.integers(len(fitting)))]

    def _batch(self, rng: np.random.Generator) -> int:
        if self.name != "bursty":
            return 1
        return int(rng.choice([1, 5, 12], p=[0.6, 0.3, 0.1]))

    def _mean_batch(self) -> float:
        return 3.3 if self.name == "bursty" else 1.0

    def _hours(self, rng: np.random.Generator) -> float:
        if self.name == "philly":  # most are short, few are very long
            return float(np.clip(rng.lognormal(np.log(MEAN_H) - 1.28, 1.6), 0.1, 60.0))
        return float(rng.uniform(0.3, 2 * MEAN_H - 0.3))


WORKLOADS = (
    Workload("poisson", "las_aware"),
    Workload("bursty", "las"),
    Workload("philly", "las_aware"),
)


@dataclass
class Looks:
    """Asks for forecasts of one kind, and remembers what came of them."""

    kind: ForecastKind
    calibration: IntervalCalibration = field(
        default_factory=lambda: IntervalCalibration(DEFAULT.round_s)
    )
    pending: Pending = field(default_factory=Pending)
    given: dict[int, list[tuple[float, Calibrated]]] = field(default_factory=dict)
    raw: list[tuple[float, float]] = field(default_factory=list)  # rounds ahead, score
    inside: list[bool] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    spent_s: float = 0.0

    def look(self, setup: Setup, core: Scheduler, recent: Recent) -> None:
        """Ask for the ends of jobs."""
        began = time.process_time()
        asked = Question(history=recent.history(), cpu_s=np.inf if self.kind == "exact" else 0.0)
        seeds = range(SEEDS if self.kind == "exact" else 1)
        outcomes = forecast(setup, take_checkpoint(core.data), asked, seeds)
        self.spent_s += time.process_time() - began
        jobs = core.data.ledger.jobs.id.tolist()
        for job in jobs[:: max(len(jobs) // ASKED, 1)]:
            left_s = eta(outcomes, job).finish_s
            if left_s is None:
                continue
            given = self.calibration.of(self.kind, left_s)
            self.given.setdefault(job, []).append((core.data.now_s, given))
            self.pending.add(job, core.data.now_s, self.kind, left_s, given)

    def ended(self, job: int, time_s: float) -> None:
        """A job has completed."""
        for outcome in self.pending.ended(job, time_s):
            self.raw.append((outcome.left_s / DEFAULT.round_s, outcome.score))
            self.calibration.learn(outcome)
        for made_s, given in self.given.pop(job, []):
            actual_s = time_s - made_s
            self.inside.append(given.low_s <= actual_s <= given.high_s)
            self.errors.append(abs(given.left_s - actual_s) / max(actual_s, 1.0))


def run(load: Workload, jobs: int, seed: int, bias: float) -> dict[ForecastKind, Looks]:
    """One run of a workload. bias: by how much rates are wrong, standard deviation of their logarithms."""
    table = read_throughputs("builtin").on(CLUSTER)
    costs = RestartCosts(RESTART_S)
    setup = Setup(
        version="0",
        cluster=CLUSTER,
        throughputs=table,
        policy=load.policy,
        settings=DEFAULT,
        seed=seed,
        restart_costs=costs,
    )
    core = build(setup)
    trace = load.arrivals(table, int(jobs * MORE), np.random.default_rng((seed, 1)))
    ground_truth = GroundTruth(costs, 0.05, bias, seed=seed)
    backend = SimBackend(trace, CLUSTER, table, core.data.planning.planner.solve, ground_truth)
    looks = {kind: Looks(kind) for kind in KINDS}
    recent, rounds = Recent(), itertools.count()
    while (event := backend.next()) is not None:
        if backend.submitted >= jobs and not looks["exact"].given:
            break
        _hear(recent, event)
        for command in core.handle(event):
            _ends(looks, command)
            backend.perform(command)
        due = isinstance(event, RoundEnded) and next(rounds) % LOOKS == 0
        if due and core.data.round.active and backend.submitted < jobs:
            for one in looks.values():
                one.look(setup, core, recent)
    return looks


def _hear(recent: Recent, event: Event) -> None:
    jobs = getattr(event, "jobs", ())
    if isinstance(jobs, tuple) and jobs and isinstance(jobs[0], Job):
        recent.submitted(event.time_s, jobs)


def _ends(looks: dict[ForecastKind, Looks], command: Command) -> None:
    if not isinstance(command, EndJobs):
        return
    for job, end, end_s in zip(command.jobs, command.end, command.end_s, strict=True):
        if end == JobEnd.COMPLETED:
            for one in looks.values():
                one.ended(int(job), float(end_s))


def main() -> int:
    """Print a table; exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=whole(), default=200)
    parser.add_argument("--seeds", type=whole(0), nargs="+", default=[1, 2, 5, 6, 10, 11, 12, 13])
    parser.add_argument("--workloads", nargs="+", choices=[w.name for w in WORKLOADS])
    parser.add_argument("--bias", type=finite(), default=0.3, help="of wrong rates")
    parser.add_argument("--scores", action="store_true", help="print what priors are made of")
    given = parser.parse_args()
    good = True
    print(
        f"{'workload':10}{'rates':7}{'kind':7}{'looks':>7}{'inside':>9}{'median error':>14}{'CPU s':>8}"
    )
    everything: dict[ForecastKind, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for load in WORKLOADS:
        if given.workloads and load.name not in given.workloads:
            continue
        for rates, bias in (("right", 0.0), ("wrong", given.bias)):
            runs = [run(load, given.jobs, seed, bias) for seed in given.seeds]
            for kind in KINDS:
                looks = [of[kind] for of in runs]
                covered, error = _row(f"{load.name:10}{rates:7}{kind:7}", looks)
                everything[kind] += [one for look in looks for one in look.raw]
                good &= COVERAGE[0] <= covered <= COVERAGE[1] or bias > 0
                good &= error <= ERROR or bias > 0 or kind == "coarse"
    if given.scores:
        for kind, raw in everything.items():
            print(kind)
            _scores(raw)
    return 0 if good else 1


def _row(name: str, looks: list[Looks]) -> tuple[float, float]:
    """Print one line. Gives the part that was inside, and the median error."""
    inside = [one for look in looks for one in look.inside]
    error = float(np.median([one for look in looks for one in look.errors]))
    spent_s = sum(look.spent_s for look in looks)
    covered = float(np.mean(inside))
    print(f"{name}{len(inside):7}{covered:9.1%}{error:14.1%}{spent_s:8.1f}", flush=True)
    return covered, error


def _scores(raw: list[tuple[float, float]]) -> None:
    """Quantiles of the scores by how far the forecasts saw."""
    for least, most in ((0.0, 4.0), (4.0, 30.0), (30.0, np.inf)):
        scores = [score for rounds, score in raw if least <= rounds < most]
        if scores:
            low, middle, high = np.quantile(scores, (0.1, 0.5, 0.9))
            print(f"rounds {least:g}-{most:g}: {len(scores)} {low:.3f} {middle:.3f} {high:.3f}")


if __name__ == "__main__":
    execute(main)
