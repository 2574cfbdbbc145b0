"""The loop, and Tiresias and Optimus in it, on an application that is easy to reckon."""

from pathlib import Path

import pytest
from tests.simulator.pollux_reference.measured import write_application

from fairlead.errors import ConfigError
from fairlead.simulator.pollux_reference.applications import Application, read_applications
from fairlead.simulator.pollux_reference.policies import (
    DEMOTION_S,
    ReleasedOptimus,
    ReleasedTiresias,
    place,
)
from fairlead.simulator.pollux_reference.registry import elastic_policy
from fairlead.simulator.pollux_reference.simulation import simulate_elastic
from fairlead.simulator.pollux_reference.training import ElasticTraining
from fairlead.simulator.pollux_reference.workload import ElasticJob


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return read_applications(write_application(tmp_path))["app"]


def job(application: Application, name: str, *, at: int = 0, replicas: int = 1) -> ElasticJob:
    return ElasticJob(
        name=name, submitted_s=at, on={"gpu": application}, replicas=replicas, batch=32
    )


def test_a_job_restarts_and_then_trains_epoch_by_epoch(application: Application) -> None:
    """400 steps of 1 s behind a restart of 30 s, from the first interval after its arrival on."""
    run = simulate_elastic([job(application, "a", at=61)], ReleasedTiresias(), [4], 60.0)
    assert run.jct_s() == {"a": 120 + 30 + 400 - 61}
    (one,) = run.trainings
    assert (one.restarts, one.service_s) == (0, 430.0)
    assert [(c.time_s, c.nodes, c.batch) for c in run.changes] == [(120.0, (0,), 32)]


def test_an_epoch_ends_at_a_whole_second(application: Application) -> None:
    one = ElasticTraining(job(application, "a"))
    one.place((2,))
    one.restart_left_s = 0.0
    one.advance(1000.0)  # an epoch is 100 steps of 0.7 s
    assert one.ended_s == 4 * 70.0
    one = ElasticTraining(job(application, "a"))
    one.place((3,))
    one.restart_left_s = 0.0
    one.advance(
        61.0
    )  # 100 steps of 0.6 s with 33 samples each: 100 / 1.0234 * 0.6 s = 58.6 -> 59 s
    assert (one.epoch, one.now_s) == (1, 61.0)
    assert one.progress == pytest.approx(100 + 2 / 0.6 * application.gain(33, 1))


def test_tiresias_passes_over_what_does_not_fit(application: Application) -> None:
    jobs = {
        name: ElasticTraining(job(application, name, replicas=replicas))
        for name, replicas in (("a", 3), ("b", 2), ("c", 1))
    }
    assert ReleasedTiresias().allocate(jobs, {}, [4]).nodes == {"a": (0, 0, 0), "c": (0,)}


def test_tiresias_demotes_after_sixteen_device_hours(application: Application) -> None:
    jobs = {name: ElasticTraining(job(application, name, replicas=4)) for name in ("a", "b")}
    policy = ReleasedTiresias()
    assert set(policy.allocate(jobs, {}, [4]).nodes) == {"a"}
    jobs["a"].service_s = DEMOTION_S - 1
    assert set(policy.allocate(jobs, {}, [4]).nodes) == {"a"}
    jobs["a"].service_s = DEMOTION_S
    assert set(policy.allocate(jobs, {}, [4]).nodes) == {"b"}
    jobs["b"].service_s = DEMOTION_S
    assert set(policy.allocate(jobs, {}, [4]).nodes) == {"a"}, (
        "in the order in which they were demoted"
    )


def test_tiresias_refuses_what_can_never_run(application: Application) -> None:
    with pytest.raises(ConfigError, match="job 'a': asks for 5 devices, the cluster has 4"):
        simulate_elastic([job(application, "a", replicas=5)], ReleasedTiresias(), [4], 60.0)


def test_optimus_gives_devices_to_whom_they_save_most(application: Application) -> None:
    jobs = {name: ElasticTraining(job(application, name, replicas=9)) for name in ("a", "b")}
    jobs["b"].epoch = 3  # has less left
    found = ReleasedOptimus().allocate(jobs, {}, [4]).nodes
    assert {name: len(nodes) for name, nodes in found.items()} == {"a": 3, "b": 1}
    jobs["a"].epoch = 3
    assert {len(n) for n in ReleasedOptimus().allocate(jobs, {}, [4]).nodes.values()} == {2}
    crowd = {str(k): ElasticTraining(job(application, str(k))) for k in range(6)}
    assert list(ReleasedOptimus().allocate(crowd, {}, [4]).nodes) == ["0", "1", "2", "3"]


def test_optimus_leaves_devices_free_that_save_nothing(tmp_path: Path) -> None:
    folder = write_application(tmp_path)
    path = folder / "app" / "placements.csv"
    path.write_text(
        path.read_text().replace("\n2,4,0.7", "\n2,4,1.5").replace("\n2,64,0.7", "\n2,64,1.5")
    )
    one = ElasticTraining(job(read_applications(folder)["app"], "a"))
    assert ReleasedOptimus().allocate({"a": one}, {}, [4]).nodes == {"a": (0,)}


def test_who_keeps_the_number_keeps_the_devices() -> None:
    before = {"a": (0, 0), "b": (1, 1, 1)}
    assert place({"b": 2, "a": 2, "c": 3}, before, [4, 4]) == {
        "a": (0, 0),
        "b": (1, 1),
        "c": (0, 0, 1),
    }


def test_unknown_policies_are_named() -> None:
    with pytest.raises(ConfigError, match="policy 'las': --profile pollux has elastic_srpt, "):
        elastic_policy("las")
