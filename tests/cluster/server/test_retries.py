"""Starts that fail, in a real cluster: nodes that break, jobs that are broken."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.cluster import (
    Running,
    running,
    until,
)
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.api_models import JobView
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.store.failures import FailureRecord

LIMIT_S = 180.0


def sleeper(seconds: float, *command: str, **more: object) -> JobSpec:
    words = command or (sys.executable, "-c", f"import time; time.sleep({seconds})")
    return JobSpec(command=words, total_steps=10_000, unmanaged=True, cwd="/", **more)  # type: ignore[arg-type]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Running, Client]]:
    """A healthy node, and one where nothing that is named without its path is found."""
    with running(tmp_path, agents={"good": "v100=2"}) as cluster:
        cluster.add_agent("bad", "v100=2", environment={"PATH": "/nonexistent"})
        with cluster.client() as client:
            until(lambda: sum(n.state == "up" for n in client.nodes()) == 2, LIMIT_S)
            yield cluster, client


def node(client: Client, name: str) -> str:
    return next(n.state for n in client.nodes() if n.name == name)


def test_a_node_where_nothing_starts_is_cordoned_and_no_job_is_dropped(
    pair: tuple[Running, Client],
) -> None:
    cluster, client = pair
    jobs = client.submit([sleeper(0, "sleep", f"{0.5 + k / 100}") for k in range(14)])
    until(lambda: node(client, "bad") == "unhealthy", LIMIT_S, "that the node is cordoned")
    bad = next(n for n in client.nodes() if n.name == "bad")
    # Some of them may have run on the other node by then
    assert re.search(r"\d jobs? (could not be started|failed) here.* elsewhere", bad.reason)
    assert "command not found: 'sleep'" in bad.reason
    assert "node bad is cordoned" in cluster.log()
    until(lambda: all(client.job(j).state == "completed" for j in jobs), LIMIT_S)
    assert all(s.node == "good" for j in jobs for s in client.attempts(j) if s.why == "completed")


@contextmanager
def two_nodes(directory: Path, options: tuple[str, ...]) -> Iterator[Client]:
    agents = {"a": "v100=1", "b": "v100=1"}
    with running(directory, options, agents=agents) as cluster, cluster.client() as client:
        until(lambda: sum(n.state == "up" for n in client.nodes()) == 2, LIMIT_S)
        yield client


def test_a_retry_waits_and_goes_to_another_node(tmp_path: Path) -> None:
    script = tmp_path / "fails_once.py"
    script.write_text(
        "import pathlib, sys, time\n"
        f"flag = pathlib.Path({str(tmp_path / 'tried')!r})\n"
        "if not flag.exists():\n"
        "    flag.touch(); sys.exit(9)\n"
        "time.sleep(0.5)\n"
    )
    options = ("--round", "20")  # a first retry after 2 s
    seen: list[JobView] = []

    def waits() -> bool:
        seen.append(client.job(job))
        return seen[-1].retry_in_s is not None

    with two_nodes(tmp_path, options) as client:
        (job,) = client.submit([sleeper(0, sys.executable, str(script))])
        until(waits, LIMIT_S, "the wait for another try")
        view = seen[-1]
        assert view.reason.startswith("failed once, tried again in")
        assert view.failure is not None
        assert (view.failure.kind, view.failure.exit_code) == ("exit", 9)
        until(lambda: client.job(job).state == "completed", LIMIT_S)
        first, second = client.attempts(job)
        assert first.node != second.node
        assert first.ended_s is not None
        assert second.began_s - first.ended_s >= 1.9
        assert client.job(job).retry_in_s is None


def test_a_restarted_server_still_makes_a_failed_job_wait(tmp_path: Path) -> None:
    options = ("--round", "100")  # a first retry after 5 s
    with running(tmp_path, options, agents={"a": "v100=1"}) as cluster:
        with cluster.client() as client:
            (job,) = client.submit([sleeper(0, "sh", "-c", "exit 9", max_retries=1)])
            until(lambda: client.job(job).retry_in_s is not None, LIMIT_S)
        cluster.kill()
        cluster.start()
        with cluster.client() as client:
            until(lambda: client.job(job).state == "dropped", LIMIT_S)
            ended = [one for one in client.attempts(job) if one.why.startswith("failed")]
            first, second = ended  # a start that the node lost meanwhile is none of these
            assert first.ended_s is not None
            assert second.began_s - first.ended_s >= 4.9
            reason = client.job(job).reason
            assert reason == "failed twice in a row (max_retries 1): exit code 9"


def test_exit_codes_that_are_not_to_be_retried(pair: tuple[Running, Client]) -> None:
    _, client = pair
    specs = [
        sleeper(0, "/bin/sh", "-c", "exit 3", no_retry_on=(3,)),
        sleeper(0, "/bin/sh", "-c", "kill -9 $$", retry_on=(75,)),
        sleeper(0, "/no/such/program"),
    ]
    never, other, absent = client.submit(specs)
    until(lambda: all(client.job(j).state == "dropped" for j in (never, other, absent)), LIMIT_S)
    assert client.job(never).failures == client.job(other).failures == 1
    assert "exit code 3 is in no_retry_on" in client.job(never).reason
    assert "exit code 137 is not in retry_on" in client.job(other).reason
    view = client.job(absent)
    assert view.failures <= 3
    assert "it cannot be started, tried on 2 nodes: command not found" in view.reason


def test_mistakes_of_one_user_are_given_up_on_two_nodes_and_blame_none(tmp_path: Path) -> None:
    # Room for all of them: whose own node alone has a free device is tried there again
    nodes = {"a": "v100=4", "b": "v100=4", "c": "v100=4"}
    with running(tmp_path, ("--round", "5"), agents=nodes) as cluster, cluster.client() as client:
        until(lambda: sum(n.state == "up" for n in client.nodes()) == 3, LIMIT_S)
        (well,) = client.submit([sleeper(600)])
        until(lambda: client.job(well).state == "running", LIMIT_S)
        words = (sys.executable, "-c", "import time; time.sleep(600)")
        mistakes = [
            sleeper(0, sys.executable, str(tmp_path / "nosuch.py")),
            sleeper(0, "/" + "a" * 6_000),  # longer than what a message may quote
            JobSpec(command=words, total_steps=9, unmanaged=True, cwd="/nosuch"),
            JobSpec(command=words, total_steps=9, unmanaged=True, cwd="/", venv="/nosuch"),
        ]
        jobs = client.submit([spec for spec in mistakes for _ in range(2)])
        until(lambda: all(client.job(j).state == "dropped" for j in jobs), LIMIT_S)
        for job in jobs:
            view = client.job(job)
            assert view.starts >= view.failures == 2  # one may have been moved before it was tried
            assert "it cannot be started, tried on 2 nodes" in view.reason
        assert [n.state for n in client.nodes()] == ["up"] * 3
        assert client.job(well).state == "running"


TRAINING = """
import fairlead, os, sys, time, pathlib
def save(path): path.write_text("x")
def step(number):
    {step}
