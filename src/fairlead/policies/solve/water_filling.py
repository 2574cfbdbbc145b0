"""Water filling: heights that are lexicographically as fair as can be, with a proof for each level.

A row of like jobs has a *height*, what a job of it gets per device and normalised; it needs a rate in
proportion. Everything rises together, each row at the pace that the tree gives it
(``fairlead.policies.solve.progressive_filling``); what cannot rise any more stops, and the rest goes on,
until nothing rises.

Whether heights are feasible is a linear program; where they are not, its prices give a *cut*

    cost(height) <= budget         for all feasible heights, with cost growing in every height

Raising a level therefore starts from above, where everything would be full: the cut that forbids it also
says how high the level can be at most, and so on down (Newton's method) to a feasible level, in a
few programs however many rows become full on the way. There the last cut is tight, and stays so: a row can
rise only as far as that costs nothing, and those for which any rise costs something stop. That is Gavel's
search for bottlenecks without its MILP, and without a threshold on how much a rise must be.

The certificate: by the cut that stopped them, rows can together have at most a part
(budget - cost) / sum(marginal cost * height) more than they have, if no other row falls.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fairlead.errors import SolveError
from fairlead.model.arrays import Bools, Floats
from fairlead.policies.solve.progressive_filling import EntityTree, FillTree

REQUIREMENT_TOLERANCE = 1e-11  # part of a capacity that heights may exceed it by
FULL_TOLERANCE = 1e-10  # a row this near to its largest height has it, relatively
STEPS = 200  # of Newton's method for one level; a handful is usual
ROUNDING_TOLERANCE = (
    1e-9  # where no row rises by more than this, relative to its largest height, none does
)
MIN_RISE = 1e-6  # a gap is relative to at least this part of the budget
_BUDGET_TOLERANCE = 1e-13  # rounding in a cost, relative to the budget


class LevelCut(Protocol):
    """A bound on the heights of all rows, from prices."""

    @property
    def budget(self) -> float:
        """Budget of all heights, > 0."""

    @property
    def price(self) -> Floats:
        """(types,) of a device."""

    def cost(self, height: Floats) -> float:
        """Return the cost of heights."""

    def slack_at_price(self, height: Floats) -> tuple[Floats, Floats]:
        """(rows,) the largest height that costs no more than this, and what one height beyond that costs,
        for each job of the row; inf where there is none."""


class FeasibilityOracle(Protocol):
    """Tells whether heights are feasible."""

    def query(self, height: Floats) -> tuple[float, LevelCut]:
        """The part of the capacities by which heights exceed them (<= 0: they are feasible), and a cut."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of like jobs, what they can reach and in which order they rise."""

    tree: EntityTree
    count: Floats  # (rows,) jobs
    cap: Floats  # (rows,) the largest height, 0 = cannot run


@dataclass(frozen=True, slots=True)
class Filled:
    """The heights, and how far from proven the worst level is."""

    height: Floats  # (rows,)
    gap: float  # largest relative rise that no cut excludes
    cuts: tuple[LevelCut, ...]  # those that stopped something


def fill(rows: Rows, oracle: FeasibilityOracle, known: Sequence[LevelCut] = ()) -> Filled:
    """Raise everything until nothing can rise. known: cuts to begin with. At the end the oracle has
    last been asked about the heights that are returned, if any row can run."""
    height, cap = np.zeros_like(rows.cap), rows.cap.copy()
    stopped_by = np.full(len(cap), -1)  # position of a cut, -1 = its own largest height
    cuts, binding = list(known), list[LevelCut]()
    rising: Bools = height < cap * (1 - FULL_TOLERANCE)
    while rising.any():
        remaining = np.where(rising, cap - height, 0.0) * rows.count
        higher, cut = _raise(rows, rows.tree.with_capacity(remaining), height, cap, cuts, oracle)
        if (higher - height > ROUNDING_TOLERANCE * rows.cap).any() or cut is None:
            height = higher
        before, rising = rising, height < cap * (1 - FULL_TOLERANCE)
        if cut is None:
            continue
        most = cut.slack_at_price(height)[0]
        stops = rising & (most < cap * (1 - FULL_TOLERANCE))
        if stops.any():
            cap[stops] = most[stops]
            stopped_by[stops] = len(binding)
            binding.append(cut)
            rising = height < cap * (1 - FULL_TOLERANCE)
        elif (rising == before).all():
            return Filled(height, np.inf, tuple(binding))  # without a proof
    rise = [_rise(rows, cut, height, stopped_by == i) for i, cut in enumerate(binding)]
    return Filled(height, max(rise, default=0.0), tuple(binding))


def _raise(
    rows: Rows,
    tree: FillTree,
    base: Floats,
    cap: Floats,
    cuts: list[LevelCut],
    oracle: FeasibilityOracle,
) -> tuple[Floats, LevelCut | None]:
    """The heights at the highest feasible level, and the cut that forbids more (None: all full).
    New cuts are added to ``cuts``."""

    def heights(level: float) -> Floats:
        return np.minimum(base + tree.fill(level) / rows.count, cap)

    level, binding = tree.full, None
    for cut in cuts:
        lower = _highest(cut, heights, level)
        if lower < level:
            level, binding = lower, cut
    for _ in range(STEPS):
        height = heights(level)
        excess, cut = oracle.query(height)
        if excess <= REQUIREMENT_TOLERANCE:
            return height, binding
        lower = _highest(cut, heights, level)
        if not lower < level * (
            1 - FULL_TOLERANCE
        ):  # nor do the prices tell it from a feasible one
            return height, binding
        cuts.append(cut)
        level, binding = lower, cut
    raise SolveError(f"a level was not met after {STEPS} steps of Newton's method")


def _highest(cut: LevelCut, heights: Callable[[float], Floats], level: float) -> float:
    """The highest level, up to this one, that a cut allows."""
    limit = max(cut.budget, cut.cost(heights(0.0))) * (1 + _BUDGET_TOLERANCE)

    def over(at: float) -> float:
        return cut.cost(heights(at)) / limit - 1.0

    if over(level) <= 0.0:
        return level
    from scipy.optimize import brentq  # a second of CPU time to import

    return float(brentq(over, 0.0, level, xtol=1e-15 * level, rtol=1e-15))


def _rise(rows: Rows, cut: LevelCut, height: Floats, stopped: Bools) -> float:
    """The relative rise of the rows that a cut stopped if they rose together and only it limited them."""
    marginal = cut.slack_at_price(height)[1][stopped]
    here = float(marginal @ (rows.count * height)[stopped])
    return abs(cut.budget - cut.cost(height)) / max(here, MIN_RISE * cut.budget)


@dataclass(frozen=True, slots=True)
class Supply:
    """sum of all heights <= devices: the cut where heights are devices, of any type."""

    count: Floats  # (rows,)
    budget: float  # devices
    price: Floats = field(default_factory=lambda: np.ones(1))

    def cost(self, height: Floats) -> float:
        """See ``LevelCut``."""
        return float(self.count @ height)

    def slack_at_price(self, height: Floats) -> tuple[Floats, Floats]:
        """See ``LevelCut``."""
        return height, np.ones_like(height)

    def query(self, height: Floats) -> tuple[float, LevelCut]:
        """See ``FeasibilityOracle``: there is nothing but the supply."""
        return self.cost(height) / self.budget - 1.0 - REQUIREMENT_TOLERANCE, self
