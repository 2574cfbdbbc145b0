"""The reduction of many jobs' requirements to a few, at breakpoints.

At prices p of the types, the cheapest way to give a job a rate r within its time is convex and piecewise
linear in r, with breakpoints only at the rates of its own job type. A job that needs a rate between two
breakpoints costs what jobs at these two cost, weighted by how near it is. So any number of jobs of a job
type, whatever they need, count as jobs that need exactly one of the type's own rates, with fractional
multiplicities: the sums of the weights. A linear program over those is as small as the job types are few,
and its answer goes back to the jobs by the same weights.

A *row* is a number of jobs of one job type that need the same.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel

_AT_BREAKPOINT = 1 - 1e-9  # a rate this near below a breakpoint is at it


@dataclass(frozen=True, slots=True)
class JobTypeRates:
    """Job types: their rates, and the breakpoints of the cost of a rate."""

    id: Ints  # (job types,) ascending
    scale: Floats  # (job types,) devices
    rate: Floats  # (job types, slots) steps/s; 0 = cannot run there
    breakpoints: (
        Floats  # (job types, slots + 1) 0 and its own rates, ascending; 0 for those that repeat
    )

    @staticmethod
    def of(ids: Ints, scale: Floats, rate: Floats) -> "JobTypeRates":
        """Job types with their breakpoints."""
        return JobTypeRates(ids, scale, np.ascontiguousarray(rate), find_breakpoints(rate))

    @property
    def best(self) -> Floats:
        """(job types,) the fastest rate."""
        return np.ascontiguousarray(self.breakpoints[:, -1])


def find_breakpoints(rate: Floats) -> Floats:
    """(job types, slots + 1) 0 and the rates of each job type, ascending; 0 for those that repeat."""
    breakpoints = np.sort(np.column_stack([np.zeros(len(rate)), rate]), axis=1)
    breakpoints[:, :-1][breakpoints[:, :-1] == breakpoints[:, 1:]] = 0.0
    breakpoints.sort(axis=1)
    return breakpoints


@kernel("i8(f8, f8[::1])", inline="always")
def segment(demand: float, breakpoints: Floats) -> int:
    """The first breakpoint that is not below a rate > 0; the last one for a rate beyond it."""
    k = 1
    for j in range(1, len(breakpoints) - 1):
        k += (
            demand > breakpoints[j]
        )  # counted, not searched: nothing could foretell where a search ends
    return k


@kernel("f8[:,::1](f8[:,::1], f8[::1], f8[:,::1], f8[::1])")
def breakpoint_cost(rate: Floats, scale: Floats, breakpoints: Floats, price: Floats) -> Floats:
    """(job types, breakpoints) the least that a job pays for exactly this rate. price: (slots,) of a device.

    The cheapest shares use at most two slot types, or one and no time at all.
    """
    slots = rate.shape[1]
    out = np.zeros_like(breakpoints)
    for c in range(len(breakpoints)):
        for k in range(breakpoints.shape[1]):
            level = breakpoints[c, k]
            if level <= 0:
                continue
            least = np.inf
            for b in range(slots):
                if rate[c, b] < level:
                    continue
                least = min(least, price[b] * level / rate[c, b])
                for a in range(slots):
                    if 0 < rate[c, a] < level:
                        part = (level - rate[c, a]) / (rate[c, b] - rate[c, a])
                        least = min(least, price[a] + (price[b] - price[a]) * part)
            out[c, k] = scale[c] * least
    return out


@kernel("Tuple((i8[::1], i8[::1], f8[::1]))(i8[::1], f8[::1], f8[:,::1], f8[::1])")
def cheapest(
    job_type: Ints, demand: Floats, rate: Floats, price: Floats
) -> tuple[Ints, Ints, Floats]:
    """(rows,) the slot types on which a job has a rate most cheaply, the faster and the slower one (-1 =
    none), and the time on the faster one. price: (slots,) of a device."""
    slots = rate.shape[1]
    fast, slow = np.zeros(len(job_type), np.int64), np.full(len(job_type), -1, np.int64)
    time = np.zeros(len(job_type))
    for i in range(len(job_type)):
        c = job_type[i]
        least = np.inf
        for b in range(slots):
            if rate[c, b] < demand[i] or rate[c, b] <= 0:
                continue
            part = demand[i] / rate[c, b]
            if price[b] * part < least:
                least, fast[i], slow[i], time[i] = price[b] * part, b, -1, part
            for a in range(slots):
                if 0 < rate[c, a] < demand[i]:
                    part = (demand[i] - rate[c, a]) / (rate[c, b] - rate[c, a])
                    pays = price[a] + (price[b] - price[a]) * part
                    if pays < least:
                        least, fast[i], slow[i], time[i] = pays, b, a, part
    return fast, slow, time


@kernel("f8(i8[::1], f8[::1], f8[::1], f8[:,::1], f8[:,::1])", allocates=False)
def total_cost(
    job_type: Ints, count: Floats, demand: Floats, breakpoints: Floats, cost: Floats
) -> float:
    """Return the cost of all rows. job_type, count, demand: (rows,); cost: (job types, breakpoints)."""
    total = 0.0
    for i in range(len(job_type)):
        if demand[i] > 0:
            c = job_type[i]
            k = segment(demand[i], breakpoints[c])
            low = breakpoints[c, k - 1]
            part = (demand[i] - low) / (breakpoints[c, k] - low)
            total += count[i] * (part * cost[c, k] + (1.0 - part) * cost[c, k - 1])
    return total


@kernel("Tuple((f8[::1], f8[::1]))(i8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[::1])")
def slack_at_price(
    job_type: Ints, demand: Floats, breakpoints: Floats, cost: Floats, price_tolerance: Floats
) -> tuple[Floats, Floats]:
    """(rows,) the largest rate that costs a job no more than what it needs, and what one step/s beyond
    that costs; inf where there is none. price_tolerance: (job types,) a marginal cost up to which a step/s
    is free."""
    most, marginal = np.empty(len(job_type)), np.empty(len(job_type))
    last = breakpoints.shape[1] - 1
    for i in range(len(job_type)):
        c = job_type[i]
        most[i], marginal[i] = max(demand[i], breakpoints[c, last]), np.inf
        for k in range(1, last + 1):
            if breakpoints[c, k] <= 0 or demand[i] >= breakpoints[c, k] * _AT_BREAKPOINT:
                continue
            slope = (cost[c, k] - cost[c, k - 1]) / (breakpoints[c, k] - breakpoints[c, k - 1])
            if slope > price_tolerance[c]:
                most[i], marginal[i] = max(demand[i], breakpoints[c, k - 1]), slope
                break
    return most, marginal


@kernel("f8[:,::1](i8[::1], f8[::1], f8[::1], f8[:,::1])")
def multiplicities(job_type: Ints, count: Floats, demand: Floats, breakpoints: Floats) -> Floats:
    """(job types, breakpoints) how many jobs count as needing exactly this rate. job_type, count, demand:
    (rows,)."""
    out = np.zeros_like(breakpoints)
    for i in range(len(job_type)):
        if demand[i] > 0:
            c = job_type[i]
            k = segment(demand[i], breakpoints[c])
            low = breakpoints[c, k - 1]
            part = (demand[i] - low) / (breakpoints[c, k] - low)
            out[c, k] += count[i] * part
            out[c, k - 1] += count[i] * (1.0 - part)
    return out


@kernel("f8[:,::1](i8[::1], f8[::1], f8[:,::1], f8[:,:,::1])")
def expand(job_type: Ints, demand: Floats, breakpoints: Floats, breakpoint_of: Floats) -> Floats:
    """(rows, slots) shares of a job from (job types, breakpoints, slots): those of the breakpoints next to
    what it needs, weighted."""
    slots = breakpoint_of.shape[2]
    share = np.zeros((len(job_type), slots))
    for i in range(len(job_type)):
        if demand[i] > 0:
            c = job_type[i]
            k = segment(demand[i], breakpoints[c])
            low = breakpoints[c, k - 1]
            part = (demand[i] - low) / (breakpoints[c, k] - low)
            for j in range(slots):
                share[i, j] = (
                    part * breakpoint_of[c, k, j] + (1.0 - part) * breakpoint_of[c, k - 1, j]
                )
    return share


def needed(multiplicity: Floats) -> Bools:
    """(job types, breakpoints) whether jobs need this rate: not rate 0, and not a remainder of rounding."""
    out = multiplicity > 1e-15 * max(1.0, float(multiplicity.max(initial=0.0)))
    out[:, 0] = False
    return out
