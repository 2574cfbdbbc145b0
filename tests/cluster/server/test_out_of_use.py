"""What is said of jobs of which the devices are there, and on nodes that are not in use."""

from pathlib import Path
from typing import Any

from tests.cluster.server_nodes import ADMIN, EngineNodes, engine_nodes

from fairlead.cluster.protocol.messages import PROTOCOL, Register

RATES = {"v100": 1.0, "k80": 1.0}


def join(cluster: EngineNodes, name: str, accelerator: str, devices: int) -> None:
    message = Register(
        protocol=PROTOCOL, version="0", node=name, incarnation="one.1", host="h",
        accelerator=accelerator, devices=devices,
    )  # fmt: skip
    cluster.service.register(message).result()


def told(cluster: EngineNodes, **spec: Any) -> tuple[str, str]:
    """Why a job waits, and the facts of its explanation."""
    job = cluster.submit(rates=RATES, **spec)
    cluster.until(lambda: "takes part in the next" not in " ".join(_facts(cluster, job)))
    return cluster.job(job).reason, " ".join(_facts(cluster, job))


def _facts(cluster: EngineNodes, job: int) -> tuple[str, ...]:
    return cluster.service.explain(ADMIN, job).facts


def test_a_gang_whose_nodes_are_drained_is_told_so(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        join(cluster, "large", "v100", 3)
        join(cluster, "small", "k80", 2)
        cluster.service.drain(ADMIN, "large")
        why, facts = told(cluster, scale_factor=3)
        assert why == "waits for nodes: no 3 devices of k80 or v100 may be used now"
        assert "2 devices of k80 are free (it needs 3 of one type)" in facts
        assert "Not to be had: 3 devices on nodes that are drained." in facts
        cluster.service.drain(ADMIN, "small")
        why, facts = told(cluster)
        assert why == "waits for a node: none with k80 or v100 may be used now"
        assert "No device of k80 and v100 is free." in facts
        cluster.service.undrain(ADMIN, "small")
        cluster.until(lambda: cluster.job(1).reason == "", "the reason to go")


def test_a_gang_that_could_not_run_whoever_ran_is_not_told_of_those_that_do(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        busy, drained = cluster.node("busy"), cluster.node("drained")
        busy.register()
        drained.register()
        cluster.service.drain(ADMIN, "drained")
        first = cluster.submit()
        cluster.until(lambda: first in busy.jobs)
        busy.run(first, 1, step=5, loaded_step=0)
        cluster.until(lambda: cluster.job(first).state == "running")
        gang = cluster.submit(scale_factor=2)
        lacks = "waits for nodes: no 2 devices of v100 may be used now"
        cluster.until(lambda: cluster.job(gang).reason == lacks)
        facts = " ".join(_facts(cluster, gang))
        assert f"It {lacks}." in facts
        assert "keep their devices" not in facts


def test_a_job_whose_only_node_is_lost_waits_for_a_node(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0) as cluster:
        join(cluster, "other", "k80", 1)
        node = cluster.node("n")
        node.register()
        job = cluster.submit()
        cluster.begin(node, job)
        cluster.until(lambda: cluster.job(job).steps == 5)
        cluster.silence(node)
        cluster.until(lambda: cluster.view("n").state == "lost")
        lacks = "waits for a node: none with v100 may be used now"
        cluster.until(lambda: cluster.job(job).reason == lacks)
        facts = " ".join(_facts(cluster, job))
        assert f"It {lacks}." in facts
        assert "Its last attempt ended" in facts
