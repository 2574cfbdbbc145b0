"""``fairlead simulate --profile pollux``: elastic jobs in the world of Pollux's released simulator."""

import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairlead.cli import options as o
from fairlead.errors import ConfigError
from fairlead.simulator.simulation_input import SimulationInput

if TYPE_CHECKING:
    from fairlead.simulator.pollux_reference.simulation import ElasticRun

PROFILE = "pollux"
ROUND_S, MAX_ROUND_S = 60.0, 86_400.0  # the first as in the release
_USED = ("trace", "throughputs", "cluster", "devices_per_server", "round_s", "seed")


def simulate_pollux(given: SimulationInput, policy: str, out: Path | None, *, json: bool) -> None:
    """Run, write a folder (run.json, jobs.parquet, allocations.parquet), print the outcome. Raises
    ConfigError for options that this world does not have."""
    from fairlead.analysis.report.progress_bar import progress
    from fairlead.simulator.pollux_reference.applications import read_by_accelerator
    from fairlead.simulator.pollux_reference.registry import elastic_policy
    from fairlead.simulator.pollux_reference.simulation import simulate_elastic
    from fairlead.simulator.pollux_reference.workload import read_workload

    if given.trace is None:
        raise ConfigError(f"--profile {PROFILE}: give the workload: --trace FILE")
    _check_unused(given)
    sizes, accelerators = _nodes(given)
    chosen = elastic_policy(policy, accelerators)
    types = list(dict.fromkeys(accelerators))
    jobs = read_workload(Path(given.trace), read_by_accelerator(Path(given.throughputs), types))
    interval_s = _interval_s(given)
    with progress(f"{policy} ({PROFILE})", len(jobs)) as update:
        try:
            run = simulate_elastic(
                jobs, chosen, sizes, interval_s, accelerators=accelerators, progressed=update
            )
        except KeyboardInterrupt:
            print("fairlead: interrupted; nothing was written", file=sys.stderr)
            raise typer.Exit(130) from None
    config = {"policy": policy, "profile": PROFILE, "round_s": interval_s, "input": asdict(given)}
    folder = o.new_folder(out, f"{Path(given.trace).stem}-{policy}-{PROFILE}")
    outcome = {"config": config, **_metrics(run), "out": str(folder)}
    _write(folder, run, outcome)
    if json:
        o.print_json(outcome)
        return
    print(
        f"{len(jobs)} jobs, average JCT {outcome['avg_jct_s']:,.1f} s, {outcome['restarts']} restarts"
    )
    print(f"Written to {folder}", file=sys.stderr)


def _check_unused(given: SimulationInput) -> None:
    default = SimulationInput()
    for one in fields(SimulationInput):
        if one.name not in _USED and getattr(given, one.name) != getattr(default, one.name):
            name = one.name.removesuffix("_s").replace("_", "-")
            option = f"--{name.removesuffix('-h')}{'-hours' * name.endswith('-h')}"
            raise ConfigError(f"{option}: --profile {PROFILE} does not have it")


def _interval_s(given: SimulationInput) -> float:
    if given.round_s == "auto":
        raise ConfigError(f"--round auto: --profile {PROFILE} needs a number of seconds")
    if given.round_s is None:
        return ROUND_S
    if not 1 <= given.round_s <= MAX_ROUND_S:
        raise ConfigError(
            f"--round: --profile {PROFILE} takes 1 to {MAX_ROUND_S:,.0f} seconds, got {given.round_s:g}"
        )
    return given.round_s


def _nodes(given: SimulationInput) -> tuple[list[int], list[str]]:
    """(nodes,) devices of each node, and their types."""
    from fairlead.simulator.traces.cluster_files import parse_cluster

    nodes = parse_cluster(given.cluster, given.devices_per_server).nodes
    return [node.devices for node in nodes], [node.accelerator for node in nodes]


def _metrics(run: "ElasticRun") -> dict[str, Any]:
    import numpy as np

    jct_s = run.jct_s()
    solve_s = {
        "median": float(np.median(run.solve_s)),
        "p95": float(np.percentile(run.solve_s, 95)),
    }
    return {
        "avg_jct_s": float(np.mean(list(jct_s.values()))),
        "makespan_s": max(one.ended_s for one in run.trainings if one.ended_s is not None),
        "restarts": sum(one.restarts for one in run.trainings),
        "solve_s": solve_s,
        "gap": run.gap,
        "jct_s": jct_s,
    }


def _write(folder: Path, run: "ElasticRun", outcome: dict[str, Any]) -> None:
    import polars as pl

    from fairlead.analysis.report.run_folder import write_json

    jct_s = run.jct_s()
    pl.DataFrame(
        [
            {
                "job": one.job.name,
                "application": one.job.application.name,
                "submitted_s": float(one.job.submitted_s),
                "ended_s": one.ended_s,
                "jct_s": jct_s[one.job.name],
                "device_s": one.service_s,
                "restarts": one.restarts,
            }
            for one in run.trainings
        ]
    ).write_parquet(folder / "jobs.parquet")
    pl.DataFrame(
        [
            {"time_s": c.time_s, "job": c.job, "nodes": list(c.nodes), "batch": c.batch}
            for c in run.changes
        ],
        schema={
            "time_s": pl.Float64,
            "job": pl.String,
            "nodes": pl.List(pl.Int64),
            "batch": pl.Int64,
        },
    ).write_parquet(folder / "allocations.parquet")
    write_json(folder / "run.json", {**outcome, "status": "complete"})
