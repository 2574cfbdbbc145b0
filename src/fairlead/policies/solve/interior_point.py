"""Max-min shares by an interior-point method that knows the problem's structure.

    max t   s.t.   sum_j a_cj x_cj >= t,   sum_j x_cj <= 1,   sum_c m_c s_c x_cj <= N_k(j),   x >= 0

for classes c of m_c equal jobs. Mehrotra's predictor and corrector (SIAM J. Optim. 2(4), 1992) on the
per-job problem, whose iterates are equal for equal jobs. The Newton system is one small matrix per class,
tied together by one row per accelerator type and one for t, so a step costs time linear in the classes.

It ends at the analytic centre of the optimal face, where a simplex run ends at a corner. Gavel's release
solves with an interior-point solver, and which of many optima it gets shapes its published averages.

Layout of ``_Iterate``: ``primal`` and ``dual`` are (classes, slots + 2), their products the
complementarity: x and the dual of x >= 0 for each slot, then the slack of the level row and its weight, then
the slack of the time row and its rent. ``free`` and ``price`` are (types,) unused devices and their price.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Floats3, Ints1
from fairlead.policies.solve.dense_linear_algebra import (
    factor_spd,
    max_step,
    solve_factored,
    solve_general,
)

STEPS = 100
# Slots up to which the matrix of a class is factored as it is. With more of them, configurations of elastic
# jobs, its structure is used, which takes time linear in the slots; the last bits differ.
DENSE_SLOTS = 8
CENTRING = 5  # steps to the analytic centre of the optimal face ...
CENTRING_GAP = 1e-4  # ... when the gap is this small
_STEP = 0.99  # part of the way to the boundary
_FLOOR = 1e-14  # rounding must not put a value on the boundary


class MaxMinClasses(NamedTuple):
    """Classes of equal jobs, each of which is worth something somewhere, and what they share."""

    worth: Floats2  # (classes, slots) a_cj
    class_size: Floats1  # (classes,) jobs
    scale: Floats1  # (classes,) devices of a job
    accelerator_of_slot: Ints1  # (slots,)
    slot_devices: Floats1  # (slots,) devices of a job there for each one of its scale
    capacity: Floats1  # (types,) devices, > 0


class _Iterate(NamedTuple):
    """A point, or a step from it; see the module's layout."""

    primal: Floats2  # (classes, slots + 2)
    dual: Floats2  # (classes, slots + 2)
    free: Floats1  # (types,)
    price: Floats1  # (types,)


@kernel("f8(_Iterate, f8[::1])", allocates=False)
def _products(point: _Iterate, count: Floats) -> float:
    """Sum of all complementarity products, over jobs: the gap between the objectives."""
    primal, dual = point.primal, point.dual
    total = 0.0
    for c in range(len(primal)):
        inner = 0.0
        for i in range(primal.shape[1]):
            inner += primal[c, i] * dual[c, i]
        total += count[c] * inner
    for k in range(len(point.free)):
        total += point.free[k] * point.price[k]
    return total


class _Target(NamedTuple):
    """Changes wanted of the complementarity products."""

    products: Floats2  # (classes, slots + 2) of primal and dual variables
    free: Floats1  # (types,) of unused devices and their price


class _System(NamedTuple):
    """A Newton system: what is eliminated class by class, and the small matrix that is left. It belongs to a
    point, and is solved for several targets."""

    # (classes, slots, slots) the matrix of each class, factored; or (classes, slots, 1) one over its diagonal
    h: Floats3
    solved: Floats3  # (classes, slots, types + 1): dx = own + [0] dt + sum_k [1 + k] dprice_k
    by_worth: Floats2  # (classes, slots) the first of these before the level rows are added
    level: Floats2  # (classes, 2) what the level row of a class adds: 1 + a w' by_worth, and a over that
    residual: Floats2  # (classes, 2) of the level and time rows
    matrix: Floats2  # (types + 1, types + 1) in the steps of the prices and of t


class _TargetSystem(NamedTuple):
    """Terms that a target adds to a system."""

    target: _Target
    own: Floats3  # (classes, slots, 1) the steps of the classes where neither t nor the prices change
    right: Floats1  # (types + 1,) the right-hand side of the small matrix, then the steps of prices and t


