"""Makespan, finish-time fairness and packed LAS against the reference answers."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.plan import Policy
from fairlead.model.snapshot import Snapshot
from fairlead.policies.finish_time import FinishTime, SpaceSharingFinishTime
from fairlead.policies.gavel_reference.parametric_level import (
    ReleasedAgnosticFinishTime,
    ReleasedAgnosticMakespan,
)
from fairlead.policies.las import SpaceSharingLas
from fairlead.policies.makespan import Makespan, SpaceSharingMakespan
from fairlead.simulator.traces.instances import read_instances
from fairlead.simulator.traces.throughput_tables import read_throughputs

pytestmark = pytest.mark.shared

LINEAR: dict[str, tuple[Policy, int]] = {
    "max_min_fairness_packed": (SpaceSharingLas(), 101),
    "min_total_duration": (ReleasedAgnosticMakespan(), 133),
    "min_total_duration_perf": (Makespan(), 133),
    "min_total_duration_packed": (SpaceSharingMakespan(), 79),
}
RHO: dict[str, tuple[Policy, str | None, int]] = {
    "finish_time_fairness": (ReleasedAgnosticFinishTime(), "ftf", 133),
    "finish_time_fairness_perf": (FinishTime(weighted=False), "ftf_perf", 133),
    "finish_time_fairness_packed": (SpaceSharingFinishTime(weighted=False), None, 79),
}


@pytest.fixture(scope="module")
def problems(shared: Path) -> list[tuple[Snapshot, dict[str, Any], dict[str, Any]]]:
    folder = shared / "golden/gavel/policies"
    rates = read_throughputs(shared / "data/gavel/simulation_throughputs.json")
    with gzip.open(folder / "instances.jsonl.gz", "rt") as lines:
        results = {r["k"]: r["results"] for r in map(json.loads, lines)}
    independent = json.loads(gzip.decompress((folder / "independent_optima.json.gz").read_bytes()))
    optima = {record["k"]: record for record in independent}
    path = folder / "instances.jsonl.gz"
    return [(snapshot, results[k], optima[k]) for k, snapshot in read_instances(path, rates)]


@pytest.mark.parametrize("name", LINEAR)
def test_the_optimum_is_reached(
    problems: list[tuple[Snapshot, dict[str, Any], dict[str, Any]]], name: str
) -> None:
    """Gavel's bisection may stop above the least makespan, never below it."""
    policy, number = LINEAR[name]
    cases = [(snapshot, results[name]) for snapshot, results, _ in problems if name in results]
    assert len(cases) == number
    for snapshot, reference in cases:
        report = policy.allocate(snapshot).report
        assert report.objective == pytest.approx(reference["optimum"], rel=1e-6)
        assert report.gap is not None
        assert report.gap <= 1e-6
        assert report.violation <= 1e-9
        if "duration" in name:
            assert report.objective <= reference["objective"] * (1 + 1e-9)


@pytest.mark.parametrize("name", RHO)
def test_the_largest_rho_is_least(
    problems: list[tuple[Snapshot, dict[str, Any], dict[str, Any]]], name: str
) -> None:
    policy, independent, number = RHO[name]
    cases = [(s, results[name], optima) for s, results, optima in problems if name in results]
    assert len(cases) == number
    for snapshot, reference, optima in cases:
        report = policy.allocate(snapshot).report
        assert report.objective is not None
        assert report.objective <= reference["objective"] * (1 + 1e-6)
        if independent:
            assert report.objective == pytest.approx(optima[independent], rel=1e-6)
        assert report.gap is not None
        assert report.gap <= 1e-6
