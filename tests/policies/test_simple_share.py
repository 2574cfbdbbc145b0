"""The simple shares of Shockwave's release."""

import numpy as np
import pytest

from fairlead.model.cluster import Cluster
from fairlead.policies.simple_share import SimpleShare
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.policies.problems import FAMILIES, optimising, table
from tests.small import job, run


@pytest.mark.parametrize(
    ("counts", "jobs", "expected"),
    [
        ({"a": 2}, 8, [[0.25]]),
        ({"a": 8}, 4, [[1.0]]),
        ({"a": 2, "b": 6}, 16, [[2 / 16, 6 / 16]]),
        ({"a": 2, "b": 6}, 4, [[0.25, 0.75]]),
    ],
)
def test_every_job_has_an_nth_whatever_it_takes(
    counts: dict[str, int], jobs: int, expected: list[list[float]]
) -> None:
    rows = [InstanceJob(i, FAMILIES[0], (1, 2, 4)[i % 3]) for i in range(jobs)]
    made = SimpleShare().allocate(snapshot_of(rows, Cluster.of(counts), table(np.ones((12, 3)))))
    assert made.share == pytest.approx(np.repeat(expected, jobs, axis=0))


def test_the_name_means_another_policy_in_each_profile() -> None:
    assert isinstance(optimising("gandiva_fair", "shockwave"), SimpleShare)
    assert not isinstance(optimising("gandiva_fair", "gavel"), SimpleShare)


def test_a_strict_policy_leaves_devices_idle_behind_a_job_that_does_not_fit() -> None:
    """Four devices: 1 runs, 2 needs all four, 3 would fit and may not overtake it."""
    jobs = [job(1, 0.0, 36_000.0), job(2, 0.0, 36_000.0, devices=4), job(3, 0.0, 36_000.0)]
    for policy, running in (("isolated_plus", 1), ("gandiva_fair", 2)):
        result = run(jobs, fast=4, policy=policy, stop_at_s=100.0, profile="shockwave")
        assert result.rounds["running"][0] == running
