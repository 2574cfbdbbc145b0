"""Jobs that come at random onto two devices: pairs on trial against taking turns alone, on a live cluster.

    python benchmarks/packing.py [--minutes 60 --seed 0]

Each device has a core of this machine, on which its jobs compute: so jobs that compute are in each other's
way, jobs that stream through memory too, and jobs that wait for data are not. None says how it does beside
others; all state the same fraction, and the policy `gandiva` has to find out. The same arrivals are run
twice, with pairs and without. Pairs of which one waits should stay, others be undone within three rounds;
and with pairs no less may be done than without, but for two per cent.
"""

import itertools
import random
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from command_line import finite, parser_of, run, whole

from fairlead.cluster.http_client import Client
from fairlead.cluster.local import LocalCluster
from fairlead.cluster.protocol.job_spec import JobSpec

DEVICES, ROUND_S = 2, 10.0
LOAD = 1.6  # of the devices' time that arriving jobs ask for: some are always in each other's way
ALONE_S = (60.0, 240.0)  # that a job takes with a device of its own
TRIED = 0.75  # of its rate that each job states to keep in a pair
MOST_ROUNDS = 3  # of a pair that is no good
MIN_DONE = 0.98  # of what is done by taking turns
POLL_S = 1.0
LEAST_S = 4.0  # that a pair is seen: for a shorter time one job may leave and the next one come
CALIBRATION_S = 4.0
KINDS = ("waits", "computes", "streams")
SCRIPT = """
import os, sys, time
import numpy as np

def pin():
    cores = sorted(os.sched_getaffinity(os.getppid()))
    os.sched_setaffinity(0, {cores[int(os.environ.get("FAIRLEAD_DEVICES", "0")) % len(cores)]})

small, large = np.ones(2_000), np.ones(8_000_000)
def step(kind):
    if kind == "waits":
        time.sleep(0.045)
        rounds = 20
    else:
        rounds = 400
    if kind == "streams":
        large.sum()
        large.sum()
    else:
        for _ in range(rounds):
            np.sqrt(small).sum()
"""
CALIBRATION = (
    SCRIPT
    + """
pin()
step(sys.argv[1])
began, steps = time.monotonic(), 0
while time.monotonic() - began < float(sys.argv[2]):
    step(sys.argv[1])
    steps += 1
print(steps / (time.monotonic() - began))
"""
)
JOB = (
    SCRIPT
    + """
import fairlead
pin()
marks = open(sys.argv[2], "a", buffering=1)
with fairlead.Lease(
    load=lambda path: path.read_bytes(), save=lambda path: path.write_bytes(b"x"),
    on_park=lambda: None, on_resume=pin,
) as lease:
    while lease.next():
        step(sys.argv[1])
        if lease.step % 10 == 0:
            marks.write(f"{time.monotonic()} {lease.step}\\n")
"""
)


@dataclass(frozen=True)
class Submission:
    """A job that comes."""

    at_s: float
    kind: str
    alone_s: float  # that it takes with a device of its own


