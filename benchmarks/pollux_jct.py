"""Average completion times in the world of Pollux's release: 16 nodes of 4 devices, intervals of 60 s.

python benchmarks/pollux_jct.py APPLICATIONS WORKLOAD.csv ...
"""

from pathlib import Path

import numpy as np
from command_line import parser_of, run

from fairlead.simulator.pollux_reference.applications import read_applications
from fairlead.simulator.pollux_reference.policies import POLICIES, elastic_policy
from fairlead.simulator.pollux_reference.simulation import simulate_elastic
from fairlead.simulator.pollux_reference.workload import read_workload


def main() -> None:
    """One line per policy: the mean, over the workloads, of the average of their jobs."""
    parser = parser_of(__doc__)
    parser.add_argument("applications", type=Path)
    parser.add_argument("workloads", type=Path, nargs="+")
    given = parser.parse_args()
    applications = read_applications(given.applications)
    workloads = [read_workload(path, applications) for path in given.workloads]
    for name in sorted(POLICIES):
        runs = [simulate_elastic(jobs, elastic_policy(name), [4] * 16, 60.0) for jobs in workloads]
        means = [np.mean(list(one.jct_s().values())) for one in runs]
        print(f"{name:10} {np.mean(means):10,.1f} s  over {len(runs)} workloads", flush=True)


if __name__ == "__main__":
    run(main)
