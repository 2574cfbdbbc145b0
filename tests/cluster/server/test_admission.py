"""Jobs that bring their own rates, on their way to the core."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.model.events import JobTypesLearned
from fairlead.scheduler.core.scheduler import Scheduler


def spec(number: int) -> JobSpec:
    return JobSpec(
        name=f"job-{number}",
        command=("true",),
        total_steps=1,
        unmanaged=True,
        rates={"v100": 1.0},
        colocated_fraction=0.7,
        cwd="/",
    )


@pytest.mark.parametrize("policy", ["las", "las_packed"])
def test_the_core_learns_the_job_types_of_all_jobs_of_a_submission_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """With each it copies its table: 10,000 at a time took minutes when they came one by one."""
    learned: list[JobTypesLearned] = []
    handle = Scheduler.handle

    def watched(self: Scheduler, event: object) -> object:
        if isinstance(event, JobTypesLearned):
            learned.append(event)
        return handle(self, event)  # type: ignore[arg-type]

    monkeypatch.setattr(Scheduler, "handle", watched)
    with engine_nodes(tmp_path, policy=policy) as cluster:
        cluster.node("n")
        cluster.until(lambda: cluster.service.engine.state.scheduler is not None)
        specs = [spec(number) for number in range(50)]
        cluster.service.submit(ADMIN, specs)
        state = cluster.service.engine.state
        cluster.until(lambda: state.scheduler is not None and state.scheduler.data.ledger.jobs.n)
        table = state.scheduler.data.beliefs.known  # type: ignore[union-attr]
        rates = [event for event in learned if event.colocated_rate is None]
        assert [len(event.job_types) for event in rates] == [50]
        pairs = [event for event in learned if event.colocated_rate is not None]
        if policy == "las":
            assert pairs == []
            assert table.colocated_rate is None, "nobody would ask for them"
        else:
            assert [len(event.job_types) for event in pairs] == [50]
            one, two = (table.row(job_type) for job_type in pairs[0].job_types[:2])
            assert table.colocated_rate is not None
            assert table.colocated_rate[one, two, 0] == pytest.approx(0.7)
