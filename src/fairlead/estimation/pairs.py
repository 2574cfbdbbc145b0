"""The slowdown of two jobs on the same devices by each other: completed from the pairs that are known.

    log (rate in a pair / rate alone) [a with b, slot] = sensitivity[a] + pressure[b] + slot[t] + rest[a, b,
    t]

Job type a's sensitivity, job type b's pressure and the slot's term are jointly Gaussian, the rest is
independent, so the completion is one linear regression whose answer has a variance: a matrix of rank two in
logarithms. Pairs that the table knows keep its value until they have been measured, and what was measured
outweighs both. Whether two job types fit one device's memory is taken from the table: no rate tells it
without a failure.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.job_type import JobType, RateSource
from fairlead.model.throughputs import Throughputs

SENSITIVITY_SD, PRESSURE_SD, SLOT_SD = 0.3, 0.3, 0.5  # sd of the terms
SLOT_MEAN = -0.2  # mean of the slot's term
RESIDUAL_SD = 0.15  # sd of what sensitivity and pressure leave over, as in Gavel's measured pairs
TABLE_SD = 0.05  # sd of a slowing that the table has
MIN_CHANGE = 0.05  # of a logarithm: the least difference that is announced


class Pairs:
    """Dense arrays over the job types that were paired so far; nothing is made before the first."""

    def __init__(self, table: Throughputs, catalogue: Throughputs | None) -> None:
        """catalogue: the part of the table that is known from the start."""
        self._catalogue = catalogue
        self._table = table
        self._forget()

    def table(self, table: Throughputs) -> None:
        """The table in force; what was measured stays, if its slot types are the same."""
        same = bool(self._job_types) and table.slots == self._table.slots
        self._table = table
        if not same:
            self._forget()
            return
        job_types, count, mean, refused = (
            list(self._job_types),
            self._count,
            self._mean,
            self._refused,
        )
        self._forget()
        self._add(job_types)
        self._count[:], self._mean[:], self._refused[:] = count, mean, refused

    def _forget(self) -> None:
        n = len(self._table.slots)
        self._job_types: dict[JobType, int] = {}
        self._count: Floats = np.zeros((0, 0, n))  # sum of inverse variances of what was measured
        self._mean: Floats = np.zeros((0, 0, n))
        self._refused: Bools = np.zeros((0, 0, n), np.bool_)
        self._listed: Floats = np.zeros((0, 0, n))  # log slowing in the table, NaN = cannot share
        self._known: Bools = np.zeros((0, 0, n), np.bool_)  # and it may be taken as known
        self._announced: Floats = np.zeros((0, 0, n))
        # Terms: slots first, then (suffers, presses) of each job type.
        self._at = np.full(n, SLOT_MEAN)
        self._cov = SLOT_SD**2 * np.eye(n)
        self._learned = False

    # --- what was seen -----------------------------------------------------------------------------------

    def rows(self, first: Sequence[JobType], second: Sequence[JobType]) -> tuple[Ints, Ints]:
        """Numbers of job types, old and new."""
        self._add([job_type for job_type in (*first, *second) if job_type not in self._job_types])
        numbers = [
            [self._job_types[job_type] for job_type in job_types] for job_types in (first, second)
        ]
        return np.array(numbers[0], np.int64), np.array(numbers[1], np.int64)

    def learn(
        self, first: Ints, second: Ints, slot: Ints, log_slowing: Floats, noise: Floats
    ) -> None:
        """Measurements: how much slower the first job types were in a pair with the second. noise:
        variances."""
        self._learned = self._learned or bool(len(first))
        for a, b, t, value, variance in zip(
            first.tolist(),
            second.tolist(),
            slot.tolist(),
            np.minimum(log_slowing, 0.1).tolist(),
            noise.tolist(),
            strict=True,
        ):
            if not self._count[a, b, t]:
                self._complete(a, b, t, value, RESIDUAL_SD**2 + variance)
            worth = 1 / variance
            before = self._count[a, b, t]
            self._count[a, b, t] = before + worth
            self._mean[a, b, t] = (before * self._mean[a, b, t] + worth * value) / (before + worth)

    def refuse(self, first: Ints, second: Ints, slot: Ints) -> None:
        """Record that job types cannot share devices: an attempt has failed."""
        self._learned = self._learned or bool(len(first))
        self._refused[first, second, slot] = True
        self._refused[second, first, slot] = True

    def _complete(self, a: int, b: int, t: int, value: float, variance: float) -> None:
        terms = [t, *self._terms(a, b)]
        cross = self._cov[:, terms].sum(axis=1)
        gain = cross / (cross[terms].sum() + variance)
        self._at += gain * (value - self._at[terms].sum())
        self._cov -= np.outer(gain, cross)

    def _terms(self, a: int, b: int) -> tuple[int, int]:
        n = len(self._table.slots)
        return n + 2 * a, n + 2 * b + 1

    def _add(self, job_types: Sequence[JobType]) -> None:
        new = list(dict.fromkeys(job_types))
        if not new:
            return
        before, more = len(self._job_types), len(new)
        self._job_types.update({job_type: before + i for i, job_type in enumerate(new)})
        grow = ((0, more), (0, more), (0, 0))
        self._count, self._mean = np.pad(self._count, grow), np.pad(self._mean, grow)
        self._refused = np.pad(self._refused, grow)
        self._listed, self._known = self._table_rates()
        listed = np.where(np.isnan(self._listed), 0.0, self._listed)
        listed[:before, :before] = self._announced
        self._announced = listed
        self._at = np.concatenate([self._at, np.zeros(2 * more)])
        terms = np.tile([SENSITIVITY_SD**2, PRESSURE_SD**2], more)
        wide = np.zeros((len(self._at), len(self._at)))
        wide[: len(self._cov), : len(self._cov)] = self._cov
        wide[len(self._cov) :, len(self._cov) :] = np.diag(terms)
        self._cov = wide
        for a, b, t in np.argwhere(self._known).tolist():
            if a >= before or b >= before:
                self._complete(a, b, t, float(self._listed[a, b, t]), RESIDUAL_SD**2)

    def _table_rates(self) -> tuple[Floats, Bools]:
        """(job_types, job_types, slots) log slowing in the table and whether it may be taken as known."""
        table, job_types = self._table, list(self._job_types)
        row = [table.row(job_type) for job_type in job_types]
        at = np.array([0 if r is None else r for r in row], np.int64)
        there = np.array([r is not None for r in row], np.bool_)
        solo = table.rate[at][:, None, :]
        pair = np.zeros((len(job_types), len(job_types), len(table.slots)))
        if table.pair_rates is not None:
            pair = table.pair_rates[np.ix_(at, at)]
        can = (pair > 0) & (solo > 0) & there[:, None, None] & there[None, :, None]
        listed = np.full(pair.shape, np.nan)
        listed[can] = np.log((pair / np.where(solo > 0, solo, 1.0))[can])
        catalogue = self._catalogue
        mine = [
            catalogue is not None
            and catalogue.row(job_type) is not None
            and job_type.source is not RateSource.DECLARED
            for job_type in job_types
        ]
        known = np.array(mine, np.bool_)
        return listed, can & known[:, None, None] & known[None, :, None]

    # --- what follows --------------------------------------------------------------------------------------

    def slowing(self, first: Ints, second: Ints) -> tuple[Floats, Floats]:
        """(pairs, slots) mean and standard deviation of the log of rate in a pair over rate alone."""
        n = len(self._table.slots)
        terms = np.column_stack([n + 2 * first, n + 2 * second + 1])
        two = self._cov[terms[:, :, None], terms[:, None, :]].sum(axis=(1, 2))
        with_slot = self._cov[terms[:, 0], :n] + self._cov[terms[:, 1], :n]
        variance = two[:, None] + 2 * with_slot + np.diag(self._cov)[:n] + RESIDUAL_SD**2
        mean = self._at[terms].sum(axis=1)[:, None] + self._at[:n]
        known = self._known[first, second]
        mean = np.where(known, np.nan_to_num(self._listed[first, second]), mean)
        variance = np.where(known, TABLE_SD**2, variance)
        seen = self._count[first, second]
        sure = 1 / variance + seen
        mean = (mean / variance + seen * self._mean[first, second]) / sure
        return np.minimum(mean, 0.0), np.sqrt(1 / sure)

    def announce(
        self, names: Ints, job_types: Sequence[JobType], rate: Floats, belief: Ints
    ) -> tuple[Ints, Floats]:
        """Return the pairs of beliefs that the table has wrong and of which one is announced anew or whose
        slowing has changed, as in ``Beliefs``. names: (beliefs,) all, of these job types, rate: (beliefs,
        slots) alone; belief: those that are announced anew."""
        none: Ints = np.zeros((0, 2), np.int64)
        if not self._learned or self._table.pair_rates is None:
            return none, np.zeros((0, rate.shape[1], 2))
        row, _ = self.rows(job_types, [])
        used = np.unique(row)
        a, b = (part.ravel() for part in np.meshgrid(used, used, indexing="ij"))
        now = np.zeros(self._announced.shape)
        now[a, b] = self.slowing(a, b)[0]
        can = ~np.isnan(self._listed) & ~self._refused
        refused = self._refused & ~np.isnan(self._listed)
        now = np.where(refused, -np.inf, np.where(can, now, 0.0))
        listed = np.where(np.isnan(self._listed), 0.0, self._listed)
        odd, moved = _differ(now, listed), _differ(now, self._announced)
        fresh = np.isin(names, belief)
        one, two = np.triu_indices(len(names))
        p, q = row[one], row[two]
        affected = (fresh[one] | fresh[two]) & (odd[p, q] | odd[q, p])
        affected |= moved[p, q] | moved[q, p]
        affected &= (one != two) | (names[one] % 2 == 0)
        one, two, p, q = one[affected], two[affected], p[affected], q[affected]
        self._announced[np.ix_(used, used)] = np.where(
            (moved | moved.transpose(1, 0))[:, :, None], now, self._announced
        )[np.ix_(used, used)]
        colocated_rate = np.stack(
            [
                np.where(can[p, q], rate[one] * np.exp(now[p, q]), 0.0),
                np.where(can[q, p], rate[two] * np.exp(now[q, p]), 0.0),
            ],
            axis=2,
        )
        colocated_rate[(colocated_rate <= 0).any(axis=2)] = 0.0
        return np.column_stack([names[one], names[two]]), colocated_rate


def _differ(now: Floats, before: Floats) -> Bools:
    """(job_types, job_types) whether they differ on any slot."""
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(now - before) > MIN_CHANGE).any(axis=2))
