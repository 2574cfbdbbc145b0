"""Partitioned optimisation: a policy on parts of the cluster, each with a part of the jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation
from fairlead.model.arrays import Floats, Ints
from fairlead.model.plan import Policy
from fairlead.model.snapshot import Snapshot
from fairlead.policies.hash_random import hash_choices
from fairlead.policies.linear_objectives import allocation_violation

MAX_PARTS = 4096


@runtime_checkable
class MeasuringPolicy(Protocol):
    """A policy that can tell what shares are worth, wherever they come from."""

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """Its objective at these shares."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The inner policy on each of K parts with 1/K of the devices and of the jobs; answers joined.

    Whole devices are dealt to the parts in turn, type by type; jobs too, in random order within each class,
    so that the parts resemble each other. There are never more parts than jobs or devices. What is lost is
    the gap: the joined objective against the bound of the inner policy on the whole, which takes a solve of
    the whole (not if certify is false, to see what the parts alone cost). Policies that cannot measure shares
    have no joined objective. Source: POP (SOSP'21), without splitting large jobs.
    """

    inner: Policy
    parts: int
    seed: int = 0
    certify: bool = True

    @staticmethod
    def of(argument: str, inner: Policy, seed: int) -> "Partition":
        """From the K of K:POLICY."""
        if not argument.isdecimal() or not 1 <= int(argument) <= MAX_PARTS:
            raise ConfigError(
                f"policy 'partition': K of partition:K:POLICY must be 1 to {MAX_PARTS}, got {argument!r}"
            )
        return Partition(inner, int(argument), seed)

    @property
    def name(self) -> str:
        """Name with the number of parts and the inner policy."""
        return f"partition:{self.parts}:{self.inner.name}"

    @property
    def heterogeneity_aware(self) -> bool:
        """Return whether the inner policy uses the rates of the accelerator types."""
        return self.inner.heterogeneity_aware

    @property
    def space_sharing(self) -> bool:
        """Return whether the inner policy uses job groups of two jobs; pairs are of jobs in one part."""
        return self.inner.space_sharing

    @property
    def work_conserving(self) -> bool:
        """Return whether the inner policy may fill devices that are left over."""
        return self.inner.work_conserving

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The joined shares."""
        parts = max(1, min(self.parts, len(snapshot.jobs), int(snapshot.capacity.sum())))
        jobs = deal_jobs(snapshot, parts, self.seed)
        capacity = deal_devices(snapshot.capacity, parts)
        bases = _split_bases(snapshot.previous, parts)
        made = [
            self.inner.allocate(part_of(snapshot, np.flatnonzero(jobs == p), capacity[p], bases[p]))
            for p in range(parts)
        ]
        joined = _join(made)
        report = replace(self._report(snapshot, joined), basis=_joined_bases(made))
        return check_allocation(replace(joined, report=report), snapshot)

    def _report(self, snapshot: Snapshot, joined: Allocation) -> SolveReport:
        report = replace(joined.report, violation=allocation_violation(snapshot, joined))
        if not isinstance(self.inner, MeasuringPolicy):
            return report
        bound = None
        if self.certify:
            bound = self.inner.allocate(replace(snapshot, previous=None)).report.bound
        return replace(report, objective=self.inner.measure(snapshot, joined), bound=bound)


def deal_devices(capacity: Floats, parts: int) -> Floats:
    """(parts, types) whole devices. Those of a type that cannot be divided evenly go to the parts in turn,
    from the part after the last that got one of the type before."""
    out = np.tile(capacity // parts, (parts, 1))
    leftover = (capacity - out.sum(axis=0)).astype(np.int64)
    turn = np.arange(leftover.sum()) % parts
    np.add.at(out, (turn, np.repeat(np.arange(len(leftover)), leftover)), 1.0)
    return out


def deal_jobs(snapshot: Snapshot, parts: int, seed: int) -> Ints:
    """(jobs,) the part of each job."""
    order = np.lexsort((hash_choices(seed, snapshot.jobs), snapshot.job_class))
    out = np.empty(len(order), np.int64)
    out[order] = np.arange(len(order)) % parts
    return out


def part_of(
    snapshot: Snapshot, jobs: Ints, capacity: Floats, basis: tuple[bytes, ...] = ()
) -> Snapshot:
    """The snapshot with only these jobs (positions, ascending), the pairs among them, and these devices."""
    position = np.full(len(snapshot.jobs) + 1, -1, np.int64)  # the last is that of no job
    position[jobs] = np.arange(len(jobs))
    group_member = position[snapshot.group_members]
    groups = np.flatnonzero(((group_member >= 0) | (snapshot.group_members < 0)).all(axis=1))
    previous = None
    if basis and snapshot.previous is not None:
        report = replace(snapshot.previous.report, basis=basis)
        previous = replace(snapshot.previous, report=report)
    return replace(
        snapshot,
        jobs=snapshot.jobs[jobs],
        weight=snapshot.weight[jobs],
        total_steps=snapshot.total_steps[jobs],
        steps_left=snapshot.steps_left[jobs],
        age_s=snapshot.age_s[jobs],
        ran_s=snapshot.ran_s[jobs],
        deadline_s=snapshot.deadline_s[jobs],
        job_class=snapshot.job_class[jobs],
        tenant=snapshot.tenant[jobs],
        job_type=snapshot.job_type[jobs],
        isolated_s=snapshot.isolated_s[jobs],
        restart_s=snapshot.restart_s[jobs],
        capacity=capacity,
        group_members=group_member[groups],
        scale=snapshot.scale[groups],
        rate=snapshot.rate[groups],
        received_s=snapshot.received_s[groups],
        deficit_s=snapshot.deficit_s[groups],
        share=snapshot.share[groups],
        allocated=snapshot.allocated[groups],
        running_on=snapshot.running_on[groups],
        previous=previous,
    )


def _join(made: Sequence[Allocation]) -> Allocation:
    """All job groups, those of one job first and by id, with one report of all parts."""
    width = max(a.job_groups.shape[1] for a in made)
    groups = np.concatenate(
        [
            np.pad(a.job_groups, ((0, 0), (0, width - a.job_groups.shape[1])), constant_values=-1)
            for a in made
        ]
    )
    share = np.concatenate([a.share for a in made])
    size = np.count_nonzero(groups >= 0, axis=1)
    order = np.lexsort((*groups.T[::-1], size))
    reports = [a.report for a in made]
    report = SolveReport(
        reports[0].status,
        iterations=sum(r.iterations for r in reports),
        warm=all(r.warm for r in reports),
        unmet=tuple(sorted(job for r in reports for job in r.unmet)),
    )
    return Allocation(groups[order], share[order], report)


def _joined_bases(made: Sequence[Allocation]) -> tuple[bytes, ...]:
    """The bases of all parts as one, for ``_split_bases``: how many belong to each part, then all of them."""
    lengths = np.array([len(a.report.basis) for a in made], np.int64)
    return (lengths.tobytes(), *(basis for a in made for basis in a.report.basis))


def _split_bases(previous: Allocation | None, parts: int) -> list[tuple[bytes, ...]]:
    """The bases of the parts, from ``_joined_bases``; empty where the number of parts was another."""
    nothing: list[tuple[bytes, ...]] = [()] * parts
    if previous is None or not previous.report.basis:
        return nothing
    basis = previous.report.basis
    if len(basis[0]) != 8 * parts:
        return nothing
    lengths = np.frombuffer(basis[0], np.int64)
    ends = np.cumsum(lengths) + 1
    if ends[-1] != len(basis):
        return nothing
    return [basis[end - n : end] for n, end in zip(lengths.tolist(), ends.tolist(), strict=True)]
