"""Profile ``pollux``: every completion time of the published runs of Tiresias and Optimus, to the second."""

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlead.simulator.pollux_reference.applications import Application, read_by_accelerator
from fairlead.simulator.pollux_reference.fairness import finish_time_fairness
from fairlead.simulator.pollux_reference.registry import elastic_policy
from fairlead.simulator.pollux_reference.simulation import ElasticRun, simulate_elastic
from fairlead.simulator.pollux_reference.workload import read_workload

pytestmark = pytest.mark.shared
WORKLOADS = {"0.5": "workloads-0.5", "1.0": "workloads"}
POLICIES = ("tiresias", "optimus")


@pytest.fixture(scope="module")
def applications(shared: Path) -> dict[str, dict[str, Application]]:
    return read_by_accelerator(shared / "data" / "pollux", ["gpu"])


def run(
    shared: Path,
    applications: dict[str, dict[str, Application]],
    policy: str,
    load: str,
    number: int,
) -> ElasticRun:
    path = shared / "data" / "pollux" / WORKLOADS[load] / f"workload-{number}.csv"
    return simulate_elastic(
        read_workload(path, applications), elastic_policy(policy), [4] * 16, 60.0
    )


@pytest.mark.parametrize(
    ("policy", "load"),
    [
        ("tiresias", "1.0"),
        ("optimus", "0.5"),
        pytest.param("tiresias", "0.5", marks=pytest.mark.long),
        pytest.param("optimus", "1.0", marks=pytest.mark.long),
    ],
)
def test_completion_times_are_those_published(
    shared: Path, applications: dict[str, dict[str, Application]], policy: str, load: str
) -> None:
    path = shared / "golden" / "pollux" / f"jct-{policy}-load{load}.json"
    published = json.loads(path.read_text())["jcts"]
    assert len(published) == 8
    for number in range(1, 9):
        found = run(shared, applications, policy, load, number).jct_s()
        assert found == dict(published[f"workload-{number}"]), f"workload {number}"


@pytest.mark.parametrize(
    ("policy", "load", "number", "most"),
    [
        ("pollux", "0.5", 5, 1.0),
        pytest.param("pollux", "1.0", 1, 1.0, marks=pytest.mark.long),
        ("elastic_srpt", "1.0", 1, 0.95),
    ],
)
def test_no_worse_than_polluxs_published_search(
    shared: Path,
    applications: dict[str, dict[str, Application]],
    policy: str,
    load: str,
    number: int,
    most: float,
) -> None:
    """In the average completion time; benchmarks/pollux_jct.py has all workloads."""
    path = shared / "golden" / "pollux" / f"jct-pollux-load{load}.json"
    published = json.loads(path.read_text())["avgs"][f"workload-{number}"]
    found = run(shared, applications, policy, load, number).jct_s()
    assert sum(found.values()) / len(found) <= most * published


def test_shortest_first_leaves_nobody_behind(
    shared: Path, applications: dict[str, dict[str, Application]]
) -> None:
    found = run(shared, applications, "elastic_srpt", "0.5", 5)
    rho = finish_time_fairness(found, partial(elastic_policy, "elastic_srpt"), [4] * 16, 60.0)
    assert max(rho.values()) <= 1.2


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("policy", POLICIES)
def test_allocations_and_restarts_are_those_recorded(
    shared: Path, applications: dict[str, dict[str, Application]], policy: str, number: int
) -> None:
    name = f"run-{policy}-load0.5-workload{number}.json.gz"
    recorded: dict[str, Any] = json.loads(
        gzip.decompress((shared / "golden" / "pollux" / name).read_bytes())
    )
    found = run(shared, applications, policy, "0.5", number)
    restarts = {one.job.name: one.restarts for one in found.trainings}
    assert restarts == {job: row["num_restarts"] for job, row in recorded["jobs"].items()}
    held: dict[str, list[int]] = {}
    wanted = []
    for time_s, changes in recorded["steps"]:
        for job, (nodes, *_) in changes.items():
            if nodes != held.get(job, []):
                wanted.append((float(time_s), job, tuple(nodes)))
                held[job] = nodes
    ends = {one.job.name: one.ended_s or 0.0 for one in found.trainings}
    lost = [(t, job, nodes) for t, job, nodes in wanted if nodes or t < ends[job]]
    assert [(c.time_s, c.job, c.nodes) for c in found.changes] == lost
