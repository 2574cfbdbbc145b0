"""A node that is taken away at a time that is known, as the end of a Slurm job: its agent leaves before."""

import sys
import time
from pathlib import Path

import pytest
from tests.cluster.cluster import TIMEOUT_S, running, until

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "live" / "numpy_job.py"
GRACE_S = 3.0


@pytest.mark.parametrize("says", ["option", "Slurm"])
def test_jobs_leave_a_node_before_it_is_taken_away(tmp_path: Path, says: str) -> None:
    with running(tmp_path, ("--round", "2")) as cluster, cluster.client() as client:
        # Time for the job to begin: it is of no account what becomes of it if the machine is slower.
        lasts_s, ends_s = 30, time.time() + 30
        if says == "option":
            cluster.add_agent("pilot", "v100=1", "--ends-in", f"{lasts_s}s")
        else:
            environment = {"SLURM_JOB_END_TIME": str(int(ends_s))}
            cluster.add_agent("pilot", "v100=1", environment=environment)
        words = (sys.executable, str(SCRIPT), "--step-ms", "20")
        spec = JobSpec(command=words, total_steps=100_000, grace_s=GRACE_S, cwd="/")
        (job,) = client.submit([spec])
        until(lambda: client.job(job).steps > 5, what="steps")
        (node,) = client.nodes()
        assert node.reason.startswith("is given back in ")
        code = cluster.agents.pop("pilot").wait(TIMEOUT_S)
        assert code == 0
        assert time.time() < ends_s, "in time"
        until(lambda: not client.nodes(), what="the cluster to forget the node")
        (attempt,) = client.attempts(job)
        assert attempt.end in (AttemptEnd.AGENT_LEFT, AttemptEnd.PREEMPTED), attempt
        view = client.job(job)
        assert view.saved_step == view.steps > 0, "it has saved where it stood"
        cluster.add_agent("other", "v100=1")
        until(lambda: client.job(job).steps > view.steps, what="it to go on")
        assert client.job(job).lost_steps == 0
