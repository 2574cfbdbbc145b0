"""The accuracy of forecasts of ends, made about simulated clusters and held against what then happened.

    python benchmarks/forecast_coverage.py [--jobs 200] [--seeds 1 2 ...] [--forecasts FILE]

The truth is a simulation with jobs that come later, of which a forecast knows nothing but those that came
before it, and with rates that vary from round to round. Every few rounds somebody asks for the ends of all
jobs; intervals are calibrated by jobs that have ended by then, as on a live cluster. Printed are, for each
workload, the part of the truths inside the "8 of 10" interval, the median relative error of the forecasts,
and the median width of intervals over the time that the jobs really took from then on, of jobs that ran and
of jobs that waited; of forecasts with rounds (exact) and of those without (coarse). Exits with 1 where
coverage is outside 75 to 85 % with right rates, or the median error of exact ones above 15 %.

What takes long are simulations and forecasts, which do not depend on the calibration: --forecasts keeps them
in a file, one run a line, and takes those that it has from there.
"""

import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from command_line import finite, parser_of, whole
from command_line import run as execute

from fairlead.cluster.forecasting.arrivals import RecentSubmissions
from fairlead.cluster.forecasting.calibration import (
    ForecastKind,
    ForecastOutcome,
    IntervalCalibration,
    Pending,
    RawForecast,
)
from fairlead.cluster.forecasting.forecast import (
    ForecastQuery,
    eta,
    forecast,
    running_jobs,
)
from fairlead.cluster.forecasting.forecaster import SEEDS
from fairlead.errors import ConfigError
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


class MadeForecast(msgspec.Struct, frozen=True, array_like=True, tag="forecast"):
    """A forecast of a job at a time of the simulation."""

    made_s: float
    job: int
    kind: ForecastKind
    running: bool
    left_s: float


