"""Common functions of the policies: shares of jobs as an allocation."""

from dataclasses import replace

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.argument_checks import array_of, check_arguments, instance_of
from fairlead.model.arrays import Floats, Ints
from fairlead.model.rates import first_slot
from fairlead.model.snapshot import Snapshot
from fairlead.policies.solve.expand import group_shares
from fairlead.policies.solve.program import ProgramSolution
from fairlead.policies.solve.share_problem import ShareProblem


def by_slot(snapshot: Snapshot, share_by_type: Floats) -> Floats:
    """(jobs, slots) shares from (jobs, types) shares, on the first slot type of each accelerator type."""
    share = np.zeros((len(share_by_type), len(snapshot.slots)))
    share[:, first_slot(snapshot)] = share_by_type
    return share


_TYPES = {
    "snapshot": (instance_of(Snapshot), "a Snapshot"),
    "share": array_of(2),
    "report": (instance_of(SolveReport), "a SolveReport"),
}


def allocation(
    snapshot: Snapshot,
    share: Floats,
    report: SolveReport,
    pairs: Ints | None = None,
    pair_share: Floats | None = None,
) -> Allocation:
    """An allocation from (jobs, slots) shares of jobs alone and, where there are any, (pairs, slots)
    shares of pairs. pairs: (pairs, 2) positions of jobs in the snapshot, ascending, without repeats."""
    given = {"snapshot": snapshot, "share": share, "report": report}
    check_arguments("allocation", given, _TYPES)
    if pairs is None or pair_share is None:
        return Allocation(snapshot.jobs[:, None].copy(), share, report)
    n = len(snapshot.jobs)
    groups = np.empty((n + len(pairs), 2), np.int64)
    groups[:n, 0], groups[:n, 1] = snapshot.jobs, -1
    np.take(snapshot.jobs, pairs, out=groups[n:], mode="clip")  # no position is out of bounds
    return Allocation(groups, np.concatenate([share, pair_share]), report)


def allocation_by_class(
    snapshot: Snapshot, problem: ShareProblem, solution: ProgramSolution, report: SolveReport
) -> Allocation:
    """An allocation from an answer by classes, with pairs if it has any: every job of a class alike.
    Shares that exceed what there is by the solver's tolerance are scaled down to it."""
    over = max(1.0, solution.largest_use(problem))
    solution = replace(solution, time=solution.time / over)
    return Allocation(*group_shares(problem, solution, snapshot), report)


def group_ids(snapshot: Snapshot) -> Ints:
    """(groups, width) job ids, -1 behind the last; a copy."""
    ids = snapshot.jobs[snapshot.group_members]
    ids[snapshot.group_members < 0] = -1
    return ids


def violation(snapshot: Snapshot, share: Floats) -> float:
    """Largest excess of (jobs, slots) shares over a job's time or a type's devices, relative to it."""
    devices = snapshot.job_scale @ share * snapshot.slot_devices
    used = np.bincount(snapshot.accelerator_of_slot, devices, len(snapshot.capacity)) / np.maximum(
        snapshot.capacity, 1.0
    )
    return max(0.0, float(used.max()) - 1.0, float(share.sum(axis=1).max(initial=0.0)) - 1.0)
