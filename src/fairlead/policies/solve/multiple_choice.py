"""One option for each item, or none, for the most worth within capacities: the multiple-choice knapsack with
several resources, of each of which an option takes some units of one.

Jobs are items, configurations (accelerator type, number of devices) options, accelerator types resources.

1. **Prices.** A price per unit of each resource gives a bound: each item takes what is best for it at the
   prices, and the capacities are sold. Dantzig and Wolfe's decomposition (Operations Research 8(1), 1960)
   finds the prices of the least bound, that of the linear relaxation, by a simplex method over whole answers,
   whose bases have one row per resource and one more.
2. **Rounding.** The relaxation mixes the answers of its last basis. Items on which these agree are settled;
   the others take one of them each, such that the use stays near that of the mix. Few items are then
   changed, those that lose least per unit, until the capacities hold; what is left over is given away.
3. **Exact, where it is small.** What an option falls short of an item's best one at the prices is its
   regret. No better answer has an option whose regret exceeds the gap between bound and answer. A dynamic
   program over the use of the resources finds the best of what is left, if that is little enough.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.errors import SolveError
from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Ints1, Ints2

NONE = -1  # in place of an option
MAX_STATES = 1 << 18  # uses of resources that the dynamic program tells apart
MAX_STEPS = 1 << 22  # of the dynamic program: states x options
_MAX_PIVOTS = 2_000
_MAX_NARROWED = 12  # attempts at what the dynamic program can do
_TOLERANCE = 1e-10  # of a bound, relative


@dataclass(frozen=True, slots=True, kw_only=True)
class MultipleChoice:
    """The problem. worth: (items, options), -inf where an item may not have it; none: (items,) worth of no
    option, -inf for an item that must have one; resource, demand: (options,) what an option takes, and how
    many units of it; capacity: (resources,) units."""

    worth: Floats
    none: Floats
    resource: Ints
    demand: Ints
    capacity: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An answer. option: (items,), NONE = no option; value: their worth; bound: no answer is worth more;
    price: (resources,) per unit, those of the bound."""

    option: Ints
    value: float
    bound: float
    price: Floats

    @property
    def gap(self) -> float:
        """Return how far the value may be from the best one, relative to it."""
        return max(0.0, self.bound - self.value) / max(abs(self.value), 1e-9)


class _ScaledProblem(NamedTuple):
    worth: Floats2
    none: Floats1
    resource: Ints1
    demand: Ints1
    capacity: Ints1


class _Relaxation(NamedTuple):
    """The optimum of the linear relaxation, as a mix of answers."""

    price: Floats1
    bound: float
    answers: Ints2  # (columns, items) option
    share: Floats1  # (columns,) of each in the mix; 0 for a column without an answer


def solve_multiple_choice(problem: MultipleChoice) -> Choice:
    """Return an answer with its bound; the best one where the problem is small (``MAX_STEPS``). Raises
    SolveError where no answer keeps to the capacities."""
    if not len(problem.none):
        price = np.zeros(len(problem.capacity))
        return Choice(option=np.zeros(0, np.int64), value=0.0, bound=0.0, price=price)
    if not (np.isfinite(problem.none) | np.isfinite(problem.worth).any(axis=1)).all():
        raise SolveError("an item has no option, and must have one")
    program, scale = _normalised(problem)
    relaxation = _relax(program)
    option = _rounded(program, relaxation)
    if not _improve(program, relaxation.price, option):
        option = np.zeros(0, np.int64)
    option, gap = _refined(program, relaxation, option)
    if not len(option):
        raise SolveError("no choice of options keeps to the capacities")
    value = _total(problem.worth, problem.none, option)
    return Choice(
        option=option, value=value, bound=value + scale * gap, price=relaxation.price * scale
    )


def _normalised(problem: MultipleChoice) -> tuple[_ScaledProblem, float]:
    """The problem with worths from -1 to 1, and their unit: what options gain over none, without those that
    gain nothing."""
    worth, optional = np.asarray(problem.worth, np.float64), np.isfinite(problem.none)
    base = np.where(optional, problem.none, worth.max(axis=1))
    gain = worth - base[:, None]
    gain = np.where(optional[:, None] & (gain <= 0), -np.inf, gain)
    scale = float(np.abs(gain[np.isfinite(gain)]).max(initial=0.0)) or 1.0
    program = _ScaledProblem(
        np.ascontiguousarray(gain / scale),
        np.where(optional, 0.0, -np.inf),
        np.ascontiguousarray(problem.resource, np.int64),
        np.ascontiguousarray(problem.demand, np.int64),
        np.ascontiguousarray(problem.capacity, np.int64),
    )
    return program, scale


