"""Is what is simulated what runs? The same jobs on a live cluster and in the simulator.

    python benchmarks/live_fidelity.py [--policies las_aware --runs 5 --jobs 30]

First the families of jobs are measured on the live cluster: steps per second on each accelerator type, what
a start costs, how long a solve takes. Then every run draws a trace from its own seed, runs it live (real
processes on fake devices, rounds of 2 s), and in the simulator with those figures, the recorded times of
submission and nothing else of the run (a second time with what starts cost in this very run, which is
telling where other programs run beside it). The journal of every live run is replayed.

Exits with 1 if the means over the runs are not within --limits.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from command_line import finite, numbers, parser_of, run, whole

from fairlead import Arrival, Cluster, GroundTruth, Job, JobId, Node, RestartCosts, Result, simulate
from fairlead.cluster.http_client import Client
from fairlead.cluster.local import LocalCluster
from fairlead.cluster.measure import measure as profile
from fairlead.cluster.protocol.api_models import JobView
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.model.cluster import SlotType
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.simulator.traces.throughput_tables import read_throughputs, write_throughputs_csv

SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "live" / "numpy_job.py"
NODES = {"node-a": ("v100", 2), "node-b": ("k80", 2)}
SLOTS = (SlotType("k80"), SlotType("v100"))  # as tables order them
ROUND_S = 2.0
PREFORK = "numpy,fairlead.client.iterator"
# (family, devices): milliseconds of a step on a v100 and a k80, and how often it is drawn
FAMILIES = {
    ("vision", 1): (10.0, 50.0, 0.25),
    ("language", 1): (16.0, 40.0, 0.25),
    ("speech", 1): (20.0, 32.0, 0.2),
    ("ranking", 1): (20.0, 22.0, 0.15),
    ("language", 2): (10.0, 25.0, 0.15),
}


@dataclass(frozen=True)
class Cost:
    """Seconds, as the live cluster took them."""

    start_s: float  # from the decision to start a job until it trains, mean
    solve_s: float  # median


@dataclass(frozen=True)
class Run:
    """A live run and a simulation of it. Differences are parts of the live figure."""

    policy: str
    seed: int
    starts_cost: str  # "predicted" by measuring before, or "its own": the mean of the run
    start_s: float
    live_makespan_s: float
    sim_makespan_s: float
    live_jct_s: tuple[float, ...]  # of each job
    sim_jct_s: tuple[float, ...]
    live_starts: int
    sim_starts: int
    load: float  # of the machine, over the last minute, at the end

    @staticmethod
    def of(
        policy: str, seed: int, name: str, cost: Cost, jobs: Sequence[JobView], result: Result
    ) -> "Run":
        table = result.jobs.sort("job")
        return Run(
            policy,
            seed,
            name,
            cost.start_s,
            max(job.ended_s or 0.0 for job in jobs) - jobs[0].submitted_s,
            float(table["end_s"].to_numpy().max()),
            tuple((job.ended_s or 0.0) - job.submitted_s for job in jobs),
            tuple((table["end_s"] - table["arrival_s"]).to_list()),
            sum(job.starts for job in jobs),
            len(result.placement_intervals),
            os.getloadavg()[0],
        )

    @property
    def makespan(self) -> float:
        return self.sim_makespan_s / self.live_makespan_s - 1

    @property
    def jct(self) -> float:
        return float(np.mean(self.sim_jct_s) / np.mean(self.live_jct_s) - 1)

    @property
    def per_job(self) -> float:
        """Mean absolute difference of JCTs over the mean JCT."""
        apart = np.abs(np.subtract(self.sim_jct_s, self.live_jct_s))
        return float(apart.mean() / np.mean(self.live_jct_s))


def main() -> int:
    options = parse()
    runs = []
    rates = known_rates(options.measured) or measured_rates(options.measured)
    print(f"measured steps/s (k80, v100): {told(rates)}", flush=True)
    for policy in options.policies:
        cost = (
            Cost(options.start_ms / 1e3, 0.01) if options.start_ms else measured_cost(policy, rates)
        )
        print(
            f"{policy}: a start costs {cost.start_s * 1e3:.0f} ms, a solve {cost.solve_s * 1e3:.0f} ms"
        )
        print(HEAD, flush=True)
        for seed in range(options.seed, options.seed + options.runs):
            both = compare(policy, seed, options, rates, cost)
            runs += both
            print("\n".join(map(line, both)), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in runs], indent=1))
    return 0 if judged(runs, options.policies, options) else 1


def compare(
    policy: str, seed: int, options: argparse.Namespace, rates: Throughputs, cost: Cost
) -> list[Run]:
    """One trace, live, and simulated with the cost of starts as predicted and as it was."""
    trace = draw(seed, options.jobs, options.interarrival, options.work)
    with tempfile.TemporaryDirectory(prefix="fairlead-") as name:
        folder = options.keep / f"{policy}-{seed}" if options.keep else Path(name)
        with cluster(folder, policy, rates, cost) as live, live.client() as client:
            jobs = run_live(client, trace, folder / "checkpoints")
            attempts = [attempt for job in jobs for attempt in client.attempts(job.id)]
        replayed(live.state)
    starts = [
        attempt.trained_s - attempt.began_s for attempt in attempts if attempt.trained_s is not None
    ]
    own = replace(cost, start_s=float(np.mean(starts)))
    return [
        Run.of(policy, seed, name, told, jobs, simulated(policy, trace, jobs, rates, cost, told))
        for name, told in (("predicted", cost), ("its own", own))
    ]


def simulated(
    policy: str,
    trace: Sequence[Arrival],
    jobs: Sequence[JobView],
    rates: Throughputs,
    believed: Cost,
    true: Cost,
) -> Result:
    """The run in the simulator. believed: what the live scheduler took starts to cost."""
    first_s = jobs[0].submitted_s
    arrivals = [
        replace(one, time_s=job.submitted_s - first_s) for one, job in zip(trace, jobs, strict=True)
    ]
    return simulate(
        arrivals,
        machines(),
        policy,
        throughputs=rates,
        profile=replace(DEFAULT, round_s=ROUND_S),
        ground_truth=GroundTruth(restart_costs=RestartCosts(true.start_s), first_starts_cost=True),
        assumed_costs=RestartCosts(believed.start_s),
        solve_s=true.solve_s,
    )


# --- the trace -------------------------------------------------------------------------------------


def draw(seed: int, n: int, interarrival_s: float, work: tuple[float, float]) -> list[Arrival]:
    """Poisson arrivals; families by their odds; work log-uniform, in seconds alone on v100."""
    rng = np.random.default_rng(seed)
    kinds = list(FAMILIES)
    odds = np.array([FAMILIES[kind][2] for kind in kinds])
    arrivals, now_s = [], 0.0
    for number in range(n):
        family, scale = kinds[rng.choice(len(kinds), p=odds / odds.sum())]
        work_s = float(np.exp(rng.uniform(*np.log(work))))
        steps = round(work_s * 1e3 / FAMILIES[family, scale][0])
        arrivals.append(Arrival(now_s, Job(JobId(number), family, scale, steps)))
        now_s += float(rng.exponential(interarrival_s))
    return arrivals


def spec_of(job: Job, checkpoints: Path) -> JobSpec:
    """The job as it is submitted; its rates are in the table."""
    v100_ms, k80_ms, _ = FAMILIES[job.family, job.scale_factor]
    name, times = f"{job.family}-{job.id}", f"v100={v100_ms:g},k80={k80_ms:g}"
    return JobSpec(
        command=(sys.executable, str(SCRIPT), "--step-ms", times, "--seed", str(job.id)),
        total_steps=int(job.total_steps),
        family=job.family,
        name=name,
        scale_factor=job.scale_factor,
        cwd="/",
        checkpoint_dir=str(checkpoints / name),
        prefork=True,
    )


# --- live ------------------------------------------------------------------------------------------


@contextmanager
def cluster(folder: Path, policy: str, rates: Throughputs, cost: Cost) -> Iterator[LocalCluster]:
    """A server and two agents, ready to take jobs; ended at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    write_throughputs_csv(rates, folder / "rates.csv")
    serve = (
        *("--port", "0", "--agent-port", "0", "--policy", policy, "--round", f"{ROUND_S:g}"),
        *("--lease", "20", "--heartbeat", "0.25", "--throughputs", str(folder / "rates.csv")),
        *("--restart-cost", f"{cost.start_s:.4f}", "--no-early-round-end"),
    )
    nodes = {
        name: ("--devices", f"{kind}={count}", "--simulated-devices", "--prefork", PREFORK)
        for name, (kind, count) in NODES.items()
    }
    live = LocalCluster(folder, nodes, serve)
    try:
        live.start()
        with live.client() as client:
            while client.status().solve_s is None:  # its solver is ready
                time.sleep(0.1)
        yield live
    finally:
        live.stop()