@kernel("void(f8[:,:,::1], i8, f8, f8[:,:,::1])", allocates=False)
def _solve_class(h: Floats, c: int, b: float, x: Floats) -> None:
    """Solve the system of a class for all columns of x[c], in place. b: what its matrix is beside its
    diagonal."""
    slots = x.shape[1]
    if h.shape[2] == slots:
        solve_factored(h, c, x)
        return
    # Sherman and Morrison's formula, for differences to the column that counts most: rounding would else
    # leave nothing of what it gets
    first, inverse = 0, 0.0
    for j in range(slots):
        inverse += h[c, j, 0]
        if h[c, j, 0] > h[c, first, 0]:
            first = j
    part = 1.0 / (1.0 + b * inverse)
    for q in range(x.shape[2]):
        base, along = x[c, first, q], 0.0
        for j in range(slots):
            x[c, j, q] -= base
            along += x[c, j, q] * h[c, j, 0]
        rest = (base - b * along) * part
        for j in range(slots):
            x[c, j, q] = (x[c, j, q] + rest) * h[c, j, 0]


@kernel("_System(f8, MaxMinClasses, _Iterate)")
def _factored(t: float, classes: MaxMinClasses, point: _Iterate) -> _System:
    """The system at a point."""
    n_classes, slots = classes.worth.shape
    types = len(classes.capacity)
    system = _System(
        h=np.empty((n_classes, slots, slots if slots <= DENSE_SLOTS else 1)),
        solved=np.empty((n_classes, slots, types + 1)),
        by_worth=np.empty((n_classes, slots)),
        level=np.empty((n_classes, 2)),
        residual=np.empty((n_classes, 2)),
        matrix=np.zeros((types + 1, types + 1)),
    )
    for k in range(types):
        system.matrix[k, k] = point.free[k] / point.price[k]
    _factor_classes(t, classes, point, system)
    _add_level_rows(classes, point, system)
    _add_devices(classes, system)
    return system


@kernel("void(f8, MaxMinClasses, _Iterate, _System)", allocates=False)
def _factor_classes(t: float, classes: MaxMinClasses, point: _Iterate, system: _System) -> None:
    """The matrices of all classes without their level rows, factored, and their residuals."""
    worth, scale, primal, dual = classes.worth, classes.scale, point.primal, point.dual
    h, solved, residual = system.h, system.solved, system.residual
    accelerator_of_slot, slots = classes.accelerator_of_slot, worth.shape[1]
    level, slack = slots, slots + 1  # columns of the two slacks
    for c in range(len(worth)):
        over, time = primal[c, level] + t, primal[c, slack] - 1.0
        for j in range(slots):
            over -= worth[c, j] * primal[c, j]
            time += primal[c, j]
        residual[c, 0], residual[c, 1] = over, time
        b = dual[c, slack] / primal[c, slack]
        # h = diagonal + b 1 1'
        for j in range(slots):
            for q in range(1, solved.shape[2]):
                solved[c, j, q] = 0.0
            solved[c, j, 0] = worth[c, j]
            solved[c, j, 1 + accelerator_of_slot[j]] = -scale[c] * classes.slot_devices[j]
            if h.shape[2] < slots:
                h[c, j, 0] = primal[c, j] / dual[c, j]
                continue
            for i in range(slots):
                h[c, j, i] = b
            h[c, j, j] += dual[c, j] / primal[c, j]
        if h.shape[2] == slots:
            factor_spd(h, c)
        _solve_class(h, c, b, solved)


@kernel("void(MaxMinClasses, _Iterate, _System)")
def _add_level_rows(classes: MaxMinClasses, point: _Iterate, system: _System) -> None:
    """Add a w w' to the matrix of each class, by Sherman and Morrison's formula, for a grows without bound
    and would cancel; and to the row of t what it gives."""
    worth, count, solved = classes.worth, classes.class_size, system.solved
    primal, dual, matrix, by_worth = point.primal, point.dual, system.matrix, system.by_worth
    slots, types = worth.shape[1], len(classes.capacity)
    along = np.empty(types + 1)
    for c in range(len(worth)):
        a = dual[c, slots] / primal[c, slots]
        for q in range(types + 1):
            total = 0.0
            for j in range(slots):
                total += worth[c, j] * solved[c, j, q]
            along[q] = total
        stiff = 1.0 + a * along[0]
        alpha = a / stiff
        system.level[c, 0], system.level[c, 1] = stiff, alpha
        for j in range(slots):
            z = solved[c, j, 0]
            by_worth[c, j] = z
            for q in range(1, types + 1):
                solved[c, j, q] -= alpha * along[q] * z
            solved[c, j, 0] = alpha * z
        matrix[types, types] += count[c] * alpha
        for q in range(types):
            matrix[types, q] -= count[c] * alpha * along[1 + q]