with fairlead.Lease(load=lambda path: None, save=save, total_steps=50) as lease:
    while lease.next():
        step(lease.step)
        time.sleep(0.02)
"""


def training(directory: Path, step: str, **more: object) -> JobSpec:
    script = directory / "train.py"
    script.write_text(TRAINING.format(step=step))
    words = (sys.executable, str(script))
    return JobSpec(command=words, total_steps=50, cwd="/", **more)  # type: ignore[arg-type]


def test_the_reason_is_the_exception_and_twice_the_same_is_enough(tmp_path: Path) -> None:
    step = "if number == 7: raise ValueError('shapes differ')"
    with two_nodes(tmp_path, ("--round", "5")) as client:
        (job,) = client.submit([training(tmp_path, step)])
        until(lambda: client.job(job).state == "dropped", LIMIT_S)
        view, attempts = client.job(job), client.attempts(job)
        told = "ValueError: shapes differ (train.py:5)"
        assert view.reason == f"failed: the same exception at step 7 twice in a row: {told}"
        assert [attempt.why for attempt in attempts] == [f"failed: {told}"] * 2
        assert attempts[0].node != attempts[1].node
        failure = view.failure
        assert failure is not None
        assert (failure.type, failure.line, failure.step) == ("ValueError", 5, 7)
        assert failure.file == str(tmp_path / "train.py")
        assert attempts[0].traceback.startswith("Traceback (most recent call last):")
        assert "in <module>" in attempts[1].traceback
        explained = client.explain(job)
        assert explained.attempts[-1].traceback == attempts[-1].traceback


def test_of_a_gang_the_rank_that_failed_first_is_to_blame(tmp_path: Path) -> None:
    step = (
        "if number == 3 and os.environ['RANK'] == '1':\n"
        "        raise KeyError('mine')\n"
        "    if number == 3 and os.environ['RANK'] == '0':\n"
        "        time.sleep(0.2); raise RuntimeError('Connection closed by peer')"
    )
    with two_nodes(tmp_path, ("--round", "5")) as client:
        (job,) = client.submit([training(tmp_path, step, scale_factor=2, max_retries=0)])
        until(lambda: client.job(job).state == "dropped", LIMIT_S)
        assert "rank 1: KeyError: 'mine' (train.py:6)" in client.job(job).reason


def test_a_script_without_the_library_has_its_traceback_read(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text("import sys\ndef f():\n    return 1 / 0\nf()\n")
    with two_nodes(tmp_path, ("--round", "5")) as client:
        (job,) = client.submit([sleeper(0, sys.executable, str(script), max_retries=0)])
        until(lambda: client.job(job).state == "dropped", LIMIT_S)
        assert "ZeroDivisionError: division by zero (own.py:3)" in client.job(job).reason
        assert "return 1 / 0" in client.attempts(job)[0].traceback


def test_a_start_that_waits_for_its_devices_is_no_good_one(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, retries = cluster.node("one"), cluster.service.engine.parts.jobs.retries
        one.register()
        job = cluster.submit(unmanaged=True)
        key = cluster.until(lambda: next(iter(one.leased & one.statuses.keys()), None))
        begun = time.monotonic()
        cluster.until(lambda: time.monotonic() > begun + 2 * retries.settled_s)
        assert not retries.nodes.good
        one.run(*key, ran_s=retries.settled_s)
        cluster.until(lambda: [(g.job, g.node) for g in retries.nodes.good] == [(job, "one")])


def test_two_users_of_whom_one_may_lie_take_no_node_where_a_job_runs_well(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, two = cluster.node("one"), cluster.node("two")
        one.register()
        mine = cluster.submit()  # for tenant "t"
        key = cluster.until(lambda: next(iter(one.leased & one.statuses.keys()), None))
        one.run(*key, loaded_step=0, step=5, ran_s=9.0)
        one.say()
        cluster.until(lambda: cluster.service.engine.parts.jobs.retries.nodes.good)
        two.register()
        cluster.until(lambda: cluster.view("two").state == "up")

        def fail() -> None:
            retries = cluster.service.engine.parts.jobs.retries
            now_s = cluster.service.engine.state.clock.now_s()
            for job, tenant in enumerate(("eve", "eve", "bob"), 100):
                record = FailureRecord(
                    job=job, attempt=1, node="one", time_s=now_s, kind="exit", tenant=tenant,
                    reason="uncorrectable ECC error", program=(tenant, "x"),
                )  # fmt: skip
                retries.nodes.failed(record)
            retries.judge_nodes()

        cluster.do(fail)
        assert cluster.view("one").state == "up"
        cluster.service.pause(ADMIN, mine)
        cluster.until(lambda: mine not in one.jobs)
        cluster.do(cluster.service.engine.parts.jobs.retries.judge_nodes)
        cluster.until(lambda: cluster.view("one").state == "unhealthy")


def test_an_exception_after_an_order_to_stop_is_told_and_ends_no_row_of_failures(
    tmp_path: Path,
) -> None:
    """Whether it has to do with the order nobody knows, so it is no failure of its own either."""
    raised = Failure(
        kind="exception", exit_code=1, type="ValueError", message="shapes differ", traceback="T"
    )
    with engine_nodes(tmp_path) as cluster:
        one, service = cluster.node("one"), cluster.service
        one.register()
        job = cluster.submit(max_retries=1)

        def end(attempt: int) -> None:
            cluster.until(lambda: (job, attempt) in one.leased & one.statuses.keys())
            one.run(job, attempt, loaded_step=0, step=2)
            one.say()
            if attempt == 2:
                service.pause(ADMIN, job)
                cluster.until(lambda: one.statuses[job, attempt].state != "running")
            one.end(job, attempt, exit_code=1, reason="ValueError: shapes differ", failure=raised)
            cluster.until(lambda: (job, attempt) not in one.statuses)

        end(1)
        end(2)
        paused = service.attempts(ADMIN, job)[-1]
        assert paused.why == "paused; ValueError: shapes differ"
        assert paused.traceback == "T"
        service.resume(ADMIN, job)
        end(3)
        cluster.until(lambda: service.job(ADMIN, job).state == "dropped")
        assert service.job(ADMIN, job).failures == 2
