"""Rates of pairs by class are those of a table that states each of them."""

from dataclasses import replace

import numpy as np
import pytest

from fairlead.errors import ThroughputError
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Locality, SlotType
from fairlead.model.events import JobTypesLearned
from fairlead.model.job_type import JobType
from fairlead.model.pair_rates import (
    LearnedPairs,
    PairRates,
    colocated_rate_of,
    largest_colocated_rate,
    pair_table,
)
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler import journal

KINDS = tuple(map(JobType, "abcd"))
SLOTS = SlotType("x"), SlotType("x", Locality.SCATTERED), SlotType("y")
# a and b are of one class, d runs beside nobody, c not on y
PAIRS = PairRates(
    classes=("one", "two"),
    row_class=np.array([0, 0, 1, 1]),
    factor=np.array([[1.0, 1.0, 4.0], [3.0, 2.0, 0.5], [7.0, 7.0, 0.0], [0.0, 0.0, 0.0]]),
    rate=np.array([[[0.5, 0.25, 1.0], [0.7, 0.7, 0.5]], [[0.5, 0.5, 0.25], [0.1, 0.2, 0.3]]]),
    alternative=np.full(3, -1),
)
TABLE = Throughputs(SLOTS, KINDS, np.full((4, 3), 9.0), classed=PAIRS)


def stated() -> Floats:
    made = np.zeros((4, 4, 3))
    for i, j, t in np.ndindex(made.shape):
        if PAIRS.factor[j, t] > 0:
            made[i, j, t] = (
                PAIRS.factor[i, t] * PAIRS.rate[PAIRS.row_class[i], PAIRS.row_class[j], t]
            )
    return made


def test_they_are_indexed_as_an_array() -> None:
    full = stated()
    assert np.array_equal(np.asarray(PAIRS), full)
    rows = np.array([2, 0])
    for at in (
        (0, 1),
        (0, 1, 2),
        (rows, rows),
        (rows, 1, np.array([0, 2])),
        np.ix_(rows, rows),
        1,
        (slice(None), slice(None), [0, 2]),
        rows,
    ):
        assert np.array_equal(PAIRS[at], full[at]), at
    assert PAIRS.shape == full.shape
    assert np.array_equal(np.asarray(PAIRS.rows(rows)), full[np.ix_(rows, rows)])
    assert not np.asarray(PAIRS.rows(np.array([-1, 0])))[0].any()
    assert (largest_colocated_rate(PAIRS) >= full.max(axis=1)).all()


def test_kernels_read_both_forms_alike() -> None:
    full = stated()
    by_class, as_stated = pair_table(PAIRS), pair_table(full)
    for i, j, t in np.ndindex(full.shape):
        assert (
            colocated_rate_of(by_class, i, j, t)
            == colocated_rate_of(as_stated, i, j, t)
            == full[i, j, t]
        )


def test_what_a_table_makes_of_itself_is_the_same_by_class() -> None:
    dense = replace(TABLE, classed=None, colocated_rate=stated())
    assert TABLE.pair_rates is not None
    for made, expected in (
        (TABLE.undominated(), dense.undominated()),
        (TABLE.columns(SLOTS[1:]), dense.columns(SLOTS[1:])),
        (TABLE.learned((JobType("e"),), SLOTS, np.ones((1, 3))), None),
        (dense.columns(SLOTS), dense),
    ):
        if expected is None:
            expected = dense.learned((JobType("e"),), SLOTS, np.ones((1, 3)))
        assert np.array_equal(np.asarray(made.pair_rates), np.asarray(expected.pair_rates))
    shown = TABLE.undominated().pair_rates
    table, full = pair_table(shown), np.asarray(shown)
    for i, j, t in np.ndindex(full.shape):
        assert colocated_rate_of(table, i, j, t) == full[i, j, t]
    assert TABLE.without_pairs().pair_rates is None


def test_pairs_that_are_measured_are_told_apart() -> None:
    full = stated()
    told = np.full((1, 2, 3, 2), 0.125)
    one = TABLE.learned(KINDS[:1], SLOTS, np.full((1, 3), 9.0), KINDS[1:3], told)
    full[0, 1] = full[1, 0] = full[0, 2] = full[2, 0] = 0.125
    assert np.array_equal(np.asarray(one.pair_rates), full)


def test_classes_are_learned_and_kept_in_a_journal() -> None:
    new = (JobType("e"), JobType("f"))
    pairs = LearnedPairs(
        row_class=("three", "one"),
        factor=np.array([[2.0, 2.0, 0.0], [1.0, 1.0, 1.0]]),
        classes=("three",),
        beside=("one", "gone", "three"),
        rate=np.full((1, 3, 3, 2), 0.5),
    )
    event = JobTypesLearned(1.0, new, SLOTS, np.ones((2, 3)), pairs=pairs)
    read = journal.decode(journal.encode(event))
    assert isinstance(read, JobTypesLearned)
    table = TABLE.learned(read.job_types, SLOTS, read.rate, pairs=read.pairs)
    found = table.pair_rates
    assert found is not None
    assert found[4, 0].tolist() == [1.0, 1.0, 0.0]
    assert found[0, 4].tolist() == [0.5, 0.5, 0.0], "neither runs where the other does not"
    assert found[4, 2].tolist() == [0.0, 0.0, 0.0], "it was not named"
    assert found[5, 1].tolist() == PAIRS.rate[0, 0].tolist()
    with pytest.raises(ThroughputError, match="by class: must be finite numbers >= 0, got -1"):
        TABLE.learned(new, SLOTS, np.ones((2, 3)), pairs=replace(pairs, factor=-np.ones((2, 3))))
    with pytest.raises(ThroughputError, match="rates of classes of pairs have shapes"):
        TABLE.learned(new, SLOTS, np.ones((2, 3)), pairs=replace(pairs, factor=np.ones((1, 3))))


def test_rates_are_compared_whatever_the_order_of_classes() -> None:
    turned = replace(
        PAIRS,
        classes=PAIRS.classes[::-1],
        row_class=1 - PAIRS.row_class,
        rate=np.ascontiguousarray(PAIRS.rate[::-1, ::-1]),
    )
    assert PAIRS.equals(turned)
    assert not PAIRS.equals(replace(turned, factor=2 * turned.factor))
    assert not PAIRS.equals(replace(PAIRS, rate=2 * PAIRS.rate))
    with pytest.raises(ThroughputError, match="rates of pairs by class have shape"):
        replace(TABLE, classed=PAIRS.grown(1))
