"""Every policy against the reference answers to 133 allocation problems."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.model.allocation_checks import devices_used
from fairlead.model.snapshot import Snapshot
from fairlead.simulator.traces.instances import read_instances
from fairlead.simulator.traces.throughput_tables import read_throughputs
from tests.policies.problems import policy_of

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def problems(shared: Path) -> list[tuple[Snapshot, dict[str, Any]]]:
    path = shared / "golden/gavel/policies/instances.jsonl.gz"
    rates = read_throughputs(shared / "data/gavel/simulation_throughputs.json")
    with gzip.open(path, "rt") as lines:
        results = {r["k"]: r["results"] for r in map(json.loads, lines)}
    return [(snapshot, results[k]) for k, snapshot in read_instances(path, rates)]


@pytest.mark.parametrize("profile", ["gavel", "default"])
@pytest.mark.parametrize("name", ["max_min_fairness", "max_min_fairness_perf"])
def test_las_reaches_the_optimum(
    problems: list[tuple[Snapshot, dict[str, Any]]], name: str, profile: str
) -> None:
    assert len(problems) == 133
    for snapshot, results in problems:
        report = policy_of(name, profile).allocate(snapshot).report
        assert report.objective == pytest.approx(results[name]["optimum"], rel=1e-6)
        assert report.gap is not None
        assert report.gap <= 1e-6
        assert report.violation <= 1e-9


@pytest.mark.parametrize("name", ["isolated", "proportional", "fifo_perf"])
def test_closed_forms_equal_the_reference(
    problems: list[tuple[Snapshot, dict[str, Any]]], name: str
) -> None:
    for snapshot, results in problems:
        share = policy_of(name, "gavel").allocate(snapshot).share
        expected = np.zeros_like(share)
        column = {slot.accelerator: i for i, slot in enumerate(snapshot.slots)}
        row = {str(job): i for i, job in enumerate(snapshot.jobs.tolist())}
        for job, held in results[name]["allocation"].items():
            for accelerator, value in held.items():
                expected[row[job], column[accelerator]] = value
        assert share == pytest.approx(expected, rel=1e-12, abs=0)


def test_fifo_never_promises_more_than_there_is(
    problems: list[tuple[Snapshot, dict[str, Any]]],
) -> None:
    """Unlike the release, whose FIFO oversubscribes."""
    for snapshot, _ in problems:
        allocation = policy_of("fifo", "gavel").allocate(snapshot)
        assert (devices_used(allocation, snapshot) <= snapshot.capacity).all()
        assert not allocation.share[snapshot.solo_rate == 0].any()
