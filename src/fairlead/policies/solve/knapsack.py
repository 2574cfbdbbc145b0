"""Knapsacks whose items come in few sizes, solved exactly around the break of a greedy filling.

Items of one size are alike but for their value, so the best k of them are the k most valuable, and a
filling is a number per size. The greedy filling by value per size is the optimum of the linear
relaxation. Nearest to it among the best whole fillings is one that has no items in place of others of
the same total size: exchanging them back would cost nothing. Such a filling differs from the greedy one
by little, and a dynamic program over that little finds it (proximity: Eisenbrand and Weismantel,
"Proximity results and faster algorithms for integer programming using the Steinitz lemma", 2020):

* sizes that divide one another: whatever is put in weighs less than twice the largest size, and so does
  what is taken out, for any larger heap of small items holds a part as heavy as the largest one;
* other sizes: put in and taken out in turn, the balance stays within the largest size and never comes
  back to a value that it had, so there are at most twice as many exchanges as the largest size.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats2, Ints1, Ints2

MAX_CARRY = 1 << 13  # beyond it, a filling is not proven to be the best


def exchange_range(sizes: Ints) -> tuple[int, bool]:
    """The weight that the best filling may put in or take out at most, and whether the limit leaves it
    optimal.

    sizes: (classes,) distinct, ascending, positive.
    """
    largest = int(sizes[-1])
    chain = not np.any(sizes[1:] % sizes[:-1])
    max_carry = 2 * largest if chain else largest * (largest + 2)
    return min(max_carry, MAX_CARRY), max_carry <= MAX_CARRY


class NearestItems(NamedTuple):
    """The items of each size that are nearest to the break of the greedy filling, on one side of it."""

    total: Floats2  # (classes, items) worth of the first 1, 2, ... of them
    item: Ints2  # (classes, items) their places
    number: Ints1  # (classes,) how many there are


@kernel("i8[::1](i8[::1], NearestItems, NearestItems, i8, i8, i8)")
def exchange(
    sizes: Ints, above: NearestItems, below: NearestItems, low: int, high: int, max_carry: int
) -> Ints:
    """Return how many items of each size to put in (> 0) or take out (< 0): (classes,), most value for a
    change of the weight within low .. high; zeros if no change is within.

    sizes: (classes,); above: items that may be put in; below: those that may be taken out.
    """
    classes = len(sizes)
    width = 2 * max_carry + 1
    best = np.full(width, -np.inf)
    best[max_carry] = 0.0
    chosen = np.zeros((classes, width), np.int64)
    for c in range(classes):
        before = best.copy()
        for change in range(-below.number[c], above.number[c] + 1):
            if change == 0:
                continue
            worth = above.total[c, change - 1] if change > 0 else -below.total[c, -change - 1]
            shift = change * sizes[c]
            for at in range(max(0, -shift), min(width, width - shift)):
                value = before[at] + worth
                if value > best[at + shift]:
                    best[at + shift] = value
                    chosen[c, at + shift] = change
    at = -1
    for place in range(max(0, max_carry + low), min(width, max_carry + high + 1)):
        if best[place] > -np.inf and (at < 0 or best[place] > best[at]):
            at = place
    changes = np.zeros(classes, np.int64)
    if at >= 0:
        for c in range(classes - 1, -1, -1):
            changes[c] = chosen[c, at]
            at -= changes[c] * sizes[c]
    return changes


@kernel("NearestItems(f8[::1], i8[::1], i8[::1], i8, i8, i8)")
def _nearest(
    worth: Floats, class_of: Ints, sizes: Ints, start: int, direction: int, max_carry: int
) -> NearestItems:
    """The items of each size from a place on, in one direction (1 or -1), as far as they may matter."""
    classes, most = len(sizes), min(len(worth), max_carry // sizes[0])
    total, item = np.zeros((classes, most)), np.zeros((classes, most), np.int64)
    found = np.zeros(classes, np.int64)
    unfinished = len(sizes)
    at = start
    while 0 <= at < len(worth) and unfinished > 0:
        c = class_of[at]
        n = found[c]
        if n < total.shape[1] and (n + 1) * sizes[c] <= max_carry:
            total[c, n] = worth[at] + (total[c, n - 1] if n > 0 else 0.0)
            item[c, n] = at
            found[c] += 1
            if (n + 2) * sizes[c] > max_carry:
                unfinished -= 1
        at += direction
    return NearestItems(total, item, found)


@kernel("b1[::1](f8[::1], i8[::1], i8[::1], i8, i8, i8)")
def choose(
    worth: Floats, class_of: Ints, sizes: Ints, low: int, high: int, max_carry: int
) -> Bools:
    """Which items to take, (items,), for the most worth with a weight within low .. high; if no weight near
    that of the greedy filling is, some that weigh no more than ``high``.

    worth: (items,) by falling worth per size; class_of: (items,) places in sizes.
    """
    items = len(worth)
    taken = np.zeros(items, np.bool_)
    left, broke = high, items
    for at in range(items):
        if sizes[class_of[at]] > left:
            broke = at
            break
        left -= sizes[class_of[at]]
        taken[at] = True
    least = low - (high - left)
    if (broke == items or left == 0) and least <= 0:
        return taken
    above = _nearest(worth, class_of, sizes, broke, 1, max_carry)
    below = _nearest(worth, class_of, sizes, broke - 1, -1, max_carry)
    changes = exchange(sizes, above, below, max(least, -max_carry), left, max_carry)
    for c in range(len(sizes)):
        for n in range(changes[c]):
            taken[above.item[c, n]] = True
        for n in range(-changes[c]):
            taken[below.item[c, n]] = False
    return taken