def _total(worth: Floats, none: Floats, option: Ints) -> float:
    """The worth of an answer."""
    items = np.arange(len(option))
    return float(np.where(option < 0, none, worth[items, option]).sum())


# --- the relaxation ------------------------------------------------------------------------------


@kernel("Tuple((i8[::1], i8[::1], f8))(_ScaledProblem, f8[::1])")
def _best_replies(program: _ScaledProblem, price: Floats) -> tuple[Ints, Ints, float]:
    """The best option of each item at prices, their use of each resource, and their worth less their
    price."""
    items, options = program.worth.shape
    chosen = np.empty(items, np.int64)
    use = np.zeros(len(program.capacity), np.int64)
    cost = np.empty(options)
    for c in range(options):
        cost[c] = price[program.resource[c]] * program.demand[c]
    total = 0.0
    for i in range(items):
        best, at = program.none[i], -1
        for c in range(options):
            net = program.worth[i, c] - cost[c]
            if net > best:
                best, at = net, c
        chosen[i] = at
        total += best
        if at >= 0:
            use[program.resource[at]] += program.demand[at]
    return chosen, use, total


@kernel("f8(_ScaledProblem)")
def _empty_worth(program: _ScaledProblem) -> float:
    """What the relaxation's first column counts for, in which no item has an option: less than any answer
    does, where an item must have one."""
    worth, span, must = 0.0, 1.0, False
    for i in range(len(program.none)):
        low, high = np.inf, -np.inf
        for c in range(program.worth.shape[1]):
            if program.worth[i, c] > -np.inf:
                low, high = min(low, program.worth[i, c]), max(high, program.worth[i, c])
        if program.none[i] > -np.inf:
            low, high = min(low, program.none[i]), max(high, program.none[i])
            worth += program.none[i]
        else:
            must = True
            worth += low
        span += max(high - low, 0.0) + abs(low)
    return worth - 1e3 * span if must else worth


@kernel("i8(f8[::1], f8[::1])")
def _leaving(share: Floats, change: Floats) -> int:
    """The row of the basis that is zero first as the entering column comes in; -1 = none ever is."""
    leaving = -1
    for k in range(len(share)):
        if change[k] > 1e-11 and (
            leaving < 0 or share[k] * change[leaving] < share[leaving] * change[k]
        ):
            leaving = k
    return leaving


@kernel("_Relaxation(_ScaledProblem)")
def _relax(program: _ScaledProblem) -> _Relaxation:
    """The optimum of the linear relaxation, by columns that are whole answers."""
    items, resources = program.worth.shape[0], len(program.capacity)
    rows = resources + 1
    answers = np.full((rows, items), -1, np.int64)
    basis = np.eye(rows)  # by column: the slack of each resource, and the empty answer
    worth = np.zeros(rows)
    worth[resources] = _empty_worth(program)
    right = np.ones(rows)
    right[:resources] = program.capacity
    share = right.copy()
    is_answer = np.arange(rows) == resources
    bound, best_price = np.inf, np.zeros(resources)
    for _ in range(_MAX_PIVOTS):
        dual = np.linalg.solve(basis.T, worth)
        price = np.maximum(dual[:resources], 0.0)
        column, value = np.zeros(rows), 0.0
        slack = int(np.argmin(dual[:resources]))
        chosen = answers[0]
        if dual[slack] < -1e-11:
            column[slack] = 1.0
        else:
            chosen, use, net = _best_replies(program, price)
            sold = (price * program.capacity).sum()
            if net + sold < bound:
                bound, best_price = net + sold, price
            if net - dual[resources] <= _TOLERANCE * max(1.0, abs(bound)):
                break
            value = net + (price * use).sum()
            column[:resources] = use
            column[resources] = 1.0
        change = np.asarray(np.linalg.solve(basis, column), np.float64)
        leaving = _leaving(share, change)
        if leaving < 0:
            break
        basis[:, leaving] = column
        worth[leaving] = value
        is_answer[leaving] = column[resources] > 0.0
        if is_answer[leaving]:
            answers[leaving] = chosen
        share = np.maximum(np.linalg.solve(basis, right), 0.0)
    return _Relaxation(best_price, bound, answers, np.where(is_answer, share, 0.0))


# --- rounding ------------------------------------------------------------------------------------


