"""Heterogeneity-aware LAS."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from fairlead.model.snapshot import Snapshot
from fairlead.policies.gavel_reference.las import ReleasedLas
from fairlead.policies.las import Las
from tests import oracle
from tests.policies.problems import snapshots


@pytest.mark.parametrize("central", [False, True])
@given(snapshot=snapshots())
@settings(max_examples=60, deadline=None)
def test_the_optimum_over_classes_is_the_literal_one_over_jobs(
    central: bool, snapshot: Snapshot
) -> None:
    allocation = (ReleasedLas() if central else Las()).allocate(snapshot)
    report = allocation.report
    assert report.objective == pytest.approx(oracle.las_aware(snapshot), rel=1e-6, abs=1e-9)
    assert report.gap is not None
    assert report.gap <= 1e-6 or report.objective == 0
    assert (allocation.job_groups == snapshot.jobs[:, None]).all()
    assert not allocation.share[snapshot.solo_rate == 0].any()


@given(snapshots())
@settings(max_examples=30, deadline=None)
def test_classes_that_are_finer_than_need_be_change_nothing(snapshot: Snapshot) -> None:
    alone = replace(snapshot, job_class=np.arange(len(snapshot.jobs))[::-1] * 7)
    apart, together = Las().allocate(alone), Las().allocate(snapshot)
    assert apart.report.objective == pytest.approx(together.report.objective, rel=1e-6, abs=1e-9)


@given(snapshots())
@settings(max_examples=30, deadline=None)
def test_the_previous_answer_speeds_up_and_does_not_matter(snapshot: Snapshot) -> None:
    first = Las().allocate(snapshot)
    again = Las().allocate(replace(snapshot, previous=first))
    assert again.report.objective == pytest.approx(first.report.objective, rel=1e-7, abs=1e-9)
    assert again.report.iterations <= first.report.iterations
