"""Simplex bases that survive a change of classes: packed by the classes' ids, and laid out for others.

A packed basis is (ids, statuses by class, statuses of further columns and rows, pairs by id and slot, their
statuses), each as bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model.arrays import Bools, Ints
from fairlead.policies.solve.candidate_pairs import CandidatePairs
from fairlead.policies.solve.configurations import Configurations
from fairlead.policies.solve.highs import BASIC, LOWER, Basis, Statuses, to_basis
from fairlead.policies.solve.share_problem import ShareProblem


@dataclass(frozen=True, slots=True)
class CarriedBasis:
    """A basis of another set of classes, for those of today."""

    pairs: Configurations
    pair_status: Statuses
    status: Statuses  # (classes, slots + 2) of each class's configurations alone, throughput row, time row
    frame: Statuses  # of the further columns, then of the device rows and further rows

    def basis(
        self, configurations: Configurations, problem: ShareProblem, throughput: bool, front: int
    ) -> Basis | None:
        """Return the basis for these configurations: those of single jobs, then ``pairs``."""
        n = configurations.solo_count
        solo_status = self.status[configurations.first[:n], configurations.slot[:n]]
        slots = problem.rate.shape[1]
        if len(self.frame) < front:
            return None
        rows = [self.status[:, slots + 1], self.frame[front:]]
        if throughput:
            rows.insert(0, self.status[:, slots])
        return Basis(
            np.concatenate([self.frame[:front], solo_status, self.pair_status]),
            np.concatenate(rows),
        )


def encode_basis(
    ended: Any, configurations: Configurations, problem: ShareProblem, throughput: bool, front: int
) -> tuple[bytes, ...]:
    """The packed basis of a solve that has ended."""
    basis = to_basis(ended)
    classes, slots = problem.rate.shape
    n = configurations.solo_count
    status = np.full((classes, slots + 2), LOWER)
    columns = basis.columns[front:]
    status[configurations.first[:n], configurations.slot[:n]] = columns[:n]
    if throughput:
        status[:, slots] = basis.rows[:classes]
    shift = classes * throughput
    status[:, slots + 1] = basis.rows[shift : shift + classes]
    frame = np.concatenate([basis.columns[:front], basis.rows[shift + classes :]])
    used = np.flatnonzero(columns[n:] == BASIC) + n
    ids = problem.classes.id
    pairs = np.column_stack(
        [
            ids[configurations.first[used]],
            ids[configurations.second[used]],
            configurations.slot[used],
        ]
    )
    return (
        ids.tobytes(),
        status.tobytes(),
        frame.tobytes(),
        pairs.astype(np.int64).tobytes(),
        columns[used].tobytes(),
    )


def encode_matching_basis(ids: Ints, status: Statuses, frame: Statuses) -> tuple[bytes, ...]:
    """A basis made by hand, to be a program's ``previous``. ids: (classes,) ascending; status: (classes,
    slots + 2) of each class's configurations alone, throughput row and time row; frame: of the further
    columns, the device rows and the further rows."""
    return ids.tobytes(), status.tobytes(), frame.tobytes(), b"", b""


def decode_basis(
    encoded: tuple[bytes, ...], problem: ShareProblem, pairs: CandidatePairs | None
) -> CarriedBasis | None:
    """The basis for the classes of today; a class that is new runs where it is fastest. None where the
    packed basis is of another shape."""
    classes, slots = problem.rate.shape
    if len(encoded) != 5 or len(encoded[0]) % 8 or not len(encoded[0]):
        return None
    old_id = np.frombuffer(encoded[0], np.int64)
    if len(encoded[1]) != len(old_id) * (slots + 2):
        return None
    old = np.frombuffer(encoded[1], np.uint8).reshape(-1, slots + 2)
    status = np.full((classes, slots + 2), LOWER)
    status[np.arange(classes), problem.rate.argmax(axis=1)] = BASIC
    status[:, slots + 1] = BASIC
    at, known = _find_ids(old_id, problem.classes.id)
    status[known] = old[at[known]]
    columns = np.frombuffer(encoded[3], np.int64).reshape(-1, 3)
    position, there = _find_ids(problem.classes.id, columns[:, :2])
    usable = there.all(axis=1) & (pairs is not None)
    low, high = position.min(axis=1, initial=classes), position.max(axis=1, initial=0)
    usable &= (low != high) | (problem.classes.count[np.minimum(low, classes - 1)] >= 2)
    none: Ints = np.zeros(0, np.int64)
    configurations = Configurations(none, none, none, np.zeros((0, 2)))
    runs = problem.rate > 0  # a type may have lost its devices since
    slot = columns[:, 2]
    usable &= runs[np.minimum(low, classes - 1), slot] & runs[np.minimum(high, classes - 1), slot]
    if pairs is not None and usable.any():
        configurations = pairs.configurations(low[usable], high[usable], columns[usable, 2])
    return CarriedBasis(
        configurations,
        np.frombuffer(encoded[4], np.uint8)[usable],
        status,
        np.frombuffer(encoded[2], np.uint8),
    )


def _find_ids(ids: Ints, targets: Ints) -> tuple[Ints, Bools]:
    """Return the position of each wanted id in ascending ids, and whether it is there."""
    if not len(ids):
        return np.zeros(targets.shape, np.int64), np.zeros(targets.shape, np.bool_)
    at = np.minimum(np.searchsorted(ids, targets), len(ids) - 1)
    return at, np.asarray(ids[at] == targets)
