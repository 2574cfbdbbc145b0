"""An attempt that never has its devices, for who had them does not let go, is no start of its job."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.server.attempt_orders import NEVER_BEGAN
from fairlead.cluster.server.round_report import RoundReporter


def ordered(cluster: EngineNodes, **more: object) -> tuple[PlayedNode, int]:
    """A node with an attempt of a job that waits for its device there."""
    one = cluster.node("one")
    one.register()
    job = cluster.submit(**more)
    cluster.until(lambda: (job, 1) in one.leased)
    return one, job


def received_s(cluster: EngineNodes) -> tuple[float, float]:
    """Device time that the tenant has used, and that the job has received in the scheduler's accounts."""
    state = cluster.service.engine.state
    assert state.scheduler is not None
    groups = state.scheduler.data.ledger.groups
    return state.registry.totals_of("t").device_s, float(groups.received_s.sum())


@pytest.mark.parametrize("unmanaged", [True, False])
def test_it_is_neither_a_start_nor_run_time(tmp_path: Path, unmanaged: bool) -> None:
    with engine_nodes(tmp_path, lease_s=60.0, round_s=600.0) as cluster:
        one, job = ordered(cluster, unmanaged=unmanaged)
        one.statuses[job, 1] = AttemptStatus(
            job=job, attempt=1, state="starting", reason="another process has device 0"
        )
        one.say()
        engine = cluster.service.engine
        cluster.do(lambda: engine.parts.rounds.clock.end_round(engine.state.now_s()))
        cluster.until(lambda: engine.state.round is not None, "the next round")
        assert cluster.do(lambda: received_s(cluster)) == (0.0, 0.0)
        assert cluster.job(job).run_s == 0.0
        cluster.service.pause(ADMIN, job)
        cluster.until(lambda: cluster.service.explain(ADMIN, job).attempts[0].ended_s is not None)
        view = cluster.job(job)
        assert (view.starts, view.run_s, view.overhead_s, view.preemptions) == (0, 0.0, 0.0, 0)
        (attempt,) = cluster.service.explain(ADMIN, job).attempts
        assert attempt.why.endswith(NEVER_BEGAN)


@pytest.mark.parametrize("unmanaged", [True, False])
def test_one_that_had_them_is_both(tmp_path: Path, unmanaged: bool) -> None:
    with engine_nodes(tmp_path, lease_s=60.0, round_s=600.0) as cluster:
        one, job = ordered(cluster, unmanaged=unmanaged)
        told = {} if unmanaged else {"loaded_step": 0, "step": 5, "saved_step": 0}
        one.run(job, 1, wait_s=0.0, start_s=0.0, ran_s=1.0, **told)
        cluster.until(lambda: cluster.job(job).run_s > 0)
        engine = cluster.service.engine
        cluster.do(lambda: engine.parts.rounds.clock.end_round(engine.state.now_s()))
        cluster.until(lambda: engine.state.round is not None, "the next round")
        used_s, received = cluster.do(lambda: received_s(cluster))
        assert used_s > 0
        assert received > 0
        cluster.service.pause(ADMIN, job)
        cluster.until(lambda: cluster.service.explain(ADMIN, job).attempts[0].ended_s is not None)
        view = cluster.job(job)
        assert view.starts == 1
        assert view.run_s > 0
        assert NEVER_BEGAN not in cluster.service.explain(ADMIN, job).attempts[0].why


def attempt_that_told(status: AttemptStatus) -> Any:
    record = SimpleNamespace(wait_s=-1.0, trained_s=None)
    return SimpleNamespace(
        record=record, begin_noted=False, statuses={"one": status}, leader=status
    )


def test_who_waits_for_its_own_program_has_its_devices() -> None:
    """A program that does not end, of a job that is to go on meanwhile, counted as one that had nothing."""
    stops = attempt_that_told(AttemptStatus(job=0, attempt=1, state="stopping", wait_s=0.0))
    waits = attempt_that_told(
        AttemptStatus(job=0, attempt=2, state="starting", reason="another process has device 0")
    )
    registry: Any = SimpleNamespace(live={0: [waits]})
    reporter = RoundReporter(
        cast(Any, SimpleNamespace(registry=registry)), *cast(Any, (None, None))
    )
    current: Any = SimpleNamespace(attempts={0: waits}, ended={})
    assert reporter._waits(current, [0])
    registry.live[0] = [stops, waits]
    assert not reporter._waits(current, [0])
