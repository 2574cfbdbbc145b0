"""Partitioned optimisation: feasible, reproducible, and honest about what it loses."""

import pytest

from fairlead.errors import ConfigError
from fairlead.model.allocation_checks import check_allocation
from fairlead.policies.partition import Partition
from tests.policies.pairs import paired
from tests.policies.problems import policy_of

LOWER_IS_BETTER = ("makespan", "makespan_aware", "finish_time", "finish_time_aware")
INNER = (
    "las",
    "las_aware",
    "las_packed",
    *LOWER_IS_BETTER,
    "total_throughput",
    "nash",
    "makespan_packed",
    "finish_time_packed",
)


@pytest.mark.parametrize("inner", INNER)
def test_the_loss_is_reported(inner: str) -> None:
    """The joined objective is never better than the whole's, and the bound is the whole's."""
    for seed in range(4):
        snapshot = paired(seed, jobs=24)
        whole, parts = (
            check_allocation(policy_of(name).allocate(snapshot), snapshot)
            for name in (inner, f"partition:3:{inner}")
        )
        mine, best = parts.report.objective, whole.report.objective
        assert mine is not None
        assert best is not None
        worse = mine >= best * (1 - 1e-6) if "las" not in inner else mine <= best * (1 + 1e-6)
        if inner in ("total_throughput", "nash"):
            worse = mine <= best * (1 + 1e-6)
        assert worse
        assert parts.report.bound == pytest.approx(best, rel=1e-6)


def test_one_part_is_the_whole() -> None:
    snapshot = paired(1, jobs=15)
    one, whole = policy_of("partition:1:las_aware"), policy_of("las_aware")
    assert one.allocate(snapshot).report.objective == pytest.approx(
        whole.allocate(snapshot).report.objective, rel=1e-9
    )


def test_the_seed_decides_who_is_where() -> None:
    snapshot = paired(2, jobs=30)
    first, again, other = (
        policy_of("partition:4:las_aware", seed=seed).allocate(snapshot).share for seed in (0, 0, 1)
    )
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("spec", ["partition:0:las", "partition:x:las", "partition:-1:las"])
def test_a_bad_number_of_parts_is_named(spec: str) -> None:
    with pytest.raises(ConfigError, match="K of partition:K:POLICY must be 1 to"):
        policy_of(spec)


def test_it_says_what_the_inner_policy_is() -> None:
    policy = policy_of("partition:2:las_packed")
    assert isinstance(policy, Partition)
    assert policy.space_sharing
    assert policy.heterogeneity_aware
    assert policy.name == "partition:2:las_packed"
