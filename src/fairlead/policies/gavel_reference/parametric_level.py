"""Makespan and finish-time fairness as Gavel's release answers: the analytic centre of the optima, and v100's
rates for all accelerator types where the policy is agnostic of them."""

from dataclasses import dataclass

from fairlead.model.allocation import Allocation
from fairlead.model.snapshot import Snapshot
from fairlead.policies.finish_time import AgnosticFinishTime, FinishTime, SpaceSharingFinishTime
from fairlead.policies.gavel_reference.analytic_centre import level_analytic_centre
from fairlead.policies.makespan import (
    AgnosticMakespan,
    Makespan,
    SpaceSharingMakespan,
    requirements,
)
from fairlead.policies.parametric_level import (
    agnostic_rate,
    parametric_pairs,
    parametric_singles,
)

REFERENCE = "v100"  # whose rates the release's agnostic policies take for all types


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedMakespan(Makespan):
    """``Makespan`` at the analytic centre of the optima."""

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        return parametric_singles(snapshot, None, requirements(snapshot), level_analytic_centre)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedAgnosticMakespan(AgnosticMakespan):
    """``AgnosticMakespan`` at the analytic centre of the optima."""

    reference: str = REFERENCE

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        rate = agnostic_rate(snapshot, self.reference)
        return parametric_singles(snapshot, rate, requirements(snapshot), level_analytic_centre)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedSpaceSharingMakespan(SpaceSharingMakespan):
    """``SpaceSharingMakespan`` at the analytic centre of the optima, with pairs wherever the program has
    them."""

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        return parametric_pairs(snapshot, requirements(snapshot), level_analytic_centre)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedFinishTime(FinishTime):
    """``FinishTime`` at the analytic centre of the optima, with isolated rates by head."""

    weighted: bool = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        return parametric_singles(snapshot, None, self.demand(snapshot), level_analytic_centre)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedAgnosticFinishTime(AgnosticFinishTime):
    """``AgnosticFinishTime`` at the analytic centre of the optima, with isolated rates by head."""

    weighted: bool = False
    reference: str = REFERENCE

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        rate = agnostic_rate(snapshot, self.reference)
        return parametric_singles(
            snapshot, rate, self.demand(snapshot, rate), level_analytic_centre
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedSpaceSharingFinishTime(SpaceSharingFinishTime):
    """``SpaceSharingFinishTime`` at the analytic centre of the optima, with isolated rates by head and pairs
    wherever the program has them."""

    weighted: bool = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        return parametric_pairs(snapshot, self.demand(snapshot), level_analytic_centre)
