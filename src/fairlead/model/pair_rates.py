"""Rates of pairs by class, for tables in which stating one of each pair of job types would be too much.

Where users bring rates of their own along, thousands of job types slow each other by a few rules. Job types
that follow the same rule are a class; their rates in pairs differ by a factor alone. So what is kept grows
with the number of job types, not with its square.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats2, Floats3, Ints1

NO_PARTNER = "-"  # the class of job types that are co-located with none


class PairTable(NamedTuple):
    """Rates of pairs as kernels take them; ``colocated_rate_of`` reads one."""

    row_class: Ints1  # (job_types,)
    factor: Floats2  # (job_types, slots)
    rate: Floats3  # (classes, classes, slots)
    alternative: Ints1  # (slots,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedPairs:
    """Rates in pairs of job types that are learned, by class, and the classes that are new.
    Rates of a new class beside one that is not named are 0."""

    row_class: tuple[str, ...]  # (job_types,) names of their classes
    factor: Floats  # (job_types, slots)
    classes: tuple[str, ...]  # that are new
    beside: tuple[str, ...]  # classes of the table, and of these
    rate: Floats  # (classes, beside, slots, 2) before factors, of the first in the pair, and of the second


@dataclass(frozen=True, kw_only=True)
class PairRates:
    """Steps/s of job type i beside job type j on slot t: factor[i, t] rate[class of i, class of j, t], and 0
    where the factor of either is 0.

    It is indexed as the array (job_types, job_types, slots) of these rates would be, which ``np.asarray``
    makes. Nothing of it is ever written.
    """

    classes: tuple[str, ...]  # names, "" = of one job type alone, whose pairs were measured
    row_class: Ints  # (job_types,)
    factor: Floats  # (job_types, slots)
    rate: Floats  # (classes, classes, slots)
    # (slots,) the slot type on which a pair is offered instead where it is as fast there, -1 = none
    alternative: Ints

    @staticmethod
    def of(rate: Floats, names: Sequence[str]) -> "PairRates":
        """Each job type is a class of its own. rate: (job_types, job_types, slots)"""
        n, slots = len(rate), rate.shape[2]
        if not n:  # so that there is a class for job types of which nothing is known
            rate, names = np.zeros((1, 1, slots)), (NO_PARTNER,)
        return PairRates(
            classes=tuple(names),
            row_class=np.arange(n),
            factor=np.ones((n, slots)),
            rate=rate,
            alternative=np.full(slots, -1),
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the dense array of rates that this record stands for: (job types, job types, slots)."""
        return len(self.row_class), len(self.row_class), self.rate.shape[2]

    def __len__(self) -> int:
        return len(self.row_class)

    def __getitem__(self, at: Any) -> Floats:
        parts = at if isinstance(at, tuple) else (at,)
        if len(parts) > 3 or any(not _is_index(part) for part in parts):
            return np.asarray(np.asarray(self)[at])
        one = parts[0]
        if len(parts) == 1:
            one, two = np.asarray(one)[..., None], np.arange(len(self))
        else:
            two = parts[1]
        if len(parts) < 3:
            slot = np.arange(self.rate.shape[2])
            one, two = np.asarray(one)[..., None], np.asarray(two)[..., None]
        else:
            slot = parts[2]
        return self._rates(np.asarray(one), np.asarray(two), np.asarray(slot))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        everyone, slots = np.arange(len(self)), np.arange(self.rate.shape[2])
        made = self._rates(everyone[:, None, None], everyone[:, None], slots)
        return made if dtype is None else made.astype(dtype)

    def __mul__(self, per_step: Floats) -> "PairRates":
        """With rates times per_step, (slots,), which is the same on slot types that stand for each other."""
        return replace(self, factor=self.factor * per_step)

    def _rates(self, one: Ints, two: Ints, slot: Ints) -> Floats:
        mine, yours = self._before(one, two, slot), self._before(two, one, slot)
        other = self.alternative[slot]
        if (other >= 0).any():
            worse = (mine <= self._before(one, two, other)) & (
                yours <= self._before(two, one, other)
            )
            mine = np.where((other >= 0) & worse, 0.0, mine)
        return mine

    def _before(self, one: Ints, two: Ints, slot: Ints) -> Floats:
        """Rates, whether there is a better slot type or not."""
        factor = self.factor[one, slot]
        rate = factor * self.rate[self.row_class[one], self.row_class[two], slot]
        return np.asarray(np.where(self.factor[two, slot] > 0, rate, 0.0))

    def copy(self) -> "PairRates":
        """Itself: nobody writes it."""
        return self

    @cached_property
    def table(self) -> PairTable:
        """Return the arrays that kernels take, with memory that could be written."""
        return PairTable(
            self.row_class.astype(np.int64),
            np.array(self.factor, np.float64, order="C"),
            np.array(self.rate, np.float64, order="C"),
            self.alternative.astype(np.int64),
        )

    def largest(self) -> Floats:
        """(job_types, slots) at least the largest rate of each beside any other."""
        return np.asarray(self.rate.max(axis=1, initial=0.0)[self.row_class] * self.factor)

    # --- others like it -----------------------------------------------------------------------------

    def columns(self, index: Sequence[int]) -> "PairRates":
        """Return the rates on these slots, in this order."""
        at = np.array(index, np.int64)
        return replace(
            self,
            factor=np.ascontiguousarray(self.factor[:, at]),
            rate=np.ascontiguousarray(self.rate[:, :, at]),
            alternative=np.full(len(at), -1),
        )

    def widened(self, more: int) -> "PairRates":
        """Return the rates with more slots, on which there are no pairs."""
        return replace(
            self,
            factor=np.pad(self.factor, ((0, 0), (0, more))),
            rate=np.pad(self.rate, ((0, 0), (0, 0), (0, more))),
            alternative=np.pad(self.alternative, (0, more), constant_values=-1),
        )

    def grown(self, more: int) -> "PairRates":
        """Return the rates with more job types, which have no pairs."""
        return replace(
            self,
            row_class=np.pad(self.row_class, (0, more)),
            factor=np.pad(self.factor, ((0, more), (0, 0))),
        )

    def rows(self, rows: Ints) -> "PairRates":
        """Return the rates of these job types, in this order; -1 = one that is never co-located."""
        there = rows >= 0
        return replace(
            self,
            row_class=np.where(there, self.row_class[rows], 0)
            if len(self)
            else np.zeros_like(rows),
            factor=np.where(there[:, None], self.factor[rows], 0.0)
            if len(self)
            else np.zeros((len(rows), self.rate.shape[2])),
        )._compacted()

    def without(self, rows: Bools) -> "PairRates":
        """Return the rates without pairs on these (job_types, slots)."""
        return replace(self, factor=np.where(rows, 0.0, self.factor)) if rows.any() else self

    def with_alternatives(self, alternative: Ints) -> "PairRates":
        """Without pairs where neither member gains over another slot type, (slots,), -1 = none."""
        return replace(self, alternative=alternative)

    def learned(self, rows: Ints, columns: Ints, pairs: LearnedPairs) -> "PairRates":
        """With other classes for these job types, of which some are new. columns: the slots that pairs
        has. Classes that are not known are passed over: nobody is of them any more."""
        at = {name: number for number, name in enumerate(self.classes) if name}
        new = [name for name in dict.fromkeys(pairs.classes) if name not in at]
        at |= {name: len(self.classes) + number for number, name in enumerate(new)}
        more = len(new)
        rate = np.pad(self.rate, ((0, more), (0, more), (0, 0)))
        one = np.array([at[name] for name in pairs.classes], np.int64)
        there = [number for number, name in enumerate(pairs.beside) if name in at]
        two = np.array([at[pairs.beside[number]] for number in there], np.int64)
        given = pairs.rate[:, there]
        rate[np.ix_(one, two, columns)] = given[..., 0]
        rate[np.ix_(two, one, columns)] = given[..., 1].transpose(1, 0, 2)
        row_class, factor = self.row_class.copy(), self.factor.copy()
        known = np.array([name in at for name in pairs.row_class], np.bool_)
        row_class[rows] = [at.get(name, 0) for name in pairs.row_class]
        factor[np.ix_(rows, columns)] = np.where(known[:, None], pairs.factor, 0.0)
        return replace(
            self, classes=(*self.classes, *new), row_class=row_class, factor=factor, rate=rate
        )

    def derived(self, rows: Ints, base: Ints, faster: Floats) -> "PairRates":
        """Job types in rows are beside others as those in base are, but faster by a factor, (rows, slots)."""
        row_class, factor = self.row_class.copy(), self.factor.copy()
        row_class[rows], factor[rows] = self.row_class[base], self.factor[base] * faster
        return replace(self, row_class=row_class, factor=factor)._compacted(keep_named=True)

    def measured(self, one: Ints, two: Ints, mine: Floats, yours: Floats) -> "PairRates":
        """With these rates of pairs, (pairs, slots); their job types are classes of their own from now on."""
        if not len(one):
            return self
        rows = np.unique(np.concatenate([one, two]))
        made = self._as_own_classes(
            np.array([r for r in rows.tolist() if not self.is_measured(r)], np.int64)
        )
        rate = made.rate.copy()
        a, b = made.row_class[one], made.row_class[two]
        rate[a, b], rate[b, a] = mine, yours
        factor = made.factor.copy()
        factor[rows] = 1.0
        return replace(made, rate=rate, factor=factor)._compacted(keep_named=True)

    def is_measured(self, row: int) -> bool:
        """Return whether pairs of a job type were measured."""
        return not self.classes[self.row_class[row]]

    def _as_own_classes(self, rows: Ints) -> "PairRates":
        """Return the rates with these job types in classes of their own."""
        n, more = len(self.classes), len(rows)
        if not more:
            return self
        of, factor = self.row_class[rows], self.factor[rows]
        can = factor > 0
        rate = np.pad(self.rate, ((0, more), (0, more), (0, 0)))
        mine = self.rate[of] * factor[:, None]  # beside the classes that there were
        rate[n:, :n] = mine
        rate[:n, n:] = np.where(can[None], self.rate[:, of], 0.0)
        among = self.rate[np.ix_(of, of)] * factor[:, None]
        rate[n:, n:] = np.where(can[None] & can[:, None], among, 0.0)
        row_class, factors = self.row_class.copy(), self.factor.copy()
        row_class[rows], factors[rows] = n + np.arange(more), 1.0
        classes = self.classes + ("",) * more
        return replace(self, classes=classes, row_class=row_class, factor=factors, rate=rate)

    def _compacted(self, keep_named: bool = False) -> "PairRates":
        """Without classes of which there is nobody. keep_named: but for those with names, of which
        somebody may be told soon."""
        used = np.unique(self.row_class) if len(self) else np.zeros(1, np.int64)
        if keep_named:
            named = [c for c, name in enumerate(self.classes) if name]
            used = np.union1d(used, np.array(named, np.int64))
        if len(used) == len(self.classes):
            return self
        return replace(
            self,
            classes=tuple(self.classes[c] for c in used.tolist()),
            row_class=np.searchsorted(used, self.row_class),
            rate=np.ascontiguousarray(self.rate[np.ix_(used, used)]),
        )

    def equals(self, other: "PairRates") -> bool:
        """Return whether the rates are the same, in whatever order the classes are."""
        if self.shape != other.shape or not np.array_equal(self.factor, other.factor):
            return False
        mine = [self.classes[c] for c in self.row_class.tolist()]
        theirs = [other.classes[c] for c in other.row_class.tolist()]
        if mine != theirs or not np.array_equal(self.alternative, other.alternative):
            return False
        _, first = np.unique(self.row_class, return_index=True)  # a job type of each class
        a, b = self.row_class[first], other.row_class[first]
        return bool(np.array_equal(self.rate[np.ix_(a, a)], other.rate[np.ix_(b, b)]))


