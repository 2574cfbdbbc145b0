"""The oracle itself, against optima that were found independently of it."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.model.snapshot import Snapshot
from fairlead.simulator.traces.instances import read_instances
from fairlead.simulator.traces.throughput_tables import read_throughputs
from tests import oracle

pytestmark = pytest.mark.shared

LINEAR = {
    "max_min_fairness": oracle.las,
    "max_min_fairness_perf": oracle.las_aware,
    "max_min_fairness_packed": oracle.las_packed,
    "min_total_duration_perf": oracle.makespan_aware,
    "min_total_duration_packed": oracle.makespan_packed,
    "max_sum_throughput_perf": oracle.total_throughput,
}
Instance = tuple[Snapshot, dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def instances(shared: Path) -> list[Instance]:
    """(snapshot, results of the release, optima found independently) of the small ones."""
    folder = shared / "golden/gavel/policies"
    rates = read_throughputs(shared / "data/gavel/simulation_throughputs.json")
    with gzip.open(folder / "instances.jsonl.gz", "rt") as lines:
        results = {r["k"]: r["results"] for r in map(json.loads, lines)}
    with gzip.open(folder / "independent_optima.json.gz", "rt") as file:
        optima = {r["k"]: r for r in json.load(file)}
    found = read_instances(folder / "instances.jsonl.gz", rates)
    return [(s, results[k], optima.get(k, {})) for k, s in found if len(s.jobs) <= 7]


@pytest.mark.parametrize("name", LINEAR)
def test_linear_programs(instances: list[Instance], name: str) -> None:
    compared = 0
    for snapshot, results, _ in instances:
        if results.get(name, {}).get("optimum"):
            assert LINEAR[name](snapshot) == pytest.approx(results[name]["optimum"], rel=1e-8)
            compared += 1
    assert compared >= 10


def test_finish_time_fairness(instances: list[Instance]) -> None:
    for snapshot, _, optima in instances:
        shares = oracle.Shares(snapshot, snapshot.solo_rate)
        n = len(snapshot.jobs)
        rho = oracle.worst_rho(snapshot, shares, np.full(n, 1 / n))
        assert rho == pytest.approx(optima["ftf_perf"], rel=1e-6)


@pytest.mark.parametrize("heterogeneity_aware", [True, False])
def test_water_filling(instances: list[Instance], heterogeneity_aware: bool) -> None:
    fill = oracle.water_filling_aware if heterogeneity_aware else oracle.water_filling
    key = f"max_min_fairness_water_filling{'_perf' if heterogeneity_aware else ''}"
    compared = 0
    for snapshot, _, optima in instances:
        if key in optima:
            got = np.sort(fill(snapshot))
            assert got == pytest.approx(optima[key], rel=2e-5)
            compared += 1
    assert compared >= 10
