"""Gavel's estimator: rates of pairs from those of reference jobs that a new job resembles.

Every job family has a row of numbers: how fast it runs in a pair with each other family on each accelerator
type, over its rate alone. A sample of families are references, whose rows among themselves are known. A new
job is run in a pair with each reference on each type with some probability; the rest of its row is filled in
by matrix completion; and it is taken for the reference whose row points most nearly the same way. From then
on it is believed to be slowed down as that reference is. When two jobs have run together, what was measured
takes the place of the estimate. Rates alone are taken from the table.

Source: Gavel (OSDI'20), section 6; the release, whose defect (``defect``) is an index: what a new job was
meant to be paired with is not what it was paired with, where references are fewer than families.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.errors import ConfigError
from fairlead.estimation.matrix_completion import complete
from fairlead.estimation.messages import Beliefs, Measurement
from fairlead.estimation.option_values import fraction
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster, Locality
from fairlead.model.job import Job
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs

STREAM = 4  # added to the seed: the release's stream for the estimator
REGULARISER = 1e-2
BLEND = 0.5  # weight of each measurement of a pair after the first, against the belief so far
DIFFERS = 0.01  # relative difference from which a measurement changes a belief
_KEY_STRIDE = 1 << 24  # more than a table has job types


@dataclass(frozen=True, slots=True)
class GavelEstimatorOptions:
    """The options: how much is known beforehand."""

    references: int | None = None  # families among which a job is matched; None = all
    profiling: float = 1.0  # probability that a job is measured in a pair with a reference
    rank: int = 10
    defect: bool = False

    @staticmethod
    def of(options: Mapping[str, str]) -> "GavelEstimatorOptions":
        """From the options of a spec; ConfigError names what is wrong."""
        unknown = sorted(set(options) - {"references", "profiling", "rank", "defect"})
        if unknown:
            raise ConfigError(
                f"estimator gavel: {unknown[0]!r} is not an option (references, profiling, rank, defect)"
            )
        if options.get("defect"):
            raise ConfigError(f"estimator gavel: defect takes no value, got {options['defect']!r}")
        return GavelEstimatorOptions(
            _whole("references", options["references"]) if "references" in options else None,
            fraction("gavel", "profiling", options.get("profiling", "1")),
            _whole("rank", options.get("rank", "10")),
            "defect" in options,
        )


def _whole(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"estimator gavel: {name} must be a whole number >= 1, got {text!r}")
    return int(text)


class Fingerprints:
    """The families of one scale factor, and which reference a new job of them is taken for."""

    def __init__(self, slowdown: Floats, choices: GavelEstimatorOptions, seed: int) -> None:
        """slowdown: (families, families, types) rate of the first paired with the second over that alone."""
        self.slowdown = slowdown
        self.choices = choices
        n = len(slowdown)
        self._rng = random.Random(seed)
        self._factors = np.random.default_rng(seed)
        references = n if choices.references is None else min(choices.references, n)
        self.references: Ints = np.array(sorted(self._rng.sample(range(n), references)), np.int64)
        known = slowdown[np.ix_(self.references, self.references)]
        self._rows: Floats = np.clip(_by_type(known), 0.0, 1.0)  # (references, types x references)

    def match(self, family: int) -> int:
        """The family, one of the references, that a new job of this one is taken for."""
        fingerprint = self._complete(*self._profile(family))
        length = float(np.linalg.norm(fingerprint))
        lengths = np.linalg.norm(self._rows, axis=1)
        if length == 0.0 or not (lengths > 0).any():
            return int(self._rng.choice(self.references.tolist()))
        cosine = np.divide(
            self._rows @ fingerprint,
            lengths * length,
            out=np.full(len(lengths), -1.0),
            where=lengths > 0,
        )
        return int(self.references[cosine.argmax()])

    def _profile(self, family: int) -> tuple[Floats, Bools]:
        """(types x references) measured slowdowns, and which were measured."""
        types, r = self.slowdown.shape[2], len(self.references)
        draws = [self._rng.uniform(0, 1) for _ in range(types * r)]
        known = np.array(draws) <= self.choices.profiling
        row = _by_type(self.slowdown[family][None])[0]  # (types x families)
        column = np.add.outer(np.arange(types) * len(self.slowdown), self.references).reshape(-1)
        if self.choices.defect:  # positions among the references, in a row that has all families
            column = np.arange(types * r)
        return row[column], known

    def _complete(self, values: Floats, known: Bools) -> Floats:
        """(types x references) all slowdowns of a new job."""
        if not known.all():
            matrix = np.vstack([self._rows, np.where(known, values, 0.0)])
            there = np.vstack([np.ones_like(self._rows, np.bool_), known])
            values = complete(matrix, there, self.choices.rank, REGULARISER, self._factors)[-1]
        return np.clip(values, 0.0, 1.0)


def _by_type(slowdown: Floats) -> Floats:
    """(rows, types x columns) from (rows, columns, types)."""
    return np.moveaxis(slowdown, 2, 1).reshape(len(slowdown), -1)


@dataclass(slots=True)
class _Job:
    """A job in the system that may be packed."""

    job_type: JobType
    table_row: int  # row of the table
    like: int  # the job type that it is taken for
    measured_in_pair: bool = False  # has it been measured in a pair?

    def name(self, job: int) -> int:
        """Number of the belief: jobs of one job type with the same reference share one."""
        return (
            2 * job + 1 if self.measured_in_pair else 2 * (self.table_row * _KEY_STRIDE + self.like)
        )


class GavelEstimator:
    """See the module. What it believes of pairs only matters to policies that pack."""

    def __init__(self, choices: GavelEstimatorOptions, throughputs: Throughputs, seed: int) -> None:
        self.choices = choices
        self.seed = seed
        self._jobs: dict[int, _Job] = {}
        self._users: dict[int, set[int]] = {}  # name of a belief -> jobs that go by it
        self._announced: set[int] = set()  # names that the core knows
        self._new: dict[int, None] = {}  # jobs that go by another belief than the core knows
        self._pairs: dict[tuple[int, int], Floats] = {}  # (slots, 2) as measured, NaN = not yet
        self._changed: dict[
            tuple[int, int], None
        ] = {}  # those that the core does not know like this
        self._table = throughputs
        self._read()

    @staticmethod
    def of(
        options: Mapping[str, str],
        throughputs: Throughputs,
        cluster: Cluster,  # noqa: ARG004
        seed: int,
    ) -> "GavelEstimator":
        """From the options of a spec."""
        return GavelEstimator(GavelEstimatorOptions.of(options), throughputs, seed)

    def _read(self) -> None:
        """Families and fingerprints of the table. Job types that have no rates in pairs keep the table's."""
        table, n = self._table, len(self._table.job_types)
        pair = (
            np.zeros((n, n, len(table.slots)))
            if table.pair_rates is None
            else np.asarray(table.pair_rates)
        )
        self._slowdown = _slowdown(table.rate, pair)
        best = pair.max(axis=2, initial=0.0)
        in_pairs = (best.max(axis=1, initial=0.0) > 0) | (best.max(axis=0, initial=0.0) > 0)
        consolidated = [slot.locality is Locality.CONSOLIDATED for slot in table.slots]
        self._families: dict[
            int, list[int]
        ] = {}  # scale factor -> job types, in order of the table
        self._fingerprints: dict[int, Fingerprints] = {}
        for scale in sorted({one.scale_factor for one in table.job_types}):
            fitting = [one.scale_factor == scale for one in table.job_types]
            job_types = [k for k in range(n) if in_pairs[k] and fitting[k]]
            if job_types:
                known = self._slowdown[np.ix_(job_types, job_types)][:, :, consolidated]
                seed = self.seed + STREAM + 1000 * (scale - 1)
                self._families[scale] = job_types
                self._fingerprints[scale] = Fingerprints(known, self.choices, seed)

    # --- what it learns ---------------------------------------------------------------------------------

    def table(self, throughputs: Throughputs) -> None:
        """New job types are left to the table; on other slot types everything is matched and announced
        anew."""
        before, self._table = self._table, throughputs
        if before.slots == throughputs.slots:
            return
        self._read()
        column = [before.slots.index(s) if s in before.slots else -1 for s in throughputs.slots]
        for pair, rate in self._pairs.items():
            self._pairs[pair] = np.vstack([rate, np.full((1, 2), np.nan)])[column]
        jobs, self._jobs = self._jobs, {}
        self._users, self._announced, self._new = {}, set(), {}
        for job, one in jobs.items():
            self._match(job, one.job_type, one.measured_in_pair)

    def submitted(self, jobs: Sequence[Job], user_estimates: Floats | None) -> None:  # noqa: ARG002
        """Match each to a reference."""
        for job in jobs:
            self._match(job.id, job.job_type)

    def adapted(self, jobs: Ints, batch: Ints) -> None:
        """Match them again, as what they are now."""
        for job, size in zip(jobs.tolist(), batch.tolist(), strict=True):
            one = self._jobs.get(job)
            if one is not None:
                self.ended(np.array([job]))
                self._match(job, one.job_type.with_batch_size(size))

    def measured(self, report: Measurement) -> None:
        """Pairs that ran are believed to be what they were."""
        rate = report.rate.tolist()
        columns = (report.jobs, report.partner, report.slot, report.failed)
        for i, (job, partner, slot, failed) in enumerate(
            zip(*(c.tolist() for c in columns), strict=True)
        ):
            if partner in self._jobs and job in self._jobs:
                self._note(job, partner, slot, 0.0 if failed else rate[i])

    def _note(self, job: int, partner: int, slot: int, rate: float) -> None:
        pair = (min(job, partner), max(job, partner))
        side = int(job > partner)
        known = self._pairs.get(pair)
        if known is None:
            known = self._pairs[pair] = np.full((len(self._table.slots), 2), np.nan)
            for group_member in pair:
                if not self._jobs[group_member].measured_in_pair:
                    self._leave(group_member)
                    self._jobs[group_member].measured_in_pair = True
                    self._enter(group_member)
        before = known[slot, side]
        if abs(rate - before) <= DIFFERS * before:
            return
        first = np.isnan(before) or rate == 0
        known[slot, side] = rate if first else before + BLEND * (rate - before)
        self._changed[pair] = None

    def ended(self, jobs: Ints) -> None:
        """Forget jobs."""
        gone = {job for job in jobs.tolist() if job in self._jobs}
        for job in gone:
            self._leave(job)
            del self._jobs[job]
            self._new.pop(job, None)
        if any(pair[0] in gone or pair[1] in gone for pair in self._pairs):
            self._pairs = {p: r for p, r in self._pairs.items() if not gone.intersection(p)}
            self._changed = {p: None for p in self._changed if not gone.intersection(p)}

    def _match(self, job: int, job_type: JobType, in_pair: bool = False) -> None:
        table_row, scale = self._table.row(job_type), job_type.scale_factor
        families = self._families.get(scale, [])
        if table_row is None or table_row not in families:
            return
        like = families[self._fingerprints[scale].match(families.index(table_row))]
        self._jobs[job] = _Job(job_type, table_row, like, in_pair)
        self._enter(job)

    def _enter(self, job: int) -> None:
        self._users.setdefault(self._jobs[job].name(job), set()).add(job)
        self._new[job] = None

    def _leave(self, job: int) -> None:
        """One job fewer uses its belief."""
        name = self._jobs[job].name(job)
        self._users[name].discard(job)
        if not self._users[name]:
            del self._users[name]
            self._announced.discard(name)

    # --- what it believes --------------------------------------------------------------------------------

    def beliefs(self) -> Beliefs | None:
        """New jobs, and pairs that were measured."""
        new, changed = list(self._new), list(self._changed)
        self._new, self._changed = {}, {}
        if not new and not changed:
            return None
        names = [self._jobs[job].name(job) for job in new]
        first = {name: None for name in names if name not in self._announced}
        self._announced.update(first)
        table_row = np.array(
            [self._jobs[next(iter(self._users[n]))].table_row for n in first], np.int64
        )
        pair, colocated_rate = self._estimated(list(first))
        pairs = self._as_measured(pair, colocated_rate, [p for p in changed if p in self._pairs])
        ids = np.array(new, np.int64)
        belief = np.array(list(first), np.int64)
        return Beliefs(ids, np.array(names, np.int64), belief, self._table.rate[table_row], *pairs)

    def _estimated(self, first: list[int]) -> tuple[Ints, Floats]:
        """Pairs of new beliefs with all others and among themselves, as their references are."""
        everyone = list(self._users)
        one = [self._jobs[next(iter(self._users[name]))] for name in everyone]
        at = {name: i for i, name in enumerate(everyone)}
        mine = np.array([at[name] for name in first], np.int64)
        order = np.full(len(everyone), len(everyone))
        order[mine] = np.arange(len(mine))
        # Each pair once: of two new beliefs, where the other does not come first.
        a, b = np.nonzero(order[None, :] >= np.arange(len(mine))[:, None])
        a = mine[a]
        table_row = np.array([job.table_row for job in one], np.int64)
        like = np.array([job.like for job in one], np.int64)
        rate, slow = self._table.rate, self._slowdown
        colocated_rate = np.stack(
            [
                slow[like[a], like[b]] * rate[table_row[a]],
                slow[like[b], like[a]] * rate[table_row[b]],
            ],
            axis=2,
        )
        names = np.array(everyone, np.int64)
        return np.column_stack([names[a], names[b]]), colocated_rate

    def _as_measured(
        self, pair: Ints, colocated_rate: Floats, changed: list[tuple[int, int]]
    ) -> tuple[Ints, Floats]:
        """The pairs, as they were measured where they were; and those that have just been."""
        row = {frozenset(names): i for i, names in enumerate(pair.tolist())}
        more: list[Floats] = []
        extra: list[tuple[int, int]] = []
        for one, two in self._pairs:
            names = (self._jobs[one].name(one), self._jobs[two].name(two))
            i = row.get(frozenset(names))
            if i is not None:
                turned = pair[i, 0] != names[0]
                known = self._pairs[one, two][:, ::-1] if turned else self._pairs[one, two]
                colocated_rate[i] = np.where(np.isnan(known), colocated_rate[i], known)
            elif (one, two) in changed:
                extra.append(names)
                more.append(self._now(one, two))
        if extra:
            pair = np.vstack([pair, np.array(extra, np.int64)])
            colocated_rate = np.concatenate([colocated_rate, np.stack(more)])
        return pair, colocated_rate

    def _now(self, one: int, two: int) -> Floats:
        """(slots, 2) what is believed of a pair of jobs."""
        a, b, rate, slow = self._jobs[one], self._jobs[two], self._table.rate, self._slowdown
        guess = np.column_stack(
            [slow[a.like, b.like] * rate[a.table_row], slow[b.like, a.like] * rate[b.table_row]]
        )
        known = self._pairs[one, two]
        return np.where(np.isnan(known), guess, known)


def _slowdown(rate: Floats, pair: Floats) -> Floats:
    """(job_types, job_types, slots) the rate of the first in a pair with the second over its rate alone."""
    solo = np.broadcast_to(rate[:, None, :], pair.shape)
    return np.divide(pair, solo, out=np.zeros_like(pair), where=solo > 0)
