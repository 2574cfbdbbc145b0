"""The combinatorial baselines against Gavel's own runs: one answer, so the same run, round by round."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden.test_gavel_runs import Reference, compare_jobs, references

from fairlead.model.allocation import Allocation
from fairlead.model.plan import Policy
from fairlead.model.snapshot import Snapshot
from fairlead.policies import registry
from fairlead.simulator.traces.instances import read_instances
from fairlead.simulator.traces.throughput_tables import read_throughputs

pytestmark = pytest.mark.shared
POLICIES = {"fifo_packed": 101, "gandiva": 101, "allox": 72}  # with the number of instances


def shares(snapshot: Snapshot, made: Allocation) -> dict[str, dict[str, float]]:
    """As the reference writes them."""
    out: dict[str, dict[str, float]] = {}
    for group, row in zip(made.job_groups.tolist(), made.share.tolist(), strict=True):
        members = [job for job in group if job >= 0]
        held = {s.accelerator: x for s, x in zip(snapshot.slots, row, strict=True) if x}
        if held:
            out[str(members[0]) if len(members) == 1 else str(tuple(members))] = held
    return out


@pytest.mark.parametrize("name", POLICIES)
def test_allocations_equal_the_reference(name: str, shared: Path) -> None:
    path = shared / "golden/gavel/policies/instances.jsonl.gz"
    rates = read_throughputs(shared / "data/gavel/simulation_throughputs.json")
    with gzip.open(path, "rt") as lines:
        results: dict[int, dict[str, Any]] = {r["k"]: r["results"] for r in map(json.loads, lines)}
    compared = 0
    for k, snapshot in read_instances(path, rates):
        if name in results[k]:
            made = registry.make(name, seed=0, profile="gavel")
            assert isinstance(made, Policy)
            assert shares(snapshot, made.allocate(snapshot)) == results[k][name]["allocation"], k
            compared += 1
    assert compared == POLICIES[name]


@pytest.mark.parametrize("reference", references(set(POLICIES), logged=True))
def test_runs_equal_the_reference(reference: Reference, shared: Path) -> None:
    """Every round's groups, types and devices; JCTs, makespan, utilization, cost; rounds and solves."""
    policy = reference.result["config"]["policy"]
    result = reference.play(shared, policy, expect_rounds=reference.log)
    compare_jobs(result, reference.result)
    assert result.metrics["n_rounds"] == reference.result["n_rounds"]
    assert result.metrics["n_solves"] == reference.result["n_solves"]
