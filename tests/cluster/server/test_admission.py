"""Jobs that bring their own rates, on their way to the core."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.rates import job_type_of_row, table_for
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
        assert [len(event.job_types) for event in learned] == [50]
        if policy == "las":
            assert learned[0].pairs is None
            assert table.pair_rates is None, "nobody would ask for them"
        else:
            one, two = (table.row(job_type) for job_type in learned[0].job_types[:2])
            assert table.pair_rates is not None
            assert table.pair_rates[one, two, 0] == pytest.approx(0.7)


def _told(number: int, **more: object) -> JobSpec:
    return msgspec.structs.replace(spec(number), rates={"v100": 1.0 + number}, **more)


def test_pairs_that_are_learned_are_those_of_a_new_core(tmp_path: Path) -> None:
    """Whoever is named for the first time is told apart from then on."""
    specs = [
        _told(0),
        _told(1, colocated_fraction=0.9),
        _told(2, colocated_fraction=None),
        _told(3, colocated_fraction=0.6, colocated_fractions={"job-0": 0.8, "resnet50": 0.5}),
        _told(4, colocated_fraction=None, colocated_fractions={"job-3": 0.75, "job-1": 1.0}),
        _told(5, scale_factor=2),
    ]
    with engine_nodes(tmp_path, policy="las_packed") as cluster:
        cluster.node("n", devices=2)
        state = cluster.service.engine.state
        cluster.until(lambda: state.scheduler is not None)
        assert state.scheduler is not None
        for one in specs:
            cluster.service.submit(ADMIN, [one])
        cluster.until(
            lambda: state.scheduler is not None and state.scheduler.data.ledger.jobs.n == 6
        )
        learned = state.scheduler.data.beliefs.known
        rows = state.registry.jobs
        assert state.setup is not None
        fresh = table_for(state.options.catalogue, state.setup.cluster, rows).on(
            state.setup.cluster
        )
        kinds = [job_type_of_row(rows[job]) for job in sorted(rows)]
        kinds += [one for one in fresh.job_types if one not in kinds]
        found = []
        for table in (learned, fresh):
            at = np.array([table.row(one) for one in kinds], np.int64)
            assert table.pair_rates is not None
            found.append(table.pair_rates[np.ix_(at, at)])
        assert np.array_equal(found[0], found[1])
        beside = found[0][:6, :6, 0]
        assert beside[0, 1] == pytest.approx(0.7 * 1.0)
        assert beside[3, 0] == pytest.approx(0.8 * 4.0)
        assert beside[3, 1] == pytest.approx(0.6 * 4.0)
        assert beside[4, 3] == pytest.approx(0.75 * 5.0)
        assert beside[4, 1] == pytest.approx(1.0 * 5.0)
        assert beside[4, 0] == beside[0, 4] == 0.0, "it is not known of one of the two"
        assert not beside[2].any()
        assert not beside[:5, 5].any()
        assert not beside[5, :5].any()
