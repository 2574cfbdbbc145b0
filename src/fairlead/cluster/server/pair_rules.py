"""The rates of jobs that bring rates of their own, beside others: by rules, of which there are few.

A job states which fraction of its rate it keeps beside others, or beside those of a name. Jobs that state the
same are of one class, whatever their rates are: so thousands of job types need no table of all their pairs. A
fraction that holds beside everybody is part of a job type's factor, and all such job types are one class.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import colocates
from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import SlotType
from fairlead.model.job_type import JobType
from fairlead.model.pair_rates import LearnedPairs, PairRates
from fairlead.model.throughputs import Throughputs

_PREFIX = "stated;"  # of the names of classes of jobs that state fractions


class PairRule(msgspec.Struct, frozen=True):
    """A rule that the job types of a class state; the name of the class has all of it."""

    scale_factor: int
    fraction: float  # beside those that are not named
    named: tuple[tuple[str, float], ...] = ()  # fractions beside others by their name, ascending
    label: str = ""  # what its jobs are called, where anybody names them

    @property
    def class_name(self) -> str:
        """The name of its class."""
        return _PREFIX + msgspec.json.encode(self).decode()

    @staticmethod
    def of_class(name: str) -> "PairRule | None":
        """The rule of a class; None = it is a family of the table."""
        if not name.startswith(_PREFIX):
            return None
        return msgspec.json.decode(name.removeprefix(_PREFIX), type=PairRule)


@dataclass(frozen=True, slots=True)
class StatedPairs:
    """The rates beside others that a job states."""

    rule: PairRule
    factor: float  # of its rates alone

    @staticmethod
    def of(job_type: JobType, spec: JobSpec, named: set[str]) -> "StatedPairs | None":
        """None = nothing. named: labels that anybody names."""
        if not colocates(spec):
            return None
        label = label_of(spec) if label_of(spec) in named else ""
        fraction = spec.colocated_fraction or 0.0
        if not spec.colocated_fractions:
            return StatedPairs(PairRule(job_type.scale_factor, 1.0, label=label), fraction)
        given = tuple(sorted(spec.colocated_fractions.items()))
        return StatedPairs(PairRule(job_type.scale_factor, fraction, given, label), 1.0)


def label_of(spec: JobSpec) -> str:
    """Return the name of a kind that is made of a job's own rates, by which others name the job, too."""
    return spec.family or spec.name or "job"


def labels_named(classes: Iterable[str], specs: Iterable[JobSpec]) -> set[str]:
    """Labels of others beside which anybody states a fraction."""
    rules = (PairRule.of_class(name) for name in classes)
    found = {label for rule in rules if rule is not None for label, _ in rule.named}
    return found.union(*(spec.colocated_fractions for spec in specs))


def learned_pairs(
    catalogue: Throughputs,
    slots: tuple[SlotType, ...],
    rate: Mapping[JobType, Floats],
    specs: Mapping[JobType, JobSpec],
    classes: Sequence[str],
) -> LearnedPairs:
    """Return the rates beside others of job types that jobs brought along. rate: (slots,) steps/s of each;
    classes: that there are."""
    named = labels_named(classes, specs.values())
    stated = [StatedPairs.of(job_type, specs[job_type], named) for job_type in rate]
    rules = {one.rule.class_name: one.rule for one in stated if one is not None}
    new = [name for name in rules if name not in set(classes)]
    beside = [*classes, *new]
    anyone = beside[0] if beside else ""  # the class of those that run beside nobody has no meaning
    factor = np.zeros((len(rate), len(slots)))
    for at, (one, alone) in enumerate(zip(stated, rate.values(), strict=True)):
        factor[at] = 0.0 if one is None else alone * one.factor
    return LearnedPairs(
        row_class=tuple(anyone if one is None else one.rule.class_name for one in stated),
        factor=factor,
        classes=tuple(new),
        beside=tuple(beside),
        rate=_beside(catalogue, slots, [rules[name] for name in new], beside),
    )


def _beside(
    catalogue: Throughputs,
    slots: tuple[SlotType, ...],
    rules: Sequence[PairRule],
    beside: Sequence[str],
) -> Floats:
    """(rules, beside, slots, 2) of the first beside the second, and of the second; both 0 where it is not
    known of one."""
    if not rules:
        return np.zeros((0, len(beside), len(slots), 2))
    kept = _kept_by_families(catalogue, slots)
    families = {class_of_family(one): i for i, one in enumerate(catalogue.job_types)}
    others = [PairRule.of_class(name) for name in beside]
    scale = np.zeros(len(beside), np.int64)
    theirs = np.zeros((len(rules), len(beside), len(slots)))
    labels: list[str] = []
    stating: list[int] = []
    for at, (name, rule) in enumerate(zip(beside, others, strict=True)):
        family = families.get(name)
        labels.append("")
        if rule is not None:
            scale[at], labels[at] = rule.scale_factor, rule.label
            stating.append(at)
        elif family is not None:
            job_type = catalogue.job_types[family]
            scale[at], labels[at] = job_type.scale_factor, job_type.name
            theirs[:, at] = kept[family]
    mine = _fractions(rules, labels)
    of_stating = [rule for rule in others if rule is not None]
    theirs[:, stating] = _fractions(of_stating, [rule.label for rule in rules]).T[:, :, None]
    same = np.array([rule.scale_factor for rule in rules])[:, None] == scale
    both = (mine[:, :, None] > 0) & (theirs > 0) & same[:, :, None]
    return np.stack([np.where(both, mine[:, :, None], 0.0), np.where(both, theirs, 0.0)], axis=3)


def _fractions(rules: Sequence[PairRule], labels: Sequence[str]) -> Floats:
    """(rules, labels) of their rates that jobs keep beside those with these labels."""
    column = {label: at for at, label in enumerate(dict.fromkeys(labels))}
    found = np.repeat([[rule.fraction] for rule in rules], len(column), axis=1)
    for at, rule in enumerate(rules):
        for label, fraction in rule.named:
            if label in column:
                found[at, column[label]] = fraction
    where: Ints = np.array([column[label] for label in labels], np.int64)
    return np.asarray(found[:, where])


def class_of_family(job_type: JobType) -> str:
    """The name of the class of a family of the table, which is one by itself."""
    return f"{job_type.scale_factor};{job_type.name}"


def _kept_by_families(catalogue: Throughputs, slots: tuple[SlotType, ...]) -> Floats:
    """(job_types, slots) steps/s of each family beside one of which the table knows nothing: it keeps what it
    keeps on average beside those that the table pairs it with; 0 = with none."""
    rate = np.zeros((len(catalogue.job_types), len(slots)))
    if catalogue.colocated_rate is None:
        return rate
    fits = catalogue.colocated_rate > 0
    total, count = (catalogue.colocated_rate * fits).sum(axis=1), fits.sum(axis=1)
    solo = np.where(catalogue.rate > 0, catalogue.rate, np.inf)
    kept = catalogue.rate * np.asarray(total / np.maximum(count, 1) / solo)
    at = {slot: column for column, slot in enumerate(catalogue.slots)}
    there = [column for column, slot in enumerate(slots) if slot in at]
    rate[:, there] = kept[:, [at[slots[column]] for column in there]]
    return rate


def families_by_class(table: Throughputs) -> Throughputs:
    """The catalogue, with its pairs by class."""
    if table.colocated_rate is None:
        return table
    names = [class_of_family(one) for one in table.job_types]
    classed = PairRates.of(table.colocated_rate, names)
    return Throughputs(
        table.slots, table.job_types, table.rate, None, table.source, table.origin, classed
    )
