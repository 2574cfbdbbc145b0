"""How urgent each (group, slot) is: the keys by which a round is filled, largest first."""

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel


@kernel("b1(i8[:,::1], f8[:,:,::1], i8, i8)", inline="always")
def _runs(group_members: Ints, rate: Floats, u: int, t: int) -> bool:
    """Has every member of the job group a rate on the slot?"""
    runs = True
    for k in range(group_members.shape[1]):
        runs = runs and (group_members[u, k] < 0 or rate[u, t, k] > 0)
    return runs


@kernel(
    "Tuple((f8[:,::1], b1[:,::1]))(i8[:,::1], f8[:,:,::1], f8[:,::1], f8[:,::1], f8[::1], b1[::1])",
)
def gavel_priorities(
    group_members: Ints,
    rate: Floats,
    share: Floats,
    received_s: Floats,
    allocated_s: Floats,
    allocated: Bools,
) -> tuple[Floats, Bools]:
    """Gavel's priority: the share over the fraction of the slot's time that the job group has received.

    Arrays as in ``Snapshot``. Returns (groups, slots) priorities, and where the job group can run.
    """
    groups, slots = share.shape
    first = np.zeros((groups, slots))
    runs = np.zeros((groups, slots), np.bool_)
    for u in range(groups):
        for t in range(slots):
            if not _runs(group_members, rate, u, t):
                continue
            runs[u, t] = True
            if not allocated[u] or share[u, t] == 0:
                continue
            fraction = received_s[u, t] / allocated_s[t] if allocated_s[t] != 0 else 0.0
            first[u, t] = share[u, t] / fraction if fraction > 0 else share[u, t] * 1e9
    return first, runs


@kernel(
    "Tuple((f8[:,::1], f8[:,::1], f8[:,::1], b1[:,::1]))"
    "(i8[:,::1], i8[::1], f8[:,:,::1], f8[:,::1], f8[:,::1], f8[:,::1], i8[::1], f8[::1], f8[::1],"
    " f8[::1], f8, f8, f8)",
)
def deficit_priorities(
    group_members: Ints,
    scale: Ints,
    rate: Floats,
    share: Floats,
    received_s: Floats,
    deficit_s: Floats,
    running_on: Ints,
    restart_s: Floats,
    steps_left: Floats,
    total_steps: Floats,
    elapsed_s: float,
    round_s: float,
    preemption_hysteresis: float,
) -> tuple[Floats, Floats, Floats, Bools]:
    """What each job group is owed by the end of the coming round, on slots where it has a share; what is
    left over goes to whoever runs fastest there relative to its best.

    A start is worth waiting for as long as ``preemption_hysteresis`` times what it costs. So a job group
    stays where it runs unless another is owed more by that, and it is left alone if it will be done by
    then. A job that has done nothing yet has as good a claim as those that run: it does not wait for its
    first start.
    Returns (groups, slots): seconds owed, runs there now, relative speed, and where the job group can run.
    """
    groups, slots = share.shape
    first = np.zeros((groups, slots))
    here = np.zeros((groups, slots))
    relative = np.zeros((groups, slots))
    runs = np.zeros((groups, slots), np.bool_)
    for u in range(groups):
        best = 0.0
        worth_s = 0.0
        new = False
        for k in range(group_members.shape[1]):
            j = group_members[u, k]
            if j >= 0:
                worth_s = max(worth_s, preemption_hysteresis * restart_s[j])
                new = new or steps_left[j] >= total_steps[j]
        for t in range(slots):
            if not _runs(group_members, rate, u, t):
                continue
            if share[u, t] == 0 and group_members.shape[1] > 1 and group_members[u, 1] >= 0:
                continue  # jobs that fill up what is left over do so alone
            runs[u, t] = True
            left_s = 0.0
            for k in range(group_members.shape[1]):
                relative[u, t] += rate[u, t, k]
                if group_members[u, k] >= 0:
                    left_s = max(left_s, steps_left[group_members[u, k]] / rate[u, t, k])
            best = max(best, relative[u, t])
            if share[u, t] > 0:
                owed = deficit_s[u, t] + share[u, t] * (elapsed_s + round_s) - received_s[u, t]
                first[u, t] = max(owed, 0.0) * scale[u]
            if running_on[u] == t:
                here[u, t] = 1.0
                first[u, t] += np.inf if left_s < worth_s else worth_s
            elif new and share[u, t] > 0:
                first[u, t] += worth_s
        if best > 0:
            for t in range(slots):
                relative[u, t] /= best
    return first, here, relative, runs