@kernel("i8[::1](_ScaledProblem, _Relaxation)")
def _rounded(program: _ScaledProblem, relaxation: _Relaxation) -> Ints:
    """One of the mixed answers for each item, such that the use stays near that of the mix."""
    columns, items = relaxation.answers.shape
    option = np.full(items, -1, np.int64)
    ahead = np.zeros(len(program.capacity))  # of the mix's use, by the items so far
    total = max(relaxation.share.sum(), 1e-12)
    for i in range(items):
        for k in range(columns):
            c = relaxation.answers[k, i]
            if c >= 0:
                ahead[program.resource[c]] -= program.demand[c] * relaxation.share[k] / total
        best, found = np.inf, False
        for k in range(columns):
            if relaxation.share[k] <= 1e-12:
                continue
            c = relaxation.answers[k, i]
            miss = 0.0
            for t in range(len(ahead)):
                over = ahead[t]
                if c >= 0 and program.resource[c] == t:
                    over += program.demand[c]
                miss += over * over
            if not found or miss < best:
                best, found = miss, True
                option[i] = c
        c = option[i]
        if c >= 0:
            ahead[program.resource[c]] += program.demand[c]
    return option


@kernel("b1(_ScaledProblem, f8[::1], i8[::1])")
def _improve(program: _ScaledProblem, price: Floats, option: Ints) -> bool:
    """Change options, in place, until the capacities hold and no single change is worth more. Returns whether
    they hold."""
    left = program.capacity.copy()
    for i in range(len(option)):
        if (
            option[i] < 0 and program.none[i] == -np.inf
        ):  # a mix with the empty answer, which is none
            option[i] = _best_net(program, price, i)
        if option[i] >= 0:
            left[program.resource[option[i]]] -= program.demand[option[i]]
    while True:
        over = 0
        for t in range(len(left)):
            over += max(0, -left[t])
        if over:
            item, chosen = _cheapest_relief(program, price, option, left)
        else:
            item, chosen = _best_change(program, option, left)
        if item < 0:
            return over == 0
        now = option[item]
        if now >= 0:
            left[program.resource[now]] += program.demand[now]
        if chosen >= 0:
            left[program.resource[chosen]] -= program.demand[chosen]
        option[item] = chosen


@kernel("i8(_ScaledProblem, f8[::1], i8)")
def _best_net(program: _ScaledProblem, price: Floats, item: int) -> int:
    """The best option of an item at prices."""
    best, at = -np.inf, -1
    for c in range(len(program.demand)):
        net = program.worth[item, c] - price[program.resource[c]] * program.demand[c]
        if net > best:
            best, at = net, c
    return at


@kernel("UniTuple(i8, 2)(_ScaledProblem, f8[::1], i8[::1], i8[::1])")
def _cheapest_relief(
    program: _ScaledProblem, price: Floats, option: Ints, left: Ints
) -> tuple[int, int]:
    """The item and its new option that lose least, at the prices, per unit that is no longer too much; item
    -1 = there is none."""
    least, item, chosen = np.inf, -1, -1
    over = 0
    for t in range(len(left)):
        over += max(0, -left[t])
    for i in range(len(option)):
        now = option[i]
        if now < 0 or left[program.resource[now]] >= 0:
            continue
        now_net = program.worth[i, now] - price[program.resource[now]] * program.demand[now]
        for c in range(-1, len(program.demand)):
            net = program.none[i] if c < 0 else program.worth[i, c]
            if c == now or net == -np.inf:
                continue
            if c >= 0:
                net -= price[program.resource[c]] * program.demand[c]
            after = _over_after(program, left, now, c)
            if after < over:
                loss = max(now_net - net, 0.0) / (over - after)
                if loss < least:
                    least, item, chosen = loss, i, c
    return item, chosen


@kernel("UniTuple(i8, 2)(_ScaledProblem, i8[::1], i8[::1])")
def _best_change(program: _ScaledProblem, option: Ints, left: Ints) -> tuple[int, int]:
    """The item and its new option within the capacities that are worth most more; item -1 = there is none."""
    most, item, chosen = _TOLERANCE, -1, -1
    for i in range(len(option)):
        now = option[i]
        now_worth = program.none[i] if now < 0 else program.worth[i, now]
        for c in range(-1, len(program.demand)):
            gain = (program.none[i] if c < 0 else program.worth[i, c]) - now_worth
            if gain > most and _over_after(program, left, now, c) == 0:
                most, item, chosen = gain, i, c
    return item, chosen


@kernel("i8(_ScaledProblem, i8[::1], i8, i8)", inline="always")
def _over_after(program: _ScaledProblem, left: Ints, now: int, then: int) -> int:
    """Units above the capacities, of all resources, once an item has another option."""
    over = 0
    for t in range(len(left)):
        free = left[t]
        if now >= 0 and program.resource[now] == t:
            free += program.demand[now]
        if then >= 0 and program.resource[then] == t:
            free -= program.demand[then]
        over += max(0, -free)
    return over


