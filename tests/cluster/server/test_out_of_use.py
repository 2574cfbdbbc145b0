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
        assert why == "waits for nodes: no 3 devices of k80 or v100 are in use now"
        assert "2 devices of k80 are free (it needs 3 of one type)" in facts
        assert "Not to be had: 3 devices on nodes that are drained." in facts
        cluster.service.drain(ADMIN, "small")
        why, facts = told(cluster)
        assert why == "waits for a node: none with k80 or v100 is in use now"
        assert "No device of k80 and v100 is free." in facts
        cluster.service.undrain(ADMIN, "small")
        cluster.until(lambda: cluster.job(1).reason == "", "the reason to go")
