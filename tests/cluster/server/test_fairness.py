"""Finish-time fairness of live jobs: also where a policy plans rounds and solves nothing."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import engine_nodes

from fairlead.model.job import JobId

RATE = 1.0  # steps/s of the jobs, as they state it
STEPS = 100_000


@pytest.mark.parametrize("policy", ["las_aware", "fifo", "tiresias", "sia", "gandiva"])
def test_a_job_that_has_ended_has_a_finish_time_fairness(tmp_path: Path, policy: str) -> None:
    with engine_nodes(tmp_path, policy=policy) as cluster:
        one = cluster.node("one", devices=2)
        one.register()
        job, _ = cluster.submit(total_steps=STEPS), cluster.submit(total_steps=STEPS)
        cluster.until(lambda: (job, 1) in one.statuses)
        cluster.begin(one, job)
        state = cluster.service.engine.state

        def part() -> float:
            """steps/s with its part of the cluster, as the core has it."""
            assert state.scheduler is not None
            ledger = state.scheduler.data.ledger
            return float(ledger.isolated.isolated_rate[ledger.row(JobId(job))])

        cluster.until(lambda: cluster.do(part) == RATE, "its part")
        one.end(job, 1, exit_code=0, loaded_step=0, step=STEPS, completed=True)
        cluster.until(lambda: cluster.job(job).state == "completed")
        view = cluster.job(job)
        assert view.rho is not None
        assert view.ended_s is not None
        alone_s = STEPS / RATE  # both have a device of their own
        assert view.rho == pytest.approx((view.ended_s - view.submitted_s) / alone_s, rel=0.01)
