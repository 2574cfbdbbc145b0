"""Random allocation problems that the policies are compared on (``tests.oracle`` has the answers)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from fairlead.model.allocation import Allocation
from fairlead.model.allocation_checks import check_allocation
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.plan import Policy
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.job_types import job_types
from tests.programs import Program

ACCELERATORS = ("a", "b", "c")
FAMILIES = ("f0", "f1", "f2", "f3")
KINDS = tuple((family, scale) for family in FAMILIES for scale in (1, 2, 4))


def table(rate: Floats) -> Throughputs:
    """A table of FAMILIES x scale factor 1, 2, 4 on ACCELERATORS from (12, 3) rates."""
    return Throughputs(tuple(SlotType(a) for a in ACCELERATORS), job_types(*KINDS), rate)


def policy_of(name: str, profile: str = "default", seed: int = 0) -> Policy:
    """The policy of that name in the registry, which must be one that makes allocations."""
    made = registry.make(name, seed=seed, profile=profile)
    assert isinstance(made, Policy)
    return made


def optimising(name: str, profile: str = "default") -> Policy:
    """The policy of that name."""
    if name not in {entry.name for entry in registry.BUILT_IN}:
        pytest.skip(f"{name} is not in the registry")
    return policy_of(name, profile)


def matches(program: Program, snapshot: Snapshot, allocation: Allocation) -> None:
    """The allocation can be carried out, reaches the optimum, and proves it."""
    check_allocation(allocation, snapshot)
    report, optimum = allocation.report, program.optimum(snapshot)
    assert report.objective is not None
    if program.loose is None:
        assert report.objective == pytest.approx(optimum, rel=1e-6, abs=1e-9)
    else:
        most = program.loose(snapshot)
        assert optimum * (1 - 1e-6) - 1e-9 <= report.objective <= most * (1 + 1e-6) + 1e-9
    if program.value is not None:
        value = program.value(snapshot, allocation)
        assert value == pytest.approx(report.objective, rel=1e-6, abs=1e-9)
    assert report.violation <= 1e-9
    assert report.gap is not None
    assert report.gap <= 1e-6 or report.objective == 0


@st.composite
def snapshots(draw: st.DrawFn, least_rate: float = 0.0, max_jobs: int = 10) -> Snapshot:
    """A few jobs of a few classes on a small cluster."""
    one = st.one_of(st.just(least_rate), st.floats(0.5, 50.0))
    rate = np.array(draw(st.lists(one, min_size=36, max_size=36))).reshape(12, 3)
    counts = draw(
        st.dictionaries(st.sampled_from(ACCELERATORS), st.integers(1, 6), min_size=1, max_size=3)
    )
    n = draw(st.integers(1, max_jobs))
    jobs = [
        InstanceJob(
            10 + 3 * i,
            draw(st.sampled_from(FAMILIES)),
            draw(st.sampled_from([1, 1, 2, 4])),
            draw(st.sampled_from([1.0, 1.0, 0.5, 5.0])),
        )
        for i in range(n)
    ]
    return snapshot_of(jobs, Cluster.of(counts), table(rate))


@st.composite
def rich_snapshots(draw: st.DrawFn, max_jobs: int = 7) -> Snapshot:
    """The same with all that any policy reads: steps left, ages, isolated times, deadlines, tenants,
    prices, pair rates, and spread slot types that draw on the devices of consolidated ones."""
    plain = draw(snapshots(max_jobs=max_jobs))
    n = len(plain.jobs)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    steps = draw(st.lists(st.sampled_from([1.0, 1e3, 1e6, 0.0]), min_size=n, max_size=n))
    late = draw(st.lists(st.sampled_from([np.inf, 1.0, 100.0, 1e4]), min_size=n, max_size=n))
    tenant = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    return with_pairs(
        with_spread(
            replace(
                plain,
                steps_left=np.array(steps) * rng.uniform(0.5, 2.0, n),
                age_s=rng.choice([0.0, 1.0], n) * rng.lognormal(5.0, 2.0, n),
                isolated_s=rng.choice([0.0, 1.0], n) * rng.lognormal(5.0, 2.0, n),
                deadline_s=np.array(late) * rng.uniform(0.5, 2.0, n),
                tenant=np.array(tenant),
                tenants=("red", "green", "blue"),
                price=rng.uniform(0.1, 4.0, len(plain.capacity)),
            ),
            rng,
        ),
        rng,
    )


def with_spread(snapshot: Snapshot, rng: np.random.Generator) -> Snapshot:
    """The same with a spread slot type beside some of the types, at most as fast; jobs of one device
    are never spread."""
    types = np.flatnonzero(rng.random(len(snapshot.capacity)) < 0.5)
    if not len(types):
        return snapshot
    n, slots = snapshot.solo_rate.shape
    slower = rng.choice([1.0, 0.9, 0.4, 0.0], (len(KINDS), len(types)))[snapshot.job_type]
    spread = snapshot.solo_rate[:, types] * slower * (snapshot.scale > 1)[:, None]
    none = np.zeros((n, slots + len(types)))
    return replace(
        snapshot,
        slots=snapshot.slots
        + tuple(SlotType(snapshot.slots[t].accelerator, Locality.SCATTERED) for t in types),
        accelerator_of_slot=np.concatenate([snapshot.accelerator_of_slot, types]),
        rate=np.hstack([snapshot.solo_rate, spread])[:, :, None],
        received_s=none,
        deficit_s=none,
        share=none,
        allocated_s=np.zeros(slots + len(types)),
    )


def with_pairs(snapshot: Snapshot, rng: np.random.Generator) -> Snapshot:
    """The same with rates of pairs: of each kind beside each other, at most its rate alone."""
    alone = np.zeros((len(KINDS), len(snapshot.slots)))
    alone[snapshot.job_type] = snapshot.solo_rate
    progress = rng.uniform(0.2, 1.0, (len(KINDS), len(KINDS), len(snapshot.slots)))
    able = rng.random(progress.shape) < 0.8
    able &= able.transpose(1, 0, 2)
    able &= (alone > 0)[:, None] & (alone > 0)
    return replace(snapshot, colocated_rate=np.where(able, progress, 0.0) * alone[:, None])
