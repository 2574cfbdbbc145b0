"""Allocations of an earlier run."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster
from fairlead.model.snapshot import Snapshot
from fairlead.policies import recorded
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.policies.problems import FAMILIES, table


def snapshot(ids: list[int], now_s: float) -> Snapshot:
    jobs = [InstanceJob(i, FAMILIES[0]) for i in ids]
    return snapshot_of(jobs, Cluster.of({"a": 2, "b": 2}), table(np.ones((12, 3))), now_s)


def with_pairs(single: Snapshot, pairs: list[tuple[int, int]]) -> Snapshot:
    alone = np.column_stack([np.arange(len(single.jobs)), np.full(len(single.jobs), -1)])
    return replace(single, group_members=np.concatenate([alone, np.array(pairs)]))


def log(
    folder: Path, allocs: list[Any], name: str = "t__fifo_perf__2-2", run: object = None
) -> str:
    path = folder / f"{name}.log.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"rounds": [], "allocs": allocs}).encode()))
    if run is not None:
        (folder / f"{name}.json").write_text(json.dumps(run))
    return str(path)


def test_shares_are_found_by_time(tmp_path: Path) -> None:
    allocs = [[0, {"3": {"a": 0.25, "b": 0.5}}, ["3"]], [7.5, {"4": {"b": 1.0}}, ["3", "4"]]]
    policy = recorded.load(log(tmp_path, allocs))
    assert policy.allocate(snapshot([3], 0.0)).share.tolist() == [[0.25, 0.5]]
    later = policy.allocate(snapshot([3, 4], 7.5))
    assert later.share.tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert later.report.status == "recorded"


def test_pairs_are_units_of_their_own(tmp_path: Path) -> None:
    shares = {"2": {"a": 0.1}, "(2, 9)": {"b": 0.75}, "(2, 5)": {"a": 0.5}}
    policy = recorded.load(log(tmp_path, [[0, shares, [2, 5, 9]]]))
    packed = with_pairs(snapshot([2, 5, 9], 0.0), [(0, 1), (0, 2), (1, 2)])
    allocation = policy.allocate(packed)
    assert allocation.job_groups.tolist() == [[2, -1], [5, -1], [9, -1], [2, 5], [2, 9], [5, 9]]
    assert allocation.share.tolist() == [[0.1, 0], [0, 0], [0, 0], [0.5, 0], [0, 0.75], [0, 0]]


def test_where_a_time_repeats_the_jobs_decide(tmp_path: Path) -> None:
    allocs = [[0, {"1": {"a": 1.0}}, ["1"]], [0, {"1": {"b": 1.0}}, ["1", "2"]]]
    policy = recorded.load(log(tmp_path, allocs))
    assert policy.allocate(snapshot([1, 2], 0.0)).share[0].tolist() == [0.0, 1.0]
    assert policy.allocate(snapshot([1], 0.0)).share[0].tolist() == [1.0, 0.0]
    with pytest.raises(ConfigError, match="these 3 jobs"):
        policy.allocate(snapshot([1, 2, 3], 0.0))


def test_an_unrecorded_time_is_named(tmp_path: Path) -> None:
    policy = recorded.load(log(tmp_path, [[360.25, {}, ["1"]]]))
    with pytest.raises(ConfigError, match=r"at 360\.5 s .* nearest solve is at 360\.25 s"):
        policy.allocate(snapshot([1], 360.5))


@pytest.mark.parametrize(
    ("name", "heterogeneity_aware", "space_sharing", "work_conserving"),
    [
        ("MaxMinFairness", False, False, True),
        ("MaxMinFairness_Perf", True, False, True),
        ("FIFO", False, False, False),
        ("FIFO_Packing", True, True, False),
        ("Gandiva_Packing", True, True, True),
    ],
)
def test_traits_come_from_the_run_beside_it(
    tmp_path: Path, name: str, heterogeneity_aware: bool, space_sharing: bool, work_conserving: bool
) -> None:
    run = {"policy_name": name, "config": {"enable_global_queue": space_sharing}}
    policy = recorded.load(log(tmp_path, [[0, {}, []]], run=run))
    assert (policy.heterogeneity_aware, policy.space_sharing, policy.work_conserving) == (
        heterogeneity_aware,
        space_sharing,
        work_conserving,
    )
    assert policy.global_queue == space_sharing


@pytest.mark.parametrize(
    ("name", "heterogeneity_aware", "space_sharing", "work_conserving"),
    [
        ("t__max_min_fairness__2-2", False, False, True),
        ("t__max_min_fairness_packed__2-2", True, True, True),
        ("t__fifo_perf__2-2", True, False, False),
        ("t__gandiva__2-2", True, True, True),
        ("t__allox__2-2", True, False, True),
    ],
)
def test_or_from_the_name_of_the_file(
    tmp_path: Path, name: str, heterogeneity_aware: bool, space_sharing: bool, work_conserving: bool
) -> None:
    policy = recorded.load(log(tmp_path, [[0, {}, []]], name=name))
    assert (policy.heterogeneity_aware, policy.space_sharing, policy.work_conserving) == (
        heterogeneity_aware,
        space_sharing,
        work_conserving,
    )


def test_an_accelerator_that_the_cluster_lacks_is_named(tmp_path: Path) -> None:
    policy = recorded.load(log(tmp_path, [[0, {"1": {"tpu": 1.0}}, ["1"]]]))
    with pytest.raises(ConfigError, match="'tpu', the cluster has"):
        policy.allocate(snapshot([1], 0.0))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{}", "allocs"),
        (b'{"allocs": []}', "expected recorded allocations"),
        (b'{"allocs": [[0, {"x": {"a": 1}}, []]]}', r"allocs\[0\]: a job group is"),
        (b"\x1f\x8bdamaged", "cannot be read"),
        (b"\xff\xfe", "not a recorded run"),
    ],
)
def test_what_is_no_recording_is_one_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "t__fifo__2.log.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        recorded.load(str(path))


def test_a_missing_file_and_a_nameless_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        recorded.load(str(tmp_path / "none.log.json.gz"))
    with pytest.raises(ConfigError, match="cannot tell which policy"):
        recorded.load(log(tmp_path, [[0, {}, []]], name="plain"))
