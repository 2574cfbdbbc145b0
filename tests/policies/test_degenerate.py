"""Every optimising policy on the instances at the edges: an answer that can be carried out, with a proof."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fairlead.errors import ConfigError
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.plan import Policy, RoundPlan
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.job_types import job_types
from tests.policies.problems import matches, optimising
from tests.programs import PROGRAMS, UNIQUE

RATE = np.array([[10.0, 4.0, 1.0], [6.0, 5.0, 2.0], [3.0, 1.0, 0.5], [20.0, 1.0, 8.0]])


def instance(
    rate: Floats,  # (jobs, types)
    devices: list[int],
    scale: list[int] | None = None,
    weight: Floats | None = None,
    steps: Floats | None = None,
    price: float = 1.0,
    colocated_rate: float = 0.6,
) -> Snapshot:
    """Jobs of a kind each; in pairs everybody has ``colocated_rate`` of the rate alone."""
    n, types = rate.shape
    accelerators = [f"t{j:02}" for j in range(types)]
    size = scale or [1] * n
    kinds = tuple((f"job {i}", size[i]) for i in range(n))
    pair = np.where((rate > 0)[:, None] & (rate > 0), colocated_rate * rate[:, None], 0.0)
    table = Throughputs(tuple(SlotType(a) for a in accelerators), job_types(*kinds), rate, pair)
    weights = np.ones(n) if weight is None else weight
    left = np.linspace(1e3, 1e5, n) if steps is None else steps
    jobs = [
        InstanceJob(
            i,
            *kinds[i],
            float(weights[i]),
            float(left[i]),
            60.0 * i,
            f"tenant {i % 2}",
            1e4 * (i + 1),
        )
        for i in range(n)
    ]
    prices = {a: price * (j + 1) for j, a in enumerate(accelerators)}
    cluster = Cluster.of(dict(zip(accelerators, devices, strict=True)), 1, prices)
    return snapshot_of(jobs, cluster, table)


def no_devices() -> Snapshot:
    """The last node of every type is lost."""
    return replace(instance(RATE, [1, 1, 1]), capacity=np.zeros(3))


def one_type_lost() -> Snapshot:
    return replace(instance(RATE, [1, 1, 1]), capacity=np.array([0.0, 1.0, 1.0]))


def fifty_types() -> Snapshot:
    rng = np.random.default_rng(50)
    return instance(rng.lognormal(0.0, 1.0, (8, 50)), [1] * 50, [4] * 8)


def zero_rates() -> Snapshot:
    return instance(RATE * (np.arange(12).reshape(4, 3) % 3 != 1), [1, 2, 1])


CASES: dict[str, Callable[[], Snapshot]] = {
    "one job": lambda: instance(RATE[:1], [1, 1, 1]),
    "one job, one type": lambda: instance(np.array([[3.0]]), [1]),
    "a job too large for the cluster": lambda: instance(RATE[:2], [1, 1, 1], [8, 1]),
    "no feasible type for one job": lambda: instance(RATE * [[1], [0], [1], [1]], [1, 1, 1]),
    "no feasible type for any job": lambda: instance(0 * RATE, [1, 1, 1]),
    "demand below supply": lambda: instance(RATE, [9, 9, 9]),
    "a job alone at its cap": lambda: instance(
        np.array([[1.0], [1.0]]), [2], weight=np.array([9.0, 1.0])
    ),
    "zero rates": zero_rates,
    "equal jobs": lambda: instance(np.repeat(RATE[:1], 12, axis=0), [1, 2, 3]),
    "50 types": fifty_types,
    "weights over nine orders of magnitude": lambda: instance(
        RATE, [1, 1, 1], weight=np.array([1e-5, 1e-2, 1.0, 1e4])
    ),
    "no steps left for one job": lambda: instance(
        RATE, [1, 1, 1], steps=np.array([0, 1e3, 1e4, 5.0])
    ),
    "no steps left": lambda: instance(RATE, [1, 1, 1], steps=np.zeros(4)),
    "steps over nine orders of magnitude": lambda: instance(
        RATE, [1, 1, 1], steps=np.array([1.0, 1e3, 1e6, 1e9])
    ),
    "rates over nine orders of magnitude": lambda: instance(
        RATE * [[1e-5], [1e-2], [1.0], [1e4]], [1, 1, 1]
    ),
    "no devices": no_devices,
    "a type without devices": one_type_lost,
    "devices for nothing": lambda: instance(RATE, [1, 1, 1], price=0.0),
    "pairs that never pay": lambda: instance(RATE, [1, 1, 1], colocated_rate=0.5),
    "pairs without loss": lambda: instance(RATE, [1, 1, 1], colocated_rate=1.0),
    "pairs that cannot be": lambda: instance(RATE, [1, 1, 1], colocated_rate=0.0),
    "no table of pairs": lambda: replace(instance(RATE, [1, 1, 1]), colocated_rate=None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_answer_can_be_carried_out_and_is_proven(name: str, case: str) -> None:
    snapshot = CASES[case]()
    if PROGRAMS[name].priced and not snapshot.price.all():
        with pytest.raises(ConfigError, match="needs a price above 0"):
            optimising(name).allocate(snapshot)
        return
    matches(PROGRAMS[name], snapshot, optimising(name).allocate(snapshot))


def test_every_policy_that_proves_a_bound_is_compared() -> None:
    elsewhere = {"allox"}  # a matching, tests/policies/test_allox.py
    snapshot = instance(RATE, [1, 1, 1])
    for entry in registry.BUILT_IN:
        if not entry.argument or entry.argument.startswith("["):
            made = registry.make(entry.name, seed=0, profile="default")
            if isinstance(made, Policy) and made.allocate(snapshot).report.bound is not None:
                assert entry.name in {*PROGRAMS, *UNIQUE, *elsewhere}


KEEP_THEIR_TYPE = ("allox", "fifo", "shortest_job_first", "srtf", "tiresias")


@pytest.mark.parametrize("profile", ["default", "gavel"])  # Shockwave's own AlloX moves nobody
@pytest.mark.parametrize("name", KEEP_THEIR_TYPE)
def test_a_job_does_not_stay_on_a_type_that_cannot_run_it(name: str, profile: str) -> None:
    """A policy that does not look at rates, in force before, may have put it there."""
    rate = np.array([[1.0, 0.0], [1.0, 0.0]])
    there = np.array([[0.0, 1.0], [0.0, 1.0]])
    snapshot = instance(rate, [2, 2])
    snapshot = replace(snapshot, share=there, running_on=np.array([1, 1]))
    policy = registry.make(name, seed=0, profile=profile)
    if isinstance(policy, Policy):
        share = policy.allocate(snapshot).share
        assert share.tolist() == [[1.0, 0.0], [1.0, 0.0]]
        return
    plan, _ = policy.plan(snapshot, policy.start())
    assert isinstance(plan, RoundPlan)
    assert dict(zip(plan.job_group.tolist(), plan.slot.tolist(), strict=True)) == {0: 0, 1: 0}
