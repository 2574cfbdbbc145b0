"""AlloX as Shockwave's release has it (whole runs: tests/golden/test_shockwave_baselines)."""

from dataclasses import replace

import numpy as np
import pytest
from tests.policies.problems import FAMILIES, optimising, table

from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster
from fairlead.model.snapshot import Snapshot
from fairlead.policies import registry
from fairlead.policies.shockwave_reference.allox import ReleasedAlloX
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of


def problem(*jobs: tuple[int, float], devices: int = 2) -> Snapshot:
    """Jobs of (scale factor, steps left) at 1 step/s, the first the oldest."""
    rows = [
        InstanceJob(i, FAMILIES[0], scale, steps_left=steps, age_s=100.0 - i)
        for i, (scale, steps) in enumerate(jobs)
    ]
    return snapshot_of(rows, Cluster.of({"a": devices}), table(np.ones((12, 3))))


def shares(snapshot: Snapshot, alpha: float = 1.0) -> list[float]:
    made = ReleasedAlloX(alpha=alpha).allocate(snapshot).share
    return [float(x) for x in made[:, 0]]


def test_the_shortest_are_first_in_line() -> None:
    assert shares(problem((1, 50.0), (1, 10.0), (1, 90.0), (1, 20.0))) == [0, 1, 0, 1]


def test_only_the_oldest_part_is_planned_but_as_many_as_devices_are_free() -> None:
    jobs = [(1, 50.0), (1, 90.0), (1, 10.0), (1, 20.0)]
    assert shares(problem(*jobs), alpha=0.2) == [1, 1, 0, 0]


def test_jobs_of_several_devices_count_like_single_ones_and_get_a_part() -> None:
    assert shares(problem((4, 10.0), (1, 20.0), (2, 30.0))) == [0.25, 1, 0]


def test_who_has_a_whole_share_holds_a_device_and_who_has_a_part_is_matched_again() -> None:
    first = problem((4, 10.0), (1, 20.0), (1, 30.0), (1, 5.0))
    later = replace(first, share=np.array([[0.25], [1.0], [0.0], [0.0]]))
    assert shares(later) == [0.25, 1, 0, 1]  # one device is free, and the last job is shortest
    full = replace(first, share=np.array([[0.25], [1.0], [1.0], [0.0]]))
    assert shares(full) == [0.25, 1, 1, 0]


def test_the_part_can_be_named() -> None:
    assert optimising("allox", "shockwave") == ReleasedAlloX(alpha=0.2)
    with pytest.raises(ConfigError, match="ALPHA must be a number from 0 to 1"):
        registry.make("allox:7", seed=0, profile="shockwave")
