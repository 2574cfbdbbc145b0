"""An attempt that never has its devices, for who had them does not let go, is no start of its job."""

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cli.job_history import overhead_sentence
from fairlead.cluster.protocol.accounting import UsageView
from fairlead.cluster.protocol.api_models import AttemptView
from fairlead.cluster.protocol.messages import ORPHANED, AttemptStatus
from fairlead.cluster.server.attempt_orders import NEVER_BEGAN
from fairlead.cluster.server.round_report import RoundReporter
from fairlead.cluster.store.rows import JobRow
from fairlead.cluster.store.usage import read_usage, usage_view


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


def waiting(job: int, **more: object) -> AttemptStatus:
    return AttemptStatus(
        **{"job": job, "attempt": 1, "state": "starting", "reason": "another process has device 0"}
        | more  # type: ignore[arg-type]
    )


def lose(cluster: EngineNodes, node: PlayedNode) -> None:
    cluster.silence(node)
    watch = cluster.service.engine.parts.nodes.watch
    cluster.do(lambda: watch.mark_lost(node.name, "node lost"))


def first_ended(cluster: EngineNodes, job: int) -> AttemptView | None:
    attempts = cluster.service.attempts(ADMIN, job)
    return attempts[0] if attempts and attempts[0].ended_s is not None else None


def usage(cluster: EngineNodes) -> UsageView:
    path = cluster.service.store.path
    return usage_view(read_usage(path, time.time()), (), {})


def was_no_start(cluster: EngineNodes, job: int) -> None:
    """The first attempt of a job is over, and counts nowhere; others may have followed."""
    view, (first, *others) = cluster.job(job), cluster.service.attempts(ADMIN, job)
    assert first.why.endswith(NEVER_BEGAN)
    assert view.starts == len(others)
    assert view.overhead_s == 0.0 == cluster.do(lambda: registry(cluster)[job].run_s)
    assert (usage(cluster).total.attempts, usage(cluster).total.device_ms) == (len(others), 0)


def registry(cluster: EngineNodes) -> dict[int, JobRow]:
    return cluster.service.engine.state.registry.jobs


@pytest.mark.parametrize(
    "how", ["its node falls silent", "its agent is started anew", "its spawner dies"]
)
def test_one_that_is_lost_while_it_waits_is_no_start(tmp_path: Path, how: str) -> None:
    with engine_nodes(tmp_path, lease_s=60.0, round_s=600.0) as cluster:
        one, job = ordered(cluster)
        one.statuses[job, 1] = waiting(job)
        one.say()
        if how == "its node falls silent":
            lose(cluster, one)
            cluster.until(lambda: first_ended(cluster, job))
        elif how == "its agent is started anew":
            one.statuses.clear()
            anew = cluster.node("one", "one.2")
            cluster.silence(one)
            anew.register()
            cluster.until(lambda: first_ended(cluster, job))
        else:
            one.statuses[job, 1] = waiting(job, state="ended", reason=ORPHANED)
            cluster.until(lambda: first_ended(cluster, job))
        was_no_start(cluster, job)


def test_of_one_that_is_lost_without_a_word_of_its_devices_nobody_knows(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=60.0, round_s=600.0) as cluster:
        one, job = ordered(cluster)
        one.statuses[job, 1] = waiting(job, reason="")
        one.say()
        lose(cluster, one)
        cluster.until(lambda: first_ended(cluster, job))
        assert cluster.job(job).starts == 1
        assert NEVER_BEGAN not in cluster.service.attempts(ADMIN, job)[0].why


@pytest.mark.parametrize("unmanaged", [True, False])
@pytest.mark.parametrize("first_waits", [True, False])
def test_a_gang_of_which_a_part_never_had_its_devices_is_no_start(
    tmp_path: Path, first_waits: bool, unmanaged: bool
) -> None:
    with engine_nodes(tmp_path, lease_s=60.0, round_s=600.0) as cluster:
        nodes = [cluster.node(name) for name in ("one", "two")]
        for node in nodes:
            node.register()
        job = cluster.submit(scale_factor=2, unmanaged=unmanaged)
        cluster.until(lambda: all((job, 1) in node.leased for node in nodes))
        first = cluster.service.attempts(ADMIN, job)[0].nodes[0]
        leader, other = nodes if first == "one" else nodes[::-1]
        waits, has = (leader, other) if first_waits else (other, leader)
        waits.statuses[job, 1] = waiting(job)
        state = "starting" if has is leader and not unmanaged else "running"
        had = {"wait_s": 0.0, "ran_s": 0.1 * (state == "running")}
        has.statuses[job, 1] = AttemptStatus(job=job, attempt=1, state=state, **had)  # type: ignore[arg-type]
        for node in nodes:
            node.say()
        cluster.service.pause(ADMIN, job)
        cluster.until(lambda: (job, 1) not in waits.leased or waits.say().desired == ())
        has.end(job, 1, exit_code=75, reason="paused", stop_s=0.1, **had)
        waits.statuses[job, 1] = waiting(job, state="ended", reason="paused")
        cluster.until(lambda: first_ended(cluster, job))
        was_no_start(cluster, job)


def test_one_that_waited_before_it_began_has_not_had_its_devices_meanwhile(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=60.0, round_s=6000.0) as cluster:
        one, job = ordered(cluster)
        one.statuses[job, 1] = waiting(job)
        one.say()
        state = cluster.service.engine.state
        clock = state.clock
        state.clock = cast(
            Any, SimpleNamespace(now_s=lambda: clock.now_s() + 1000.0, to_meta=clock.to_meta)
        )
        told = {"wait_s": 900.0, "start_s": 10.0, "loaded_step": 0, "step": 5, "saved_step": 5}
        one.run(job, 1, ran_s=80.0, **told)
        cluster.until(lambda: cluster.job(job).steps == 5)
        view = cluster.job(job)
        assert view.queued_s >= 900.0
        assert 100.0 <= view.run_s < 200.0
        cluster.service.pause(ADMIN, job)
        cluster.until(lambda: not one.say().desired)
        one.end(job, 1, exit_code=0, ran_s=80.0, stop_s=1.0, **told)
        cluster.until(lambda: first_ended(cluster, job))
        view = cluster.job(job)
        assert view.queued_s >= 900.0
        assert 100.0 <= view.run_s < 200.0
        assert view.starts == 1
        told_of = overhead_sentence(cluster.service.explain(ADMIN, job))
        share = re.search(r"\((.*)% of its time on devices\)", told_of)
        assert share is not None
        assert float(share[1]) < 100.0


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
