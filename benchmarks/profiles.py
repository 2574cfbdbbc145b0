"""From Gavel's mechanism to Fairlead's default, one change after the other, and what each is worth.

python benchmarks/profiles.py TRACE TABLE CLUSTER [S:E]
python benchmarks/profiles.py           # 300 generated jobs on 12 + 12 + 12 devices
"""

from dataclasses import replace
from typing import Any

from command_line import cluster_spec, measured_jobs, parser_of, rate_table, run, trace_file

from fairlead.analysis.simulate import simulate
from fairlead.model.cluster import Cluster
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.mechanism.settings import (
    DEFAULT,
    GAVEL,
    MechanismSettings,
)
from fairlead.simulator.generate import generate
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.throughput_tables import read_throughputs

POLICY = "las_aware"


def ladder() -> list[tuple[str, MechanismSettings]]:
    """Profiles, each the one before with one more change."""
    # a name, settings that change, and switches of the release that do
    steps: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("no charge for idle gaps", {}, {"charge_idle_gaps": False}),
        ("steps need not be whole", {}, {"whole_steps": False}),
        ("place all chosen groups", {}, {"place_unallocated": True, "allow_undersized": False}),
        (
            "optimum with most total gain",
            {"name": "ladder"},
            {},
        ),  # the name picks the policy's form
        ("most owed first, never reset", {}, {"type_by_type": False, "reset_accounts": False}),
        ("solve at every event", {"solve_interval_s": 0.0}, {}),
        ("fewest servers, keep devices", {"scattered": True}, {"place_by_device_id": False}),
    ]
    profiles = [("gavel", GAVEL)]
    for name, change, switches in steps:
        before = profiles[-1][1]
        after = replace(before, **change, gavel=replace(before.gavel, **switches))
        profiles.append((f"+ {name}", after))
    last = replace(
        profiles[-1][1],
        name="default",
        preemption_hysteresis=DEFAULT.preemption_hysteresis,
        deadline_margin_rounds=DEFAULT.deadline_margin_rounds,
        gavel=DEFAULT.gavel,
    )
    assert last == DEFAULT, "the ladder must end at the default profile"
    return profiles


def arguments() -> tuple[Any, Throughputs, Cluster, tuple[int, int] | None]:
    """Jobs, rates, cluster and the jobs that are measured (None: all), as given or generated."""
    parser = parser_of(__doc__)
    parser.add_argument("trace", metavar="TRACE", nargs="?", type=trace_file, help="jobs")
    parser.add_argument("table", metavar="TABLE", nargs="?", type=rate_table, help="rates")
    parser.add_argument("cluster", metavar="CLUSTER", nargs="?", type=cluster_spec)
    parser.add_argument("window", metavar="S:E", nargs="?", type=measured_jobs)
    given = parser.parse_args()
    if given.trace is None:
        rates, machines = read_throughputs("builtin"), parse_cluster("v100=12,p100=12,k80=12")
        jobs, _ = generate("gavel,jobs=300,interarrival=2400", rates, machines, 0)
        return list(jobs), rates, machines, None
    if given.cluster is None:
        parser.error("a TRACE needs a TABLE and a CLUSTER")
    return given.trace, given.table, parse_cluster(given.cluster), given.window


def main() -> None:
    jobs, rates, machines, window = arguments()
    print(
        f"{'':34}{'avg JCT':>9}{'':>8}{'makespan':>10}{'queueing':>10}{'rho':>6}{'moves':>8}{'cost':>9}"
    )
    base = None
    for name, profile in ladder():
        got = simulate(
            jobs, machines, POLICY, throughputs=rates, profile=profile, measured_jobs=window
        ).metrics
        base = base or got["avg_jct_s"]
        print(
            f"{name:34}{got['avg_jct_s'] / 3600:7.2f} h{100 * (got['avg_jct_s'] / base - 1):+7.1f}%"
            f"{got['makespan_s'] / 3600:8.1f} h{got['avg_queueing_delay_s']:8.0f} s"
            f"{got['rho']['isolated']['max']:6.2f}{got['moves']:8}{got['cost']:8.0f} $"
        )


if __name__ == "__main__":
    run(main)
