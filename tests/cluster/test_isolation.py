"""A whole cluster whose agent runs the jobs of each tenant as another user of the operating system."""

import os
from functools import partial
from pathlib import Path

import pytest
from tests.cluster.cluster import TIMEOUT_S, running, until

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as other users")


def completed(client: Client, job: int) -> bool:
    return client.job(job).state == "completed"


def test_tenants_have_users_of_their_own(folder: Path) -> None:
    with running(folder, ("--checkpoints", str(folder / "checkpoints"))) as cluster:
        table = "tenant:apes=nobody,user:ann=daemon"
        cluster.add_agent("apart", "v100=2", "--run-as", table)
        with cluster.client() as admin:
            tokens = {
                user: admin.add_user(user, tenant, "user")
                for user, tenant in (("ann", "birds"), ("bob", "apes"), ("eve", "birds"))
            }
            secrets = [
                cluster.state / "admin.token",
                cluster.state / "agent.token",
                folder / "agent-apart" / "node.token",
            ]
            for user, own in (("ann", "daemon"), ("bob", "nobody")):
                words = " ".join(map(str, secrets))
                steal = f"id -un; cat {words}; echo mine > kept; echo $PWD/kept; cat kept"
                spec = JobSpec(command=("sh", "-c", steal), unmanaged=True, total_steps=1)
                with cluster.client(tokens[user]) as client:
                    (job,) = client.submit([spec])
                    until(partial(completed, client, job), TIMEOUT_S, user)
                    first, *denied, kept, content = client.log(job)[0].splitlines()
                assert (first, content) == (own, "mine")
                assert len(denied) == len(secrets)
                assert all("Permission denied" in line for line in denied)
                secrets.append(Path(kept))  # the next one is of another tenant
            with cluster.client(tokens["eve"]) as client:
                (job,) = client.submit([spec])
                until(lambda: client.job(job).failures > 0, TIMEOUT_S, "that it is refused")
                assert (
                    "neither 'user:eve' nor 'tenant:birds' nor 'default'" in client.job(job).reason
                )
            (node,) = admin.nodes()
            assert node.runs_as == "isolated"
            assert admin.status().runs_as == {"isolated": 1}
            cluster.add_agent("open", "v100=1")
            until(lambda: len(admin.nodes()) == 2, TIMEOUT_S, "the second node")
            told = {node.name: node.runs_as for node in admin.nodes()}
            assert told == {"apart": "isolated", "open": "jobs run as root"}
    said = (folder / "open.log").read_text()
    assert (
        "jobs run as root, this agent's own user: they can read its tokens, and each other's files "
        "(--run-as)" in said
    )


def test_a_job_waits_where_its_own_folder_is_anothers_and_goes_on_where_it_may(
    folder: Path,
) -> None:
    own = folder / "own"
    with running(folder) as cluster, cluster.client() as client:
        cluster.add_agent("open", "v100=1")
        until(lambda: len(client.nodes()) == 1, TIMEOUT_S, "the first node")
        spec = JobSpec(
            command=("sleep", "600"),
            total_steps=600,
            unmanaged=True,
            cwd="/",
            checkpoint_dir=str(own),
            grace_s=1.0,
            max_retries=0,
        )
        (job,) = client.submit([spec])
        until(lambda: client.job(job).state == "running", TIMEOUT_S, "that it runs")
        for name in ("apart", "away"):
            cluster.add_agent(name, "v100=1", "--run-as", "daemon")
        until(lambda: len(client.nodes()) == 3, TIMEOUT_S, "the nodes of others")
        client.drain("open")

        def has_tried_both() -> bool:
            return {"apart", "away"} <= {one.node for one in client.attempts(job)}

        until(has_tried_both, TIMEOUT_S, "a try on each of them")
        why = (
            f"checkpoint directory '{own}': belongs to the OS user 0, and this node runs the job as"
        )
        until(lambda: why in client.explain(job).facts[0], TIMEOUT_S, "why it waits")
        assert client.job(job).failures == 0
        assert {node.state for node in client.nodes() if node.name != "open"} == {"up"}
        client.undrain("open")

        def runs_again() -> bool:
            newest = client.attempts(job)[-1]
            return (newest.node, client.job(job).state) == ("open", "running")

        until(runs_again, TIMEOUT_S, "that it goes on")
        client.cancel(job)
