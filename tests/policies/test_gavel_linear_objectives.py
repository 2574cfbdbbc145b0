"""Throughput, cost and Nash policies: the reference answers, and deadlines that cannot all be met."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.errors import FairleadError
from fairlead.model.allocation_checks import check_allocation, effective_throughput
from fairlead.model.cluster import Cluster
from fairlead.model.snapshot import Snapshot
from fairlead.simulator.traces.instances import (
    InstanceJob,
    read_instances,
    snapshot_of,
)
from fairlead.simulator.traces.throughput_tables import read_throughputs
from tests.policies.problems import policy_of, table

PRICES = {"v100": 0.74, "p100": 0.43, "k80": 0.135}  # GCP, $ per device-hour


@pytest.mark.shared
@pytest.mark.parametrize("profile", ["gavel", "default"])
@pytest.mark.parametrize(
    "name", ["max_sum_throughput_perf", "max_sum_throughput_normalized_by_cost_perf"]
)
def test_the_optimum_is_reached(name: str, profile: str, shared: Path) -> None:
    path = shared / "golden/gavel/policies/instances.jsonl.gz"
    rates = read_throughputs(shared / "data/gavel/simulation_throughputs.json")
    with gzip.open(path, "rt") as lines:
        results: dict[int, Any] = {r["k"]: r["results"] for r in map(json.loads, lines)}
    policy, cases = policy_of(name, profile), 0
    for k, snapshot in read_instances(path, rates):
        price = np.array([PRICES[slot.accelerator] for slot in snapshot.slots])
        made = check_allocation(policy.allocate(replace(snapshot, price=price)), snapshot)
        assert made.report.objective == pytest.approx(results[k][name]["optimum"], rel=1e-6)
        assert made.report.gap is not None
        assert made.report.gap <= 1e-6
        assert made.report.violation <= 1e-9
        cases += 1
    assert cases == 133


@pytest.mark.shared
def test_partial_allocation_is_that_of_the_reference(shared: Path) -> None:
    """What each job gets; the release's solver is good for some 1e-8."""
    path = shared / "golden/gavel/policies/instances.jsonl.gz"
    rates = read_throughputs(shared / "data/gavel/simulation_throughputs.json")
    with gzip.open(path, "rt") as lines:
        results: dict[int, Any] = {r["k"]: r["results"] for r in map(json.loads, lines)}
    policy, cases = policy_of("strategy_proof_perf", "gavel"), 0
    for k, snapshot in read_instances(path, rates):
        if (expected := results[k].get("strategy_proof_perf")) is None:
            continue
        made = policy.allocate(snapshot)
        rate = dict(
            zip(snapshot.jobs.tolist(), effective_throughput(made, snapshot).tolist(), strict=True)
        )
        assert rate == pytest.approx(
            {int(j): t for j, t in expected["effective"].items()}, rel=1e-7
        )
        cases += 1
    assert cases == 63


def dated(deadlines: list[float]) -> Snapshot:
    """Jobs of 10 steps/s and 3,600 steps each on one device of type a and one of b, b half as fast and a
    tenth of the price."""
    rate = np.zeros((12, 3))
    rate[:, 0], rate[:, 1] = 10.0, 5.0
    rows = [
        InstanceJob(i, "f0", steps_left=3600.0, deadline_s=deadline)
        for i, deadline in enumerate(deadlines)
    ]
    return snapshot_of(rows, Cluster.of({"a": 1, "b": 1}, prices={"a": 1.0, "b": 0.1}), table(rate))


@pytest.mark.parametrize("name", ["throughput_per_cost_slo", "min_cost_slo"])
def test_deadlines_come_before_cost(name: str) -> None:
    """360 s is enough on a alone: the job gets a for all of its time, dear as it is."""
    made = policy_of(name).allocate(dated([360.0, np.inf]))
    assert made.share[0] == pytest.approx([1.0, 0.0], abs=1e-6)
    assert made.report.unmet == ()
    free = policy_of(name.removesuffix("_slo")).allocate(dated([360.0, np.inf]))
    assert free.share[0, 0] < 1.0


@pytest.mark.parametrize("name", ["throughput_per_cost_slo", "min_cost_slo"])
def test_deadlines_that_cannot_be_met_are_named_and_the_others_are_kept(name: str) -> None:
    """The first asks for twice what there is; the second could do with half of b."""
    made = policy_of(name).allocate(dated([180.0, 1440.0]))
    rate = effective_throughput(made, dated([180.0, 1440.0]))
    assert 0 in made.report.unmet
    assert rate.sum() >= 10.0 - 1e-6
    only_late = policy_of(name).allocate(dated([-5.0, 1440.0]))
    assert only_late.report.unmet == (0,)
    assert effective_throughput(only_late, dated([-5.0, 1440.0]))[1] >= 2.5 - 1e-6


def test_without_prices_cost_policies_say_so() -> None:
    snapshot = replace(dated([np.inf]), price=np.zeros(2))
    with pytest.raises(FairleadError, match="price"):
        policy_of("throughput_per_cost").allocate(snapshot)


def test_nash_gives_equal_jobs_the_same_and_weights_count() -> None:
    """Two jobs on one device: shares go by weight, 3 to 1."""
    rate = np.zeros((12, 3))
    rate[:, 0] = 10.0
    rows = [InstanceJob(0, "f0", weight=3.0), InstanceJob(1, "f0", weight=1.0)]
    snapshot = snapshot_of(rows, Cluster.of({"a": 1}), table(rate))
    assert policy_of("nash").allocate(snapshot).share[:, 0] == pytest.approx([0.75, 0.25], abs=1e-6)


def test_strategy_proof_shares_leave_something_unused() -> None:
    """Partial allocation: of two like jobs on one device each keeps the product of what the other loses
    by its presence, a half of its half."""
    rate = np.zeros((12, 3))
    rate[:, 0] = 10.0
    rows = [InstanceJob(0, "f0"), InstanceJob(1, "f0")]
    snapshot = snapshot_of(rows, Cluster.of({"a": 1}), table(rate))
    assert policy_of("strategy_proof").allocate(snapshot).share[:, 0] == pytest.approx([0.25, 0.25])