class _Indexed(Protocol):
    """An array of rates of pairs, or what is indexed like one."""

    def __getitem__(self, at: Any, /) -> Any: ...


def pair_table(pairs: _Indexed | None) -> PairTable:
    """Rates of pairs for kernels. pairs: (job_types, job_types, slots), ``PairRates``, or None = there are
    none."""
    if isinstance(pairs, PairRates):
        return pairs.table
    rate: Floats = np.zeros((0, 0, 0)) if pairs is None else np.asarray(pairs, np.float64)
    if not rate.flags.carray:
        rate = np.require(rate, requirements=["C", "W"])
    n, _, slots = rate.shape
    return PairTable(np.arange(n), np.ones((n, slots)), rate, np.full(slots, -1))


def largest_colocated_rate(pairs: _Indexed) -> Floats:
    """(job_types, slots) at least the largest rate of each in any pair."""
    if isinstance(pairs, PairRates):
        return pairs.largest()
    return np.asarray(np.asarray(pairs).max(axis=1, initial=0.0))


def _is_index(part: Any) -> bool:
    """Return whether it is a number or an array of them, not a slice or a mask."""
    return np.asarray(part).dtype.kind in "iu"


@kernel("f8(PairTable, i8, i8, i8)", allocates=False)
def _factored(of: PairTable, one: int, two: int, slot: int) -> float:
    if of.factor[two, slot] <= 0:
        return 0.0
    return float(of.factor[one, slot] * of.rate[of.row_class[one], of.row_class[two], slot])


@kernel("f8(PairTable, i8, i8, i8)", allocates=False)
def colocated_rate_of(of: PairTable, one: int, two: int, slot: int) -> float:
    """Steps/s of job type one beside job type two."""
    rate = _factored(of, one, two, slot)
    other = of.alternative[slot]
    if (
        other >= 0
        and rate <= _factored(of, one, two, other)
        and _factored(of, two, one, slot) <= _factored(of, two, one, other)
    ):
        return 0.0
    return rate
