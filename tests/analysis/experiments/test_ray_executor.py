"""Points on a Ray cluster of two nodes: the same bytes as on processes."""

from pathlib import Path
from typing import Any

import pytest
from tests.analysis.experiments.small_points import (
    GROWING,
    endless,
    point,
)

from fairlead.analysis.experiments.executor import (
    Limits,
    Processes,
    run_points,
)
from fairlead.analysis.experiments.result_store import ResultStore

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]


@pytest.mark.long
def test_two_nodes_give_the_bytes_of_two_processes(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    from fairlead.analysis.experiments.ray_executor import RayExecutor

    points = [endless(0.1), GROWING, point(policy="no-such"), *map(point, range(2))]
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    cluster: Any = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    try:
        cluster.add_node(**node)
        executor = RayExecutor(address=cluster.address)
        there = run_points(points, ResultStore(tmp_path / "ray"), executor, Limits())
    finally:
        cluster.shutdown()
    here = run_points(points, ResultStore(tmp_path / "processes"), Processes(2), Limits())
    assert [one.status for one in there] == [one.status for one in here]
    assert {one.status for one in here} == {"complete", "diverged", "failed"}
    assert _results(tmp_path / "ray") == _results(tmp_path / "processes")


def _results(folder: Path) -> dict[str, bytes]:
    paths = (folder / "points").glob("*")
    return {p.name: p.read_bytes() for p in paths if not p.name.endswith(".timing.json")}