def machines() -> Cluster:
    """The same for the simulator."""
    return Cluster(tuple(Node(name, kind, count) for name, (kind, count) in NODES.items()))


def run_live(client: Client, trace: Sequence[Arrival], checkpoints: Path) -> list[JobView]:
    """Submit each job at its time, wait for all; as they are at the end, in order of submission."""
    began = time.monotonic()
    for one in trace:
        time.sleep(max(began + one.time_s - time.monotonic(), 0.0))
        client.submit([spec_of(one.job, checkpoints)])
    return finished(client)


def finished(client: Client) -> list[JobView]:
    """All jobs, once they have ended; they must have completed."""
    while client.jobs(state="open"):
        time.sleep(0.5)
    jobs = client.jobs()
    bad = [job for job in jobs if job.state != "completed" or job.lost_steps]
    if bad:
        sys.exit(f"job {bad[0].id} {bad[0].state}, {bad[0].lost_steps} steps lost: {bad[0].reason}")
    return jobs


def replayed(state: Path) -> None:
    """The journal must lead a fresh core to the same commands."""
    command = (sys.executable, "-m", "fairlead", "replay", str(state))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# --- measuring -------------------------------------------------------------------------------------


def known_rates(path: Path | None) -> Throughputs | None:
    """Return the rates that an earlier run has kept; None = there are none."""
    if path is None or not path.exists():
        return None
    return read_throughputs(path).columns(SLOTS)


