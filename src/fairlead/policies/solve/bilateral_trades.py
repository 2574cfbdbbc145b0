"""A market in which owners whose speed-ups differ exchange fast devices for slow ones.

An owner values a device of type j at v_j; its speed-up from b to a is v_a / v_b. Whoever has the largest
speed-up buys devices of a from whoever has the smallest and pays in devices of b, at the second largest
speed-up: not above what a device is worth to the buyer, not below what it is worth to the seller, and not
in the hands of the buyer, who gains nothing by naming another figure (Vickrey). Source: Chaudhary et al.,
EuroSys'20, section 4.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fairlead.model.arrays import Floats

_PASSES = 100  # over all pairs of types; markets that were seen took fewer than ten
_MIN_TRADE = 1e-9  # of a device, or of a gain: not worth a trade


@dataclass(frozen=True, slots=True)
class TradeMarket:
    """Owners and what they hold. ``trade`` changes ``allocated`` and ``pool`` in place."""

    allocated: Floats  # (owners, types) devices
    value: Floats  # (owners, types) what a device of the type is worth to the owner
    most: Floats  # (owners,) devices that an owner can use at once
    pool: Floats  # (types,) devices that nobody holds: to be had for another one each


def trade(market: TradeMarket) -> int:
    """Trade until no trade gains anything. Returns the number of trades."""
    trades = 0
    for _ in range(_PASSES):
        before = trades
        for a, b in combinations(range(len(market.pool)), 2):
            trades += _swap_with_pool(market, a, b) + _swap_with_pool(market, b, a)
            trades += _Pair(market, a, b).trade()
        if trades == before:
            break
    return trades


def _swap_with_pool(market: TradeMarket, a: int, b: int) -> int:
    """Owners swap devices of b for devices of a from the pool, those who gain most first. Returns the number
    of swaps."""
    gain = market.value[:, a] - market.value[:, b]
    relative = np.divide(gain, market.value[:, b], out=gain.copy(), where=market.value[:, b] > 0)
    relative[(market.value[:, b] <= 0) & (gain > 0)] = np.inf
    swaps = 0
    for owner in np.argsort(-relative, kind="stable").tolist():
        amount = min(market.pool[a], market.allocated[owner, b])
        if relative[owner] <= _MIN_TRADE or market.pool[a] <= _MIN_TRADE:
            break
        if amount > _MIN_TRADE:
            market.allocated[owner, a] += amount
            market.allocated[owner, b] -= amount
            market.pool[a] -= amount
            market.pool[b] += amount
            swaps += 1
    return swaps


class _Pair:
    """The market in two types: a is bought, b is what is paid in."""

    def __init__(self, market: TradeMarket, a: int, b: int) -> None:
        self.market, self.a, self.b = market, a, b
        va, vb = market.value[:, a], market.value[:, b]
        speedup = np.divide(va, vb, out=np.full(len(va), np.inf), where=vb > 0)
        owners = np.flatnonzero((va > 0) | (vb > 0))
        self.owners = owners[np.argsort(-speedup[owners], kind="stable")]  # largest speed-up first
        self.speedup = speedup[self.owners]
        finite = self.speedup[np.isfinite(self.speedup)]
        self.max_price = float(finite[0]) if len(finite) else 1.0

    def trade(self) -> int:
        """The owner with the largest speed-up buys from the one with the smallest, as long as these differ.
        Returns the number of trades."""
        buyer, seller, trades = 0, len(self.owners) - 1, 0
        while buyer < seller and self.speedup[buyer] > self.speedup[seller] * (1 + _MIN_TRADE):
            s, b = int(self.owners[seller]), int(self.owners[buyer])
            if self.market.allocated[b, self.b] <= _MIN_TRADE:
                buyer += 1
            elif self.market.allocated[s, self.a] <= _MIN_TRADE:
                seller -= 1
            else:
                price = self._price(buyer, seller)
                if price > 1 and self._tradable(s) <= _MIN_TRADE:
                    seller -= 1
                elif price < 1 and self._tradable(b) <= _MIN_TRADE:
                    buyer += 1
                else:
                    self._exchange(s, b, price)
                    trades += 1
        return trades

    def _tradable(self, owner: int) -> float:
        """Devices that the owner could use beyond those it holds."""
        return float(self.market.most[owner] - self.market.allocated[owner].sum())

    def _price(self, buyer: int, seller: int) -> float:
        """Devices of b for one of a: the second largest speed-up; or 1, if both gain by it, where one of
        the two has no use for more devices."""
        low, high = float(self.speedup[seller]), float(self.speedup[buyer])
        price = min(float(self.speedup[buyer + 1]), max(self.max_price, low))
        if np.isinf(high):  # what the buyer pays in is worthless to it
            price = max(price, 1.0)
        limit = self._tradable(int(self.owners[seller if price > 1 else buyer]))
        return 1.0 if limit <= _MIN_TRADE and low <= 1.0 <= high else price

    def _exchange(self, seller: int, buyer: int, price: float) -> None:
        """Exchange as many devices as both have and can use."""
        allocated = self.market.allocated
        amount = allocated[seller, self.a]
        if price > 0:
            amount = min(amount, allocated[buyer, self.b] / price)
        if price > 1:
            amount = min(amount, self._tradable(seller) / (price - 1))
        elif price < 1:
            amount = min(amount, self._tradable(buyer) / (1 - price))
        for owner, sign in ((buyer, 1.0), (seller, -1.0)):
            allocated[owner, self.a] = max(0.0, allocated[owner, self.a] + sign * amount)
            allocated[owner, self.b] = max(0.0, allocated[owner, self.b] - sign * amount * price)
