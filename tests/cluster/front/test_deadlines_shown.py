"""Deadlines of jobs, as a server shows them."""

from pathlib import Path

from tests.cluster.cluster import until
from tests.cluster.served import served

from fairlead.cluster.protocol.job_spec import JobSpec


def test_a_deadline_that_passes_is_shown_and_counted(tmp_path: Path) -> None:
    spec = JobSpec(command=("true",), total_steps=1000, rates={"v100": 1000.0})
    with served(tmp_path / "state", open_metrics=True) as cluster, cluster.client() as client:
        late, timely, free = client.submit(
            [
                JobSpec(command=spec.command, total_steps=1, rates=spec.rates, slo_s=1.0),
                JobSpec(command=spec.command, total_steps=1, rates=spec.rates, slo_s=9000.0),
                spec,
            ]
        )
        until(lambda: client.job(late).deadline == "past")
        until(lambda: client.status().n_past_deadline == 1)
        standings = {job.id: job.deadline for job in client.all_jobs("open", "")}
        assert standings == {late: "past", timely: "open", free: ""}
        left_s = client.job(timely).deadline_left_s
        assert left_s is not None
        assert 0 < left_s <= 9000.0
        assert "there is no forecast of whether it is met" in client.explain(timely).why_here
        assert "it is late" in client.explain(late).why_here
        assert "deadline" not in client.explain(free).why_here
        for job in (late, timely):
            client.cancel(job)
        assert client.job(late).deadline == "missed"
        assert client.job(timely).deadline == "withdrawn"
        assert "It missed its deadline" in client.explain(late).why_here
        until(lambda: client.status().n_past_deadline == 0)
        counted = cluster.server.service.metrics_text()
        assert "fairlead_deadlines_missed_total 1.0" in counted