@dataclass
class Outcome:
    """One run of the arrivals."""

    done_s: float = 0.0  # seconds of a device of its own that all jobs were worth together
    kinds: dict[int, str] = field(default_factory=dict)  # of each job
    pairs: dict[tuple[int, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    ended_s: dict[int, float] = field(default_factory=dict)  # when jobs were seen to have ended


def arrivals(minutes: float, seed: int) -> list[Submission]:
    """Return the jobs that come within a time, at random."""
    rng = random.Random(seed)
    gap_s = sum(ALONE_S) / 2 / (LOAD * DEVICES)
    found, at_s = [], 0.0
    while at_s < 60 * minutes:
        found.append(Submission(at_s, rng.choice(KINDS), rng.uniform(*ALONE_S)))
        at_s += rng.expovariate(1 / gap_s)
    return found


def rates_alone() -> dict[str, float]:
    """Steps/s of each kind on a core of its own, as measured now."""
    import subprocess

    return {
        kind: float(
            subprocess.check_output(
                (sys.executable, "-c", CALIBRATION, kind, f"{CALIBRATION_S}"), text=True
            )
        )
        for kind in KINDS
    }


def play(
    client: Client,
    folder: Path,
    jobs: list[Submission],
    rates: dict[str, float],
    minutes: float,
) -> Outcome:
    """Submit the jobs at their times, and watch them until the time is over."""
    outcome, waiting, began = Outcome(), list(jobs), time.monotonic()
    files: dict[int, Path] = {}
    while time.monotonic() - began < 60 * minutes:
        while waiting and time.monotonic() - began >= waiting[0].at_s:
            one = waiting.pop(0)
            file = folder / f"marks-{len(files)}"
            spec = JobSpec(
                command=(sys.executable, "-c", JOB, one.kind, str(file)),
                total_steps=max(int(one.alone_s * rates[one.kind]), 1),
                name=one.kind,
                rates={"device": rates[one.kind]},
                colocated_fraction=TRIED,
                cwd="/",
            )
            (job,) = client.submit([spec])
            files[job], outcome.kinds[job] = file, one.kind
        for node in client.nodes():
            for holders in node.jobs:
                for pair in itertools.combinations(sorted(holders), 2):
                    outcome.pairs[pair].append(time.monotonic())
        open_jobs = {view.id for view in client.jobs(state="open")}
        for job in files.keys() - open_jobs - outcome.ended_s.keys():
            outcome.ended_s[job] = time.monotonic()
        time.sleep(POLL_S)
    for job, file in files.items():
        lines = file.read_text().splitlines() if file.exists() else []
        steps = int(lines[-1].split()[1]) if lines else 0
        outcome.done_s += steps / rates[outcome.kinds[job]]
    return outcome


def measure(
    policy: str, jobs: list[Submission], rates: dict[str, float], minutes: float
) -> Outcome:
    """Run the arrivals under a policy, on a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="fairlead-packing-") as name:
        listen = ("--port", "0", "--agent-port", "0", "--compile-in-background")
        turns = ("--round", f"{ROUND_S:g}", "--restart-cost", "0.1", "--policy", policy)
        node = ("--devices", f"device={DEVICES}", "--simulated-devices")
        cluster = LocalCluster(Path(name), {"node": node}, (*listen, *turns))
        try:
            cluster.start()
            with cluster.client() as client:
                return play(client, Path(name), jobs, rates, minutes)
        finally:
            cluster.stop()


def show_pairs(outcome: Outcome) -> int:
    """Print how long pairs lasted, by kinds. Returns how many that are no good lasted too long."""
    rounds: dict[tuple[str, str], list[float]] = defaultdict(list)
    undone: dict[tuple[str, str], int] = defaultdict(int)
    for pair, seen in outcome.pairs.items():
        if seen[-1] - seen[0] < LEAST_S:
            continue
        first, second = sorted(outcome.kinds[job] for job in pair)
        rounds[first, second].append((seen[-1] - seen[0] + POLL_S) / ROUND_S)
        end_s = min(outcome.ended_s.get(job, np.inf) for job in pair)
        undone[first, second] += seen[-1] + 2 * POLL_S < end_s
    late = 0
    for kinds, lasted in sorted(rounds.items()):
        good = "waits" in kinds
        late += 0 if good else sum(one > MOST_ROUNDS + 0.5 for one in lasted)
        print(
            f"{' + '.join(kinds):22} {len(lasted):4} pairs, {undone[kinds]:4} undone, rounds: "
            f"median {np.median(lasted):.1f}, most {max(lasted):.1f}"
        )
    return late


def main() -> int:
    """Exits with 1 where a pair that is no good lasted too long, or too little was done."""
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=finite(), default=60.0)
    parser.add_argument("--seed", type=whole(0), default=0)
    given = parser.parse_args()
    jobs, rates = arrivals(given.minutes, given.seed), rates_alone()
    print(f"{len(jobs)} jobs in {given.minutes:g} min; steps/s alone: {rates}", flush=True)
    packed = measure("gandiva", jobs, rates, given.minutes)
    late = show_pairs(packed)
    print(f"done with pairs: {packed.done_s:.0f} s of a device", flush=True)
    turns = measure("gandiva:no-packing", jobs, rates, given.minutes)
    ratio = packed.done_s / turns.done_s
    print(f"by turns alone: {turns.done_s:.0f} s; with pairs {ratio:.3f} times as much")
    return int(late > 0 or ratio < MIN_DONE)


if __name__ == "__main__":
    run(main)
