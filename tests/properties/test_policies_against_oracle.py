"""Every optimising policy against its program as ``tests.oracle`` states it, on drawn instances."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from tests.drawn import examples
from tests.oracle import Inner, gain_over, hierarchical
from tests.policies.problems import matches, optimising, rich_snapshots
from tests.programs import PROGRAMS, UNIQUE, normalised, throughput

from fairlead.model.allocation_checks import check_allocation
from fairlead.model.rates import rate_by_type
from fairlead.model.snapshot import Snapshot
from fairlead.policies.entities import Entities, Entity
from fairlead.policies.gandiva_fair import fair_shares
from fairlead.policies.water_filling import AgnosticWaterFilling, WaterFilling

drawn = examples(25)


# Other shares, from the middle of the optima or with more pairs, for the same program.
SAME_IN_GAVEL = ("las", "las_aware", "las_packed")


@pytest.mark.parametrize("name", PROGRAMS)
@drawn
@given(snapshot=rich_snapshots())
def test_the_shares_reach_the_literal_optimum(name: str, snapshot: Snapshot) -> None:
    matches(PROGRAMS[name], snapshot, optimising(name).allocate(snapshot))


@pytest.mark.parametrize("name", SAME_IN_GAVEL)
@drawn
@given(snapshot=rich_snapshots())
def test_so_they_do_in_the_gavel_profile(name: str, snapshot: Snapshot) -> None:
    matches(PROGRAMS[name], snapshot, optimising(name, "gavel").allocate(snapshot))


@pytest.mark.parametrize("name", UNIQUE)
@drawn
@given(snapshot=rich_snapshots(max_jobs=6))
def test_each_job_gets_what_it_gets_in_every_optimum(name: str, snapshot: Snapshot) -> None:
    optimum, value = UNIQUE[name]
    allocation = check_allocation(optimising(name).allocate(snapshot), snapshot)
    expected = optimum(snapshot)
    assert value(snapshot, allocation) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert np.isfinite(expected).all()


@drawn
@given(snapshot=rich_snapshots())
def test_trading_leaves_nobody_worse_off_and_gains_no_more_than_can_be_gained(
    snapshot: Snapshot,
) -> None:
    allocation = check_allocation(optimising("gandiva_fair").allocate(snapshot), snapshot)
    runs = (rate_by_type(snapshot) > 0) & (snapshot.job_scale[:, None] <= snapshot.capacity)
    equal = fair_shares(snapshot, np.asarray(runs.any(axis=1)))
    fair = np.where(runs, rate_by_type(snapshot) * equal, 0.0).sum(axis=1)
    assert (throughput(snapshot, allocation) >= fair * (1 - 1e-9)).all()
    assert allocation.report.objective is not None
    most = gain_over(snapshot, fair)
    assert (fair > 0).sum() * (1 - 1e-9) <= allocation.report.objective <= most * (1 + 1e-6)


@pytest.mark.parametrize("heterogeneity_aware", [True, False])
@drawn
@given(snapshot=rich_snapshots())
def test_entities_divide_by_weight_and_inside_by_their_own_policy(
    heterogeneity_aware: bool, snapshot: Snapshot
) -> None:
    snapshot = replace(snapshot, tenants=("red", "red/in", "blue"))
    red, inside, blue = (tuple(np.flatnonzero(snapshot.tenant == k).tolist()) for k in range(3))
    root = Inner(1.0, (), (Inner(2.0, red, (Inner(3.0, inside, fifo=True),)), Inner(0.5, blue)))
    entities = Entities(
        (
            Entity("", 0),
            Entity("red", 0, 2.0),
            Entity("red/in", 1, 3.0, "fifo"),
            Entity("blue", 0, 0.5),
        ),
        "a file",
    )
    policy = (
        WaterFilling(entities=entities)
        if heterogeneity_aware
        else AgnosticWaterFilling(entities=entities)
    )
    allocation = check_allocation(policy.allocate(snapshot), snapshot)
    got = normalised(snapshot, allocation) if heterogeneity_aware else allocation.share.sum(axis=1)
    assert got == pytest.approx(
        hierarchical(snapshot, root, heterogeneity_aware), rel=1e-6, abs=1e-6
    )