@kernel("void(MaxMinClasses, _System)", allocates=False)
def _add_devices(classes: MaxMinClasses, system: _System) -> None:
    """Add what the classes use of the devices to the small matrix."""
    slots, types = classes.worth.shape[1], len(classes.capacity)
    count, scale, solved, matrix = classes.class_size, classes.scale, system.solved, system.matrix
    for c in range(len(solved)):
        for j in range(slots):
            k = classes.accelerator_of_slot[j]
            use = count[c] * scale[c] * classes.slot_devices[j]
            matrix[k, types] -= use * solved[c, j, 0]
            for q in range(types):
                matrix[k, q] -= use * solved[c, j, 1 + q]


@kernel("_TargetSystem(MaxMinClasses, _Iterate, _System, _Target)")
def _target_system(
    classes: MaxMinClasses, point: _Iterate, system: _System, target: _Target
) -> _TargetSystem:
    """Return the terms that a target adds to the classes and to the small matrix's right-hand side."""
    worth, scale, count, price = classes.worth, classes.scale, classes.class_size, point.price
    primal, dual, products = point.primal, point.dual, target.products
    accelerator_of_slot = classes.accelerator_of_slot
    h, residual, by_worth = system.h, system.residual, system.by_worth
    n_classes, slots = worth.shape
    types = len(price)
    level, slack = slots, slots + 1
    own, right = np.empty((n_classes, slots, 1)), np.zeros(types + 1)
    right[types] = 1.0
    for k in range(types):
        right[k] = target.free[k] / price[k] + point.free[k] - classes.capacity[k]
    for c in range(n_classes):
        two = (products[c, slack] + dual[c, slack] * residual[c, 1]) / primal[c, slack]
        for j in range(slots):
            pays = scale[c] * price[accelerator_of_slot[j]] * classes.slot_devices[j]
            cost = dual[c, slack] + pays
            r_dual = cost - worth[c, j] * dual[c, level] - dual[c, j]
            own[c, j, 0] = products[c, j] / primal[c, j] - r_dual - two
        _solve_class(h, c, dual[c, slack] / primal[c, slack], own)
        one = (products[c, level] + dual[c, level] * residual[c, 0]) / primal[c, level]
        along = 0.0
        for j in range(slots):
            along += worth[c, j] * own[c, j, 0]
        stiff, alpha = system.level[c, 0], system.level[c, 1]
        for j in range(slots):
            use = count[c] * scale[c] * classes.slot_devices[j]
            own[c, j, 0] += (one / stiff - alpha * along) * by_worth[c, j]
            right[accelerator_of_slot[j]] += use * (own[c, j, 0] + primal[c, j])
        right[types] += count[c] * (alpha * along - one / stiff - dual[c, level])
    return _TargetSystem(target, own, right)


@kernel("void(f8, MaxMinClasses, _Iterate, _System, _TargetSystem, _Iterate)", allocates=False)
def _step_classes(
    dt: float,
    classes: MaxMinClasses,
    point: _Iterate,
    system: _System,
    toward: _TargetSystem,
    step: _Iterate,
) -> None:
    """The steps of all classes, those of t and of the prices being known."""
    worth, solved, residual = classes.worth, system.solved, system.residual
    primal, dual, products, own = point.primal, point.dual, toward.target.products, toward.own
    d_primal, d_dual, d_price = step.primal, step.dual, step.price
    slots, types = worth.shape[1], len(classes.capacity)
    level, slack = slots, slots + 1
    for c in range(len(worth)):
        d_level, d_slack = -dt - residual[c, 0], -residual[c, 1]
        for j in range(slots):
            change = own[c, j, 0] + solved[c, j, 0] * dt
            for q in range(types):
                change += solved[c, j, 1 + q] * d_price[q]
            d_primal[c, j] = change
            d_level += worth[c, j] * change
            d_slack -= change
        d_primal[c, level], d_primal[c, slack] = d_level, d_slack
        for i in range(slots + 2):
            d_dual[c, i] = (products[c, i] - dual[c, i] * d_primal[c, i]) / primal[c, i]


@kernel("f8(MaxMinClasses, _Iterate, _System, _Target, _Iterate)")
def _newton(
    classes: MaxMinClasses, point: _Iterate, system: _System, target: _Target, step: _Iterate
) -> float:
    """One Newton step, into ``step``; returns that of t."""
    types, free, price = len(classes.capacity), point.free, point.price
    toward = _target_system(classes, point, system, target)
    right = toward.right
    solve_general(system.matrix.copy(), right.reshape(types + 1, 1))
    dt = right[types]
    for k in range(types):
        step.price[k] = right[k]
        step.free[k] = (target.free[k] - free[k] * step.price[k]) / price[k]
    _step_classes(dt, classes, point, system, toward, step)
    return float(dt)


