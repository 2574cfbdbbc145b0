"""What the second solve against moves is worth: LAS with and without it, starts of 60 s.

python benchmarks/steady.py TRACE TABLE CLUSTER S:E
"""

import sys
from collections.abc import Callable

from fairlead.analysis.simulate import simulate
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Floats
from fairlead.model.job import RestartCosts
from fairlead.model.snapshot import Snapshot
from fairlead.policies import las
from fairlead.policies.migration_penalty import least_migration
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.throughput_tables import read_throughputs

START_S = 60.0


def as_it_is(
    snapshot: Snapshot,  # noqa: ARG001
    made: Allocation,
    need: Floats,  # noqa: ARG001
    space_sharing: bool = False,  # noqa: ARG001
) -> Allocation:
    """No second solve."""
    return made


def main(trace: str, table: str, cluster: str, window: str) -> None:
    """One line with it, one without."""
    first, _, stop = window.partition(":")
    ways: dict[str, Callable[..., Allocation]] = {"with": least_migration, "without": as_it_is}
    for name, second in ways.items():
        las.steady = second  # type: ignore[attr-defined]
        got = simulate(
            trace,
            parse_cluster(cluster),
            "las_aware",
            throughputs=read_throughputs(table),
            measured_jobs=(int(first), int(stop)),
            ground_truth=GroundTruth(RestartCosts(START_S)),
        ).metrics
        print(f"{name:8}{got['moves']:6} moves, average JCT {got['avg_jct_s']:10,.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
