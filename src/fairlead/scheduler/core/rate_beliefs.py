"""The rates that the scheduler believes: of job types, and of beliefs about single jobs, which are rows of
one table with them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fairlead.errors import ProtocolError, ThroughputError
from fairlead.model.arrays import Floats, Ints
from fairlead.model.events import JobTypesLearned, RatesLearned
from fairlead.model.job_type import JobType, RateSource
from fairlead.model.pair_rates import PairRates
from fairlead.model.throughputs import Throughputs


@dataclass(frozen=True, slots=True, kw_only=True)
class BeliefState:
    """The beliefs of a scheduler, as plain values."""

    number: Ints  # (beliefs,)
    job_types: tuple[JobType, ...]
    job_type: Ints  # (beliefs,) position in job types
    rate: Floats  # (beliefs, slots)
    colocated_rate: (
        Floats | None
    )  # (beliefs, beliefs, slots) of the first co-located with the second
    classed: PairRates | None = None  # the same by class, in place of ``colocated_rate``


class RateBeliefs:
    """A table of job types and beliefs, and what of it planners are shown."""

    def __init__(self, table: Throughputs, space_sharing: bool) -> None:
        """space_sharing: whether pairs are of any use; if not, there are none: with thousands of job types
        they would be most of what is copied when one more is learned."""
        self.space_sharing = space_sharing
        if not space_sharing:
            table = table.without_pairs()
        self.known = table  # job types alone, with their pairs
        self.table = table
        self.undominated = table.undominated()
        self.base: Ints = np.arange(
            len(table.job_types)
        )  # (rows,) of the job type that each row is about
        self.row: dict[int, int] = {}  # number of a belief -> its row

    def of_row(self, row: int) -> int:
        """The number of the belief in a row, -1 = it is a job type."""
        one = self.table.job_types[row]
        return int(one.variant) if one.source is RateSource.ESTIMATED else -1

    def rows_of(self, numbers: Iterable[int]) -> Ints:
        """Rows of beliefs."""
        return np.array([self.row[number] for number in numbers], np.int64)

    def learn_job_types(self, event: JobTypesLearned) -> None:
        """Job types that are new or better known. Pairs of a belief and a job type follow."""
        try:
            pairs = (event.colocated_job_types, event.colocated_rate, event.pairs)
            if not self.space_sharing:
                pairs = (), None, None
            text = (event.job_types, event.slots, event.rate, *pairs)
            self.known = self.known.learned(*text)
            table = self.known
            if self.row:
                table = self.table.learned(*text)
        except ThroughputError as problem:
            raise ProtocolError(str(problem)) from None
        self.base = np.concatenate([self.base, np.arange(len(self.base), len(table.job_types))])
        self._put(self._with_job_types(table))

    def learn(self, event: RatesLearned) -> Ints:
        """Beliefs that are new or changed, alone or in pairs; their rows. ProtocolError says what cannot
        be one."""
        _check(event, len(self.table.slots), self.row)
        if not len(event.belief) and not len(event.pair):
            return np.zeros(0, np.int64)
        rows = self._add_rows(event)
        rate = self.table.rate.copy()
        rate[rows] = event.rate
        table = replace(self.table, rate=rate)
        if table.colocated_rate is not None:
            pair = self._derived(table, rows)
            one, two = (self.rows_of(event.pair[:, k].tolist()) for k in (0, 1))
            pair[one, two], pair[two, one] = (
                event.colocated_rate[:, :, 0],
                event.colocated_rate[:, :, 1],
            )
            table = replace(table, colocated_rate=pair)
            rows = np.concatenate([rows, one, two])
        elif table.classed is not None:
            one, two = (self.rows_of(event.pair[:, k].tolist()) for k in (0, 1))
            mine, yours = event.colocated_rate[:, :, 0], event.colocated_rate[:, :, 1]
            classed = self._derived_by_class(table, rows)
            table = replace(table, classed=classed.measured(one, two, mine, yours))
            rows = np.concatenate([rows, one, two])
        self._put(table)
        return rows

    def state(self, used: set[int]) -> BeliefState | None:
        """The beliefs of these rows, None where there are none: what is believed of job types that no job has
        any more is not kept."""
        number = [
            n for n, row in self.row.items() if row in used
        ]  # in order of rows: it breaks ties
        if not number:
            return None
        rows = self.rows_of(number)
        names = [self.table.job_types[row] for row in self.base[rows].tolist()]
        job_types = tuple(dict.fromkeys(names))
        job_type = np.array([job_types.index(name) for name in names], np.int64)
        pair = (
            None
            if self.table.colocated_rate is None
            else self.table.colocated_rate[np.ix_(rows, rows)]
        )
        return BeliefState(
            number=np.array(number, np.int64),
            job_types=job_types,
            job_type=job_type,
            rate=self.table.rate[rows],
            colocated_rate=pair,
            classed=None if self.table.classed is None else self.table.classed.rows(rows),
        )

    def load(self, state: BeliefState, slot: Ints) -> None:
        """Take over another's beliefs. slot: (its slots,) columns here, -1 = gone; of slot types that it
        lacked, jobs of which something is believed are believed to be as their job type."""
        if not len(state.number):
            return
        rows = [self.known.row(job_type) for job_type in state.job_types]
        missing = [
            job_type for job_type, row in zip(state.job_types, rows, strict=True) if row is None
        ]
        if missing:
            raise ThroughputError(
                f"{self.known.origin}: no rate for {missing[0]}, of which something is believed"
            )
        rate = self.known.rate[np.array(rows, np.int64)[state.job_type]]
        there = slot >= 0
        rate[:, slot[there]] = state.rate[:, there]
        none: Ints = np.zeros((0, 2), np.int64)
        nothing: Ints = np.zeros(0, np.int64)
        colocated_rate = np.zeros((0, len(self.table.slots), 2))
        number, job_types = state.number, state.job_types
        self.learn(
            RatesLearned(
                time_s=0.0,
                jobs=nothing,
                name=nothing,
                belief=number,
                job_types=job_types,
                job_type=state.job_type,
                rate=rate,
                pair=none,
                colocated_rate=colocated_rate,
            )
        )
        if self.table.classed is not None:
            self._load_measured(state, slot)
            return
        shown = state.colocated_rate if state.classed is None else np.asarray(state.classed)
        if self.table.colocated_rate is not None and shown is not None:
            at, pair = self.rows_of(number.tolist()), self.table.colocated_rate.copy()
            among = pair[np.ix_(at, at)]
            among[:, :, slot[there]] = shown[:, :, there]
            pair[np.ix_(at, at)] = among
            self._put(replace(self.table, colocated_rate=pair))

    def _load_measured(self, state: BeliefState, slot: Ints) -> None:
        """Take over the pairs that were measured, where pairs are kept by class here."""
        known, there = self.table.classed, slot >= 0
        n = len(state.number)
        one, two = np.triu_indices(n)
        pairs: PairRates | Floats | None = state.colocated_rate
        if state.classed is not None:
            apart = np.array([state.classed.is_measured(row) for row in range(n)], np.bool_)
            both = np.flatnonzero(apart)
            one, two = (both[part] for part in np.triu_indices(len(both)))
            pairs = state.classed
        if known is None or pairs is None:
            return
        rows = self.rows_of(state.number.tolist())
        mine, yours = known[rows[one], rows[two]], known[rows[two], rows[one]]
        mine[:, slot[there]] = pairs[one, two][:, there]
        yours[:, slot[there]] = pairs[two, one][:, there]
        self._put(replace(self.table, classed=known.measured(rows[one], rows[two], mine, yours)))

    def _add_rows(self, event: RatesLearned) -> Ints:
        """(beliefs,) rows for the beliefs of an event; what job types they are about is noted."""
        job_types: list[JobType] = list(self.table.job_types)
        about = np.zeros(len(event.job_types), np.int64)
        for at, one in enumerate(event.job_types):
            row = None if one.source is RateSource.ESTIMATED else self.table.row(one)
            if row is None:
                raise ProtocolError(f"a belief: no rate for {one}")
            about[at] = row
        rows = []
        for number, at in zip(event.belief.tolist(), event.job_type.tolist(), strict=True):
            row = self.row.setdefault(number, len(job_types))
            assigned = event.job_types[at].with_source(RateSource.ESTIMATED, str(number))
            job_types[row : row + 1] = [assigned]
            rows.append(row)
        more = len(job_types) - len(self.base)
        pair = self.table.colocated_rate
        if pair is not None and more:
            pair = np.pad(pair, ((0, more), (0, more), (0, 0)))
        classed = self.table.classed
        if classed is not None and more:
            classed = classed.grown(more)
        rate = np.pad(self.table.rate, ((0, more), (0, 0)))
        self.table = replace(
            self.table,
            job_types=tuple(job_types),
            rate=rate,
            colocated_rate=pair,
            classed=classed,
        )
        self.base = np.concatenate([self.base, np.zeros(more, np.int64)])
        self.base[rows] = about[event.job_type]
        return np.array(rows, np.int64)

    def _derived(self, table: Throughputs, rows: Ints) -> Floats:
        """A copy of the rates of pairs; those of these rows with all others follow from those of their
        job_types: as much faster or slower as alone."""
        assert table.colocated_rate is not None
        pair, base = table.colocated_rate.copy(), self.base
        solo = table.rate[base]
        faster = np.divide(table.rate, solo, out=np.zeros_like(solo), where=solo > 0)
        pair[rows] = table.colocated_rate[base[rows]][:, base] * faster[rows, None]
        pair[:, rows] = table.colocated_rate[:, base[rows]][base] * faster[:, None]
        return pair

    def _derived_by_class(self, table: Throughputs, rows: Ints) -> PairRates:
        """Return what ``_derived`` returns, by class."""
        assert table.classed is not None
        base = self.base[rows]
        solo = table.rate[base]
        faster = np.divide(table.rate[rows], solo, out=np.zeros_like(solo), where=solo > 0)
        return table.classed.derived(rows, base, faster)

    def _by_class_anew(self, table: Throughputs, rows: Ints) -> PairRates:
        """Pairs of these beliefs as they follow from the table now, but for what was measured."""
        assert table.classed is not None
        apart = np.array([row for row in rows.tolist() if table.classed.is_measured(row)], np.int64)
        one, two = (apart[part] for part in np.triu_indices(len(apart)))
        mine, yours = table.classed[one, two], table.classed[two, one]
        return self._derived_by_class(table, rows).measured(one, two, mine, yours)

    def _with_job_types(self, table: Throughputs) -> Throughputs:
        """The table with pairs of a belief and a job type as they follow from it now."""
        rows = self.rows_of(self.row)
        if self.row and table.classed is not None:
            return replace(table, classed=self._by_class_anew(table, rows))
        if table.colocated_rate is None or not self.row:
            return table
        pair = self._derived(table, rows)
        pair[np.ix_(rows, rows)] = table.colocated_rate[np.ix_(rows, rows)]
        return replace(table, colocated_rate=pair)

    def _put(self, table: Throughputs) -> None:
        self.table, self.undominated = table, table.undominated()


def _check(event: RatesLearned, slots: int, known: dict[int, int]) -> None:
    n, pairs = len(event.belief), len(event.pair)
    for name, array, shape in (
        ("the belief of each job", event.name, (len(event.jobs),)),
        ("job_type", event.job_type, (n,)),
        ("rate", event.rate, (n, slots)),
        ("pair", event.pair, (pairs, 2)),
        ("colocated_rate", event.colocated_rate, (pairs, slots, 2)),
    ):
        if array.shape != shape:
            raise ProtocolError(f"beliefs: {name} has shape {array.shape}, expected {shape}")
    for rates in (event.rate, event.colocated_rate):
        bad = ~((rates >= 0) & (rates < np.inf))
        if bad.any():
            raise ProtocolError(f"beliefs: a rate must be a number >= 0, got {rates[bad][0]}")
    if len(set(event.belief.tolist())) != n or (event.belief < 0).any():
        raise ProtocolError("beliefs: their numbers must be >= 0 and differ")
    there = known.keys() | set(event.belief.tolist())
    for number in [*event.name[event.name >= 0].tolist(), *event.pair.reshape(-1).tolist()]:
        if number not in there:
            raise ProtocolError(f"belief {number}: no event has said what it is")
