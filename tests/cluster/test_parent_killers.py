"""A job that kills what owns its ranks is blamed for it, and nobody else is."""

import sys
from pathlib import Path

import pytest
from tests.cluster.cluster import running, until

from fairlead.cluster.protocol.job_spec import JobSpec

LIMIT_S = 300.0


def _plain(*command: str, **more: object) -> JobSpec:
    return JobSpec(command=command, total_steps=10_000, unmanaged=True, cwd="/", **more)  # type: ignore[arg-type]


@pytest.mark.long  # two to three minutes on a busy machine
@pytest.mark.parametrize("how", ["-KILL", "-STOP"])
def test_a_job_that_kills_or_stops_its_parent_is_dropped_and_takes_no_node_along(
    tmp_path: Path, how: str
) -> None:
    agents = {"a": "v100=2", "b": "v100=2"}
    with running(tmp_path, agents=agents) as cluster, cluster.client() as client:
        until(lambda: sum(n.state == "up" for n in client.nodes()) == 2, LIMIT_S)
        sleeper = (sys.executable, "-c", "import time; time.sleep(1000)")
        others = client.submit([_plain(*sleeper, grace_s=1.0) for _ in range(2)])
        until(lambda: all(client.job(job).state == "running" for job in others), LIMIT_S)
        killer = f"sleep 1; kill {how} $PPID; sleep 60"
        (evil,) = client.submit([_plain("sh", "-c", killer, grace_s=1.0, max_retries=1)])
        until(lambda: client.job(evil).state == "dropped", LIMIT_S)
        told = client.job(evil)
        assert told.failures == 2
        assert "the process that owns the ranks died" in told.reason
        assert [client.job(job).failures for job in others] == [0, 0]
        assert "stands still" not in cluster.log()
        until(lambda: all(n.state == "up" for n in client.nodes()), LIMIT_S)
        until(lambda: all(client.job(job).state == "running" for job in others), LIMIT_S)
