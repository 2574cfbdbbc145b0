"""Finish-time fairness of elastic jobs."""

from functools import partial
from pathlib import Path

import pytest
from tests.simulator.pollux_reference.measured import write_application

from fairlead.simulator.pollux_reference.applications import Application, read_applications
from fairlead.simulator.pollux_reference.fairness import finish_time_fairness
from fairlead.simulator.pollux_reference.registry import elastic_policy
from fairlead.simulator.pollux_reference.simulation import simulate_elastic
from fairlead.simulator.pollux_reference.workload import ElasticJob

POLICY = partial(elastic_policy, "sia")


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return read_applications(write_application(tmp_path, epochs=20))["app"]


def job(application: Application, name: str, *, at: int = 0) -> ElasticJob:
    return ElasticJob(name=name, submitted_s=at, on={"gpu": application}, replicas=1, batch=32)


def test_a_job_that_is_alone_has_one(application: Application) -> None:
    for at in (0, 30, 61):
        run = simulate_elastic([job(application, "a", at=at)], POLICY(), [4, 4], 60.0)
        assert finish_time_fairness(run, POLICY, [4, 4], 60.0) == {"a": 1.0}


def test_who_had_to_learn_is_worse_off_than_who_knew(application: Application) -> None:
    """A policy whose jobs learn from each other has no more to learn of a job that it has seen."""
    policy = partial(elastic_policy, "elastic_srpt")
    run = simulate_elastic([job(application, "a")], policy(), [4, 4], 60.0)
    assert finish_time_fairness(run, policy, [4, 4], 60.0) == {"a": 1.0}
    assert finish_time_fairness(run, policy, [4, 4], 60.0, knows=True)["a"] > 1.05
    run = simulate_elastic([job(application, "a")], POLICY(), [4, 4], 60.0)
    assert finish_time_fairness(run, POLICY, [4, 4], 60.0, knows=True) == {"a": 1.0}


def test_who_waits_behind_others_is_worse_off_than_with_an_equal_part(
    application: Application,
) -> None:
    """Two jobs on one device: each would have had half of it, and so twice the time."""
    jobs = [job(application, name) for name in ("a", "b")]
    run = simulate_elastic(jobs, elastic_policy("tiresias"), [1], 60.0)
    alone_s = simulate_elastic(jobs[:1], POLICY(), [1], 60.0).jct_s()["a"]
    first_s, second_s = sorted(run.jct_s().values())
    found = finish_time_fairness(run, POLICY, [1], 60.0)
    present = (
        2 * first_s + (second_s - first_s)
    ) / second_s  # on average while the second is there
    assert sorted(found.values()) == pytest.approx(
        [first_s / alone_s / 2, second_s / alone_s / present]
    )


def test_a_part_is_whole_nodes_or_a_power_of_two(application: Application) -> None:
    """Of three jobs on 20 devices each has one node of its 6.7 devices; of seven on 24 two of its 3.4."""
    for count, sizes, part in ((3, [4] * 5, [4]), (7, [4] * 6, [2])):
        jobs = [job(application, f"j{k}") for k in range(count)]
        run = simulate_elastic(jobs, POLICY(), sizes, 60.0)
        alone_s = simulate_elastic(jobs[:1], POLICY(), part, 60.0).jct_s()["j0"]
        found = finish_time_fairness(run, POLICY, sizes, 60.0)
        first = min(run.jct_s(), key=lambda name: run.jct_s()[name])  # all are there until its end
        assert found[first] == pytest.approx(run.jct_s()[first] / alone_s)
