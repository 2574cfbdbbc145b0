"""Aggregation by class."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policies.solve.job_classes import group


@given(st.lists(st.integers(-3, 40) | st.integers(10**9, 10**9 + 5), max_size=60))
def test_every_job_finds_its_class(ids: list[int]) -> None:
    job_class = np.array(ids, np.int64)
    classes = group(job_class)
    assert (np.diff(classes.id) > 0).all()
    assert (classes.id[classes.of] == job_class).all()
    assert (job_class[classes.representative] == classes.id).all()
    assert classes.count.tolist() == [ids.count(one) for one in classes.id.tolist()]
