"""A forecast is told only of the situation that the job is in now."""

from pathlib import Path

from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cli.job_history import expected_end
from fairlead.cluster.protocol.api_models import Explanation
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.server.attempt_orders import ranks_on
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.start_times import ProgramStarts
from fairlead.cluster.store.rows import AttemptRow, JobRow

LONG_S = 600.0


def _explain(cluster: EngineNodes, job: int) -> Explanation:
    return cluster.service.explain(ADMIN, job)


def _forecast(cluster: EngineNodes) -> tuple[PlayedNode, int]:
    """A node, and a job that trains there, whose end is forecast."""
    node = cluster.node("one")
    job = cluster.submit(total_steps=1_000)
    node.register()
    cluster.begin(node, job)
    cluster.until(lambda: _explain(cluster, job).finish_s is not None)
    return node, job


def _made_s(cluster: EngineNodes, told: Explanation) -> float:
    """Cluster's time of the state that the forecast is of, at the latest."""
    assert told.forecast_age_s is not None
    return cluster.service.engine.state.now_s() - told.forecast_age_s


def test_no_end_is_told_that_rests_on_devices_which_are_gone(tmp_path: Path) -> None:
    """Neither of the job that has lost them, nor of one that waited for them."""
    with engine_nodes(tmp_path, LONG_S) as cluster:
        _, job = _forecast(cluster)
        waits = cluster.submit(total_steps=1_000)
        cluster.until(lambda: _explain(cluster, waits).finish_s is not None)
        cluster.service.drain(ADMIN, "one")
        cluster.until(lambda: cluster.service.attempts(ADMIN, job)[0].ended_s is not None)
        assert _explain(cluster, waits).finish_s is None
        told = _explain(cluster, job)
        ended_s = cluster.service.attempts(ADMIN, job)[0].ended_s
        assert ended_s is not None
        assert told.finish_s is None
        if told.forecasts:  # made meanwhile
            assert _made_s(cluster, told) >= ended_s
        else:
            assert expected_end(told) == "The forecast is being made: ask again in a moment."


def test_of_a_job_on_a_silent_node_no_end_is_told(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _forecast(cluster)
        cluster.silence(node)
        cluster.until(lambda: "silent" in _explain(cluster, job).why_here)
        told = _explain(cluster, job)
        assert (told.finish_s, told.forecasts, told.waits_for_node) == (None, 0, True)
        assert expected_end(told) == "No end is forecast: its node is silent."


def test_a_rate_that_is_shown_is_known_to_forecasts(tmp_path: Path) -> None:
    """Progress alone is no news: it is taken over at the end of the round, and asked for before."""
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node = cluster.node("one")
        job = cluster.submit(unmanaged=True, rates={}, total_steps=1_000)
        node.register()
        cluster.until(lambda: (job, 1) in node.statuses)
        node.run(job, 1, loaded_step=0, step=0, trained_s=0.0)
        cluster.until(
            lambda: cluster.do(lambda: cluster.service.engine.state.registry.jobs[job].tells_steps)
        )
        assert not _explain(cluster, job).rate_known
        node.run(job, 1, loaded_step=0, step=40, trained_s=20.0, ran_s=20.0)
        cluster.until(lambda: cluster.job(job).measured_rate == 2.0)
        assert _explain(cluster, job).rate_known


def test_a_list_says_of_deadlines_what_is_forecast_of_the_present_situation(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        _forecast(cluster)
        due = cluster.submit(total_steps=1_000, slo_s=1e6)

        def listed() -> str:
            return next(job.deadline for job in cluster.service.jobs(ADMIN) if job.id == due)

        cluster.until(lambda: listed() == "forecast met")
        state = cluster.service.engine.state
        state.fleet.nodes["one"].health.state_since = state.fleet.monotonic() + LONG_S
        assert listed() == "open"


def test_an_end_counts_the_start_that_is_under_way_and_the_one_to_come(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=120.0) as cluster:
        node, (first, second) = cluster.node("one"), (cluster.submit(total_steps=64) for _ in "ab")
        node.register()
        cluster.until(lambda: (first, 1) in node.leased)
        row = cluster.service.engine.state.registry.jobs[first]
        cluster.do(lambda: setattr(row, "usual_start_s", 500.0))  # as its starts were measured
        node.statuses[first, 1] = AttemptStatus(job=first, attempt=1, state="starting", wait_s=0.0)
        node.say()
        cluster.until(lambda: (_explain(cluster, first).finish_s or 0.0) > 300.0)
        ends = [_explain(cluster, job).finish_s or 0.0 for job in (first, second)]
        assert ends[0] < 500.0 + 64.0 + 1.0
        assert ends[0] < ends[1] < ends[0] + 500.0, "nothing was measured of the other's starts"
        other = cluster.service.engine.state.registry.jobs[second]
        cluster.do(lambda: setattr(other, "usual_start_s", 500.0))
        cluster.until(lambda: (_explain(cluster, second).finish_s or 0.0) > ends[0] + 450.0)


def test_what_a_start_takes_is_known_of_its_program() -> None:
    programs = ProgramStarts()
    known, alike, other = (_row(job, command) for job, command in enumerate(("a", "a", "b")))
    record = AttemptRow(
        job=0, attempt=1, node="one", accelerator="v100", devices=(0,), began_s=100.0,
        trained_s=133.0,
    )  # fmt: skip
    assert programs.of(known) == -1.0
    programs.trains(Attempt(known, record, ranks_on({"one": (0,)}), 1.0, 0.0))
    assert [programs.of(row) for row in (known, alike, other)] == [33.0, 33.0, -1.0]


def _row(job: int, command: str) -> JobRow:
    spec = JobSpec(command=(command,), total_steps=64)
    return JobRow(
        id=job, name="", tenant="t", user="u", spec=spec, submitted_s=0.0, total_steps=64.0
    )
