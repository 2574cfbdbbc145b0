"""A node that is taken away at a time that is known, as the end of a Slurm job: its agent leaves before."""

import sys
import time
from pathlib import Path

import pytest
from tests.cluster.cluster import Running, running, until

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "live" / "numpy_job.py"
GRACE_S = 3.0


@pytest.mark.parametrize("says", ["option", pytest.param("Slurm", marks=pytest.mark.long)])
def test_jobs_leave_a_node_before_it_is_taken_away(tmp_path: Path, says: str) -> None:
    with running(tmp_path, ("--round", "2")) as cluster, cluster.client() as client:
        words = (sys.executable, str(SCRIPT), "--step-ms", "20")
        spec = JobSpec(command=words, total_steps=100_000, grace_s=GRACE_S, cwd="/")
        (job,) = client.submit([spec])
        for lasts_s in (30, 90, 300):  # a slow machine takes long until the job trains
            _add_pilot(cluster, lasts_s, says)
            pilot = cluster.agents["pilot"]
            until(lambda pilot=pilot: pilot.poll() is not None or client.job(job).steps > 5)  # type: ignore[misc]
            if pilot.poll() is None:
                break
        (node,) = client.nodes()
        assert node.reason.startswith("is given back in ")
        assert cluster.agents.pop("pilot").wait(300) == 0
        assert "this node is given back in" in (tmp_path / "pilot.log").read_text()
        until(lambda: not client.nodes(), what="the cluster to forget the node")
        attempt = client.attempts(job)[-1]
        assert attempt.end in (AttemptEnd.AGENT_LEFT, AttemptEnd.PREEMPTED), attempt
        view = client.job(job)
        assert view.saved_step == view.steps > 0, "it has saved where it stood"
        cluster.add_agent("other", "v100=1")
        until(lambda: client.job(job).steps > view.steps, what="it to go on")
        assert client.job(job).lost_steps == 0


def _add_pilot(cluster: Running, lasts_s: int, says: str) -> None:
    if says == "option":
        cluster.add_agent("pilot", "v100=1", "--ends-in", f"{lasts_s}s")
    else:
        environment = {"SLURM_JOB_END_TIME": str(int(time.time() + lasts_s))}
        cluster.add_agent("pilot", "v100=1", environment=environment)
