"""Long-run shares, and the report of the solve that found them."""

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.model.argument_checks import (
    BOOLEAN,
    NUMBER,
    TEXT,
    WHOLE_NUMBER,
    check_fields,
    is_whole,
    list_of,
    or_none,
)
from fairlead.model.arrays import Floats, Ints


def _are_ids(value: object) -> bool:
    return isinstance(value, Iterable) and all(map(is_whole, value))


_REPORT = {
    "status": TEXT,
    "objective": or_none(NUMBER),
    "bound": or_none(NUMBER),
    "violation": NUMBER,
    "iterations": WHOLE_NUMBER,
    "warm": BOOLEAN,
    "basis": list_of(bytes, "a tuple of bytes"),
    "unmet": (_are_ids, "ids of jobs"),
}


@dataclass(frozen=True, slots=True)
class SolveReport:
    """The way in which an allocation was found, and its quality. Nothing here depends on the wall clock: a
    replay of the journal must find the same report."""

    status: str  # how the shares were found, for people: "optimal", "closed-form", "rounded", ...
    objective: float | None = None  # the policy's own, as its docstring defines it
    bound: float | None = None  # a proven bound on the objective, from unaggregated data
    violation: float = 0.0  # largest excess over a constraint, relative to its right-hand side
    iterations: int = 0
    warm: bool = False
    basis: tuple[bytes, ...] = ()  # opaque: where the next solve may start from
    unmet: tuple[int, ...] = ()  # ids of jobs that will miss their deadlines at these shares

    def __post_init__(self) -> None:
        """Convert NumPy's numbers to Python's: a report is journalled and printed."""
        check_fields(self, _REPORT)
        for name in ("objective", "bound", "violation"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))
        object.__setattr__(self, "unmet", tuple(int(job) for job in self.unmet))

    @property
    def gap(self) -> float | None:
        """Relative distance between objective and bound; None where the policy has no bound."""
        if self.objective is None or self.bound is None:
            return None
        return abs(self.bound - self.objective) / max(abs(self.objective), 1e-12)


@dataclass(frozen=True, slots=True)
class SharesByNumber:
    """The shares of an allocation by slot type and number of devices, where jobs are elastic."""

    slot: Ints  # (configurations,) slot type
    devices: Ints  # (configurations,)
    share: Floats  # (groups, configurations) in [0, 1]


@dataclass(frozen=True, slots=True)
class Allocation:
    """share[u, t]: fraction of wall-clock time that job group u should spend on slot type t."""

    job_groups: Ints  # (groups, width) job ids, -1 after the last member
    share: Floats  # (groups, slots) in [0, 1]
    report: SolveReport
    by_number: SharesByNumber | None = None  # None: every job keeps its number of devices
