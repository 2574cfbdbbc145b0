"""Gandiva's packing as Gavel's release has it: random pairs, equal parts."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation
from fairlead.model.arrays import Floats, Ints
from fairlead.model.rates import first_slot
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation, by_slot
from fairlead.policies.python_random_stream import PythonRandomStream

KEEP_PAIR_FROM = 1.0  # a pair stays while its normalised rates, summed over all types, reach this


@dataclass(frozen=True, kw_only=True, slots=True)
class GandivaPacking:
    """x_uj = (N_j / m) / s_u, divided by max(1, sum_j x_uj), for the m job groups u that are in force.

    While the jobs ask for no more devices than there are, the job groups are the jobs. Otherwise jobs
    without a partner are drawn two at a time, as many times as there are such jobs at first, and pair up
    where they use equally many devices and have a type in common; the rest stay alone. A pair lasts until
    one of the two leaves or cannot run beside the other on some type, or the sum over types of both
    normalised rates is below 1 (Gavel's test, which by a defect seldom parts a pair). Source: Gandiva
    (OSDI'18) as the baseline in Gavel's release. s_u devices of a job group, N_j devices of type j.

    There is no hidden state. Pairs that last are job groups of the previous allocation, without a share
    while nothing is packed; the position in the random stream is the ``basis`` of its report.
    """

    random: PythonRandomStream
    name: str = "gandiva_packing"
    heterogeneity_aware: bool = False
    space_sharing: bool = True
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; they have no objective."""
        pairs = _lasting_pairs(snapshot)
        position = _position(snapshot)
        overloaded = snapshot.job_scale.sum() > snapshot.capacity.sum()
        if overloaded:
            pairs, position = self._pair_at_random(snapshot, pairs, position)
        in_force = pairs if overloaded else pairs[:0]
        solo = np.setdiff1d(np.arange(len(snapshot.jobs)), in_force)
        groups = len(solo) + len(in_force)
        share = np.zeros((len(snapshot.jobs), len(snapshot.slots)))
        share[solo] = _equal_parts(snapshot, solo, groups)
        pair_share = np.zeros((len(pairs), len(snapshot.slots)))
        pair_share[: len(in_force)] = _equal_parts(snapshot, in_force[:, 0], groups)
        report = SolveReport("closed-form", basis=(position.to_bytes(8, "little"),))
        return check_allocation(allocation(snapshot, share, report, pairs, pair_share), snapshot)

    def _pair_at_random(self, snapshot: Snapshot, pairs: Ints, position: int) -> tuple[Ints, int]:
        """More pairs among the jobs that have no partner."""
        single = np.setdiff1d(np.arange(len(snapshot.jobs)), pairs).tolist()
        scale, runs = snapshot.job_scale, snapshot.solo_rate > 0
        drawn: list[tuple[int, int]] = []
        for _ in range(len(single)):
            if len(single) < 2:
                break
            a, b, position = self.random.two_of(len(single), position)
            a, b = sorted((a, b))
            one, other = single[a], single[b]
            if scale[one] == scale[other] and (runs[one] & runs[other]).any():
                second, first = single.pop(b), single.pop(a)
                drawn.append((first, second))
        return np.concatenate([pairs, np.array(drawn, np.int64).reshape(-1, 2)]), position


def _position(snapshot: Snapshot) -> int:
    """Return the position of the random stream."""
    basis = () if snapshot.previous is None else snapshot.previous.report.basis
    return int.from_bytes(basis[0], "little") if basis else 0


def _lasting_pairs(snapshot: Snapshot) -> Ints:
    """(pairs, 2) positions of the jobs of those pairs that go on."""
    previous = snapshot.previous
    none: Ints = np.zeros((0, 2), np.int64)
    if previous is None or previous.job_groups.shape[1] < 2 or snapshot.colocated_rate is None:
        return none
    ids = previous.job_groups[previous.job_groups[:, 1] >= 0]
    pairs = np.searchsorted(snapshot.jobs, ids[np.isin(ids, snapshot.jobs).all(axis=1)])
    types = first_slot(snapshot)
    job_type, solo = snapshot.job_type[pairs], snapshot.solo_rate[pairs][:, :, types]
    first = snapshot.colocated_rate[job_type[:, 0], job_type[:, 1]][:, types]
    second = snapshot.colocated_rate[job_type[:, 1], job_type[:, 0]][:, types]
    rate = np.stack([first, second], axis=1)  # (pairs, 2, types)
    runs = (rate > 0).all(axis=(1, 2))
    relative = np.divide(rate, solo, out=np.zeros_like(rate), where=solo > 0).sum(axis=(1, 2))
    return np.asarray(pairs[runs & (relative >= KEEP_PAIR_FROM)])


def _equal_parts(snapshot: Snapshot, jobs: Ints, groups: int) -> Floats:
    """(jobs, slots) the share of a job group with as many devices as each of these jobs, where ``groups``
    job groups divide the cluster."""
    part = snapshot.capacity / groups / snapshot.job_scale[jobs][:, None]
    return by_slot(snapshot, part / np.maximum(part.sum(axis=1), 1.0)[:, None])
