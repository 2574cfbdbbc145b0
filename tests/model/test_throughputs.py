"""Tables of rates made in Python: what they take, and what nobody can change of them."""

from typing import Any

import numpy as np
import pytest
from tests.job_types import job_types
from tests.small import jct, job

from fairlead.analysis.simulate import simulate
from fairlead.errors import ThroughputError
from fairlead.model.cluster import Locality, SlotType
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs

SLOTS = (SlotType("v100"), SlotType("k80"))
NETS = job_types(("net", 1), ("other", 1))
RATE = np.array([[10.0, 5.0], [8.0, 2.0]])
PAIR = np.full((2, 2, 2), 1.0)


def table(rate: Any = RATE, pair: Any = None) -> Throughputs:
    """Rates of two job types on two accelerator types."""
    return Throughputs(SLOTS, NETS, np.array(rate), None if pair is None else np.array(pair))


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint16, np.float32, ">f8"])
def test_rates_of_any_number_type_are_float64(kind: Any) -> None:
    made = Throughputs(SLOTS, NETS, RATE.astype(kind), PAIR.astype(kind))
    assert made.colocated_rate is not None
    assert made.rate.dtype == made.colocated_rate.dtype == np.float64
    assert made.rate.tolist() == RATE.tolist()
    jobs = [job(number, 0.0, 1e4) for number in range(3)]
    got = simulate(jobs, "v100=1,k80=1", "las_aware", throughputs=made)
    assert jct(got) == jct(simulate(jobs, "v100=1,k80=1", "las_aware", throughputs=table()))


@pytest.mark.parametrize("bad", [float("nan"), -1.0, float("inf")])
def test_what_cannot_be_a_rate_is_named(bad: float) -> None:
    rate, pair = RATE.copy(), PAIR.copy()
    rate[0, 1] = bad
    with pytest.raises(ThroughputError) as refused:
        table(rate)
    assert str(refused.value) == (
        f"memory: rate of 'net' at scale factor 1 on k80: must be a finite number >= 0, got {bad}"
    )
    pair[1, 0, 0] = bad
    with pytest.raises(ThroughputError) as refused:
        table(RATE, pair)
    assert str(refused.value) == (
        "memory: colocated_rate of 'other' at scale factor 1 beside 'net' at scale factor 1 on v100: "
        f"must be a finite number >= 0, got {bad}"
    )


def test_pairs_of_another_shape_are_named() -> None:
    with pytest.raises(
        ThroughputError, match=r"pairs have shape \(1, 2, 2\), expected \(2, 2, 2\)"
    ):
        table(RATE, PAIR[:1])


def test_a_row_or_a_column_that_appears_twice_is_named() -> None:
    with pytest.raises(ThroughputError, match="job_types: 'net' at scale factor 1 appears twice"):
        Throughputs(SLOTS, job_types(("net", 1), ("net", 1)), RATE)
    spread = SlotType("k80", Locality.SCATTERED)
    with pytest.raises(ThroughputError, match=r"slots: k80 \(spread\) appears twice"):
        Throughputs((spread, spread), NETS, RATE)


def test_the_table_does_not_change_with_the_array_that_it_was_made_of() -> None:
    rate, pair = RATE.copy(), PAIR.copy()
    made = Throughputs(SLOTS, NETS, rate, pair)
    rate[:] = pair[:] = 0.0
    assert made.rate.tolist() == RATE.tolist()
    assert made.colocated_rate is not None
    assert made.colocated_rate.tolist() == PAIR.tolist()
    view = RATE.copy()
    read_only = view[:]
    read_only.setflags(write=False)
    seen = Throughputs(SLOTS, NETS, read_only)
    view[:] = 0.0
    assert seen.rate.tolist() == RATE.tolist()


def test_nobody_can_write_a_table() -> None:
    made = table(RATE, PAIR)
    more = made.learned(
        (JobType("third"),), SLOTS, np.array([[1.0, 2.0]]), NETS, np.ones((1, 2, 2, 2))
    )
    for one in (made, more, made.columns(SLOTS[::-1]), made.undominated()):
        for array in (one.rate, one.colocated_rate, one.fastest, one.other_locality):
            assert array is not None
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0
