"""The setup of a fresh scheduler: enough to build it again from a journal, without any other file."""

import random
from dataclasses import dataclass, field

from fairlead.errors import ConfigError
from fairlead.model.allocation import Allocation
from fairlead.model.cluster import Cluster
from fairlead.model.job import RestartCosts
from fairlead.model.plan import BasePolicy, Planner, Policy, optional_traits
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.scheduler.core.checkpoint import SchedulerCheckpoint
from fairlead.scheduler.core.restore import restore_into
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.mechanism.checking import check_planner, check_traits, is_meant_as_planner
from fairlead.scheduler.mechanism.make_planner import make_planner
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.scheduler.placement.rule import PlacementRule
from fairlead.scheduler.plugins import check_made, find_placement


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTraits(BasePolicy):
    """The traits of a policy that the mechanism needs. Stands for it in a replay, where nothing is solved."""

    name: str
    heterogeneity_aware: bool
    space_sharing: bool
    work_conserving: bool
    global_queue: bool
    strict: bool = False
    solve_every_s: float | None = None
    weighs_prices: bool = False
    elastic: bool = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """Never called: in a replay the allocations are events."""
        raise NotImplementedError(f"{self.name}: a replay does not solve (at {snapshot.now_s} s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Cluster, believed rates, policy, profile, seed. ``traits`` is None for a planner of its own."""

    version: str
    cluster: Cluster
    throughputs: Throughputs
    policy: str
    settings: MechanismSettings
    seed: int
    restart_costs: RestartCosts = field(default_factory=RestartCosts)
    resume_costs: RestartCosts | None = None  # on the servers where a job ran last; None = the same
    overlap_solves: bool = False
    traits: PolicyTraits | None = None
    placement: str = ""  # name of the rule; "" = that of the settings


def traits_of(policy: Policy) -> PolicyTraits:
    """The traits of a policy."""
    optional = optional_traits(policy)
    return PolicyTraits(
        name=policy.name,
        heterogeneity_aware=policy.heterogeneity_aware,
        space_sharing=policy.space_sharing,
        work_conserving=policy.work_conserving,
        global_queue=optional.global_queue,
        strict=optional.strict,
        solve_every_s=optional.solve_every_s,
        weighs_prices=optional.weighs_prices,
        elastic=optional.elastic,
    )


def check_policy(policy: object, name: str) -> None:
    """ConfigError unless an object is a planner or has all that a policy has."""
    if policy is None:
        raise ConfigError(f"policy {name!r}: expected a policy or a planner, got None")
    check_made("policy", policy)
    if isinstance(policy, Planner) or is_meant_as_planner(policy):
        check_planner(policy)
    else:
        check_traits(policy)


def planner_of(
    policy: Policy | Planner, name: str, seed: int, profile: MechanismSettings
) -> Planner:
    """The planner itself, or the one that realises a policy's shares. name: for an error's sentence."""
    if isinstance(policy, Planner):
        return policy
    check_policy(policy, name)
    if isinstance(policy, Policy):
        shuffler = random.Random(seed + 5)  # Gavel's stream for the order of types
        return make_planner(policy, profile, shuffler)
    raise ConfigError(f"{name!r} is neither a policy nor a planner")


def build(
    setup: Setup,
    policy: Policy | Planner | None = None,
    placement: PlacementRule | None = None,
) -> Scheduler:
    """A fresh scheduler. Without the policy, as for a replay, its traits stand in for it; without the rule
    of placement, it is found by its name."""
    if policy is None:
        policy = setup.traits or registry.make(
            setup.policy, seed=setup.seed, profile=setup.settings.name
        )
    planner = planner_of(policy, setup.policy, setup.seed, setup.settings)
    return Scheduler(
        setup.cluster,
        setup.throughputs,
        planner,
        setup.settings,
        restart_costs=setup.restart_costs,
        overlap_solves=setup.overlap_solves,
        policy=setup.policy,
        placement=placement or find_placement(setup.placement or None),
        preempted_return=setup.resume_costs is not None,
    )


def restore(
    setup: Setup, state: SchedulerCheckpoint, policy: Policy | Planner | None = None
) -> Scheduler:
    """A scheduler that goes on from a state, under this setup: its cluster, table, policy and profile may
    be others than those of the scheduler that the state is of.

    Under an equal setup it goes on as the other would have, but for random draws. Whoever takes a state
    to journal it goes on with the scheduler restored from it, as a replay does: a solve that was under way
    is forgotten, and asked for anew at the next decision. Where no round is in force, an
    event must follow that makes the core decide: ``JobsSubmitted`` of no jobs will do.
    """
    scheduler = build(setup, policy)
    restore_into(scheduler.data, state)
    return scheduler
