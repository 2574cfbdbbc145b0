"""Policies that learn, in the world of Pollux's release."""

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from tests.simulator.pollux_reference.measured import write_application

from fairlead.errors import ConfigError
from fairlead.estimation.goodput.fit_step_time import ReplicaSetting
from fairlead.policies.elastic.objectives import OBJECTIVES, ElasticSrpt, Sia
from fairlead.simulator.pollux_reference.adaptive import AdaptivePolicy, _goodput
from fairlead.simulator.pollux_reference.applications import (
    Application,
    read_applications,
    read_by_accelerator,
)
from fairlead.simulator.pollux_reference.registry import elastic_policy
from fairlead.simulator.pollux_reference.simulation import ElasticRun, simulate_elastic
from fairlead.simulator.pollux_reference.training import ElasticTraining
from fairlead.simulator.pollux_reference.workload import ElasticJob


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return read_applications(write_application(tmp_path, epochs=20))["app"]


def job(application: Application, name: str, *, at: int = 0) -> ElasticJob:
    return ElasticJob(name=name, submitted_s=at, on={"gpu": application}, replicas=3, batch=32)


def devices_over_time(run: ElasticRun) -> dict[str, list[int]]:
    found = defaultdict(list)
    for change in run.changes:
        found[change.job].append(len(change.nodes))
    return found


def test_a_job_begins_on_one_device_and_doubles_at_most(application: Application) -> None:
    run = simulate_elastic([job(application, "a")], AdaptivePolicy(Sia()), [4, 4], 60.0)
    counts = devices_over_time(run)["a"]
    assert counts[0] == 1
    assert all(after <= 2 * max(counts[:k]) for k, after in enumerate(counts) if k)
    assert max(counts) > 1
    assert run.gap is not None
    assert run.gap < 1e-9
    batches = {change.batch for change in run.changes}
    assert batches <= set(range(32, 65)), "chosen for the job, within those that were measured"


def test_jobs_of_one_application_learn_from_each_other(application: Application) -> None:
    jobs = [job(application, "a"), job(application, "b", at=5000)]
    alone = simulate_elastic(jobs, AdaptivePolicy(ElasticSrpt()), [4, 4], 60.0)
    assert devices_over_time(alone)["b"][0] == 1
    together = simulate_elastic(
        jobs, AdaptivePolicy(ElasticSrpt(), shares_times=True), [4, 4], 60.0
    )
    assert devices_over_time(together)["a"][0] == 1
    assert devices_over_time(together)["b"][0] == max(devices_over_time(together)["a"])
    assert together.jct_s()["b"] < alone.jct_s()["b"]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_nobody_has_what_another_has(application: Application, name: str) -> None:
    jobs = [job(application, f"j{k}", at=40 * k) for k in range(12)]
    run = simulate_elastic(jobs, AdaptivePolicy(OBJECTIVES[name]()), [4, 4], 60.0)
    assert all(one.ended_s is not None for one in run.trainings)
    ends = {one.job.name: one.ended_s or 0.0 for one in run.trainings}
    held = dict[str, tuple[int, ...]]()
    for time_s in sorted({change.time_s for change in run.changes}):
        held = {name: nodes for name, nodes in held.items() if ends[name] > time_s}
        held |= {c.job: c.nodes for c in run.changes if c.time_s == time_s}
        used = Counter(node for nodes in held.values() for node in nodes)
        assert all(used[node] <= 4 for node in used)


def test_an_application_of_one_device_stays_on_one(tmp_path: Path) -> None:
    """As NCF in the release; a policy that shares what it learns needs no such rule."""
    ncf = read_applications(write_application(tmp_path, name="ncf"))["ncf"]
    run = simulate_elastic([job(ncf, "a")], AdaptivePolicy(Sia()), [4], 60.0)
    assert devices_over_time(run)["a"] == [1]


def test_equal_runs(application: Application) -> None:
    jobs = [job(application, f"j{k}", at=70 * k) for k in range(6)]
    once, again = (
        simulate_elastic(jobs, AdaptivePolicy(ElasticSrpt(), shares_times=True), [4, 4], 60.0)
        for _ in range(2)
    )
    assert once.changes == again.changes
    assert once.jct_s() == again.jct_s()


def test_nodes_of_other_sizes_are_refused(application: Application) -> None:
    with pytest.raises(ConfigError, match="--devices-per-server"):
        simulate_elastic([job(application, "a")], AdaptivePolicy(Sia()), [3], 60.0)


def test_a_job_that_no_longer_fits_waits(application: Application) -> None:
    crowd = [replace(job(application, f"j{k}"), submitted_s=1) for k in range(20)]
    run = simulate_elastic(crowd, AdaptivePolicy(Sia()), [4], 60.0)
    first = [change for change in run.changes if change.time_s == 60.0]
    assert len(first) == 4
    assert len(run.jct_s()) == 20


TYPES = ["slow", "slow", "fast"]  # of nodes with four devices each


@pytest.fixture
def on(tmp_path: Path) -> dict[str, Application]:
    speeds = {"slow": 1.0, "fast": 3.0}
    folder = write_application(tmp_path, name="typed", epochs=20, accelerators=speeds)
    return read_by_accelerator(folder, ["slow", "fast"])["typed"]


def typed_job(on: dict[str, Application], name: str, *, at: int = 0) -> ElasticJob:
    return ElasticJob(name=name, submitted_s=at, on=on, replicas=1, batch=32)


def typed_run(jobs: list[ElasticJob], name: str) -> ElasticRun:
    policy = elastic_policy(name, TYPES)
    return simulate_elastic(jobs, policy, [4, 4, 4], 60.0, accelerators=TYPES)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_who_is_alone_runs_where_it_is_fast(on: dict[str, Application], name: str) -> None:
    run = typed_run([typed_job(on, "a")], name)
    assert {TYPES[node] for change in run.changes for node in change.nodes} == {"fast"}
    assert run.gap is not None
    assert run.gap < 1e-9


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_job_has_devices_of_one_type(on: dict[str, Application], name: str) -> None:
    run = typed_run([typed_job(on, f"j{k}", at=30 * k) for k in range(10)], name)
    types = [{TYPES[node] for node in change.nodes} for change in run.changes if change.nodes]
    assert all(len(one) == 1 for one in types)
    assert {"slow", "fast"} == set().union(*types)
    assert len(run.jct_s()) == 10


def test_times_of_several_devices_are_carried_over_to_another_type(
    on: dict[str, Application],
) -> None:
    """A job has run on two devices of the slow type, and on none of the fast one."""
    one = ElasticTraining(typed_job(on, "a"), adapts_batch=True)
    policy = elastic_policy("sia", TYPES)
    policy.allocate({"a": one}, {}, [4, 4, 4])
    assert {len(goodput.times) for goodput in one.goodputs.values()} == {1}
    for local in (16, 32):
        one.goodputs["slow"].observe(ReplicaSetting(1, 2, local), on["slow"].step_time((2,), local))
    pools = policy._pools([4, 4, 4])  # type: ignore[attr-defined]
    slow, fast = (_goodput(one, pool) for pool in pools)
    assert fast[:3] == pytest.approx(3 * slow[:3], rel=0.01)


def test_policies_without_types_refuse_them() -> None:
    with pytest.raises(ConfigError, match="'tiresias': takes all devices for alike, and the"):
        elastic_policy("tiresias", TYPES)
