"""Six jobs of one device on four devices in rounds of 10 s, parked between their turns: what each gets, and
what the switches cost.

    python benchmarks/time_slicing.py [--rounds 60 --policy las_aware]

A live cluster on this machine: one node of four simulated devices, jobs that sleep through their steps, so
that the machine's own processors are no bottleneck. Each job is to get 4/6 of a device, within --limit. Lost
is what four devices would have done beyond what the jobs did, at the rate at which they step while they run.
Then the simulator runs the same jobs, with the cost of resuming as it was measured live: what is lost there
is to be the same within a hundredth of the devices' time, and so is the part of each job.
"""

import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from command_line import parser_of, run, whole

import fairlead
from fairlead.cluster.http_client import Client
from fairlead.cluster.local import LocalCluster
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.commands import Command, StartRound
from fairlead.model.events import Event, RoundEnded
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.ground_truth import GroundTruth

DEVICES, JOBS, ROUND_S = 4, 6, 10.0
STEP_S = 0.02
RESTART_S = 0.1  # that the scheduler takes a start to cost
MAX_LOST = 0.02  # of the devices' time
MAX_DIFFERENCE = 0.01  # between live and simulated, in parts of a device
WARM_UP_S = 60.0  # first starts import, and are no switches
MARK_STEPS = 25  # between two times that a job writes down
SCRIPT = f"""
import sys, time
import fairlead
marks = open(sys.argv[1], "a", buffering=1)
with fairlead.Lease(load=lambda path: path.read_bytes(), save=lambda path: path.write_bytes(b"x")) as lease:
    while lease.next():
        if lease.step % {MARK_STEPS} == 0:
            marks.write(f"{{time.monotonic()}} {{lease.step}}\\n")
        time.sleep({STEP_S})
"""


@dataclass(frozen=True)
class Turns:
    """What the jobs did in a time."""

    seconds: float
    parts: list[float]  # of a device, of each job
    step_s: float  # that a step takes while its job runs
    resume_s: float  # that a device does nothing at a switch, median


def measure(client: Client, folder: Path, rounds: int) -> Turns:
    """Submit the jobs, wait until all have had a turn, and let them take turns for so many rounds."""
    files = [folder / f"marks-{number}" for number in range(JOBS)]
    commands = [(sys.executable, "-c", SCRIPT, str(file)) for file in files]
    jobs = client.submit([JobSpec(command=one, total_steps=10**9, cwd="/") for one in commands])
    until = time.monotonic() + 10 * WARM_UP_S
    while any(client.job(job).starts < 2 for job in jobs) and time.monotonic() < until:
        time.sleep(0.5)
    began = time.monotonic()
    time.sleep((rounds + 2) * ROUND_S)
    marks = [np.loadtxt(file, ndmin=2, max_rows=lines_of(file)) for file in files]
    rows = [row for job in jobs for row in client.attempts(job) if row.ended_s is not None]
    resumed = [row for row in rows if row.origin.startswith("resumed")]
    costs = [max(row.stop_s, 0.0) + row.start_s + row.load_s for row in resumed]
    return turns_of(marks, began, rounds, float(np.median(costs)))


def lines_of(file: Path) -> int:
    """Whole lines of a file that is written to."""
    return file.read_bytes().count(b"\n")


def turns_of(marks: list[np.ndarray], began: float, rounds: int, resume_s: float) -> Turns:
    """What the jobs did in so many rounds from the first one after a time. marks: of each job (times, 2),
    when it had done how many steps. A round begins where a job goes on."""
    gaps = [np.flatnonzero(np.diff(mark[:, 0]) > ROUND_S / 2) for mark in marks]
    begins = np.sort(np.concatenate([m[gap + 1, 0] for m, gap in zip(marks, gaps, strict=True)]))
    first = begins[begins > began][0]
    last = begins[np.abs(begins - first - rounds * ROUND_S).argmin()]
    paces = np.concatenate([np.diff(mark[:, 0]) / np.diff(mark[:, 1]) for mark in marks])
    step_s = float(np.median(paces))
    steps = [np.interp(last, *mark.T) - np.interp(first, *mark.T) for mark in marks]
    seconds = float(last - first)
    return Turns(seconds, [float(one) * step_s / seconds for one in steps], step_s, resume_s)


