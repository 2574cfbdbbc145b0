"""Max-min fair shares: a linear program over classes of jobs, and a certificate over jobs.

    level* = max_x min_i sum_j a_ij x_ij
    s.t.   sum_j x_ij <= 1                              for each job i: time
           sum_i s_i sum_{j of type k} x_ij <= N_k      for each accelerator type k: devices
           x >= 0

a_ij is what a share of slot type j is worth to job i, s_i its devices. Many x reach level*; the one that
a simplex run happens to end at may leave devices idle. So a second phase holds the level (less 1e-9 of
it) and maximises the jobs' total gain, starting from where the first phase ended.

Scaling: a column is the share of one job of a class, over the load factor; a capacity row is divided by
its capacity. Every row is then of order one, for ten jobs or a million.

The certificate is computed from the jobs, not from the classes: the level that the shares really give,
and a bound. For any prices p >= 0 of the types and weights q >= 0 of the jobs with sum q = 1, no shares
have a level above  sum_k p_k N_k + sum_i max(0, max_j(q_i a_ij - s_i p_k(j))).
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from fairlead.model.allocation import SolveReport
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Ints1
from fairlead.policies.solve.highs import (
    BASIC,
    INFINITY,
    LOWER,
    Basis,
    HighsModel,
    LinearProgram,
    Optimum,
    Statuses,
)
from fairlead.policies.solve.interior_point import MaxMinClasses, max_min
from fairlead.policies.solve.job_classes import JobClasses, group

TOLERANCE = 1e-9  # part of the level that the second phase may give up
_INTERIOR_GAP = 1e-8  # relative gap that the interior point is asked for ...
_CENTRE_GAP = 1e-7  # ... and that its answer may have


@dataclass(frozen=True, kw_only=True)
class MaxMin:
    """A max-min problem. A job with no worth on any slot type cannot run: it gets nothing and does not count
    for the level."""

    job_class: Ints  # (jobs,) jobs of one class have the same rows below
    rate: Floats  # (jobs, slots) steps/s
    worth: Floats  # (jobs,) a_ij = worth_i * rate_ij
    gain: Floats  # (jobs,) the second phase maximises sum_ij gain_i * rate_ij * x_ij
    scale: Floats  # (jobs,) devices of each job
    accelerator_of_slot: Ints  # (slots,)
    slot_devices: Floats  # (slots,) devices of a job there for each one of its scale
    capacity: Floats  # (types,) devices

    @cached_property
    def classes(self) -> JobClasses:
        """The classes of the jobs."""
        return group(self.job_class)

    @cached_property
    def usable(self) -> Bools:
        """(slots,) whether there is any device."""
        return (self.capacity > 0)[self.accelerator_of_slot]

    @cached_property
    def class_worth(self) -> Floats:
        """(classes, slots) a_ij of a job of each class; 0 where it cannot run."""
        first = self.classes.representative
        return self.rate[first] * self.worth[first, None] * self.usable

    @cached_property
    def class_devices(self) -> Floats:
        """(classes,) devices of all jobs of a class."""
        return self.classes.count * self.scale[self.classes.representative]

    @cached_property
    def load(self) -> float:
        """Devices per device asked for, at most 1: the order of magnitude of a share."""
        return float(min(1.0, max(1.0, self.capacity.sum()) / max(1.0, self.class_devices.sum())))


def solve(problem: MaxMin, previous: tuple[bytes, ...] = ()) -> tuple[Floats, SolveReport]:
    """(jobs, slots) shares and their report. previous: the basis of an earlier report, or nothing."""
    model = HighsModel(_program(problem))
    warm = model.load(_unpack(previous, problem))
    first = model.maximise()
    basis = model.basis()
    class_share = _raise_total_gain(model, first, problem)
    dual = np.maximum(first.dual[len(first.dual) - len(problem.capacity) :], 0.0)
    price = dual * problem.load / np.maximum(problem.capacity, 1.0)
    weight = np.maximum(-first.dual[: len(problem.classes.id)], 0.0) / problem.classes.count
    return _certified(
        problem,
        class_share,
        weight,
        price,
        iterations=first.iterations,
        warm=warm,
        basis=_pack(basis, problem),
    )


def analytic_centre_of(problem: MaxMin) -> tuple[Floats, SolveReport] | None:
    """(jobs, slots) the analytic centre of the best shares (``fairlead.policies.solve.interior_point``) and
    its report; None where it was not found to seven digits."""
    some: Bools = problem.class_worth.max(axis=1, initial=0.0) > 0
    there: Bools = problem.capacity > 0
    if not some.any():
        return None
    classes = MaxMinClasses(
        worth=np.ascontiguousarray(problem.class_worth),
        class_size=problem.classes.count,
        scale=problem.scale[problem.classes.representative],
        accelerator_of_slot=problem.accelerator_of_slot,
        slot_devices=problem.slot_devices,
        capacity=problem.capacity,
    )
    centre = max_min if some.all() and there.all() else partial(_centre_of_part, some, there)
    class_share, weight, price, steps = centre(classes, _INTERIOR_GAP)
    class_share[problem.class_worth == 0] = 0.0
    share, report = _certified(problem, class_share, weight, price, iterations=steps)
    return None if report.gap is None or report.gap > _CENTRE_GAP else (share, report)


def _centre_of_part(
    some: Bools, there: Bools, classes: MaxMinClasses, tolerance: float
) -> tuple[Floats, Floats, Floats, int]:
    """Solve ``max_min`` for the classes that can run and the types that have devices; 0 for the others."""
    usable = there[classes.accelerator_of_slot]
    class_share = np.zeros(classes.worth.shape)
    weight, price = np.zeros(len(some)), np.zeros(len(there))
    inner, weight[some], price[there], steps = max_min(
        MaxMinClasses(
            worth=np.ascontiguousarray(classes.worth[some][:, usable]),
            class_size=classes.class_size[some],
            scale=classes.scale[some],
            accelerator_of_slot=(np.cumsum(there) - 1)[classes.accelerator_of_slot[usable]],
            slot_devices=classes.slot_devices[usable],
            capacity=classes.capacity[there],
        ),
        tolerance,
    )
    class_share[np.ix_(some, usable)] = inner
    return class_share, weight, price, steps


def _certified(
    problem: MaxMin,
    class_share: Floats,
    weight: Floats,
    price: Floats,
    *,
    iterations: int,
    warm: bool = False,
    basis: tuple[bytes, ...] = (),
) -> tuple[Floats, SolveReport]:
    """(jobs, slots) shares, scaled down to what there is, and their report. weight: (classes,) of each job of
    a class; price: (types,); the others go into the report."""
    class_share = class_share / max(
        1.0, _excess(problem, class_share)
    )  # feasible, whatever the tolerances
    share = class_share[problem.classes.of]
    total = float(weight @ problem.classes.count)
    prices = price / total if total > 0 else np.zeros_like(price)
    level, use, rent = _certificate(
        share,
        _CertifiedJobs(
            rate=np.ascontiguousarray(problem.rate),
            worth=problem.worth,
            scale=problem.scale,
            accelerator_of_slot=problem.accelerator_of_slot,
            slot_devices=problem.slot_devices,
            capacity=problem.capacity,
            class_of=problem.classes.of,
        ),
        weight / total if total > 0 else np.zeros_like(weight),
        prices,
    )
    return share, SolveReport(
        status="optimal",
        objective=level,
        bound=rent + float(prices @ problem.capacity) if total > 0 else 0.0,
        violation=max(0.0, use - 1.0),
        iterations=iterations,
        warm=warm,
        basis=basis,
    )


def _program(problem: MaxMin) -> LinearProgram:
    """Rows: level of each class, time of each class, devices of each type. Last column: the level."""
    worth = problem.class_worth
    classes, slots = worth.shape
    columns, rows = classes * slots, 2 * classes + len(problem.capacity)
    runs = worth > 0
    some = runs.any(axis=1)
    row = np.arange(classes, dtype=np.int32)
    index = np.empty((classes, slots, 3), np.int32)
    index[:, :, 0] = row[:, None]
    index[:, :, 1] = row[:, None] + classes
    index[:, :, 2] = problem.accelerator_of_slot + 2 * classes
    value = np.ones((classes, slots, 3))
    value[:, :, 0] = worth
    part = problem.load / np.maximum(problem.capacity, 1.0)[problem.accelerator_of_slot]
    part = part * problem.slot_devices
    value[:, :, 2] = problem.class_devices[:, None] * part
    start = np.empty(columns + 2, np.int32)
    start[:-1] = np.arange(0, 3 * columns + 1, 3)
    start[-1] = 3 * columns + classes
    cost = np.zeros(columns + 1)
    cost[-1] = 1.0
    col_upper = np.full(columns + 1, INFINITY)
    col_upper[:-1][~runs.ravel()] = 0.0
    if not some.any():
        col_upper[-1] = 0.0  # nobody can run: no level, not an unbounded one
    row_lower, row_upper = np.full(rows, -INFINITY), np.ones(rows)
    row_lower[:classes][some] = 0.0
    row_upper[:classes] = INFINITY
    row_upper[classes : 2 * classes] = 1.0 / problem.load
    return LinearProgram(
        cost=cost,
        col_lower=np.zeros(columns + 1),
        col_upper=col_upper,
        row_lower=row_lower,
        row_upper=row_upper,
        start=start,
        index=np.concatenate([index.ravel(), row]),
        value=np.concatenate([value.ravel(), np.full(classes, -1.0)]),
    )


def _raise_total_gain(model: HighsModel, first: Optimum, problem: MaxMin) -> Floats:
    """(classes, slots) shares of a job of each class, from the second phase."""
    classes = problem.classes
    weight = problem.gain[classes.representative] * classes.count / len(problem.gain)
    cost = np.zeros(problem.class_worth.size + 1)
    cost[:-1] = (problem.rate[classes.representative] * weight[:, None]).ravel()
    model.bound(len(cost) - 1, first.objective * (1.0 - TOLERANCE), INFINITY)
    best = model.maximise(cost).value[:-1].reshape(problem.class_worth.shape)
    return np.maximum(best, 0.0) * problem.load


# --- certificate ---------------------------------------------------------------------------------


class _CertifiedJobs(NamedTuple):
    """The jobs of a ``MaxMin``, and what there is to share."""

    rate: Floats2  # (jobs, slots)
    worth: Floats1  # (jobs,)
    scale: Floats1  # (jobs,)
    accelerator_of_slot: Ints1  # (slots,)
    slot_devices: Floats1  # (slots,) devices of a job there for each one of its scale
    capacity: Floats1  # (types,)
    class_of: Ints1  # (jobs,)


@kernel("Tuple((f8, f8, f8))(f8[:,::1], _CertifiedJobs, f8[::1], f8[::1])")
def _certificate(
    share: Floats, jobs: _CertifiedJobs, weight: Floats, price: Floats
) -> tuple[float, float, float]:
    """The smallest worth of a job's shares (of those that can run, 0 where there is none), the largest use
    of a job's time or of a type's devices, and the rents of the bound, all from the jobs' own rows. share:
    (jobs, slots); weight: (classes,) of each job, adding up to 1 over the jobs; price: (types,)."""
    rate, worth, scale, capacity = jobs.rate, jobs.worth, jobs.scale, jobs.capacity
    used = np.zeros(len(capacity))
    level = np.inf
    use = 0.0
    rents = 0.0
    for i in range(len(share)):
        gain = 0.0
        time = 0.0
        rent = 0.0
        can = False
        for j in range(share.shape[1]):
            k = jobs.accelerator_of_slot[j]
            gain += rate[i, j] * share[i, j]
            time += share[i, j]
            used[k] += scale[i] * share[i, j] * jobs.slot_devices[j]
            if capacity[k] > 0:
                a = rate[i, j] * worth[i]
                can = can or a > 0
                pays = scale[i] * price[k] * jobs.slot_devices[j]
                rent = max(rent, a * weight[jobs.class_of[i]] - pays)
        if can:
            level = min(level, gain * worth[i])
        use = max(use, time)
        rents += rent
    for k in range(len(capacity)):
        use = max(use, used[k] / max(capacity[k], 1.0))
    return level if level < np.inf else 0.0, use, rents


def _excess(problem: MaxMin, class_share: Floats) -> float:
    """Largest use of a class's time or of a type's devices, as a fraction of what there is."""
    by_slot = problem.class_devices @ class_share * problem.slot_devices
    used = np.bincount(problem.accelerator_of_slot, by_slot, len(problem.capacity))
    return max(
        float(class_share.sum(axis=1).max(initial=0.0)),
        float((used / np.maximum(problem.capacity, 1.0)).max()),
    )


# --- bases that survive a change of classes --------------------------------------------------------


def _pack(basis: Basis, problem: MaxMin) -> tuple[bytes, ...]:
    """(class ids, statuses of each class's columns and two rows, statuses of level and type rows)."""
    classes, slots = problem.class_worth.shape
    status = np.empty((classes, slots + 2), np.uint8)
    status[:, :slots] = basis.columns[:-1].reshape(classes, slots)
    status[:, slots] = basis.rows[:classes]
    status[:, slots + 1] = basis.rows[classes : 2 * classes]
    frame = np.append(basis.rows[2 * classes :], basis.columns[-1])
    return problem.classes.id.tobytes(), status.tobytes(), frame.tobytes()


def _unpack(encoded: tuple[bytes, ...], problem: MaxMin) -> Basis | None:
    """A basis for the classes of today. A class that is new runs on the slot type that is worth most to
    it, just at the level; None where the packed basis does not fit."""
    (classes, slots), types = problem.class_worth.shape, len(problem.capacity)
    if len(encoded) != 3 or len(encoded[2]) != types + 1 or len(encoded[0]) % 8:
        return None
    old_id = np.frombuffer(encoded[0], np.int64)
    if len(encoded[1]) != len(old_id) * (slots + 2) or not len(old_id):
        return None
    old = np.frombuffer(encoded[1], np.uint8).reshape(-1, slots + 2)
    frame: Statuses = np.frombuffer(encoded[2], np.uint8)
    status = np.full((classes, slots + 2), LOWER)
    status[np.arange(classes), problem.class_worth.argmax(axis=1)] = BASIC
    status[:, slots + 1] = BASIC
    at = np.minimum(np.searchsorted(old_id, problem.classes.id), len(old_id) - 1)
    known = old_id[at] == problem.classes.id
    status[known] = old[at[known]]
    return Basis(
        np.append(status[:, :slots].ravel(), frame[-1]),
        np.concatenate([status[:, slots], status[:, slots + 1], frame[:-1]]),
    )
