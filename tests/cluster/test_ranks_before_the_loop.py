"""Ranks that end before their training loop."""

import sys
from pathlib import Path

import pytest
from tests.cluster.cluster import running, until

from fairlead.client.rank_sync import CONNECT_TIMEOUT_S
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import LEFT_EARLY


def test_a_rank_that_fails_before_the_loop_ends_the_others_at_once(tmp_path: Path) -> None:
    """They hear of nothing yet: a gang held its devices for all of its grace."""
    script = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(10_000)\n"
    spec = JobSpec(
        command=(sys.executable, "-c", script),
        total_steps=10,
        scale_factor=2,
        cwd="/",
        grace_s=3_600.0,
        max_retries=0,
    )
    with running(tmp_path, agents={"node-a": "v100=2"}) as cluster, cluster.client() as client:
        (job,) = client.submit([spec])
        until(lambda: client.job(job).state == "dropped")
        assert "exit code 3" in client.job(job).reason


@pytest.mark.parametrize(
    "left", [pytest.param(0, marks=pytest.mark.long), pytest.param(1, marks=pytest.mark.long), 2]
)
def test_a_rank_that_leaves_before_the_loop_ends_the_others_at_once(
    tmp_path: Path, left: int
) -> None:
    """They waited for it for a minute, with all their devices. Rank 2 is on another node than rank 0."""
    script = (
        "import os, sys, time\n"
        f"if os.environ['RANK'] == '{left}': time.sleep(2); sys.exit(0)\n"
        "import fairlead\n"
        "keep = {'load': lambda path: None, 'save': lambda path: open(path, 'w').close()}\n"
        "with fairlead.Lease(total_steps=10, **keep) as lease:\n"
        "    while lease.next(): pass\n"
    )
    spec = JobSpec(
        command=(sys.executable, "-c", script),
        total_steps=10,
        scale_factor=3,
        cwd="/",
        max_retries=0,
    )
    agents = {"node-a": "v100=2", "node-b": "v100=1"}
    with running(tmp_path, agents=agents) as cluster, cluster.client() as client:
        (job,) = client.submit([spec])
        until(lambda: client.job(job).state == "dropped")
        (attempt,) = client.attempts(job)
        assert attempt.why == f"failed: rank {left} {LEFT_EARLY}"
        assert attempt.ended_s is not None
        assert attempt.ended_s - attempt.began_s < CONNECT_TIMEOUT_S / 2