class StepsOfJobs:
    """An observer that adds up the steps that jobs do in the rounds that begin within a time."""

    def __init__(self, from_s: float, to_s: float) -> None:
        self.steps = [0.0] * JOBS
        self._from_s, self._to_s = from_s, to_s
        self._round: StartRound | None = None

    def event(self, event: Event) -> None:
        """A round's report is one."""
        current = self._round
        if not isinstance(event, RoundEnded) or current is None:
            return
        if self._from_s <= current.time_s < self._to_s:
            for job, steps in zip(current.job_groups[:, 0], event.steps[:, 0], strict=True):
                self.steps[job] += steps

    def command(self, command: Command) -> None:
        """The beginning of a round is one."""
        if isinstance(command, StartRound):
            self._round = command


def simulated_parts(rounds: int, policy: str, resume_s: float) -> list[float]:
    """Parts of a device that the same jobs get in so many simulated rounds, at a step a second."""
    rates = Throughputs((SlotType("device"),), (JobType.parse("job", 1),), np.array([[1.0]]))
    arrivals = [Arrival(0.0, Job(JobId(i), "job", 1, 1e9)) for i in range(JOBS)]
    seconds = rounds * ROUND_S
    seen = StepsOfJobs(WARM_UP_S, WARM_UP_S + seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fairlead.PartialResultWarning)  # no job is to end
        fairlead.simulate(
            arrivals,
            Cluster.of({"device": DEVICES}, DEVICES),
            policy,
            throughputs=rates,
            round_s=ROUND_S,
            stop_at_s=WARM_UP_S + seconds + ROUND_S,
            ground_truth=GroundTruth(
                restart_costs=RestartCosts(RESTART_S), resume_costs=RestartCosts(resume_s)
            ),
            observers=[seen],
        )
    return [steps / seconds for steps in seen.steps]


def listed(parts: list[float]) -> str:
    """The parts as text."""
    return ", ".join(f"{part:.3f}" for part in parts)


def main() -> int:
    """Exits with 1 where a job got too little, too much was lost, or the simulator says otherwise."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=whole(), default=60)
    parser.add_argument("--policy", default="las_aware")
    parser.add_argument("--limit", type=float, default=0.03, help="of a part, relative")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlead-time-slicing-") as name:
        listen = ("--port", "0", "--agent-port", "0")
        turns = (
            "--round",
            f"{ROUND_S:g}",
            "--restart-cost",
            f"{RESTART_S:g}",
            "--policy",
            given.policy,
        )
        node = ("--devices", f"device={DEVICES}", "--simulated-devices")
        cluster = LocalCluster(Path(name), {"node": node}, (*listen, *turns))
        try:
            cluster.start()
            with cluster.client() as client:
                live = measure(client, Path(name), given.rounds)
        finally:
            cluster.stop()
    whole_part = DEVICES / JOBS
    parts = live.parts
    lost = 1.0 - sum(parts) / DEVICES
    simulated = simulated_parts(given.rounds, given.policy, live.resume_s)
    simulated_lost = 1.0 - sum(simulated) / DEVICES
    apart = max(abs(a - b) for a, b in zip(sorted(parts), sorted(simulated), strict=True))
    print(f"{JOBS} jobs on {DEVICES} devices, rounds of {ROUND_S:g} s, {live.seconds:.0f} s")
    print(
        f"a switch costs {1e3 * live.resume_s:.0f} ms (median), a step {1e3 * live.step_s:.2f} ms"
    )
    print(f"parts of a device, wanted {whole_part:.3f}: live {listed(parts)}")
    print(f"simulated: {listed(simulated)}; largest difference, in order of size: {apart:.3f}")
    print(f"lost in all: live {100 * lost:.2f} %, simulated {100 * simulated_lost:.2f} %")
    worst = max(abs(part / whole_part - 1.0) for part in parts)
    different = max(apart, abs(lost - simulated_lost)) > MAX_DIFFERENCE
    return int(worst > given.limit or lost > MAX_LOST or different)


if __name__ == "__main__":
    run(main)
