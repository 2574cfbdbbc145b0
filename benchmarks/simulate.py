"""How fast the simulator is, and where the time goes. CPU seconds of one process that is warm: libraries and
kernels are loaded before the stopwatch runs. Of several runs the fastest counts.

    python benchmarks/simulate.py rounds [PROFILE ...]   # a plain round with 100 running jobs
    python benchmarks/simulate.py large [PROFILE ...]    # 100,000 jobs, 10,000 devices of 10 types
    python benchmarks/simulate.py file TRACE TABLE CLUSTER POLICY PROFILE S:E   # any run

Journal and Parquet output are included, the HTML report is not.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from command_line import (
    cluster_spec,
    measured_jobs,
    parser_of,
    profile_name,
    rate_table,
    run,
    trace_file,
    whole,
)

import fairlead
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.events import Solved
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.driver import Backend, Observer
from fairlead.scheduler.driver import drive as plain_drive
from fairlead.simulator import simulation_run
from fairlead.simulator.traces.cluster_files import parse_cluster

SCALES = (1, 2, 4, 8)
WARM_UP_EVENTS = 500
REPEATS = {"rounds": 5, "large": 1, "file": 5}  # of the measured run, unless told otherwise


def timed_drive(
    spent: dict[str, float],
) -> Callable[[Scheduler, Backend, Sequence[Observer], Callable[[], bool]], bool]:
    """The driver's loop with a stopwatch around each part."""

    def drive(
        scheduler: Scheduler,
        backend: Backend,
        observers: Sequence[Observer],
        stop: Callable[[], bool],
    ) -> bool:
        clock = time.thread_time
        names = [type(observer).__name__.strip("_") for observer in observers]
        spent.update(dict.fromkeys(["backend", "solver", "core", *names], 0.0))
        while not stop():
            t = clock()
            event = backend.next()
            spent["solver" if isinstance(event, Solved) else "backend"] += clock() - t
            if event is None:
                return True
            for name, observer in zip(names, observers, strict=True):
                t = clock()
                observer.event(event)
                spent[name] += clock() - t
            t = clock()
            commands = scheduler.handle(event)
            spent["core"] += clock() - t
            for command in commands:
                for name, observer in zip(names, observers, strict=True):
                    t = clock()
                    observer.command(command)
                    spent[name] += clock() - t
                t = clock()
                backend.perform(command)
                spent["backend"] += clock() - t
        return False

    return drive


def warm_up(*args: Any, **options: Any) -> None:
    """Break off a run, by when libraries and kernels are loaded."""
    events = iter(range(WARM_UP_EVENTS))
    with tempfile.TemporaryDirectory() as out:
        fairlead.simulate(*args, out=Path(out), stop=lambda: next(events, None) is None, **options)


def measure(name: str, repeats: int, *args: Any, **options: Any) -> None:
    """Run plain so many times for the total, and once with stopwatches for the parts."""
    warm_up(*args, **options)
    plain = min((metrics_of(*args, **options) for _ in range(repeats)), key=cpu_s)
    rounds = plain["n_rounds"]
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name}: {cpu_s(plain):.2f} CPU s, {rounds} rounds ({rounds / cpu_s(plain):.0f} rounds/s, "
        f"{1e3 * cpu_s(plain) / rounds:.3f} ms each), {plain['n_solves']} solves, journal "
        f"{plain['journal_mb']:.0f} MB, peak memory {peak_mb:.0f} MB"
    )
    spent: dict[str, float] = {}
    vars(simulation_run)["drive"] = timed_drive(spent)
    timed = metrics_of(*args, **options)
    vars(simulation_run)["drive"] = plain_drive
    spent["tables and Parquet"] = cpu_s(timed) - sum(spent.values())
    for part, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"  {part:20} {seconds:8.3f} s   {1e6 * seconds / rounds:9.1f} us per round")


def metrics_of(*args: Any, **options: Any) -> dict[str, Any]:
    """The metrics of a run, and the size of its journal."""
    with tempfile.TemporaryDirectory() as out:
        metrics = fairlead.simulate(*args, out=Path(out), **options).metrics
        return metrics | {"journal_mb": (Path(out) / "journal").stat().st_size / 1e6}


def cpu_s(metrics: dict[str, Any]) -> float:
    """CPU seconds of a run."""
    return float(metrics["cpu_s"])


