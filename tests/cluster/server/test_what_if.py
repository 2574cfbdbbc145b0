"""A question is refused for what a submission is refused for."""

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console
from tests.cluster.server_nodes import ADMIN, EngineNodes, engine_nodes

from fairlead.cli.terminal_views import comparison_screen
from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.protocol.api_models import Comparison, WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.store.failures import Backoff
from fairlead.errors import ConfigError
from fairlead.model.job import JobId


def _compared(cluster: EngineNodes, question: WhatIf) -> Comparison:
    """The answer to a question, while the nodes live."""
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(cluster.service.what_if, ADMIN, question)
        cluster.until(asked.done)
        return asked.result()


def _ends(cluster: EngineNodes) -> dict[int, float]:
    """Job -> when it will be done."""
    return _compared(cluster, WhatIf()).now.finish_s


def test_jobs_that_would_never_end_are_named(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, two = cluster.node("one", devices=2), cluster.node("two")
        one.register()
        two.register()
        only_there = cluster.submit(total_steps=1_000, scale_factor=2)
        anywhere = cluster.submit(total_steps=1_000)
        cluster.until(lambda: one.jobs | two.jobs == {only_there, anywhere})
        found = _compared(cluster, WhatIf(remove_nodes=("one",)))
        assert (found.now.n_unfinished, found.then.n_unfinished) == (0, 1)
        assert found.notes[0] == f"job {only_there} would not end within 30 days then"
        shown = io.StringIO()
        Console(file=shown, width=120).print(comparison_screen(found))
        assert "not within 30 d" in shown.getvalue()
        assert "(the 1 that end)" in shown.getvalue()


def test_a_question_is_asked_of_jobs_as_they_are_wanted_now(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one", devices=2)
        one.register()
        first, second = (cluster.submit(total_steps=1_000) for _ in range(2))
        cluster.until(lambda: one.jobs == {first, second})
        assert set(_ends(cluster)) == {first, second}
        cluster.service.cancel(ADMIN, first)
        assert set(_ends(cluster)) == {second}
        third = cluster.submit(total_steps=1_000)
        assert set(_ends(cluster)) == {second, third}


def test_a_job_that_waits_for_another_try_is_part_of_what_will_be(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(3_000.0, 3_000.0)
        one = cluster.node("one", devices=2)
        one.register()
        job = cluster.submit(total_steps=100)
        cluster.until(lambda: one.jobs == {job})
        failure = Failure(exit_code=3, message="exit code 3")
        one.end(job, 1, exit_code=3, reason="exit code 3", failure=failure)
        core = cluster.service.engine.state
        cluster.until(
            lambda: core.scheduler is not None and JobId(job) in core.scheduler.data.paused_jobs
        )
        assert _ends(cluster)[job] > 2_000.0


def test_what_has_ended_as_is_shown_is_not_paused(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0) as cluster:
        one = cluster.node("one", devices=2)
        one.register()
        done, other = cluster.submit(), cluster.submit()
        cluster.until(lambda: one.jobs)
        clock, state = cluster.service.engine.parts.rounds.clock, cluster.service.engine.state
        if one.jobs != {done, other}:
            cluster.do(lambda: clock.end_round(state.now_s()))
        cluster.until(lambda: one.jobs == {done, other})
        one.end(done, 1, exit_code=0, step=1_000_000, loaded_step=0, completed=True)
        cluster.until(lambda: cluster.job(done).state == "completed")
        for change in (cluster.service.pause, cluster.service.cancel):
            with pytest.raises(ConflictError, match=f"job {done}: has ended already"):
                change(ADMIN, done)
        assert cluster.job(done).state == "completed"


def test_a_family_that_is_not_known_is_refused(tmp_path: Path) -> None:
    spec = JobSpec(command=("true",), total_steps=1, family="nosuch")
    with (
        engine_nodes(tmp_path) as cluster,
        pytest.raises(ConfigError, match="family: 'nosuch' is not in the throughput table"),
    ):
        cluster.service.what_if(ADMIN, WhatIf(add_jobs=(spec,)))
