"""The core hears of the progress of jobs that simply run on."""

from pathlib import Path

from tests.cluster.cluster import Running, until

from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec

STEPS, RATE = 24_000, 400.0  # a minute: it still runs when a slow machine gets to the questions


def test_progress_of_a_job_that_keeps_its_devices_is_known_to_forecasts(
    cluster: Running, tmp_path: Path
) -> None:
    script = Path(__file__).resolve().parents[2] / "examples" / "live" / "numpy_job.py"
    spec = JobSpec(
        command=("python", str(script), "--step-ms", "2.5"),
        total_steps=STEPS,
        rates={"v100": RATE},
        checkpoint_dir=str(tmp_path / "job"),
        cwd="/",
    )
    with cluster.client() as client:
        until(lambda: all(n.state == "up" for n in client.nodes()) and len(client.nodes()) == 2)
        (job,) = client.submit([spec])
        until(lambda: client.job(job).steps > STEPS / 4, what="a quarter of the work")
        round_then = client.status().round
        until(lambda: client.status().round > round_then + 1, what="the end of a round")
        assert client.job(job).starts == 1
        left_s = client.what_if(WhatIf()).now.finish_s[job]
        rate = client.job(job).measured_rate or RATE  # a busy machine is slower
        client.cancel(job)
    assert left_s * rate < 0.9 * STEPS
