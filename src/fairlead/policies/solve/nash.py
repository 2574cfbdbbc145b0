"""Proportionally fair shares: the Eisenberg-Gale program by an interior-point method over classes.

    max sum_c m_c w_c log t_c,  t_c = sum_j T_cj x_cj
    s.t.  sum_j x_cj <= 1,   sum_c m_c s_c x_cj <= N_k(j),   x >= 0

for classes c of m_c equal jobs. At the optimum there are prices p_k of devices and a rent r_c of each
job's time with  T_cj / t_c <= r_c + s_c p_k(j) / w_c,  an equality where x_cj > 0: every job spends its
weight on the slot types where its money buys most.

In the pairs of variables that must complement each other the logarithm is nothing special: with the
throughput's price l_c = 1 / t_c, the conditions are linear in (x, t, spare time, spare devices), linear in
(l, z, r, p), and products: t l = 1, all others 0. That is a path-following method for a linear program,
one of whose products goes to 1 instead of 0 (Jansen, Roos, Terlaky, Vial, "Primal-dual target-following
algorithms", 1996). In relative changes the Newton matrix of a class is a positive diagonal plus a skew
matrix with entries of order one, whatever the scales of rates, weights and loads; classes are tied
together by one row per accelerator type, so that a step costs time linear in the classes.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Floats3, Ints1
from fairlead.policies.solve.dense_linear_algebra import solve_general

STEPS = 200
_TOLERANCE = 1e-14  # gap that a solve stops at, relative to the sum of weights
_STEP = 0.995
_SHRINK = 0.1  # of the products in a step
_FLOOR = 1e-40  # rounding must not put a value on the boundary


class NashMarket(NamedTuple):
    """Jobs by class, with weights as budgets. Every class has a positive rate somewhere."""

    rate: Floats2  # (classes, slots) steps/s of a job; 0 = cannot run there
    weight: Floats1  # (classes,) > 0
    class_size: Floats1  # (classes,) jobs, > 0
    scale: Floats1  # (classes,) devices of a job
    accelerator_of_slot: Ints1  # (slots,)
    slot_devices: Floats1  # (slots,) devices of a job there for each one of its scale
    capacity: Floats1  # (types,) devices, > 0


class _MarketPoint(NamedTuple):
    """A point, or a step from it in relative changes."""

    primal: Floats2  # (classes, slots + 2) shares, throughput, spare time
    dual: Floats2  # (classes, slots + 2) their partners, per unit of weight
    free: Floats1  # (types,) unused devices
    price: Floats1  # (types,) of a device


@dataclass(frozen=True, slots=True)
class Equilibrium:
    """Shares, and the prices at which every job would buy just these."""

    share: Floats  # (classes, slots) of one job
    price: Floats  # (types,) weight per device
    steps: int

    def throughput(self, market: NashMarket) -> Floats:
        """(classes,) steps/s of a job."""
        return np.asarray((market.rate * self.share).sum(axis=1))


def equilibrium(market: NashMarket) -> Equilibrium:
    """The shares with the largest product of throughputs, each to the power of its weight."""
    if not len(market.rate):
        return Equilibrium(np.zeros(market.rate.shape), np.zeros(len(market.capacity)), 0)
    normalised = market._replace(
        rate=np.ascontiguousarray(market.rate / market.rate.max(axis=1)[:, None]),
        weight=market.weight / (market.weight @ market.class_size),
    )
    share, price, steps = _follow(normalised)
    devices = (market.class_size * market.scale) @ share * market.slot_devices
    used = np.bincount(market.accelerator_of_slot, devices, len(market.capacity))
    excess = max(1.0, share.sum(axis=1).max(), (used / market.capacity).max())
    return Equilibrium(share / excess, price * (market.weight @ market.class_size), steps)


def surplus(jobs: NashMarket, throughput: Floats, price: Floats) -> float:
    """A bound, for any prices >= 0, on how far the weighted sum of logarithms is below the optimum.

    jobs: a market in which every job is a class of its own; throughput: (jobs,); price: (types,). The
    logarithm is concave, so  sum w log t' - sum w log t <= sum w t'/t - sum w,  and no shares have
    sum w t'/t above  sum_k p_k N_k + sum_i max(0, max_j(w_i T_ij / t_i - s_i p_k(j))).
    """
    weight = jobs.weight
    marginal = weight / throughput
    rent = np.zeros(len(weight))
    for slot, accelerator in enumerate(jobs.accelerator_of_slot.tolist()):
        pays = jobs.scale * price[accelerator] * jobs.slot_devices[slot]
        earned = jobs.rate[:, slot] * marginal - pays
        np.maximum(rent, earned, out=rent)
    return float(rent.sum() + price @ jobs.capacity - weight.sum())


class _MarketSystem(NamedTuple):
    """A Newton system: what is eliminated class by class, and the small matrix that is left."""

    solved: (
        Floats3  # (classes, slots + 2, types + 1): change = [0] + sum_k [1 + k] change of price k
    )
    product_target: Floats1  # (classes,) what the products of a class go to
    prices: Floats2  # (types, types) in the changes of the prices
    right: Floats2  # (types, 1)
    matrix: Floats2  # (slots + 2, slots + 2) scratch: that of a class


@kernel("_MarketSystem(NashMarket, _MarketPoint, f8)")
def _empty_system(market: NashMarket, point: _MarketPoint, goal: float) -> _MarketSystem:
    """The system with no class in it."""
    classes, slots = market.rate.shape
    types = len(market.capacity)
    prices, right = np.zeros((types, types)), np.zeros((types, 1))
    for k in range(types):
        prices[k, k] = point.free[k] * point.price[k]
        right[k, 0] = goal / types - point.price[k] * market.capacity[k]
    return _MarketSystem(
        solved=np.empty((classes, slots + 2, types + 1)),
        product_target=goal / market.weight / market.class_size.sum(),
        prices=prices,
        right=right,
        matrix=np.empty((slots + 2, slots + 2)),
    )


@kernel("void(NashMarket, _MarketPoint, _MarketSystem)", allocates=False)
def _solve_classes(market: NashMarket, point: _MarketPoint, system: _MarketSystem) -> None:
    """The changes of all classes, into ``system.solved``."""
    rate, weight, scale = market.rate, market.weight, market.scale
    primal, dual, price, matrix = point.primal, point.dual, point.price, system.matrix
    accelerator_of_slot, slots = market.accelerator_of_slot, rate.shape[1]
    made, slack = slots, slots + 1
    for c in range(len(rate)):
        side, product_target = system.solved[c], system.product_target[c]
        side[:] = 0.0
        matrix[:] = 0.0
        throughput = time = 0.0
        for j in range(slots):
            x = primal[c, j]
            if rate[c, j] <= 0:
                matrix[j, j] = 1.0
                continue
            throughput += rate[c, j] * x
            time += x
            rent = dual[c, slack] / dual[c, made]
            cost = scale[c] / weight[c] * price[accelerator_of_slot[j]] / dual[c, made]
            cost *= market.slot_devices[j]
            matrix[j, j] = dual[c, j] / dual[c, made]
            matrix[j, made] = -rate[c, j]
            matrix[made, j] = dual[c, made] * rate[c, j] * x
            matrix[j, slack] = rent
            matrix[slack, j] = -dual[c, slack] * x
            side[j, 0] = product_target / x / dual[c, made] - (rent + cost - rate[c, j])
            side[j, 1 + accelerator_of_slot[j]] = -cost
        matrix[made, made] = primal[c, made] * dual[c, made]
        matrix[slack, slack] = primal[c, slack] * dual[c, slack]
        side[made, 0] = 1.0 - dual[c, made] * throughput
        side[slack, 0] = product_target - dual[c, slack] * (1.0 - time)
        solve_general(matrix, side)


@kernel("void(NashMarket, _MarketPoint, _MarketSystem)", allocates=False)
def _add_devices(market: NashMarket, point: _MarketPoint, system: _MarketSystem) -> None:
    """Add what the classes pay for devices to the matrix of prices."""
    count, scale, primal, price = market.class_size, market.scale, point.primal, point.price
    accelerator_of_slot, types = market.accelerator_of_slot, len(market.capacity)
    solved, right, prices = system.solved, system.right, system.prices
    for c in range(len(count)):
        for j in range(market.rate.shape[1]):
            k = accelerator_of_slot[j]
            pays = count[c] * scale[c] * price[k] * primal[c, j] * market.slot_devices[j]
            right[k, 0] += pays * (1.0 + solved[c, j, 0])
            for q in range(types):
                prices[k, q] -= pays * solved[c, j, 1 + q]


@kernel("void(NashMarket, _MarketPoint, _MarketSystem, _MarketPoint)", allocates=False)
def _step_classes(
    market: NashMarket, point: _MarketPoint, system: _MarketSystem, step: _MarketPoint
) -> None:
    """The steps of all classes, those of the prices being known."""
    primal, dual, solved, product_targets = (
        point.primal,
        point.dual,
        system.solved,
        system.product_target,
    )
    up, up_dual, up_price, rate = step.primal, step.dual, step.price, market.rate
    classes, slots = rate.shape
    types = len(market.capacity)
    for c in range(classes):
        product_target = product_targets[c]
        for i in range(slots + 2):
            change = solved[c, i, 0]
            for q in range(types):
                change += solved[c, i, 1 + q] * up_price[q]
            if i < slots:
                up[c, i] = change
                if rate[c, i] > 0:
                    up_dual[c, i] = product_target / (primal[c, i] * dual[c, i]) - 1.0 - change
            else:
                up_dual[c, i] = change
                target = 1.0 if i == slots else product_target
                up[c, i] = target / (primal[c, i] * dual[c, i]) - 1.0 - change


@kernel("void(NashMarket, _MarketPoint, f8, _MarketPoint)")
def _newton(market: NashMarket, point: _MarketPoint, goal: float, step: _MarketPoint) -> None:
    """One Newton step as relative changes, into ``step``. goal: what products per unit of weight go to."""
    types, free, price = len(market.capacity), point.free, point.price
    system = _empty_system(market, point, goal)
    _solve_classes(market, point, system)
    _add_devices(market, point, system)
    solve_general(system.prices, system.right)
    for k in range(types):
        step.price[k] = system.right[k, 0]
        step.free[k] = goal / types / (free[k] * price[k]) - 1.0 - step.price[k]
    _step_classes(market, point, system, step)


@kernel("f8(f8[::1])", allocates=False)
def _max_step(up: Floats) -> float:
    """The part of a step, at most 1, that stays within the boundary."""
    least = 0.0
    for i in range(len(up)):
        least = min(least, up[i])
    return min(1.0, _STEP / -least) if least < 0 else 1.0


@kernel("void(f8[::1], f8[::1], f8)", allocates=False)
def _move(value: Floats, up: Floats, part: float) -> None:
    """Make a part of a step of relative changes ``up``, in place, within the boundary."""
    for i in range(len(value)):
        value[i] = max(_FLOOR, value[i] * (1.0 + part * up[i]))


@kernel("f8(NashMarket, _MarketPoint)", allocates=False)
def _gap(market: NashMarket, point: _MarketPoint) -> float:
    """Sum of the products that go to 0, times weight, over all jobs: the gap between the objectives."""
    rate, weight, count = market.rate, market.weight, market.class_size
    primal, dual, free, price = point
    slots = rate.shape[1]
    total = 0.0
    for c in range(len(weight)):
        inner = primal[c, slots + 1] * dual[c, slots + 1]
        for j in range(slots):
            if rate[c, j] > 0:
                inner += primal[c, j] * dual[c, j]
        total += count[c] * weight[c] * inner
    for k in range(len(free)):
        total += free[k] * price[k]
    return total


@kernel("_MarketPoint(NashMarket)")
def _start(market: NashMarket) -> _MarketPoint:
    """A point inside: all linear conditions met, no product above order one."""
    rate, weight, count, scale, accelerator_of_slot, slot_devices, capacity = market
    classes, slots = rate.shape
    made, slack = slots, slots + 1
    primal, dual = np.zeros((classes, slots + 2)), np.ones((classes, slots + 2))
    demand, supply = (count * scale).sum(), capacity.sum()
    lowest = (weight / scale).min() / slot_devices.max()
    free, price = capacity.copy(), np.full(len(capacity), min(1.0 / supply, lowest))
    for c in range(classes):
        primal[c, slack] = 1.0
        for j in range(slots):
            if rate[c, j] <= 0:
                continue
            k = accelerator_of_slot[j]
            part = capacity[k] / demand / np.sum(accelerator_of_slot == k)
            x = 0.5 * min(1.0 / slots, part / slot_devices[j])
            primal[c, j] = x
            primal[c, made] += rate[c, j] * x
            primal[c, slack] -= x
            free[k] -= count[c] * scale[c] * x * slot_devices[j]
        dual[c, made] = 1.0 / primal[c, made]
        rent = 0.0
        for j in range(slots):
            cost = scale[c] / weight[c] * price[accelerator_of_slot[j]] * slot_devices[j]
            rent = max(rent, dual[c, made] * rate[c, j] - cost)
        rent += 0.5 * dual[c, made] * primal[c, made]
        dual[c, slack] = rent
        for j in range(slots):
            if rate[c, j] > 0:
                cost = scale[c] / weight[c] * price[accelerator_of_slot[j]] * slot_devices[j]
                dual[c, j] = rent + cost - dual[c, made] * rate[c, j]
    return _MarketPoint(primal, dual, free, price)


@kernel("Tuple((f8[:,::1], f8[::1], i8))(NashMarket)")
def _follow(market: NashMarket) -> tuple[Floats, Floats, int]:
    """(classes, slots) shares of one job, (types,) prices, and how many steps it took. Weights of all jobs
    add up to 1; the largest rate of a class is 1."""
    rate = market.rate
    classes, slots = rate.shape
    types = len(market.capacity)
    point = _start(market)
    step = _MarketPoint(
        np.zeros_like(point.primal), np.zeros_like(point.dual), np.zeros(types), np.zeros(types)
    )
    products = slots + 2.0
    steps = 0
    while steps < STEPS:
        gap = _gap(market, point)
        if gap < _TOLERANCE:
            break
        steps += 1
        _newton(market, point, _SHRINK * gap / products, step)
        forward = min(_max_step(step.primal.ravel()), _max_step(step.free))
        backward = min(_max_step(step.dual.ravel()), _max_step(step.price))
        _move(point.primal.ravel(), step.primal.ravel(), forward)
        _move(point.free, step.free, forward)
        _move(point.dual.ravel(), step.dual.ravel(), backward)
        _move(point.price, step.price, backward)
    share = point.primal[:, :slots].copy()
    for c in range(classes):
        for j in range(slots):
            if rate[c, j] <= 0:
                share[c, j] = 0.0
    return share, point.price, steps
