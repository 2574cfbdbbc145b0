"""Ranks that end before their training loop."""

import sys
from pathlib import Path

from tests.cluster.cluster import running, until

from fairlead.cluster.protocol.job_spec import JobSpec


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