def made_up_table(types: Sequence[str], families: int, seed: int = 0) -> Throughputs:
    """Made-up rates with the spread of the measured ones."""
    rng = np.random.default_rng(seed)
    kinds = tuple(JobType(f"family {f}", None, s) for f in range(families) for s in SCALES)
    alone = rng.lognormal(2, 1.5, (families, 1, 1)) * rng.lognormal(0, 0.6, (1, 1, len(types)))
    rate = alone * rng.lognormal(0, 0.3, (families, len(SCALES), len(types)))
    rate *= np.array(SCALES)[None, :, None] ** 0.9
    slots = tuple(SlotType(name) for name in types)
    return Throughputs(slots, kinds, rate.reshape(len(kinds), len(types)), origin="made up")


def jobs(n: int, rates: Throughputs, devices: int, load: float, seed: int = 0) -> list[Arrival]:
    """Poisson arrivals of log-normal durations that ask for `load` of the devices."""
    rng = np.random.default_rng(seed)
    scale = rng.choice(SCALES, n, p=[0.7, 0.1, 0.15, 0.05])
    family = rng.integers(0, len(rates.job_types) // len(SCALES), n)
    duration_s = np.exp(rng.normal(9.0, 1.2, n))
    gap_s = (duration_s * scale).mean() / (devices * load)
    time_s = np.concatenate([[0.0], np.cumsum(rng.exponential(gap_s, n - 1))])
    arrivals = []
    for i in range(n):
        kind = JobType(f"family {family[i]}", None, int(scale[i]))
        row = rates.row(kind)
        assert row is not None
        steps = float(duration_s[i] * np.median(rates.rate[row]))
        job = Job(JobId(i), kind.name, kind.scale_factor, steps)
        arrivals.append(Arrival(float(time_s[i]), job))
    return arrivals


def rounds(profiles: Sequence[str], repeats: int) -> None:
    """100 long jobs on 108 devices: after the first solve nothing but plain rounds."""
    names = ("k80", "p100", "v100")
    rates = made_up_table(names, 26)
    cluster, seconds = Cluster.of(dict.fromkeys(names, 36)), 360.0 * 5000
    long = []
    for i in range(100):  # each has work for a hundred times the simulated time on its fastest type
        row = rates.row(JobType(f"family {i % 26}", None, 1))
        assert row is not None
        steps = 100 * seconds * float(rates.fastest[row])
        long.append(Arrival(0.0, Job(JobId(i), f"family {i % 26}", 1, steps)))
    for profile in profiles or ("default",):
        measure(
            f"100 running jobs, {profile} profile",
            repeats,
            long,
            cluster,
            "las_aware",
            throughputs=rates,
            profile=profile,
            stop_at_s=seconds,
        )


def large(profiles: Sequence[str], repeats: int) -> None:
    """A 100,000-job trace on 10,000 devices of 10 types."""
    names = [f"type{i}" for i in range(10)]
    rates = made_up_table(names, 26)
    cluster = Cluster.of(dict.fromkeys(names, 1000), 8)
    trace = jobs(100_000, rates, 10_000, 0.9)
    for profile in profiles or ("default",):
        measure(
            f"100,000 jobs, 10,000 devices, {profile} profile",
            repeats,
            trace,
            cluster,
            "las_aware",
            throughputs=rates,
            profile=profile,
        )


def file(given: argparse.Namespace) -> None:
    """Any run from files."""
    measure(
        f"{Path(given.trace).name}, {given.policy}, {given.profile} profile",
        given.repeats,
        given.trace,
        parse_cluster(given.cluster),
        given.policy,
        throughputs=given.table,
        profile=given.profile,
        measured_jobs=given.window,
    )


def add_repeats(parser: argparse.ArgumentParser, default: int) -> None:
    """The option for how often a run is measured."""
    parser.add_argument(
        "--repeats", metavar="N", type=whole(), default=default, help=f"runs (default {default})"
    )


def main() -> None:
    parser = parser_of(__doc__)
    parts = parser.add_subparsers(dest="what", required=True, metavar="rounds|large|file")
    for name, text in (("rounds", "a plain round, 100 running jobs"), ("large", "100,000 jobs")):
        one = parts.add_parser(name, help=text)
        one.add_argument("profiles", metavar="PROFILE", nargs="*", type=profile_name)
        add_repeats(one, REPEATS[name])
    one = parts.add_parser("file", help="any run")
    one.add_argument("trace", metavar="TRACE", type=trace_file)
    one.add_argument("table", metavar="TABLE", type=rate_table)
    one.add_argument("cluster", metavar="CLUSTER", type=cluster_spec)
    one.add_argument("policy", metavar="POLICY")
    one.add_argument("profile", metavar="PROFILE", type=profile_name)
    one.add_argument("window", metavar="S:E", type=measured_jobs)
    add_repeats(one, REPEATS["file"])
    given = parser.parse_args()
    if given.what == "file":
        file(given)
    else:
        {"rounds": rounds, "large": large}[given.what](given.profiles, given.repeats)


if __name__ == "__main__":
    run(main)
