"""A policy's planner, with the rules that the mechanism's settings name."""

from fairlead.model.plan import Change, Policy
from fairlead.scheduler.mechanism.gavel_reference.rules import (
    OnlyAllocated,
    ResetAccounts,
    Shuffler,
    TypeByType,
)
from fairlead.scheduler.mechanism.rules import (
    AccountingRule,
    CarriedAccounts,
    FillingRule,
    LargestDeficitFirst,
)
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.scheduler.mechanism.shares_planner import SharesPlanner


def make_planner(policy: Policy, settings: MechanismSettings, shuffler: Shuffler) -> SharesPlanner:
    """The planner that realises a policy's shares. shuffler: orders the types where the policy is agnostic
    and types are filled one by one."""
    return SharesPlanner(
        policy=policy,
        settings=settings,
        filling=_filling(settings, shuffler),
        accounting=_accounting(settings),
        ignored=Change(0) if settings.shockwave.solve_on_adaptation else Change.REQUIREMENTS,
    )


def _filling(settings: MechanismSettings, shuffler: Shuffler) -> FillingRule:
    rule: FillingRule = (
        TypeByType(shuffler)
        if settings.gavel.type_by_type
        else LargestDeficitFirst(settings.round_s, settings.preemption_hysteresis)
    )
    return rule if settings.gavel.place_unallocated else OnlyAllocated(rule)


def _accounting(settings: MechanismSettings) -> AccountingRule:
    if settings.gavel.reset_accounts:
        return ResetAccounts(settings.round_s, settings.shockwave.clear_when_stalled)
    return CarriedAccounts(settings.round_s)
