"""The gain of knowing servers, and of knowing the cost of moving.

    python benchmarks/placement.py spread TRACE TABLE CLUSTER S:E [SECONDS PER START]
    python benchmarks/placement.py moves TRACE TABLE CLUSTER S:E [DEVICES PER SERVER]
    python benchmarks/placement.py level TABLE CLUSTER

``spread``: servers of four devices, on which jobs that are spread run at the table's spread rates.
``moves``: Gavel's mechanism and the default one where starts cost 20, 60 and 300 s. ``level``: 100 jobs
that never end, for five days: how much less than a private share has the worst of them?
"""

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from command_line import add_run, cluster_spec, finite, parser_of, rate_table, run, whole

from fairlead.analysis.simulate import simulate
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.scheduler.mechanism.gavel_reference.switches import GavelSwitches
from fairlead.scheduler.mechanism.settings import DEFAULT, GAVEL
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.recording.metrics import Result
from fairlead.simulator.traces.cluster_files import parse_cluster

POLICY = "las_aware"
COSTS_S = (20.0, 60.0, 300.0)


def play(given: argparse.Namespace, per_server: int, cost_s: float, profile: Any) -> Result:
    """One run."""
    return simulate(
        given.trace,
        parse_cluster(given.cluster, str(per_server)),
        POLICY,
        throughputs=given.table,
        profile=profile,
        measured_jobs=given.window,
        ground_truth=GroundTruth(RestartCosts(cost_s)),
    )


def show(name: str, result: Result) -> None:
    """One line of a table."""
    got = result.metrics
    print(
        f"{name:36}{got['avg_jct_s'] / 3600:8.2f} h{got['rho']['isolated']['max']:7.2f}"
        f"{100 * got['spread_share']:8.1f} %{got['moves_per_job_hour']:9.3f}"
        f"{got['restarts_per_job_hour']:10.3f}{100 * got['lost_share']:8.2f} %",
        flush=True,
    )


def head() -> None:
    """Its columns."""
    print(
        f"{'':36}{'avg JCT':>10}{'rho':>7}{'spread':>10}{'moves/h':>9}{'restarts/h':>10}{'lost':>10}"
    )


def spread(given: argparse.Namespace) -> None:
    """With and without knowledge of servers."""
    head()
    unaware = replace(DEFAULT, scattered=False)
    for name, profile in (
        ("gavel", GAVEL),
        (
            "unaware, by device number",
            replace(unaware, gavel=GavelSwitches(place_by_device_id=True)),
        ),
        ("unaware, keeping devices", unaware),
        ("default", DEFAULT),
    ):
        show(name, play(given, 4, given.start_s, profile))


def moves(given: argparse.Namespace) -> None:
    """Print the metrics of both mechanisms for each cost of a start."""
    head()
    for cost_s in COSTS_S:
        for profile in (GAVEL, DEFAULT):
            name = f"{profile.name}, {cost_s:.0f} s per start"
            show(name, play(given, given.per_server, cost_s, profile))


def level(given: argparse.Namespace) -> None:
    """Jobs that never end: (steps done over those of an equal mix of devices, divided by the number of
    devices), the least of all jobs and the mean."""
    rates, machines = given.table, parse_cluster(given.cluster)
    rng = np.random.default_rng(0)
    single = [one.name for one in rates.job_types if one.scale_factor == 1]
    jobs = [
        Arrival(0.0, Job(JobId(n), single[rng.integers(len(single))], 1, 1e12)) for n in range(100)
    ]
    here = rates.columns(machines.slots)
    equal = np.array([here.rate[here.row(a.job.job_type)] @ machines.capacity for a in jobs])
    equal /= machines.capacity.sum()
    print(f"{'':36}{'least':>9}{'mean':>9}{'moves/h':>9}{'lost':>10}")
    for cost_s in (0.0, *COSTS_S):
        for profile in (GAVEL, DEFAULT):
            result = simulate(
                jobs,
                machines,
                POLICY,
                throughputs=rates,
                profile=profile,
                stop_at_s=5 * 86400.0,
                ground_truth=GroundTruth(RestartCosts(cost_s)),
            )
            got = result.metrics
            did = result.jobs["steps_done"].to_numpy() / (5 * 86400.0) / equal
            print(
                f"{profile.name + f', {cost_s:.0f} s per start':36}{did.min():9.4f}{did.mean():9.4f}"
                f"{got['moves_per_job_hour']:9.3f}{100 * got['lost_share']:8.2f} %"
            )


def main() -> None:
    parser = parser_of(__doc__)
    parts = parser.add_subparsers(required=True, metavar="spread|moves|level")
    one = parts.add_parser("spread", help="what it is worth to know of servers")
    add_run(one)
    one.add_argument("start_s", metavar="START", nargs="?", type=finite(), default=0.0, help="s")
    one.set_defaults(measure=spread)
    one = parts.add_parser("moves", help="what it is worth to know of the cost of starts")
    add_run(one)
    one.add_argument("per_server", metavar="DEVICES", nargs="?", type=whole(), default=1)
    one.set_defaults(measure=moves)
    one = parts.add_parser("level", help="how even the shares of jobs are that never end")
    one.add_argument("table", metavar="TABLE", type=rate_table)
    one.add_argument("cluster", metavar="CLUSTER", type=cluster_spec)
    one.set_defaults(measure=level)
    given = parser.parse_args()
    given.measure(given)


if __name__ == "__main__":
    run(main)
