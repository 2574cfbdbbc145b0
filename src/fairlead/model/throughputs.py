"""Rates of job types on slot types, alone and co-located."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from fairlead.errors import ThroughputError
from fairlead.model.argument_checks import (
    TEXT,
    array_of,
    check_arguments,
    check_fields,
    instance_of,
    list_of,
    or_none,
)
from fairlead.model.arrays import Bools, Floats, Ints, frozen
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.job_type import JobType
from fairlead.model.pair_rates import LearnedPairs, PairRates

_TYPES = {
    "slots": list_of(SlotType, "a tuple of SlotType"),
    "job_types": list_of(JobType, "a tuple of JobType"),
    "rate": array_of(2),
    "colocated_rate": or_none(array_of(3)),
    "classed": or_none((instance_of(PairRates), "a PairRates")),
    "source": TEXT,
    "origin": TEXT,
}


@dataclass(frozen=True)
class Throughputs:
    """A table of rates: a row is a job type, a column a slot type.

    The arrays are copied, as float64, and cannot be written. ThroughputError names a rate that is none, and
    a job type or slot type that appears twice.
    """

    slots: tuple[SlotType, ...]
    job_types: tuple[JobType, ...]
    rate: Floats  # (job_types, slots) steps/s of the whole job; 0 = cannot run there
    colocated_rate: Floats | None = (
        None  # (job_types, job_types, slots) steps/s of the first beside the second
    )
    source: str = "oracle"  # oracle | user | measured | estimated
    origin: str = "memory"  # the file or catalogue it was read from, for messages
    classed: PairRates | None = None  # rates of pairs by class, in place of ``colocated_rate``

    def __post_init__(self) -> None:
        check_fields(self, _TYPES, ThroughputError)
        if self.rate.shape != (len(self.job_types), len(self.slots)):
            raise ThroughputError(
                f"{self.origin}: rates have shape {self.rate.shape}, "
                f"expected {(len(self.job_types), len(self.slots))}"
            )
        pairs = (len(self.job_types), len(self.job_types), len(self.slots))
        if self.colocated_rate is not None and self.colocated_rate.shape != pairs:
            raise ThroughputError(
                f"{self.origin}: rates of pairs have shape {self.colocated_rate.shape}, expected {pairs}"
            )
        if self.classed is not None and (
            self.colocated_rate is not None or self.classed.shape != pairs
        ):
            raise ThroughputError(
                f"{self.origin}: rates of pairs by class have shape {self.classed.shape}, expected {pairs} "
                "and no others"
            )
        self._set("slots", tuple(self.slots))
        self._set("job_types", tuple(self.job_types))
        self._set("rate", self._checked_rates("rate"))
        if self.colocated_rate is not None:
            self._set("colocated_rate", self._checked_rates("colocated_rate"))
        self._set("_row", {job_type: i for i, job_type in enumerate(self.job_types)})
        self._set("_families", frozenset(one.name for one in self.job_types))
        for name, types in (("job_types", self.job_types), ("slots", self.slots)):
            if len(set(types)) < len(types):
                twice = next(one for i, one in enumerate(types) if one in types[:i])
                raise ThroughputError(f"{self.origin}: {name}: {twice} appears twice")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _checked_rates(self, name: str) -> Floats:
        """The array of a field, which nobody can write: itself if it is one already, else a copy."""
        given = getattr(self, name)
        rates: Floats = given
        if not _is_frozen(given):
            rates = frozen(np.array(given, np.float64, order="C"))
        usable = (rates >= 0) & (rates < np.inf)
        if not usable.all():
            at = tuple(np.argwhere(~usable)[0].tolist())
            who = " beside ".join(str(self.job_types[row]) for row in at[:-1])
            raise ThroughputError(
                f"{self.origin}: {name} of {who} on {self.slots[at[-1]]}: must be a finite number >= 0, "
                f"got {rates[at]}"
            )
        return rates

    @property
    def pair_rates(self) -> Floats | None:
        """Rates of pairs, however they are kept: ``PairRates`` are indexed as an array is."""
        return self.colocated_rate if self.classed is None else cast(Floats, self.classed)

    def without_pairs(self) -> "Throughputs":
        """Return the table without rates of pairs."""
        if self.pair_rates is None:
            return self
        return replace(self, colocated_rate=None, classed=None)

    @property
    def families(self) -> frozenset[str]:
        """Names of the job types, without their scale factors."""
        return self._families  # type: ignore[attr-defined, no-any-return]

    def row(self, job_type: JobType) -> int | None:
        """The row of a job type, or None where the table has none."""
        return self._row.get(job_type)  # type: ignore[attr-defined, no-any-return]

    @cached_property
    def fastest(self) -> Floats:
        """(job_types,) steps/s alone on the fastest accelerator type, consolidated where the table has it;
        0 = runs nowhere."""
        consolidated = [s.locality is Locality.CONSOLIDATED for s in self.slots]
        rate = self.rate[:, consolidated] if any(consolidated) else self.rate
        return frozen(rate.max(axis=1, initial=0.0))

    def columns(self, slots: tuple[SlotType, ...]) -> "Throughputs":
        """Return the table with these columns in this order. Raises ThroughputError for a slot type that it
        lacks."""
        check_arguments("Throughputs.columns", {"slots": slots}, _TYPES, ThroughputError)
        have = {slot: i for i, slot in enumerate(self.slots)}
        for slot in slots:
            if slot not in have:
                known = ", ".join(sorted({s.accelerator for s in self.slots}))
                raise ThroughputError(
                    f"{self.origin}: no rates for accelerator type {slot.accelerator!r} "
                    f"({slot.locality.value}); it has {known}"
                )
        index = [have[slot] for slot in slots]
        pair = (
            None
            if self.colocated_rate is None
            else np.ascontiguousarray(self.colocated_rate[:, :, index])
        )
        rate = np.ascontiguousarray(self.rate[:, index])
        classed = None if self.classed is None else self.classed.columns(index)
        return Throughputs(slots, self.job_types, rate, pair, self.source, self.origin, classed)

    def learned(
        self,
        job_types: tuple[JobType, ...],
        slots: tuple[SlotType, ...],
        rate: Floats,
        with_job_types: tuple[JobType, ...] = (),
        colocated: Floats | None = None,
        pairs: LearnedPairs | None = None,
    ) -> "Throughputs":
        """Return the table with these rows, added or replaced. Raises ThroughputError for a slot type that it
        lacks.

        rate: (job_types, slots) steps/s. Columns that are not named stay as they are, 0 for new job types;
        so are the rates of new job types beside others, but for those in ``colocated``: (job_types, beside,
        slots, 2) steps/s of a job type beside one of ``with_job_types``, and of that one beside it; or as the
        classes in ``pairs`` are.
        ThroughputError names what cannot be a rate.
        """
        have = {slot: i for i, slot in enumerate(self.slots)}
        for slot in slots:
            if slot not in have:
                raise ThroughputError(
                    f"{self.origin}: there is no slot type {slot.accelerator!r} ({slot.locality.value})"
                )
        if rate.shape != (len(job_types), len(slots)):
            raise ThroughputError(
                f"rates have shape {rate.shape}, expected {(len(job_types), len(slots))}"
            )
        new = tuple(dict.fromkeys(job_type for job_type in job_types if self.row(job_type) is None))
        more = len(new)
        table = np.vstack([self.rate, np.zeros((more, len(self.slots)))])
        pair = (
            None
            if self.colocated_rate is None
            else np.pad(self.colocated_rate, ((0, more), (0, more), (0, 0)))
        )
        at = {job_type: i for i, job_type in enumerate(self.job_types + new)}
        rows: Ints = np.array([at[job_type] for job_type in job_types], np.int64)
        columns: Ints = np.array([have[slot] for slot in slots], np.int64)
        table[np.ix_(rows, columns)] = rate
        classed = None if self.classed is None else self.classed.grown(more)
        if pairs is not None:
            classed = self._with_classes(rows, columns, pairs, more)
            pair = None
        grown = replace(
            self, job_types=self.job_types + new, rate=table, colocated_rate=pair, classed=classed
        )
        if colocated is None:
            return grown
        return grown._with_colocated(rows, columns, with_job_types, colocated)

    def pair_rates_by_class(self) -> PairRates:
        """Return rates of pairs by class; if they are stated by job type, each job type is its own class."""
        if self.classed is not None:
            return self.classed
        n = len(self.job_types)
        rate = self.colocated_rate
        if rate is None:
            nobody = PairRates.of(np.zeros((0, 0, len(self.slots))), ())
            return nobody.grown(n)
        return PairRates.of(rate, [f"{one.scale_factor};{one.name}" for one in self.job_types])

    def _with_classes(self, rows: Ints, columns: Ints, pairs: LearnedPairs, more: int) -> PairRates:
        """Rates of pairs with these, of job types of which as many are new."""
        expected = (len(pairs.classes), len(pairs.beside), len(columns), 2)
        if pairs.rate.shape != expected or pairs.factor.shape != (len(rows), len(columns)):
            raise ThroughputError(
                f"rates of classes of pairs have shapes {pairs.rate.shape} and {pairs.factor.shape}, "
                f"expected {expected} and {(len(rows), len(columns))}"
            )
        before = self.pair_rates_by_class().grown(more)
        for numbers in (pairs.rate, pairs.factor):
            bad = ~((numbers >= 0) & (numbers < np.inf))
            if bad.any():
                raise ThroughputError(
                    f"rates of pairs by class: must be finite numbers >= 0, got {numbers[bad][0]}"
                )
        return before.learned(rows, columns, pairs)

    def _with_colocated(
        self, rows: Ints, columns: Ints, with_job_types: tuple[JobType, ...], colocated: Floats
    ) -> "Throughputs":
        """Return the table with these rates of pairs."""
        expected = (len(rows), len(with_job_types), len(columns), 2)
        if colocated.shape != expected:
            raise ThroughputError(
                f"rates of pairs have shape {colocated.shape}, expected {expected}"
            )
        others = [self.row(job_type) for job_type in with_job_types]
        if None in others:
            missing = with_job_types[others.index(None)]
            raise ThroughputError(f"no rate for {missing}")
        other: Ints = np.array(others, np.int64)
        if self.classed is not None:
            return self._with_measured(rows, columns, other, colocated)
        n = len(self.job_types)
        pair = (
            np.zeros((n, n, len(self.slots)))
            if self.colocated_rate is None
            else self.colocated_rate.copy()
        )
        pair[np.ix_(rows, other, columns)] = colocated[..., 0]
        pair[np.ix_(other, rows, columns)] = colocated[..., 1].transpose(1, 0, 2)
        return replace(self, colocated_rate=pair)

    def _with_measured(
        self, rows: Ints, columns: Ints, other: Ints, colocated: Floats
    ) -> "Throughputs":
        """Return the table with these rates of pairs, by class."""
        assert self.classed is not None
        one, two = (part.ravel() for part in np.meshgrid(rows, other, indexing="ij"))
        mine, yours = self.classed[one, two], self.classed[two, one]
        mine[:, columns] = colocated[..., 0].reshape(-1, len(columns))
        yours[:, columns] = colocated[..., 1].reshape(-1, len(columns))
        return replace(self, classed=self.classed.measured(one, two, mine, yours))

    def on(self, cluster: Cluster, scattered: bool = True) -> "Throughputs":
        """The columns that matter on a cluster: each of its types consolidated and, unless ``scattered`` is
        False, also scattered where the table has it and the cluster has several servers of the type. The
        scattered rate of jobs of one device is 0, as is any where a job type may not use an accelerator."""
        also = set(cluster.scatterable) if scattered else set()
        columns = list(cluster.slots)
        for slot in self.slots:
            if slot.locality is Locality.SCATTERED and slot.accelerator in also:
                columns.insert(columns.index(SlotType(slot.accelerator)) + 1, slot)
        table = self.columns(tuple(columns))
        is_scattered = np.array([slot.locality is Locality.SCATTERED for slot in columns])
        single = np.array([one.scale_factor == 1 for one in self.job_types])
        table = table._barred(single[:, None] & is_scattered, with_partners=False)
        return table._barred(table._denied(), with_partners=True)

    def _barred(self, barred: Bools, *, with_partners: bool) -> "Throughputs":
        """Return the table with rate 0 at these (job_types, slots), alone and co-located. with_partners:
        their partners have rate 0 beside them too."""
        if self.classed is not None:
            return replace(self._without(barred, None), classed=self.classed.without(barred))
        if self.colocated_rate is None:
            return self._without(barred, None)
        beside = barred[:, None, :]
        return self._without(barred, beside | barred[None] if with_partners else beside)

    def _denied(self) -> Bools:
        """(job_types, slots) whether a job type may not use the accelerators of a slot type."""
        denied = np.zeros(self.rate.shape, np.bool_)
        for row, one in enumerate(self.job_types):
            if one.accelerators is not None:
                denied[row] = [not one.allows(slot.accelerator) for slot in self.slots]
        return denied

    @cached_property
    def locality_matters(self) -> bool:
        """Return whether any slot type has one of the other locality."""
        return bool((self.other_locality >= 0).any())

    @cached_property
    def other_locality(self) -> Ints:
        """(slots,) the column of the same accelerator type in the other locality, -1 = none."""
        at = {slot: i for i, slot in enumerate(self.slots)}
        other = {
            Locality.CONSOLIDATED: Locality.SCATTERED,
            Locality.SCATTERED: Locality.CONSOLIDATED,
        }
        found = [at.get(SlotType(s.accelerator, other[s.locality]), -1) for s in self.slots]
        return frozen(np.array(found, np.int64))

    def undominated(self) -> "Throughputs":
        """Return the table with rate 0 where no job gains by being scattered: where a scattered rate does not
        exceed the consolidated one, as both draw on the same devices. Policies need not consider the
        others."""
        is_scattered = np.array([s.locality is Locality.SCATTERED for s in self.slots]) & (
            self.other_locality >= 0
        )
        idle = np.zeros_like(self.rate, np.bool_)
        idle[:, is_scattered] = (
            self.rate[:, is_scattered] <= self.rate[:, self.other_locality[is_scattered]]
        )
        if self.classed is not None and is_scattered.any():
            other = np.where(is_scattered, self.other_locality, -1)
            without = self._without(idle, None)
            return replace(without, classed=self.classed.with_alternatives(other))
        if self.colocated_rate is None or not is_scattered.any():
            return self._without(idle, None)
        lower = np.zeros_like(self.colocated_rate, np.bool_)
        lower[:, :, is_scattered] = (
            self.colocated_rate[:, :, is_scattered]
            <= self.colocated_rate[:, :, self.other_locality[is_scattered]]
        )
        return self._without(idle, lower & lower.transpose(1, 0, 2))

    def _without(self, solo: Bools, with_job_types: Bools | None) -> "Throughputs":
        """Return the table with rate 0 at these (job_types, slots) and (job_types, job_types, slots)."""
        if not (solo.any() or (with_job_types is not None and with_job_types.any())):
            return self
        pair = (
            self.colocated_rate
            if self.colocated_rate is None or with_job_types is None
            else np.where(with_job_types, 0.0, self.colocated_rate)
        )
        return replace(self, rate=np.where(solo, 0.0, self.rate), colocated_rate=pair)


def _is_frozen(array: Floats) -> bool:
    """Return whether an array of rates can be kept as it is: nobody can write it, also not through a view."""
    flags = array.flags
    return (
        array.dtype == np.float64 and flags.c_contiguous and flags.owndata and not flags.writeable
    )