def measured_rates(keep: Path | None) -> Throughputs:
    """(kinds, types) steps/s, as `fairlead measure` finds them."""
    table = np.zeros((len(FAMILIES), len(SLOTS)))
    for row, (family, scale) in enumerate(FAMILIES):
        command = spec_of(Job(JobId(0), family, scale, 1.0), Path()).command
        for column, slot in enumerate(SLOTS):
            table[row, column] = profile(command, slot.accelerator, scale, 3.0).steps_per_s
    rates = Throughputs(
        SLOTS, tuple(JobType.parse(*one) for one in FAMILIES), table, source="measured"
    )
    if keep is not None:
        write_throughputs_csv(rates, keep)
    return rates


def measured_cost(policy: str, rates: Throughputs) -> Cost:
    """From ten jobs that take turns on four devices."""
    ids, solves = [], []
    with tempfile.TemporaryDirectory(prefix="fairlead-") as name:
        folder = Path(name)
        with cluster(folder, policy, rates, Cost(0.1, 0.0)) as live, live.client() as client:
            for number in range(10):
                family, scale = list(FAMILIES)[number % len(FAMILIES)]
                steps = round(5_000 / FAMILIES[family, scale][0])
                job = Job(JobId(number), family, scale, steps)
                ids += client.submit([spec_of(job, folder / "checkpoints")])
            while client.jobs(state="open"):
                solves.append(client.status().solve_s or 0.0)
                time.sleep(0.5)
            attempts = [attempt for job_id in ids for attempt in client.attempts(job_id)]
    starts = [
        attempt.trained_s - attempt.began_s for attempt in attempts if attempt.trained_s is not None
    ]
    return Cost(float(np.mean(starts)), float(np.median(solves)))


# --- what is printed -------------------------------------------------------------------------------


def told(rates: Throughputs) -> str:
    """The table in one line."""
    rows = zip(rates.job_types, rates.rate.tolist(), strict=True)
    return "; ".join(
        f"{one.name} x {one.scale_factor} " + ", ".join(f"{r:.2f}" for r in row)
        for one, row in rows
    )


HEAD = (
    f"{'policy':26} {'seed':>4} {'starts cost':>16} {'makespan live':>14} {'sim':>7} {'':>7} "
    f"{'JCT live':>9} {'sim':>7} {'':>7} {'per job':>8} {'starts live':>11} {'sim':>4} {'load':>5}"
)


def line(run: Run) -> str:
    return (
        f"{run.policy:26} {run.seed:4} {run.starts_cost:>9} {run.start_s * 1e3:3.0f} ms "
        f"{run.live_makespan_s:14.1f} {run.sim_makespan_s:7.1f} {run.makespan:+7.1%} "
        f"{np.mean(run.live_jct_s):9.2f} {np.mean(run.sim_jct_s):7.2f} {run.jct:+7.1%} "
        f"{run.per_job:8.1%} {run.live_starts:11} {run.sim_starts:4} {run.load:5.2f}"
    )


def judged(runs: Sequence[Run], policies: Sequence[str], options: argparse.Namespace) -> bool:
    """Print means per policy; are those that count within the limits?"""
    good = True
    for policy in policies:
        for name in ("predicted", "its own"):
            mine = [run for run in runs if (run.policy, run.starts_cost) == (policy, name)]
            found = (
                np.abs([(run.makespan, run.jct, run.per_job) for run in mine]).mean(axis=0) * 100
            )
            within = bool((found <= options.limits).all())
            good = good and (within or name != options.judge)
            print(
                f"{policy}, starts cost {name}: mean |difference| over {len(mine)} runs: "
                f"makespan {found[0]:.1f} %, average JCT {found[1]:.1f} %, per job {found[2]:.1f} %"
                f" ({'within' if within else 'NOT within'} {options.limits})"
            )
    return good


def parse() -> argparse.Namespace:
    about = parser_of(__doc__)
    add = about.add_argument
    add("--policies", type=lambda text: text.split(","), default=["las_aware"])
    add(
        "--measured",
        type=Path,
        help="measure rates once: keep them in this CSV, or take them from it",
    )
    add(
        "--start-ms",
        type=finite(),
        default=0.0,
        help="do not measure what a start costs, but take this",
    )
    add("--judge", choices=("predicted", "its own"), default="predicted", help="which one counts")
    add(
        "--work",
        type=numbers(2),
        default=[4.0, 20.0],
        help="least and most seconds of a job, alone on v100",
    )
    add("--runs", type=whole(), default=5)
    add("--jobs", type=whole(), default=30)
    add("--interarrival", type=finite(), default=5.0, help="mean seconds between arrivals")
    add("--seed", type=whole(0), default=0, help="of the first run")
    add("--limits", type=numbers(3), default=[3.0, 5.0, 8.0])
    add("--keep", type=Path, help="leave the clusters' files here")
    add("--json", type=Path, help="write the runs there")
    return about.parse_args()


if __name__ == "__main__":
    run(main)
