"""What is told of a job that hangs, by a server to which its node says so."""

from pathlib import Path

from rich.console import Console
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cli.job_history import attempt_history

STALL = "no step for 92 s, usual 0.21 s; rank 0 is in fails.py:15 (train)"


def test_no_end_is_forecast_of_a_job_that_stands_still_until_it_goes_on(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=30.0) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit(total_steps=1000)
        cluster.until(lambda: (job, 1) in node.leased & node.statuses.keys())
        node.run(job, 1, loaded_step=0, step=20, ran_s=100.0, step_age_s=92.0, stall=STALL)
        cluster.until(lambda: STALL in cluster.job(job).reason)
        told = cluster.service.explain(ADMIN, job)
        assert told.facts[0] == f"It stands still, and may hang: {STALL}."
        assert (told.stands_still, told.finish_s, told.forecasts) == (True, None, 0)
        console = Console(width=160)
        with console.capture() as shown:
            console.print(attempt_history(told, 0.0))
        assert "No end is forecast: it stands still." in shown.get()
        assert "Expected to end" not in shown.get()
        waits = cluster.submit(total_steps=1000)
        cluster.until(lambda: "hanging" in cluster.service.explain(ADMIN, waits).why_here)
        node.run(job, 1, loaded_step=0, step=21, ran_s=101.0, step_age_s=0.1)
        cluster.until(lambda: not cluster.service.explain(ADMIN, job).stands_still)
