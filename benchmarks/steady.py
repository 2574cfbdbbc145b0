"""The gain of the second solve against moves: LAS with and without it, starts of 60 s.

python benchmarks/steady.py TRACE TABLE CLUSTER S:E
"""

from collections.abc import Callable

from command_line import add_run, parser_of, run

from fairlead.analysis.simulate import simulate
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Floats
from fairlead.model.job import RestartCosts
from fairlead.model.snapshot import Snapshot
from fairlead.policies import las
from fairlead.policies.migration_penalty import least_migration
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.traces.cluster_files import parse_cluster

START_S = 60.0


def as_it_is(
    snapshot: Snapshot,  # noqa: ARG001
    made: Allocation,
    need: Floats,  # noqa: ARG001
    space_sharing: bool = False,  # noqa: ARG001
) -> Allocation:
    """No second solve."""
    return made


def main() -> None:
    """One line with it, one without."""
    parser = parser_of(__doc__)
    add_run(parser)
    given = parser.parse_args()
    ways: dict[str, Callable[..., Allocation]] = {"with": least_migration, "without": as_it_is}
    for name, second in ways.items():
        las.least_migration = second  # type: ignore[attr-defined]
        got = simulate(
            given.trace,
            parse_cluster(given.cluster),
            "las_aware",
            throughputs=given.table,
            measured_jobs=given.window,
            ground_truth=GroundTruth(RestartCosts(START_S)),
        ).metrics
        print(f"{name:8}{got['moves']:6} moves, average JCT {got['avg_jct_s']:10,.0f} s")


if __name__ == "__main__":
    run(main)
