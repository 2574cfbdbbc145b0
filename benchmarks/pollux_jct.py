"""Completion times and fairness in the world of Pollux's release: 16 nodes of 4 devices.

python benchmarks/pollux_jct.py APPLICATIONS WORKLOAD.csv ... [--policies NAME,NAME,...] [--round SECONDS,...]
[--fairness] [--known]

--known: rho against a job alone whose policy knows it from the start.
"""

import time
from functools import partial
from pathlib import Path

import numpy as np
from command_line import parser_of, run

from fairlead.simulator.pollux_reference.applications import read_by_accelerator
from fairlead.simulator.pollux_reference.fairness import finish_time_fairness
from fairlead.simulator.pollux_reference.registry import POLICIES, elastic_policy
from fairlead.simulator.pollux_reference.simulation import simulate_elastic
from fairlead.simulator.pollux_reference.workload import read_workload

SIZES = [4] * 16
UNFAIR = 1.2  # rho from which a job counts as treated unfairly


def main() -> None:
    """One line per policy and interval: means over the workloads of the averages of their jobs."""
    parser = parser_of(__doc__)
    parser.add_argument("applications", type=Path)
    parser.add_argument("workloads", type=Path, nargs="+")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--round", default="60")
    parser.add_argument("--fairness", action="store_true")
    parser.add_argument("--known", action="store_true")
    given = parser.parse_args()
    applications = read_by_accelerator(given.applications, ["gpu"])
    workloads = [read_workload(path, applications) for path in given.workloads]
    for name in given.policies.split(","):
        for interval_s in map(float, given.round.split(",")):
            began_s = time.process_time()
            runs = [
                simulate_elastic(jobs, elastic_policy(name), SIZES, interval_s)
                for jobs in workloads
            ]
            cpu_s = (time.process_time() - began_s) / len(runs)
            solve_ms = 1e3 * np.median(np.concatenate([one.solve_s for one in runs]))
            line = (
                f"{name:13} {interval_s:4.0f} s  average JCT "
                f"{np.mean([np.mean(list(one.jct_s().values())) for one in runs]):8,.1f} s  restarts "
                f"{np.mean([sum(t.restarts for t in one.trainings) for one in runs]):6.1f}  gap "
                f"{max((one.gap or 0.0) for one in runs):.0e}  median decision {solve_ms:.1f} ms  "
                f"CPU {cpu_s:.1f} s per run"
            )
            if given.fairness or given.known:
                policy = partial(elastic_policy, name)
                rho = [
                    finish_time_fairness(one, policy, SIZES, interval_s, knows=given.known)
                    for one in runs
                ]
                every = np.concatenate([list(one.values()) for one in rho])
                line += (
                    f"  worst rho {every.max():.2f}, above {UNFAIR}: {(every > UNFAIR).mean():.1%}"
                )
            print(line, flush=True)


if __name__ == "__main__":
    run(main)
