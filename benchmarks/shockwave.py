"""The gain by Shockwave's planner, and by each of its options.

    python benchmarks/shockwave.py sizes TABLES [POLICY ...]
    python benchmarks/shockwave.py copies TABLES [POLICY ...]
    python benchmarks/shockwave.py ablation TABLES
    python benchmarks/shockwave.py mixed TABLES [POLICY ...]
    python benchmarks/shockwave.py biased TABLES

TABLES: a folder with tacc_throughputs.json and wisr_throughputs.json of Shockwave's release. Its traces
are generated (``--generate shockwave`` makes the same). ``sizes``: 120 to 900 jobs on 32 to 256 devices,
one setting for all. ``copies``: five perturbed copies of the two smaller ones: gaps between arrivals
multiplied by 0.5 to 1.5, jobs drawn anew. ``ablation``: one option changed at a time, on all of these.
``mixed``: 8 v100, 16 p100 and 24 k80, rounds of 120 s, 20 s per start, five seeds. ``biased``: 32 v100, and
every job's rates off by a lognormal factor (sigma 0.3), which only its own running time tells; rho by the
true rates; ten seeds. The first three run in the profile shockwave, the others in the default profile.
"""

import argparse
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from command_line import parser_of, run

from fairlead.analysis.simulate import simulate
from fairlead.model.cluster import Cluster
from fairlead.model.job import RestartCosts
from fairlead.simulator.generate import generate
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.traces.perturb import perturbed
from fairlead.simulator.traces.throughput_tables import read_throughputs
from fairlead.simulator.traces.trace import Trace

COPIES = range(1, 6)
MIXED = {"v100": 8, "p100": 16, "k80": 24}


@dataclass(frozen=True)
class Case:
    """A trace of the release, or a copy of it."""

    jobs: int
    devices: int
    interarrival: int
    seed: int
    table: str
    copy: int | None = None

    @property
    def name(self) -> str:
        """Jobs and devices, and which copy."""
        return f"{self.jobs}/{self.devices}" + ("" if self.copy is None else f" copy {self.copy}")


SIZES = (
    Case(120, 32, 40, 25, "tacc"),
    Case(220, 64, 25, 4, "wisr"),
    Case(460, 128, 10, 1, "wisr"),
    Case(900, 256, 5, 15, "wisr"),
)
SMALL = [
    Case(c.jobs, c.devices, c.interarrival, c.seed, c.table, copy=k)
    for c in SIZES[:2]
    for k in (None, *COPIES)
]
ABLATION = (
    ("all as by default", "default"),
    ("calibration off", "calibration=off"),
    ("calibration as released", "calibration=wall_time"),
    ("whole epochs", "whole_epochs=true"),
    ("whole epochs, not capped", "whole_epochs=true,capped=false"),
    ("epoch time: history", "epoch_time=history"),
    ("epoch time: all that is ahead", "epoch_time=ahead"),
    ("no re-planning on adaptation", "replan_on_adaptation=false"),
    ("weights not bounded", "largest_weight=inf"),
    ("finish times from the cluster's start", "finish_time_origin=start"),
    ("power 5", "power=5"),
    ("momentum 0.9", "momentum=0.9"),
    ("window of 20 rounds", "rounds=20"),
    ("running jobs not preferred", "stickiness=0"),
    ("regulariser in seconds, k 1e-3", "regulariser=seconds,k=0.001"),
    ("regulariser in seconds, k 1e5", "regulariser=seconds,k=100000"),
    ("regulariser: all rests count", "makespan_slack=0"),
    ("k 1", "k=1"),
    ("k 100", "k=100"),
    ("share by device", "share=by_device"),
    ("share by demand", "share=by_demand"),
    ("the future known (oracle)", "predictor=oracle"),
    ("released, 32-device setting", "preset=released,k=0.001,power=12"),
    ("released, 64-device setting", "preset=released,k=10,power=5"),
    ("released, 256-device setting", "preset=released,k=100000,power=5"),
)


def play(tables: str, case: Case, policy: str) -> dict[str, float]:
    """One run in the profile shockwave."""
    table = read_throughputs(Path(tables) / f"{case.table}_throughputs.json")
    cluster = Cluster.of({"v100": case.devices})
    spec = f"shockwave,jobs={case.jobs},interarrival={case.interarrival},multi-gpu"
    trace = Trace(case.name, "generated", list(generate(spec, table, cluster, case.seed)[0]))
    if case.copy is not None:
        trace = perturbed(trace, case.copy)
    return numbers(simulate(trace, cluster, policy, throughputs=table, profile="shockwave"))


