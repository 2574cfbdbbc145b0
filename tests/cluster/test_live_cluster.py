"""The whole live cluster with real processes: what people do to it, and what happens to it."""

import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.cluster import (
    FAIRLEAD,
    TIMEOUT_S,
    Running,
    descendants,
    running,
    until,
)

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.api_models import JobView, WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import InputError


def _sleeper(seconds: float = 600, **more: object) -> JobSpec:
    """An unmanaged job that does nothing for a while."""
    return JobSpec(
        command=("sleep", str(seconds)),
        total_steps=10_000,
        unmanaged=True,
        cwd="/",
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def admin(cluster: Running) -> Iterator[Client]:
    with cluster.client() as client:
        until(lambda: all(n.state == "up" for n in client.nodes()) and len(client.nodes()) == 2)
        yield client
        for job in client.jobs(state="open"):
            client.cancel(job.id)
        until(lambda: not any(held for n in client.nodes() for held in n.jobs))


def _state(client: Client, job: int, *states: str) -> bool:
    return client.job(job).state in states


def test_jobs_take_turns_and_complete(admin: Client) -> None:
    ids = admin.submit([_sleeper(0.4) for _ in range(10)])  # on four devices
    until(lambda: all(admin.job(job).starts for job in ids), what="that each has started")
    until(lambda: all(_state(admin, job, "completed") for job in ids))
    for job in ids:
        assert admin.job(job).steps == 10_000
        attempts = admin.attempts(job)
        assert [s.why for s in attempts][-1] == "completed"
        assert all(s.ended_s is not None for s in attempts)


def test_pause_resume_weight_cancel(admin: Client) -> None:
    (job,) = admin.submit([_sleeper()])
    until(lambda: _state(admin, job, "running"))
    admin.pause(job)
    until(lambda: admin.job(job).node == "" and _state(admin, job, "paused"))
    admin.set_weight(job, 3.0)
    assert admin.job(job).weight == 3.0
    admin.resume(job)
    until(lambda: _state(admin, job, "running") and admin.job(job).starts == 2)
    assert admin.attempts(job)[0].why == "paused"
    admin.cancel(job)
    until(lambda: _state(admin, job, "cancelled"))
    with pytest.raises(InputError, match="has ended already"):
        admin.pause(job)


def test_a_drained_node_loses_its_jobs_to_others(admin: Client) -> None:
    ids = admin.submit([_sleeper() for _ in range(2)])
    until(lambda: all(_state(admin, job, "running") for job in ids))
    node = admin.job(ids[0]).node
    admin.drain(node)
    until(lambda: all(admin.job(j).node not in ("", node) for j in ids), what="a move")
    assert {n.name: n.state for n in admin.nodes()}[node] == "drained"
    admin.undrain(node)
    until(lambda: {n.name: n.state for n in admin.nodes()}[node] == "up")


def test_the_policy_changes_under_way(admin: Client) -> None:
    (job,) = admin.submit([_sleeper(rates={"v100": 2.0, "k80": 1.0})])
    until(lambda: _state(admin, job, "running"))
    starts = admin.job(job).starts
    before = admin.status().policy
    for policy in ("finish_time_aware", "fifo", "shockwave", before):
        admin.set_policy(policy)
        round_then = admin.status().round
        until(lambda: admin.status().round > round_then + 1)  # noqa: B023
        assert admin.status().policy == policy
        until(lambda: admin.status().solve == "ok", what="an answer of the new policy")
    assert admin.job(job).starts == starts, "it runs on without a restart"
    with pytest.raises(InputError, match="las_awar"):
        admin.set_policy("las_awar")


def test_a_job_that_fits_nowhere_waits_for_a_node(cluster: Running, admin: Client) -> None:
    wide, small = admin.submit([_sleeper(scale_factor=3), _sleeper()])
    until(lambda: _state(admin, small, "running"))
    assert "3 devices" in admin.job(wide).reason
    cluster.add_agent("node-c", "v100=1")  # now there are three of the type, on two nodes
    until(lambda: _state(admin, wide, "running"), what="a start over two nodes")
    assert set(admin.job(wide).node.split(",")) == {"node-a", "node-c"}
    admin.cancel(wide)
    admin.drain("node-c")
    until(lambda: not any(h for n in admin.nodes() if n.name == "node-c" for h in n.jobs))
    agent = cluster.agents.pop("node-c")
    agent.terminate()
    agent.wait()
    admin.remove_node("node-c")
    assert "node-c" not in {n.name for n in admin.nodes()}


def test_what_if_and_explain(admin: Client) -> None:
    ids = admin.submit([_sleeper() for _ in range(5)])
    until(lambda: sum(_state(admin, job, "running") for job in ids) == 4)
    assert admin.explain(ids[0]).why_here, "at once, forecast or not"
    until(lambda: "of the time on" in admin.explain(ids[0]).why_here, what="a share")
    until(lambda: admin.explain(ids[0]).finish_s is not None, what="a forecast")
    told = admin.explain(ids[0])
    assert told.finish_s is not None
    assert told.finish_low_s is not None
    assert told.finish_low_s <= told.finish_s
    assert told.forecast_age_s is not None
    answer = admin.what_if(WhatIf(add_nodes={"v100": 2}))
    assert answer.then.makespan_s < answer.now.makespan_s
    fewer = admin.what_if(WhatIf(remove_nodes=("node-b",)))
    assert fewer.then.makespan_s > fewer.now.makespan_s
    assert len(admin.nodes()) == 2


def test_what_if_refuses_a_type_that_nothing_runs_on(admin: Client) -> None:
    admin.submit([_sleeper(rates={"v100": 2.0})])
    with pytest.raises(InputError, match=r"'v1000': neither .* rate on it \(known: .*v100\)"):
        admin.what_if(WhatIf(add_nodes={"v1000": 2}))


def test_tenants_do_not_see_each_other(cluster: Running, admin: Client) -> None:
    token = admin.add_user("ann", "red", "user")
    other = admin.add_user("bob", "blue", "user")
    with cluster.client(token) as ann, cluster.client(other) as bob:
        (job,) = ann.submit([_sleeper()])
        assert [j.id for j in ann.jobs()] == [job]
        assert bob.jobs() == []
        for refused in (bob.job, bob.cancel, bob.explain, bob.log):
            with pytest.raises(InputError, match="there is none"):
                refused(job)
        with pytest.raises(InputError, match="admin"):
            ann.set_policy("fifo")
        until(lambda: ann.job(job).state == "running")
        assert all(held in ((), (-1,)) for n in bob.nodes() for held in n.jobs)


def test_a_failing_job_says_why_and_is_dropped(admin: Client) -> None:
    spec = JobSpec(
        command=("sh", "-c", "echo no such data >&2; exit 3"),
        total_steps=10,
        unmanaged=True,
        cwd="/",
    )
    (job,) = admin.submit([spec])
    until(lambda: _state(admin, job, "dropped"))
    view = admin.job(job)
    assert view.failures == 6  # and so five retries
    assert "3" in view.reason
    until(lambda: "no such data" in admin.log(job)[0], what="its output")


def _all_done(client: Client, ids: list[int]) -> bool:
    return all(_state(client, job, "completed") for job in ids)


def test_a_killed_server_goes_on_where_it_was(tmp_path: Path) -> None:
    with running(tmp_path, ("--lease", "20"), agents={"node-a": "v100=2"}) as cluster:
        with cluster.client() as client:
            ids = client.submit([_sleeper(8.0)], key="once")
            until(lambda: _state(client, ids[0], "running"))
            until(lambda: client.job(ids[0]).run_s > 1.0)
        cluster.kill()
        cluster.start()
        with cluster.client() as client:
            assert client.submit([_sleeper(8.0)], key="once") == ids
            until(lambda: _all_done(client, ids))
            view: JobView = client.job(ids[0])
            assert (view.starts, view.failures, view.lost_steps) == (1, 0, 0.0), view.reason
    replayed = subprocess.run(
        (*FAIRLEAD, "replay", str(cluster.state)), capture_output=True, text=True, check=False
    )
    assert replayed.returncode == 0, replayed.stderr
    assert descendants(tmp_path) == []


def test_a_cluster_file_names_the_nodes(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('[[node]]\nname = "one"\naccelerator = "v100"\ndevices = 2\n')
    with running(tmp_path, ("--cluster", str(file))) as cluster, cluster.client() as client:
        assert [n.state for n in client.nodes()] == ["never seen"]
        (job,) = client.submit([_sleeper(1.0)])
        cluster.add_agent("two", "v100=2")
        until(lambda: cluster.agents["two"].poll() == 2)
        assert "not in the cluster file" in (tmp_path / "two.log").read_text()
        cluster.add_agent("one", "v100=2")
        until(lambda: _state(client, job, "completed"))
        until(lambda: client.status().jobs.get("completed") == 1)  # counted a moment later
        cluster.agents.pop("two").wait()


def test_rounds_do_not_keep_jobs_from_free_devices(tmp_path: Path) -> None:
    options = ("--round", "120", "--heartbeat", "1")
    with (
        running(tmp_path, options, agents={"a": "v100=2"}) as cluster,
        cluster.client() as client,
    ):
        (first,) = client.submit([_sleeper()])
        until(lambda: _state(client, first, "running"))
        (second,) = client.submit([_sleeper(0.2)])
        until(lambda: client.job(second).starts == 1, what="a start long before the round is over")
        until(lambda: _state(client, second, "completed"))
        assert client.job(first).starts == 1
        assert (tmp_path / "a.log").read_text().count("is part of the cluster") == 1


def test_a_name_belongs_to_the_agent_that_is_alive(cluster: Running, admin: Client) -> None:
    (job,) = admin.submit([_sleeper(rates={"v100": 2.0, "k80": 1.0})])
    until(lambda: _state(admin, job, "running"))
    name = admin.job(job).node
    other = cluster.directory / "other"
    other.mkdir()
    same = {"node-a": "v100=2", "node-b": "k80=2"}[name]
    second = subprocess.run(
        (
            *FAIRLEAD,
            "agent",
            "--server",
            cluster.agent_address,
            "--node",
            name,
            "--devices",
            same,
            "--state",
            str(other),
            "--token-file",
            str(cluster.state / "agent.token"),
        ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert second.returncode == 2
    assert "another agent has this name" in second.stderr
    assert admin.job(job).starts == 1


def test_a_job_takes_its_work_to_another_node(admin: Client) -> None:
    script = Path(__file__).parents[2] / "examples" / "live" / "numpy_job.py"
    spec = JobSpec(
        command=(sys.executable, str(script), "--step-ms", "5"),
        total_steps=900,
        rates={"v100": 200.0, "k80": 100.0},
        cwd="/",
    )
    (job,) = admin.submit([spec])
    until(lambda: admin.job(job).steps > 100)
    node = admin.job(job).node
    admin.drain(node)
    until(lambda: _state(admin, job, "completed"))
    admin.undrain(node)
    attempts = admin.attempts(job)
    assert {attempt.node for attempt in attempts} == {"node-a", "node-b"}
    for before, after in itertools.pairwise(attempts):
        assert after.from_step == before.to_step > 0
    assert admin.job(job).lost_steps == 0


def test_a_first_start_that_fails_locks_nobody_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        words = ("serve", "--state", str(tmp_path / "state"), "--port", port, "--agent-port", "0")
        failed = subprocess.run(
            (*FAIRLEAD, *words), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    assert failed.returncode == 2
    assert f"{port}: cannot listen there" in failed.stderr
    with running(tmp_path) as cluster, cluster.client() as client:
        assert client.status().jobs == {}


def test_jobs_that_start_slowly_get_to_train(tmp_path: Path) -> None:
    slow = "import time; time.sleep(1.5); "
    code = slow + (
        "import fairlead, pathlib\n"
        "lease = fairlead.Lease(load=lambda p: None, save=lambda p: p.write_text('x'))\n"
        "with lease:\n    while lease.next(): time.sleep(0.02)"
    )
    with (
        running(tmp_path, ("--no-early-round-end",), agents={"a": "v100=1"}) as cluster,
        cluster.client() as client,
    ):
        spec = JobSpec(command=(sys.executable, "-c", code), total_steps=120, cwd="/")
        ids = client.submit([spec, spec])
        until(lambda: _all_done(client, ids), what="two jobs whose start takes 1.5 rounds")
        assert all(client.job(job).starts <= 10 for job in ids)
