"""Six jobs of one device on four devices in rounds of 10 s, parked between their turns: what each gets, and
what the switches cost.

    python benchmarks/time_slicing.py [--rounds 60 --policy las_aware]

A live cluster on this machine: one node of four simulated devices, jobs that sleep through their steps, so
that the machine's own processors are no bottleneck. Each job is to get 4/6 of a device, within --limit. Lost
is what four devices would have done beyond what the jobs did, at the rate at which they step while they run;
of the same cluster simulated, with the cost of resuming as it was measured live, it is to be the same.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from command_line import parser_of, run, whole

from fairlead.cluster.http_client import Client
from fairlead.cluster.local import LocalCluster
from fairlead.cluster.protocol.job_spec import JobSpec

DEVICES, JOBS, ROUND_S = 4, 6, 10.0
STEP_S = 0.02
WARM_UP_S = 60.0  # first starts import, and are no switches
SCRIPT = f"""
import time
import fairlead
with fairlead.Lease(load=lambda path: path.read_bytes(), save=lambda path: path.write_bytes(b"x")) as lease:
    while lease.next():
        time.sleep({STEP_S})
"""


@dataclass(frozen=True)
class Turns:
    """What the jobs did in a time."""

    seconds: float
    steps: list[float]
    step_s: float  # that a step takes while its job runs
    resume_s: float  # that a device does nothing at a switch, median


def measure(client: Client, rounds: int) -> Turns:
    """Submit the jobs, wait until all have had a turn, and let them take turns for so many rounds."""
    command = (sys.executable, "-c", SCRIPT)
    jobs = client.submit([JobSpec(command=command, total_steps=10**9, cwd="/")] * JOBS)
    until = time.monotonic() + 10 * WARM_UP_S
    while any(client.job(job).starts < 2 for job in jobs) and time.monotonic() < until:
        time.sleep(0.5)
    before, began = [client.job(job).steps for job in jobs], time.monotonic()
    time.sleep(rounds * ROUND_S)
    seconds = time.monotonic() - began
    steps = [client.job(job).steps - first for job, first in zip(jobs, before, strict=True)]
    rows = [row for job in jobs for row in client.attempts(job) if row.ended_s is not None]
    resumed = [row for row in rows if row.origin.startswith("resumed")]
    rates = [view.measured_rate for view in map(client.job, jobs) if view.measured_rate]
    costs = sorted(max(row.stop_s, 0.0) + row.start_s + row.load_s for row in resumed)
    return Turns(
        seconds=seconds,
        steps=steps,
        step_s=len(rates) / sum(rates),
        resume_s=costs[len(costs) // 2] if costs else float("nan"),
    )


def main() -> int:
    """Exits with 1 where a job got too little, or too much was lost."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=whole(), default=60)
    parser.add_argument("--policy", default="las_aware")
    parser.add_argument("--limit", type=float, default=0.03, help="of a part, relative")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlead-time-slicing-") as name:
        serve = (
            "--port",
            "0",
            "--agent-port",
            "0",
            "--round",
            f"{ROUND_S:g}",
            "--policy",
            given.policy,
        )
        node = ("--devices", f"device={DEVICES}", "--simulated-devices")
        cluster = LocalCluster(Path(name), {"node": node}, (*serve, "--restart-cost", "0.1"))
        try:
            cluster.start()
            with cluster.client() as client:
                live = measure(client, given.rounds)
        finally:
            cluster.stop()
    whole_part = DEVICES / JOBS
    parts = [steps * live.step_s / live.seconds for steps in live.steps]
    lost = 1.0 - sum(parts) / DEVICES
    print(f"{JOBS} jobs on {DEVICES} devices, rounds of {ROUND_S:g} s, {live.seconds:.0f} s")
    print(f"a switch costs {1e3 * live.resume_s:.0f} ms")
    print(
        f"parts of a device: {', '.join(f'{part:.3f}' for part in parts)} (wanted {whole_part:.3f})"
    )
    print(f"lost in all: {100 * lost:.2f} %")
    worst = max(abs(part / whole_part - 1.0) for part in parts)
    return int(worst > given.limit or lost > 0.02)


if __name__ == "__main__":
    run(main)
