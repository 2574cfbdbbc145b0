"""Elastic jobs of a live cluster, whose policy decides how many devices they have."""

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, compared, engine_nodes

from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import make_spec
from fairlead.errors import InputError

RAN: dict[str, Any] = {"loaded_step": 0, "step": 100, "ran_s": 10.0, "trained_s": 10.0}


def begun(cluster: EngineNodes, node: PlayedNode, *key: int) -> None:
    cluster.until(lambda: key in node.statuses, f"the order of attempt {key}")
    node.run(*key, **RAN)
    node.say()
    cluster.until(lambda: cluster.job(key[0]).started_s is not None, "its training")


def test_a_job_shrinks_for_another_and_grows_when_that_has_gone(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=1.0, lease_s=60.0, policy="sia") as cluster:
        node = cluster.node("a", devices=4)
        node.register()
        first = cluster.submit(devices=(1, 2, 4))
        begun(cluster, node, first, 1)
        assert cluster.job(first).scale_factor == 4
        assert cluster.job(first).devices == (0, 1, 2, 3)
        second = cluster.submit(devices=(1, 2, 4))
        cluster.until(lambda: (first, 2) in node.statuses and (second, 1) in node.statuses)
        one, other = cluster.job(first), cluster.job(second)
        assert (one.scale_factor, other.scale_factor) == (2, 2)
        assert set(one.devices) | set(other.devices) == {0, 1, 2, 3}
        ended = cluster.service.attempts(ADMIN, first)[0]
        assert (ended.end, ended.why) == ("resized", "resized")
        begun(cluster, node, first, 2)
        begun(cluster, node, second, 1)
        cluster.service.cancel(ADMIN, second)
        cluster.until(lambda: (first, 3) in node.statuses, "the growth")
        assert cluster.job(first).scale_factor == 4
        told = cluster.service.explain(ADMIN, first)
        assert "It is elastic, and may have 1, 2 or 4 devices." in told.facts


def test_a_server_that_starts_again_goes_on_with_the_numbers(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0, policy="sia") as cluster:
        node = cluster.node("a", devices=4)
        node.register()
        job = cluster.submit(devices=(1, 2, 4))
        begun(cluster, node, job, 1)
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0, policy="sia") as cluster:
        again = cluster.node("a", devices=4)
        again.statuses = node.statuses
        again.register()
        cluster.until(lambda: cluster.job(job).state == "running")
        view = cluster.job(job)
        assert (view.scale_factor, view.attempt, view.may_have) == (4, 1, (1, 2, 4))


def test_a_job_begins_on_the_least_number_under_other_policies(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, policy="las", lease_s=60.0) as cluster:
        node = cluster.node("a", devices=4)
        node.register()
        job = cluster.submit(devices=(2, 4), scale_factor=2)
        begun(cluster, node, job, 1)
        assert cluster.job(job).scale_factor == 2


def test_a_job_whose_least_number_fits_is_admitted(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, policy="sia", lease_s=60.0) as cluster:
        node = cluster.node("a", devices=2)
        node.register()
        job = cluster.submit(devices=(2, 8), scale_factor=8, speedups={"2": 0.3})
        begun(cluster, node, job, 1)
        assert cluster.job(job).scale_factor == 2
        assert cluster.job(job).rates["v100"] == pytest.approx(0.3)


def test_forecasts_know_what_a_job_may_have(tmp_path: Path) -> None:
    """12,000 steps take 3,000 s on four devices, at a speedup of 4, and 12,000 s on one."""
    with engine_nodes(tmp_path, round_s=60.0, lease_s=60.0, policy="sia") as cluster:
        node = cluster.node("a", devices=4)
        node.register()
        cluster.until(lambda: cluster.service.engine.state.setup is not None)
        fields: dict[str, Any] = {"command": ("x",), "total_steps": 12_000, "rates": {"v100": 1.0}}
        speedups = {"2": 2.0, "4": 4.0}
        elastic = JobSpec(devices=(1, 2, 4), speedups=speedups, **fields)
        rigid = JobSpec(**fields)
        ends = [
            compared(cluster, WhatIf(add_jobs=(spec,))).then.makespan_s for spec in (rigid, elastic)
        ]
        assert ends[0] == pytest.approx(12_000, rel=0.02)
        assert ends[1] == pytest.approx(3_000, rel=0.05)


def test_speedups() -> None:
    spec = JobSpec(
        command=("x",), total_steps=1, scale_factor=2, devices=(1, 2, 4), speedups={"4": 1.7}
    )
    assert [spec.speedup(n) for n in (2, 4)] == [1.0, 1.7]
    assert spec.speedup(1) == pytest.approx(0.5**0.9)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"devices": [4, 2]}, "job.toml: devices: must ascend, got [4, 2]"),
        ({"devices": [0, 2]}, "job.toml: scale_factor: must be from 1 to 4096, got 0"),
        ({"devices": [2, 5000]}, "job.toml: devices: must be from 1 to 4096, got 5000"),
        (
            {"devices": [2, 4], "scale_factor": 1},
            "job.toml: scale_factor: must be one of devices (2, 4), got 1",
        ),
        ({"speedups": {"2": 1.5}}, "job.toml: speedups: are for jobs with devices"),
        (
            {"devices": [1, 2], "speedups": {"4": 3}},
            "job.toml: speedups: '4' is none of the numbers in devices",
        ),
        (
            {"devices": [1, 2], "speedups": {"2": 0}},
            "job.toml: speedups.2: must be from 0.001 to 10000, got 0",
        ),
        (
            {"devices": [1, 2], "unmanaged": True},
            "job.toml: devices: is for jobs with the iterator",
        ),
        ({"devices": ["x"]}, "job.toml: devices[0]: expected int, got 'x'"),
    ],
)
def test_numbers_that_cannot_be_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        make_spec({"command": ["x"], "total_steps": 1, **fields}, "job.toml")
    assert str(refused.value).startswith(said)


def test_the_first_number_is_the_least_where_none_is_named() -> None:
    spec = make_spec({"command": ["x"], "total_steps": 1, "devices": [2, 4]}, "job.toml")
    assert spec.scale_factor == 2
