"""The profiles of Shockwave's release, and what differs from those of the default world."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adapting_families import batch_at, families, name, rules, scales, steps

from fairlead.model.adaptation import Mode
from fairlead.model.batch_size_rules import batch_schedule
from fairlead.model.cluster import SlotType
from fairlead.model.job import Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.shockwave_reference.profiles import (
    released_exclusive_s,
    released_profile,
    released_schedule,
)


@given(families, scales, rules, st.integers(1, 700))
def test_the_worlds_differ_in_the_last_epoch_only(
    family: tuple[str, int], scale: int, mode: Mode, epochs: int
) -> None:
    total = steps(family, epochs)
    ours = batch_schedule(name(family), scale, total, mode)
    theirs = released_schedule(name(family), scale, total, mode)
    assert ours.epochs == theirs.epochs == epochs
    same = [batch_at(ours, e) == batch_at(theirs, e) for e in range(epochs)]
    assert all(same[:-1])
    if not same[-1]:
        assert mode is Mode.GNS
        assert batch_at(theirs, epochs - 1) == family[1]


def test_the_last_epoch_falls_back_under_gns() -> None:
    theirs = released_schedule("LM (batch size 10)", 1, steps(("LM", 10), 22.5), Mode.GNS)
    assert (theirs.epochs, theirs.schedule) == (23, ((0, 10), (11, 20), (21, 40), (22, 10)))


def test_the_released_profile_of_a_job() -> None:
    own = batch_schedule("LM (batch size 10)", 1, steps(("LM", 10), 22.5), Mode.GNS)
    job = Job(JobId(0), "LM (batch size 10)", 1, steps(("LM", 10), 22.5), adaptation=own)
    made = released_profile(job)
    assert made is not None
    assert made.schedule[-1] == (22, 10)
    assert released_profile(Job(JobId(0), "LM (batch size 10)", 1, 5.0)) is None


def test_an_epoch_may_end_within_a_step() -> None:
    """1,000 samples in batches of 300 and 600: 3.3 and 1.7 steps an epoch; two epochs of each."""
    family = "net (batch size 300)"
    one = JobType.parse(family)
    kinds = (one, one.with_batch_size(600))
    table = Throughputs((SlotType("fast"),), kinds, np.array([[2.0], [1.0]]))
    whole = released_schedule(
        family, 1, 14.0, Mode.SCHEDULE, samples=1000, schedule=((0, 300), (2, 600))
    )
    theirs = released_exclusive_s(whole, one, table)
    assert theirs[0] == pytest.approx(2 * (1000 / 300) / 2 + 2 * (1000 / 600) / 1)