def play_default(
    tables: str, devices: dict[str, int], bias: float, policy: str, seed: int
) -> dict[str, float]:
    """One run in the default profile."""
    table = read_throughputs(Path(tables) / "wisr_throughputs.json")
    cluster = Cluster.of(devices)
    jobs = list(generate("shockwave,jobs=120,interarrival=40,multi-gpu", table, cluster, seed)[0])
    ground_truth = GroundTruth(RestartCosts(20.0), rate_bias=bias, seed=seed)
    result = simulate(
        jobs, cluster, policy, throughputs=table, round_s=120.0, ground_truth=ground_truth
    )
    faster = np.array([ground_truth.bias(arrival.job, 1)[0] for arrival in jobs])
    return numbers(result, faster)


def numbers(result: Any, faster: Any = 1.0) -> dict[str, float]:
    """Return the numbers of a row. faster: (jobs,) true over believed rates, so that rho is by true ones."""
    rho = result.jobs["rho_static"].to_numpy() * faster
    return {
        "makespan": result.metrics["makespan_s"],
        "avg JCT": result.metrics["avg_jct_s"],
        "worst rho": float(rho.max()),
        "> 1 %": 100 * float((rho > 1).mean()),
        "> 1.05 %": 100 * float((rho > 1.05).mean()),
        "starts": float(result.metrics["restarts"]),
        "CPU s": result.metrics["cpu_s"],
    }


def show(name: str, runs: list[dict[str, float]], width: int = 34) -> None:
    """A line of means; worst and best of the worst rho where there are several runs."""
    mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    cells = "".join(
        f"{mean[key]:>10.{digits}f}"
        for key, digits in zip(mean, (0, 0, 2, 1, 1, 0, 2), strict=True)
    )
    worst = [run["worst rho"] for run in runs]
    spread = f"   {min(worst):.2f} .. {max(worst):.2f}" if len(runs) > 1 else ""
    print(f"{name:{width}}{cells}{spread}", flush=True)


def head(width: int = 34) -> None:
    """The columns."""
    names = ("makespan", "avg JCT", "worst rho", "> 1 %", "> 1.05 %", "starts", "CPU s")
    print(" " * width + "".join(f"{name:>10}" for name in names) + "   worst rho from .. to")


def sizes(tables: str, policies: list[str]) -> None:
    """One setting at every size."""
    head()
    with ProcessPoolExecutor() as pool:
        for policy in policies:
            runs = pool.map(partial(play, tables, policy=policy), SIZES)
            for case, run in zip(SIZES, runs, strict=True):
                show(f"{policy} {case.name}", [run])


def copies(tables: str, policies: list[str]) -> None:
    """Perturbed copies, one by one and together."""
    head()
    with ProcessPoolExecutor() as pool:
        for policy in policies:
            runs = list(pool.map(partial(play, tables, policy=policy), SMALL))
            for case, run in zip(SMALL, runs, strict=True):
                show(f"{policy} {case.name}", [run])
            for size in SIZES[:2]:
                mine = [r for c, r in zip(SMALL, runs, strict=True) if c.jobs == size.jobs]
                show(f"{policy} {size.name}, mean of {len(mine)}", mine)


def ablation(tables: str, _: Iterable[str]) -> None:
    """One option at a time."""
    head()
    with ProcessPoolExecutor() as pool:
        for name, options in ABLATION:
            policy = f"shockwave:{options}"
            show(name, list(pool.map(partial(play, tables, policy=policy), SMALL)))


def mixed(tables: str, policies: list[str]) -> None:
    """Three accelerator types."""
    head()
    others = [p for p in policies if p != "shockwave"]
    with ProcessPoolExecutor() as pool:
        for policy in (
            "shockwave",
            *(others or ("las_aware", "finish_time_aware", "makespan_aware")),
        ):
            runs = list(pool.map(partial(play_default, tables, MIXED, 0.0, policy), range(5)))
            for seed, run in enumerate(runs):
                show(f"{policy} seed {seed}", [run])
            show(f"{policy}, mean of {len(runs)}", runs)


def biased(tables: str, _: Iterable[str]) -> None:
    """Rates that are not what they are taken for."""
    head()
    with ProcessPoolExecutor() as pool:
        for name, options in (*ABLATION[:3], ("tolerance 0.4", "tolerance=0.4")):
            one = partial(play_default, tables, {"v100": 32}, 0.3, f"shockwave:{options}")
            show(name, list(pool.map(one, range(10))))


def tables(text: str) -> str:
    """The type of the folder with the tables of the release."""
    for name in ("tacc", "wisr"):
        path = Path(text) / f"{name}_throughputs.json"
        if not path.is_file():
            raise argparse.ArgumentTypeError(f"{path}: there is no such file")
    return text


def main() -> None:
    parser = parser_of(__doc__)
    known = {
        "sizes": sizes,
        "copies": copies,
        "ablation": ablation,
        "mixed": mixed,
        "biased": biased,
    }
    parser.add_argument("what", choices=known)
    parser.add_argument("tables", metavar="TABLES", type=tables, help="folder of the tables")
    parser.add_argument("policies", metavar="POLICY", nargs="*", default=["shockwave"])
    given = parser.parse_args()
    known[given.what](given.tables, given.policies)


if __name__ == "__main__":
    run(main)