# --- the best of what is left --------------------------------------------------------------------


def _refined(program: _ScaledProblem, relaxation: _Relaxation, option: Ints) -> tuple[Ints, float]:
    """Return the best answer that few enough options leave, and how far below the best one it may be: 0
    where none of the others could be part of a better one. option: an answer, (0,) = none is known."""
    price, bound = relaxation.price, relaxation.bound
    net = np.column_stack([program.none, program.worth - price[program.resource] * program.demand])
    regret = net.max(axis=1, keepdims=True) - net  # (items, 1 + options): none first
    gap = bound - _total(program.worth, program.none, option) if len(option) else np.inf
    most = gap if len(option) else float(regret[np.isfinite(regret)].max())
    too_many = np.inf  # the least regret that leaves more than can be compared
    for _ in range(_MAX_NARROWED):
        if gap <= _TOLERANCE * max(1.0, abs(bound)) or most >= too_many:
            break
        found = _best_within(program, price, regret, most)
        if found is None:
            too_many, most = most, most / 4
            continue
        found_gap = bound - _total(program.worth, program.none, found) if len(found) else np.inf
        if found_gap < gap:
            option, gap = found, found_gap
        if gap <= most:
            return option, 0.0
        most = gap
    return option, max(gap, 0.0)


def _best_within(
    program: _ScaledProblem, price: Floats, regret: Floats, most: float
) -> Ints | None:
    """Return the best answer whose options have no more regret than this, (0,) if none keeps to the
    capacities; None where there are too many to compare."""
    allowed = np.isfinite(regret) & (regret <= most * (1 + 1e-9) + 1e-12)
    settled = allowed.sum(axis=1) == 1
    option: Ints = allowed.argmax(axis=1).astype(np.int64) - 1
    left = program.capacity.copy()
    has = settled & (option >= 0)
    np.subtract.at(left, program.resource[option[has]], program.demand[option[has]])
    if (left < 0).any():
        return option[:0]
    open_ = np.flatnonzero(~settled)
    # No more of a resource than the open items could use tells states apart.
    for t in range(len(left)):
        mine = program.resource == t
        use = np.where(allowed[open_, 1:] & mine, program.demand, 0).max(axis=1, initial=0)
        left[t] = min(left[t], int(use.sum()))
    states = float(np.prod(left + 1, dtype=np.float64))
    if states > MAX_STATES or states * allowed[open_].sum() > MAX_STEPS:
        return None
    few = np.ascontiguousarray(np.where(allowed, regret, np.inf)[open_])
    found = _cheapest(program, few, left, price)
    if len(found) < len(open_):
        return option[:0]
    option[open_] = found
    return option


@kernel("i8[::1](_ScaledProblem, f8[:,::1], i8[::1], f8[::1])")
def _cheapest(program: _ScaledProblem, regret: Floats, left: Ints, price: Floats) -> Ints:
    """The options of the open items with the least regret, with the price of the units that are left over;
    (0,) where none keeps to them."""
    items, options = regret.shape
    resources = len(left)
    stride = np.ones(resources, np.int64)
    for t in range(1, resources):
        stride[t] = stride[t - 1] * (left[t - 1] + 1)
    states = stride[-1] * (left[-1] + 1)
    used = np.empty((resources, states), np.int64)
    for s in range(states):
        for t in range(resources):
            used[t, s] = s // stride[t] % (left[t] + 1)
    best = np.full(states, np.inf)
    best[0] = 0.0
    chosen = np.full((items, states), -2, np.int16)
    for i in range(items):
        now = np.full(states, np.inf)
        for c in range(options):
            loss = regret[i, c]
            if loss == np.inf:
                continue
            t = program.resource[c - 1] if c > 0 else 0
            demand = program.demand[c - 1] if c > 0 else 0
            shift = demand * stride[t]
            for s in range(shift, states):
                if used[t, s] >= demand and best[s - shift] + loss < now[s]:
                    now[s] = best[s - shift] + loss
                    chosen[i, s] = c - 1
        best = now
    at, least = -1, np.inf
    for s in range(states):
        loss = best[s]
        for t in range(resources):
            loss += price[t] * (left[t] - used[t, s])
        if loss < least:
            at, least = s, loss
    option = np.full(items, -1, np.int64)
    if at < 0:
        return option[:0]
    for i in range(items - 1, -1, -1):
        c = int(chosen[i, at])
        option[i] = c
        if c >= 0:
            at -= program.demand[c] * stride[program.resource[c]]
    return option
