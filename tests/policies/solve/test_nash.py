"""Proportionally fair shares: certified at any scale of weights, loads and sizes."""

from dataclasses import replace

import numpy as np
import pytest

from fairlead.policies.solve.nash import (
    Equilibrium,
    NashMarket,
    equilibrium,
    surplus,
)


def market(seed: int, classes: int, types: int, load: float, decades: float = 0.0) -> NashMarket:
    """Random classes of 1 to 9 jobs; weights over so many decades; a tenth of the rates 0."""
    rng = np.random.default_rng(seed)
    rate = 50 * rng.lognormal(0.0, 1.0, (classes, 1)) * rng.lognormal(0.0, 0.5, (classes, types))
    rate[rng.random(rate.shape) < 0.1] = 0.0
    rate[rate.max(axis=1) == 0] = 1.0
    count = rng.integers(1, 10, classes).astype(float)
    scale = rng.choice([1.0, 1.0, 2.0, 4.0, 8.0], classes)
    devices = count @ scale / load / types * rng.uniform(0.3, 2.0, types)
    return NashMarket(
        rate=rate,
        weight=10.0 ** -rng.uniform(0.0, decades, classes),
        class_size=count,
        scale=scale,
        accelerator_of_slot=np.arange(types),
        slot_devices=np.ones(types),
        capacity=np.maximum(1.0, np.round(devices)),
    )


def gap(market: NashMarket, found: Equilibrium) -> float:
    """The certificate of single jobs, relative to the sum of weights."""
    job = np.repeat(np.arange(len(market.rate)), market.class_size.astype(int))
    jobs = market._replace(
        rate=market.rate[job],
        weight=market.weight[job],
        class_size=np.ones(len(job)),
        scale=market.scale[job],
    )
    beyond = surplus(jobs, found.throughput(market)[job], found.price)
    return beyond / float(market.weight @ market.class_size)


def feasible(market: NashMarket, found: Equilibrium) -> bool:
    used = np.bincount(
        market.accelerator_of_slot,
        (market.class_size * market.scale) @ found.share,
        len(market.capacity),
    )
    time = found.share.sum(axis=1)
    return bool((used <= market.capacity * (1 + 1e-12)).all() and (time <= 1 + 1e-12).all())


@pytest.mark.parametrize("decades", [0.0, 2.0, 9.0])
@pytest.mark.parametrize("load", [0.3, 1.0, 3.0, 30.0])
@pytest.mark.parametrize(("classes", "types"), [(1, 1), (1, 3), (10, 3), (200, 3), (60, 20)])
def test_the_optimum_is_proven(classes: int, types: int, load: float, decades: float) -> None:
    for seed in range(2):
        problem = market(seed, classes, types, load, decades)
        found = equilibrium(problem)
        assert gap(problem, found) <= 1e-11
        assert feasible(problem, found)
        assert not found.share[problem.rate == 0].any()


def test_several_slots_may_draw_on_one_type() -> None:
    """A slower slot on the same devices changes nothing for those who have the faster."""
    problem = market(3, 20, 2, 2.0)
    slower = problem._replace(
        rate=np.hstack([problem.rate, 0.9 * problem.rate]),
        accelerator_of_slot=np.array([0, 1, 0, 1]),
        slot_devices=np.ones(4),
    )
    made = equilibrium(slower)
    assert gap(slower, made) <= 1e-11
    throughput = equilibrium(problem).throughput(problem)
    assert made.throughput(slower) == pytest.approx(throughput, rel=1e-6)


def test_equal_jobs_are_alike_whether_in_one_class_or_not() -> None:
    together = market(4, 15, 3, 3.0)
    job = np.repeat(np.arange(15), together.class_size.astype(int))
    apart = NashMarket(
        rate=together.rate[job],
        weight=together.weight[job],
        class_size=np.ones(len(job)),
        scale=together.scale[job],
        accelerator_of_slot=together.accelerator_of_slot,
        slot_devices=together.slot_devices,
        capacity=together.capacity,
    )
    expected = equilibrium(together).throughput(together)[job]
    assert equilibrium(apart).throughput(apart) == pytest.approx(expected, rel=1e-8)


def test_every_job_spends_its_weight_where_money_buys_most() -> None:
    problem = market(5, 30, 4, 5.0)
    found = equilibrium(problem)
    made = found.throughput(problem)
    marginal = problem.rate * (problem.weight / made)[:, None]
    cost = problem.scale[:, None] * found.price[problem.accelerator_of_slot]
    rent = np.maximum(0.0, (marginal - cost).max(axis=1))
    assert (cost * found.share).sum(axis=1) + rent == pytest.approx(problem.weight, rel=1e-6)
    used = found.share > 1e-6
    best = (rent[:, None] + cost)[used]
    assert marginal[used] == pytest.approx(best, rel=1e-5)


def test_any_prices_prove_a_bound() -> None:
    """Sloppy prices only make it looser."""
    problem = market(6, 12, 3, 3.0)
    found = equilibrium(problem)
    tight = gap(problem, found)
    for factor in (0.0, 0.5, 1.01, 3.0):
        assert gap(problem, replace(found, price=found.price * factor)) >= tight - 1e-12


def test_nobody_gives_nothing() -> None:
    none = NashMarket(
        rate=np.zeros((0, 2)),
        weight=np.zeros(0),
        class_size=np.zeros(0),
        scale=np.zeros(0),
        accelerator_of_slot=np.arange(2),
        slot_devices=np.ones(2),
        capacity=np.ones(2),
    )
    assert equilibrium(none).share.shape == (0, 2)
