"""Whole runs with policies whose answers have more to them than shares of jobs."""

from pathlib import Path

import numpy as np
import pytest

from fairlead.analysis.simulate import simulate
from fairlead.errors import ConfigError
from fairlead.model.allocation import SolveReport
from fairlead.model.cluster import Cluster
from fairlead.policies import registry
from fairlead.simulator.generate import generate
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.traces.throughput_tables import builtin_throughputs

PACKED = (
    "las_packed",
    "total_throughput_packed",
    "water_filling_packed",
    "throughput_per_cost_packed_slo",
    "makespan_packed",
    "finish_time_packed",
)
PRICES = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
CLUSTER = Cluster.of({"v100": 4, "p100": 4, "k80": 4}, 4, PRICES)


@pytest.mark.parametrize("policy", PACKED)
def test_packed_policies_survive_the_loss_of_a_type(policy: str, tmp_path: Path) -> None:
    """One server per type, and servers that fail: pairs of the answer before must not stay on a type
    that has no devices any more. The journal reads back what was written."""
    table = builtin_throughputs()
    arrivals, _ = generate("gavel,jobs=30,interarrival=1500,deadlines", table, CLUSTER, 0)
    ground_truth = GroundTruth(mtbf_s=8 * 3600.0, mttr_s=7200.0)
    result = simulate(arrivals, CLUSTER, policy, ground_truth=ground_truth, out=tmp_path)
    assert result.jobs["jct_s"].is_not_null().all()
    assert result.metrics["solve_gap"] <= 1e-6


def test_a_report_holds_plain_numbers() -> None:
    """Whatever arithmetic they come from, for they are journalled and printed."""
    report = SolveReport("optimal", np.float64(1.0), np.float64(2.0), np.float64(0.0), unmet=(1,))
    assert [type(x) for x in (report.objective, report.bound, report.violation)] == [float] * 3


@pytest.mark.parametrize("spec", ["partition:2", "partition:2:"])
def test_a_partition_of_nothing_says_what_is_missing(spec: str) -> None:
    with pytest.raises(ConfigError, match="needs partition:K:POLICY"):
        registry.make(spec, seed=0, profile="default")
