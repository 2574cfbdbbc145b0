"""Book what a round did. One pass in a fixed order, so that every sum is the same to the last bit."""

from fairlead.model.arrays import Floats, Ints
from fairlead.model.commands import JobEnd
from fairlead.model.events import RoundOutcome
from fairlead.model.jit import kernel

_FAILED, _LOST, _ENDED = int(RoundOutcome.FAILED), int(RoundOutcome.LOST), int(RoundOutcome.ENDED)
_COMPLETED, _DROPPED, _KILLED = int(JobEnd.COMPLETED), int(JobEnd.DROPPED), int(JobEnd.KILLED)


@kernel(
    "b1(i8[::1], i8[::1], i8[::1], f8[::1], f8[:,::1], f8[::1], i8[:,::1], f8, i8[:,::1], f8[::1], f8[::1],"
    " i8[::1], f8[::1], i8, f8[:,::1], f8[::1], i8[::1], f8[::1], f8[::1], f8[::1])",
)
def apply_round_report(
    order: Ints,
    group: Ints,
    slot: Ints,
    worth: Floats,
    steps: Floats,
    finish_s: Floats,
    outcome: Ints,
    from_s: float,
    group_members: Ints,
    total: Floats,
    done: Floats,
    fails: Ints,
    ran_s: Floats,
    max_failures: int,
    received_s: Floats,
    allocated_s: Floats,
    end: Ints,
    end_s: Floats,
    start_s: Floats,
    limit_s: Floats,
) -> bool:
    """Book a round in place; True if an attempt failed.

    order, job group, slot, worth, finish_s: (running,), job group -1 where a job group has left meanwhile,
    slot as it
    was planned, -1 where there is no such slot any more (then steps count, and time is booked nowhere),
    worth a second of the way it ran over one as planned; steps, outcome: (running, width);
    group_members: (groups, width); total, done, fails, ran_s, end, end_s: (jobs,); received_s: (groups,
    slots);
    handed_out_s: (slots,); start_s: (running,) seconds of a start, which do not count; limit_s: (jobs,)
    run time above which a job counts as completed. A job group is booked whole or, when an attempt failed or
    its node was lost, not at all.
    """
    failure = False
    for i in order:
        u = group[i]
        if u < 0:
            continue
        failed = False
        lost = False
        for k in range(group_members.shape[1]):
            if group_members[u, k] >= 0:
                failed = failed or outcome[i, k] == _FAILED
                lost = lost or outcome[i, k] == _LOST
        alone = group_members.shape[1] == 1 or group_members[u, 1] < 0
        if lost:
            continue
        if failed:
            failure = True
            if alone:
                j = group_members[u, 0]
                fails[j] += 1
                if fails[j] >= max_failures:  # with no steps left it can do none
                    end[j] = _DROPPED if total[j] > done[j] else _COMPLETED
                    end_s[j] = finish_s[i]
            continue
        lasted = finish_s[i] - from_s - start_s[i]
        for k in range(group_members.shape[1]):
            j = group_members[u, k]
            if j < 0:
                continue
            if alone:
                fails[j] = 0
            ran_s[j] += lasted
            done[j] += steps[i, k]
            if total[j] - done[j] <= 0 or ran_s[j] > limit_s[j]:
                end[j] = _COMPLETED
                end_s[j] = finish_s[i]
            elif outcome[i, k] == _ENDED:
                end[j] = _KILLED
                end_s[j] = finish_s[i]
        if slot[i] >= 0:
            received_s[u, slot[i]] += lasted * worth[i]
            allocated_s[slot[i]] += lasted
    return failure
