"""Progress that is not kept is no progress."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.cluster import (
    Running,
    running,
    until,
)

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec

LIMIT_S = 180.0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("cluster"), agents={"a": "v100=1"}) as found:
        yield found


@pytest.fixture
def client(alone: Running) -> Iterator[Client]:
    with alone.client() as admin:
        until(lambda: [n.state for n in admin.nodes()] == ["up"], LIMIT_S)
        yield admin
        for job in admin.jobs(state="open"):
            admin.cancel(job.id)
        until(lambda: not any(held for n in admin.nodes() for held in n.jobs), LIMIT_S)


def sleeper(**more: object) -> JobSpec:
    given = {"command": ("sleep", "1000"), "total_steps": 10_000, "unmanaged": True, "cwd": "/"}
    return JobSpec(**(given | more))  # type: ignore[arg-type]


@pytest.mark.parametrize("keeps", [False, True])
def test_a_unmanaged_job_that_is_stopped_has_what_it_keeps(client: Client, keeps: bool) -> None:
    (job,) = client.submit([sleeper(keeps_progress=keeps)])
    until(lambda: client.job(job).steps >= 2, LIMIT_S, "two seconds of work")
    assert client.job(job).starts_over == (not keeps)
    message = "It starts again from zero when it is stopped." in client.explain(job).why_here
    assert message == (not keeps)
    lost = client.pause(job)
    assert [one.partition(": its ")[0] for one in lost] == ([] if keeps else [f"job {job}"])
    until(lambda: client.attempts(job)[0].why == "paused", LIMIT_S)
    view = client.job(job)
    if keeps:
        assert view.steps >= 2
        assert view.lost_steps == 0
    else:
        assert view.steps == 0
        assert view.lost_steps >= 2


def test_a_job_that_would_lose_its_work_is_not_preempted_lightly(
    client: Client, tmp_path: Path
) -> None:
    (job,) = client.submit([sleeper()])
    until(lambda: client.job(job).steps >= 4, LIMIT_S, "four seconds of work")
    others = client.submit([sleeper(keeps_progress=True) for _ in range(2)])
    round_then = client.status().round
    until(lambda: client.status().round > round_then + 4, LIMIT_S, "rounds")
    assert client.job(job).starts == 1
    assert [client.job(other).starts for other in others] == [0, 0]
