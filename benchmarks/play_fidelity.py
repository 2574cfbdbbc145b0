"""Do traces that are played on a live cluster end as the simulator says? See docs/fidelity.md.

    python benchmarks/play_fidelity.py [--policies las_aware,fifo,finish_time_fairness --runs 5]

Each run draws a trace of Gavel's generator from its own seed, and plays it with stand-ins on a server and
agents of this machine, whose devices are simulated (`fairlead play --simulated`); the simulation gets what
starts have cost on average in the run, and the median time of a solve. Makespan and average JCT are those of
the simulation, relative to the live ones; differences per job are relative to the live average JCT.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from command_line import finite, parser_of, run, whole

from fairlead.analysis.report.job_differences import job_differences
from fairlead.analysis.report.run_folders import read_table
from fairlead.cluster.local import LocalCluster

FAIRLEAD = (sys.executable, "-m", "fairlead")
STAND_IN = "fairlead.client.stand_in"
HEAD = (
    f"{'policy':24} {'seed':>4} {'makespan live':>13} {'sim':>8} {'JCT live':>10} {'sim':>8} "
    f"{'per job':>8} {'p90':>7} {'start':>8} {'load':>6}"
)


@dataclass(frozen=True, slots=True)
class Run:
    """A trace, live and simulated. Times in seconds; parts are of the live average JCT."""

    policy: str
    seed: int
    live_makespan_s: float
    sim_makespan_s: float
    live_jct_s: float
    sim_jct_s: float
    mean_part: float  # mean absolute difference per job
    p90_part: float
    start_s: float  # mean cost of a start
    load: float  # of the machine, over the last minute, at the end

    @property
    def makespan(self) -> float:
        return self.sim_makespan_s / self.live_makespan_s - 1

    @property
    def jct(self) -> float:
        return self.sim_jct_s / self.live_jct_s - 1

    def line(self) -> str:
        return (
            f"{self.policy:24} {self.seed:4} {self.live_makespan_s:9.1f} s {self.makespan:+8.1%} "
            f"{self.live_jct_s:8.2f} s {self.jct:+8.1%} {self.mean_part:8.1%} {self.p90_part:7.1%} "
            f"{self.start_s * 1e3:5.0f} ms {self.load:6.2f}"
        )


def main() -> int:
    options = parse()
    print(HEAD, flush=True)
    runs = []
    for policy in options.policies:
        for seed in range(options.seed, options.seed + options.runs):
            with tempfile.TemporaryDirectory(prefix="fairlead-") as name:
                folder = options.keep / f"{policy}-{seed}" if options.keep else Path(name)
                runs.append(play(policy, seed, folder, options))
            print(runs[-1].line(), flush=True)
    for policy in options.policies:
        mine = [one for one in runs if one.policy == policy]
        parts = [(abs(one.makespan), abs(one.jct), one.mean_part, one.p90_part) for one in mine]
        makespan, jct, mean, p90 = np.mean(parts, axis=0)
        print(
            f"{policy}: mean |difference| over {len(mine)} runs: makespan {makespan:.1%}, average JCT "
            f"{jct:.1%}, per job {mean:.1%}, nine of ten within {p90:.1%}"
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in runs], indent=1))
    return 0


def play(policy: str, seed: int, folder: Path, options: argparse.Namespace) -> Run:
    """One trace on a cluster of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    trace, out = folder / "trace.csv", folder / "live"
    types = {"v100": options.devices // 2, "k80": options.devices - options.devices // 2}
    machines = ",".join(f"{name}={n}" for name, n in types.items())
    call(
        *("trace", "generate", str(trace), "--kind", "gavel", "--jobs", str(options.jobs)),
        *("--interarrival", f"{options.interarrival * options.speed:g}", "--seed", str(seed)),
        *("--cluster", machines),
    )
    nodes = {
        f"node-{name}": ("--devices", f"{name}={n}", "--simulated-devices", "--prefork", STAND_IN)
        for name, n in types.items()
    }
    serve = (
        *("--port", "0", "--agent-port", "0", "--policy", policy, "--round", f"{options.round:g}"),
        *("--restart-cost", f"{options.restart_cost:g}", "--no-early-round-end"),
    )
    live = LocalCluster(folder, nodes, serve)
    try:
        live.start()
        with live.client() as client:
            while len(client.nodes()) < len(nodes):
                pass
            environment = {"FAIRLEAD_SERVER": client.url, "FAIRLEAD_TOKEN": client.token}
        words = ("--speed", f"{options.speed:g}", "--simulated", "--out", str(out), "--json")
        found = json.loads(call("play", str(trace), *words, **environment))
    finally:
        live.stop()
    tables = [read_table(path, "jobs") for path in (out, out / "simulated")]
    apart = job_differences(("live", "simulated"), *tables)
    assert apart is not None
    return Run(
        policy,
        seed,
        found["makespan_s"],
        found["simulated"]["makespan_s"],
        found["avg_jct_s"],
        found["simulated"]["avg_jct_s"],
        apart.mean_part,
        apart.p90_part,
        found["start_s"],
        os.getloadavg()[0],
    )


def call(*words: str, **environment: str) -> str:
    """The output of a command."""
    done = subprocess.run(
        [*FAIRLEAD, *words], env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode()


def parse() -> argparse.Namespace:
    about = parser_of(__doc__)
    add = about.add_argument
    policies = ["las_aware", "fifo", "finish_time_fairness"]
    add("--policies", type=lambda text: text.split(","), default=policies)
    add("--runs", type=whole(), default=5)
    add("--seed", type=whole(0), default=0, help="of the first run")
    add("--jobs", type=whole(), default=120)
    add("--devices", type=whole(2), default=32, help="half of them v100, half k80")
    add("--round", type=finite(), default=6.0, help="seconds")
    add("--speed", type=finite(), default=6000.0)
    add("--interarrival", type=finite(), default=0.5, help="mean seconds between submissions, live")
    add(
        "--restart-cost",
        type=finite(),
        default=0.3,
        help="seconds, as the server believes at first",
    )
    add("--keep", type=Path, help="leave the clusters' files here")
    add("--json", type=Path, help="write the runs there")
    return about.parse_args()


if __name__ == "__main__":
    run(main)