class JobEnded(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """A job has completed."""

    time_s: float
    job: int


class Case(msgspec.Struct, frozen=True):
    """The case that a run simulates.
    bias: by how much rates are wrong, standard deviation of their logarithms."""

    workload: str
    bias: float
    seed: int
    jobs: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation: what was forecast in it, and what happened, in the order of time."""

    case: Case
    seen: list[MadeForecast | JobEnded]
    spent_s: dict[ForecastKind, float]  # CPU time of the forecasts


def simulated(case: Case) -> Run:
    """A run."""
    load = next(one for one in WORKLOADS if one.name == case.workload)
    table = read_throughputs("builtin").on(CLUSTER)
    costs = RestartCosts(RESTART_S)
    setup = Setup(
        version="0",
        cluster=CLUSTER,
        throughputs=table,
        policy=load.policy,
        settings=DEFAULT,
        seed=case.seed,
        restart_costs=costs,
    )
    core = build(setup)
    trace = load.arrivals(table, int(case.jobs * MORE), np.random.default_rng((case.seed, 1)))
    ground_truth = GroundTruth(costs, 0.05, case.bias, seed=case.seed)
    backend = SimBackend(trace, CLUSTER, table, core.data.planning.planner.solve, ground_truth)
    made = Run(case=case, seen=[], spent_s=dict.fromkeys(KINDS, 0.0))
    recent, rounds, awaited = RecentSubmissions(), itertools.count(), set[int]()
    while (event := backend.next()) is not None:
        if backend.submissions.submitted >= case.jobs and not awaited:
            break
        _hear(recent, event)
        for command in core.handle(event):
            ends = _ends(command)
            made.seen.extend(ends)
            awaited -= {one.job for one in ends}
            backend.perform(command)
        due = isinstance(event, RoundEnded) and next(rounds) % LOOKS == 0
        if due and core.data.round.active and backend.submissions.submitted < case.jobs:
            looked = [one for kind in KINDS for one in _look(made, kind, setup, core, recent)]
            made.seen.extend(looked)
            awaited |= {one.job for one in looked}
    return made


def _look(
    made: Run, kind: ForecastKind, setup: Setup, core: Scheduler, recent: RecentSubmissions
) -> Iterator[MadeForecast]:
    """Ask for the ends of jobs."""
    began = time.process_time()
    asked = ForecastQuery(history=recent.history(), cpu_s=np.inf if kind == "exact" else 0.0)
    state = take_checkpoint(core.data)
    outcomes = forecast(setup, state, asked, range(SEEDS if kind == "exact" else 1))
    made.spent_s[kind] += time.process_time() - began
    running, jobs = running_jobs(state), core.data.ledger.jobs.id.tolist()
    for job in jobs[:: max(len(jobs) // ASKED, 1)]:
        left_s = eta(outcomes, job).finish_s
        if left_s is not None:
            yield MadeForecast(core.data.now_s, job, kind, job in running, left_s)


def _hear(recent: RecentSubmissions, event: Event) -> None:
    jobs = getattr(event, "jobs", ())
    if isinstance(jobs, tuple) and jobs and isinstance(jobs[0], Job):
        recent.submitted(event.time_s, jobs)


def _ends(command: Command) -> list[JobEnded]:
    if not isinstance(command, EndJobs):
        return []
    ends = zip(command.jobs, command.end, command.end_s, strict=True)
    return [JobEnded(float(end_s), int(job)) for job, end, end_s in ends if end == JobEnd.COMPLETED]


@dataclass(frozen=True, slots=True)
class Checked:
    """A forecast, and what came of it."""

    running: bool
    inside: bool
    error: float  # relative
    width: float  # of the interval over the time that it took

    @classmethod
    def of(cls, made: RawForecast, actual_s: float) -> "Checked":
        """Hold one against the truth."""
        given, least_s = made.interval, max(actual_s, 1.0)
        return cls(
            running=made.running,
            inside=given.low_s <= actual_s <= given.high_s,
            error=abs(given.left_s - actual_s) / least_s,
            width=(given.high_s - given.low_s) / least_s,
        )


@dataclass
class Judged:
    """Forecasts of one kind of one run, calibrated on the way."""

    kind: ForecastKind
    calibration: IntervalCalibration = field(
        default_factory=lambda: IntervalCalibration(DEFAULT.round_s)
    )
    checked: list[Checked] = field(default_factory=list)
    outcomes: list[ForecastOutcome] = field(default_factory=list)

    def follow(self, run: Run) -> "Judged":
        """Calibrate, and hold all against the truth."""
        pending, given = Pending(), dict[int, list[RawForecast]]()
        for seen in run.seen:
            if isinstance(seen, JobEnded):
                for outcome in pending.ended(seen.job, seen.time_s):
                    self.outcomes.append(outcome)
                    self.calibration.learn(outcome)
                for made in given.pop(seen.job, []):
                    self.checked.append(Checked.of(made, seen.time_s - made.made_s))
            elif seen.kind == self.kind:
                made = self._calibrated(seen)
                given.setdefault(seen.job, []).append(made)
                pending.add(seen.job, made)
        return self

    def _calibrated(self, seen: MadeForecast) -> RawForecast:
        return RawForecast(
            made_s=seen.made_s,
            kind=seen.kind,
            running=seen.running,
            left_s=seen.left_s,
            interval=self.calibration.of(seen.kind, seen.left_s, seen.running),
        )


def runs_of(cases: Sequence[Case], kept: Path | None, workers: int) -> Iterator[Run]:
    """The runs of these cases, in their order, from the file that they are kept in or simulated."""
    known = {} if kept is None else _known(kept)
    missing = [case for case in cases if case not in known]
    with multiprocessing.get_context("spawn").Pool(max(min(workers, len(missing)), 1)) as pool:
        new = pool.imap(simulated, missing)
        for case in cases:
            if case in known:
                yield known[case]
                continue
            run = next(new)
            if kept is not None:
                with kept.open("ab") as file:
                    file.write(msgspec.json.encode(run) + b"\n")
            yield run


def _known(kept: Path) -> dict[Case, Run]:
    """Return the runs in a file, by case; it need not be there. Raises ConfigError."""
    if not kept.exists():
        return {}
    try:
        runs = [msgspec.json.decode(line, type=Run) for line in kept.read_bytes().splitlines()]
    except (OSError, msgspec.MsgspecError) as problem:
        raise ConfigError(f"--forecasts: {kept}: cannot be read ({problem})") from None
    return {run.case: run for run in runs}


def main() -> int:
    """Print a table; exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=whole(), default=200)
    parser.add_argument("--seeds", type=whole(0), nargs="+", default=[1, 2, 5, 6, 10, 11, 12, 13])
    names = [w.name for w in WORKLOADS]
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument("--bias", type=finite(), default=0.3, help="of wrong rates")
    parser.add_argument("--scores", action="store_true", help="print what priors are made of")
    parser.add_argument("--forecasts", type=Path, help="file of the runs, to judge them again")
    parser.add_argument("--workers", type=whole(), default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()
    rows = [(name, bias) for name in given.workloads for bias in (0.0, given.bias)]
    cases = [Case(name, bias, seed, given.jobs) for name, bias in rows for seed in given.seeds]
    made = runs_of(cases, given.forecasts, given.workers)
    good = True
    print(
        f"{'workload':10}{'rates':7}{'kind':7}{'looks':>7}{'inside':>9}{'median error':>14}"
        f"{'width: running':>16}{'waiting':>9}{'CPU s':>8}"
    )
    outcomes: list[ForecastOutcome] = []
    for name, bias in rows:
        runs = list(itertools.islice(made, len(given.seeds)))
        for kind in KINDS:
            judged = [Judged(kind).follow(run) for run in runs]
            outcomes += [one for of in judged for one in of.outcomes]
            spent_s = sum(run.spent_s[kind] for run in runs)
            row = f"{name:10}{'wrong' if bias else 'right':7}{kind:7}"
            covered, error = _row(row, [one for of in judged for one in of.checked], spent_s)
            good &= COVERAGE[0] <= covered <= COVERAGE[1] or bias > 0
            good &= error <= ERROR or bias > 0 or kind == "coarse"
    if given.scores:
        _scores(outcomes)
    return 0 if good else 1


def _row(name: str, checked: list[Checked], spent_s: float) -> tuple[float, float]:
    """Print one line. Gives the part that was inside, and the median error."""
    error = float(np.median([one.error for one in checked]))
    covered = float(np.mean([one.inside for one in checked]))
    widths = [[one.width for one in checked if one.running == runs] for runs in (True, False)]
    running, waiting = (float(np.median(of or [np.nan])) for of in widths)
    print(
        f"{name}{len(checked):7}{covered:9.1%}{error:14.1%}"
        f"{running:16.0%}{waiting:9.0%}{spent_s:8.1f}",
        flush=True,
    )
    return covered, error


def _scores(outcomes: list[ForecastOutcome]) -> None:
    """Quantiles of the scores of like forecasts."""
    classes = itertools.product(KINDS, (True, False), ((0.0, 4.0), (4.0, 30.0), (30.0, np.inf)))
    for kind, running, (least, most) in classes:
        scores = [
            one.score
            for one in outcomes
            if (one.kind, one.running) == (kind, running)
            and least <= one.left_s / DEFAULT.round_s < most
        ]
        if scores:
            low, middle, high = np.quantile(scores, (0.1, 0.5, 0.9))
            state = "running" if running else "waiting"
            name = f"{kind}, {state}, rounds {least:g}-{most:g}"
            print(f"{name}: {len(scores)} {low:.3f} {middle:.3f} {high:.3f}")


if __name__ == "__main__":
    execute(main)
