"""A front, and a driver, that stand still or die: no lease is lost, and nothing is started again."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.cluster.cluster import (
    Running,
    running,
    until,
)

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.api_models import JobView, NodeView, WhatIf
from fairlead.cluster.protocol.job_search import JobQuery
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import FairleadError

LEASE_S = 8.0
LIMIT_S = 180.0


class Jobs:
    """Two jobs that say in files that they are started, and that they live."""

    def __init__(self, directory: Path, client: Client) -> None:
        self.files = [directory / f"job-{number}" for number in range(2)]
        script = "echo start >> $SAYS; while true; do echo lives >> $SAYS; sleep 0.1; done"
        self.ids = client.submit(
            [
                JobSpec(
                    command=("sh", "-c", script), total_steps=10_000_000, unmanaged=True,
                    env={"SAYS": str(file)},
                )
                for file in self.files
            ]
        )  # fmt: skip

    def words(self) -> list[list[str]]:
        return [file.read_text().split() if file.exists() else [] for file in self.files]

    def check_never_interrupted(self) -> None:
        """Both were started once, and live."""
        before = [len(words) for words in self.words()]

        def live() -> bool:
            return all(len(w) > n for w, n in zip(self.words(), before, strict=True))

        until(live, LIMIT_S, "a sign of life")
        assert [words.count("start") for words in self.words()] == [1, 1]


@contextmanager
def two_jobs(directory: Path, lease_s: float = LEASE_S) -> Iterator[tuple[Running, Client, Jobs]]:
    """Two jobs that run on one node, under short leases."""
    options = ("--lease", str(lease_s))
    with running(directory, options, {"node": "v100=2"}) as cluster, cluster.client() as client:
        jobs = Jobs(directory, client)
        until(lambda: all(jobs.words()), LIMIT_S, "two running jobs")
        yield cluster, client, jobs


def server_pid(cluster: Running) -> int:
    assert cluster.server is not None
    return cluster.server.pid


def front_pid(cluster: Running) -> int:
    """0 while there is none."""
    children = Path(f"/proc/{server_pid(cluster)}/task").glob("*/children")
    for pid in (int(word) for path in children for word in path.read_text().split()):
        if b"fairlead.cluster.front" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return 0


def gone(pid: int) -> bool:
    """Has the process ended? One that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def check_is_shown(cluster: Running, client: Client, jobs: Jobs) -> None:
    """All that people look at answers, though the driver does not."""
    status = client.status()
    assert (status.jobs["running"], status.devices["v100"]) == (2, (2, 2, 2))
    assert [(node.name, node.state) for node in client.nodes()] == [("node", "up")]
    assert [(job.id, job.state, job.node) for job in client.jobs("open")] == [
        (number, "running", "node") for number in jobs.ids
    ]
    assert client.job(jobs.ids[0]).attempt == 1
    assert [attempt.node for attempt in client.attempts(jobs.ids[0])] == ["node"]
    told = client.explain(jobs.ids[0])
    assert "has not answered for" in told.why_here
    assert "the job is running on 1 x v100 of node" in told.why_here
    assert [sentence for _, sentence in told.events][1].startswith("attempt 1 on v100")
    with pytest.raises(FairleadError, match="has not answered for"):
        client.what_if(WhatIf())
    client.samples()
    client.log(jobs.ids[0])
    head = {"Authorization": f"Bearer {cluster.admin_token}"}
    with httpx.Client(base_url=cluster.url, headers=head, timeout=LIMIT_S) as http:
        assert http.get("/health").status_code == 200
        assert 'fairlead_jobs{state="running"' in http.get("/metrics").text
        http.post("/login", data={"token": cluster.admin_token}, headers={"Origin": cluster.url})
        page = http.get("/")
    assert page.status_code == 200
    assert "2 running" in page.text


def test_a_driver_that_stands_still_is_not_felt_by_leases(tmp_path: Path) -> None:
    with two_jobs(tmp_path) as (cluster, client, jobs):
        os.kill(server_pid(cluster), signal.SIGSTOP)
        try:
            until_s = time.monotonic() + 1.25 * LEASE_S  # the last lease it granted is over
            until(lambda: client.status().age_s is not None, LIMIT_S, "an old state")
            check_is_shown(cluster, client, jobs)
            seen: list[NodeView | JobView] = [
                *client.nodes(),
                *client.jobs(),
                client.job(jobs.ids[0]),
                *client.find_jobs(JobQuery(search="node", sort="progress")).jobs,
            ]
            assert len(seen) == 6
            assert all(one.age_s is not None and one.age_s > 3.0 for one in seen)
            time.sleep(max(until_s - time.monotonic(), 0.0))
            assert client.nodes()[0].last_seen_s < LEASE_S  # type: ignore[operator]
        finally:
            os.kill(server_pid(cluster), signal.SIGCONT)
        until(lambda: [n.state for n in client.nodes()] == ["up"], LIMIT_S, "a node that is up")
        until(lambda: client.status().age_s is None, LIMIT_S, "a new state")
        assert [node.age_s for node in client.nodes()] == [None]
        jobs.check_never_interrupted()


def test_who_asks_just_after_the_driver_was_frozen_is_answered(tmp_path: Path) -> None:
    with two_jobs(tmp_path) as (cluster, client, jobs):
        os.kill(server_pid(cluster), signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(2) as pool, cluster.client() as other:
                told = pool.submit(client.explain, jobs.ids[0])
                answer = pool.submit(other.what_if, WhatIf())
                assert "has not answered for" in told.result(LIMIT_S).why_here
                with pytest.raises(FairleadError, match="has not answered for"):
                    answer.result(LIMIT_S)
        finally:
            os.kill(server_pid(cluster), signal.SIGCONT)
        jobs.check_never_interrupted()


def test_a_front_that_is_killed_comes_back_and_nothing_is_started_again(tmp_path: Path) -> None:
    lease_s = 12.0  # on a busy machine a front takes seconds to start
    with two_jobs(tmp_path, lease_s) as (cluster, client, jobs):
        first = front_pid(cluster)
        os.kill(first, signal.SIGKILL)
        until(lambda: front_pid(cluster) not in (0, first), LIMIT_S, "another front")
        until(lambda: [n.state for n in client.nodes()] == ["up"], LIMIT_S, "a node that is up")
        (third,) = client.submit([JobSpec(command=("true",), total_steps=1, unmanaged=True)])
        client.cancel(third)
        until(lambda: client.job(third).state == "cancelled", LIMIT_S)
        time.sleep(lease_s + 1.0)  # had a lease not been renewed, this would show it
        jobs.check_never_interrupted()


def test_the_front_ends_with_the_driver_and_a_new_server_goes_on(tmp_path: Path) -> None:
    lease_s = 120.0  # a server on a busy machine takes its time to start
    with two_jobs(tmp_path, lease_s) as (cluster, client, jobs):
        front = front_pid(cluster)
        assert front
        cluster.kill()
        until(lambda: gone(front), LIMIT_S, "the end of the front")
        cluster.start()
        until(lambda: [n.state for n in client.nodes()] == ["up"], LIMIT_S, "a node that is up")
        jobs.check_never_interrupted()