@kernel("Tuple((f8[:,::1], f8[:,::1], f8))(MaxMinClasses, f8[::1])")
def _start(classes: MaxMinClasses, free: Floats) -> tuple[Floats, Floats, float]:
    """A point inside: (classes, slots + 2) primal and dual variables, and the price of every device; what
    they use is taken off ``free``, (types,)."""
    worth, count, scale = classes.worth, classes.class_size, classes.scale
    accelerator_of_slot, capacity = classes.accelerator_of_slot, classes.capacity
    n_classes, slots = worth.shape
    jobs, demand = count.sum(), (count * scale).sum()
    primal, dual = np.ones((n_classes, slots + 2)), np.full((n_classes, slots + 2), 1.0 / jobs)
    price = 1.0 / capacity.sum()
    for c in range(n_classes):
        primal[c, slots] = 0.0
        for j in range(slots):
            k = accelerator_of_slot[j]
            part = capacity[k] / demand / np.sum(accelerator_of_slot == k)
            x = 0.5 * min(1.0 / slots, part / classes.slot_devices[j])
            primal[c, j] = x
            primal[c, slots] += worth[c, j] * x
            primal[c, slots + 1] -= x
            free[k] -= count[c] * scale[c] * x * classes.slot_devices[j]
            slack = (1.0 - worth[c, j]) / jobs + scale[c] * price * classes.slot_devices[j]
            dual[c, j] = max(1e-3 / jobs, slack)
    return primal, dual, price


@kernel("Tuple((f8, f8))(_Iterate, _Iterate)")
def _max_steps(point: _Iterate, step: _Iterate) -> tuple[float, float]:
    """The largest parts of a step, of the primal and of the dual variables, that stay above 0."""
    forward = min(
        max_step(point.primal.ravel(), step.primal.ravel()), max_step(point.free, step.free)
    )
    backward = min(
        max_step(point.dual.ravel(), step.dual.ravel()), max_step(point.price, step.price)
    )
    return forward, backward


@kernel("Tuple((f8[:,::1], f8[::1], f8[::1], i8))(MaxMinClasses, f8)")
def max_min(classes: MaxMinClasses, tolerance: float) -> tuple[Floats, Floats, Floats, int]:
    """(classes, slots) shares of one job per class at the analytic centre; (classes,) weights and (types,)
    prices, the duals of level and devices; and how many steps it took.

    tolerance: relative gap between primal and dual objective to stop at; after ``STEPS`` it stops anyway.
    """
    count, capacity = classes.class_size, classes.capacity
    slots = classes.worth.shape[1]
    types = len(capacity)
    jobs = count.sum()
    free = capacity.copy()
    primal, dual, first_price = _start(classes, free)
    price = np.full(types, first_price)
    step = _Iterate(np.zeros_like(primal), np.zeros_like(dual), np.zeros(types), np.zeros(types))
    t = 0.0
    pairs = jobs * (slots + 2.0) + types
    least = 1e-15 / jobs
    gap = np.inf
    steps = centred = 0
    while steps < STEPS:
        steps += 1
        point = _Iterate(primal, dual, free, price)
        mu = _products(point, count)
        gap = mu / max(t, 1e-300)
        if gap < tolerance:
            break
        mu /= pairs
        system = _factored(t, classes, point)
        if gap < CENTRING_GAP and centred < CENTRING:
            centred += 1
            target = _Target(mu - primal * dual, mu - free * price)
        else:
            _newton(classes, point, system, _Target(-primal * dual, -free * price), step)
            forward, backward = _max_steps(point, step)
            after = _products(
                _Iterate(
                    primal + forward * step.primal,
                    dual + backward * step.dual,
                    free + forward * step.free,
                    price + backward * step.price,
                ),
                count,
            )
            goal = mu * (after / pairs / mu) ** 3
            target = _Target(
                goal - primal * dual - step.primal * step.dual,
                goal - free * price - step.free * step.price,
            )
        dt = _newton(classes, point, system, target, step)
        forward, backward = _max_steps(point, step)
        forward, backward = min(1.0, _STEP * forward), min(1.0, _STEP * backward)
        t += forward * dt
        primal = np.maximum(primal + forward * step.primal, _FLOOR)
        free = np.maximum(free + forward * step.free, _FLOOR * capacity)
        dual = np.maximum(dual + backward * step.dual, least)
        price = np.maximum(price + backward * step.price, least)
    return primal[:, :slots].copy(), dual[:, slots].copy(), price, steps
