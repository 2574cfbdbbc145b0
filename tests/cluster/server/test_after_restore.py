"""A cluster that begins from a backup: what is booked of the time that is not known."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, compared, engine_nodes

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.store.backup import back_up, restore
from fairlead.cluster.store.failures import Backoff

LONG_S = 3600.0
LOST_S = 1.0  # of history, at least


def test_time_that_a_restore_gives_up_is_billed_to_nobody(tmp_path: Path) -> None:
    directory, backup = tmp_path / "state", tmp_path / "backup"
    with engine_nodes(directory, LONG_S) as cluster:
        node = cluster.node("a")
        node.register()
        job = cluster.submit()
        cluster.until(lambda: (job, 1) in node.statuses, "the start")
        node.run(job, 1, loaded_step=0, step=7, trained_s=0.1)
        cluster.until(lambda: cluster.service.store.attempts(job)[0].trained_s is not None)
        back_up(directory, backup)
        known_s = cluster.job(job).run_s  # at least what the backup knows of
        cluster.until(lambda: cluster.job(job).run_s >= 2 * known_s + LOST_S)
        limit_s = (known_s + cluster.job(job).run_s) / 2  # of the rest nothing is billed
    restore(backup, directory, replace=True)
    with engine_nodes(directory, LONG_S) as cluster:
        service = cluster.service
        assert service.attempts(ADMIN, job)[0].end == "restored"
        assert service.attempts(ADMIN, job)[0].ended_s is not None
        stories = [words for _, words in service.explain(ADMIN, job).events]
        assert any(words.endswith("at a step that is not known") for words in stories), stories
        view = cluster.job(job)
        assert view.run_s <= limit_s
        assert view.queued_s >= LOST_S
        rounds = service.engine.parts.rounds.clock
        cluster.do(lambda: rounds.end_round(service.engine.state.now_s()))
        (tenant,) = service.status(ADMIN).tenants
        assert tenant.device_s <= limit_s
        core = service.engine.state.scheduler
        assert core is not None
        assert float(core.data.ledger.runs.ran_s.sum()) <= limit_s
        assert float(core.data.ledger.groups.received_s.sum()) <= limit_s


def test_what_was_saved_before_a_backup_ends_the_row_of_failures(tmp_path: Path) -> None:
    directory, backup = tmp_path / "state", tmp_path / "backup"
    with engine_nodes(directory, LONG_S) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(0.1, 0.1)
        node = cluster.node("a")
        node.register()
        job = cluster.submit(max_retries=1)
        cluster.until(lambda: (job, 1) in node.statuses)
        failure = Failure(exit_code=3, message="exit code 3")
        node.end(job, 1, exit_code=3, reason="exit code 3", failure=failure)
        cluster.until(lambda: (job, 2) in node.statuses)
        node.run(job, 2, loaded_step=0, step=300, saved_step=270)
        store = cluster.service.store  # that is backed up, not what the server knows
        cluster.until(lambda: store.job(job).saved_step == 270)  # type: ignore[union-attr]
        back_up(directory, backup)
    restore(backup, directory, replace=True)
    with engine_nodes(directory, LONG_S) as cluster:
        assert cluster.service.attempts(ADMIN, job)[1].end == "restored"
        assert (
            cluster.do(lambda: cluster.service.engine.state.registry.jobs[job].recent_failures)
            == ()
        )


def test_a_job_that_fits_on_no_node_goes_on_saying_so(tmp_path: Path) -> None:
    directory, backup = tmp_path / "state", tmp_path / "backup"
    why = "no node, or nodes together, with 4 devices of one type on which it can run"
    with engine_nodes(directory, LONG_S) as cluster:
        node = cluster.node("a")
        node.register()
        large, small = cluster.submit(scale_factor=4), cluster.submit()
        cluster.until(lambda: (small, 1) in node.statuses)
        assert cluster.job(large).reason == why
        store = cluster.service.store
        cluster.until(lambda: store.job(large) is not None)
        back_up(directory, backup)
    restore(backup, directory, replace=True)
    with engine_nodes(directory, LONG_S) as cluster:
        assert cluster.job(small).reason.startswith("the cluster was restored from a backup")
        assert cluster.job(large).reason == why
        assert cluster.service.explain(ADMIN, large).facts[0] == f"It waits: there is {why}."


def test_a_job_that_fits_again_does_not_go_on_saying_that_it_fits_nowhere(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        one, small = cluster.node("one", devices=2), cluster.node("small")
        one.register()
        job = cluster.submit(scale_factor=2)
        cluster.until(lambda: one.jobs == {job})
        small.register()
        cluster.service.drain(ADMIN, "one")
        cluster.until(lambda: not one.statuses)
        one.say(leaving=True)
        cluster.silence(one)
        cluster.service.remove_node(ADMIN, "one")
        cluster.until(lambda: cluster.job(job).reason.startswith("no node"))
        two = cluster.node("two", devices=2)
        two.register()
        cluster.until(lambda: two.jobs == {job})
        assert cluster.job(job).reason == ""


def test_no_end_is_forecast_while_nothing_is_started(tmp_path: Path) -> None:
    """The nodes come back, and jobs with them: it was said that these never end as it is."""
    directory, backup = tmp_path / "state", tmp_path / "backup"
    with engine_nodes(directory, LONG_S) as cluster:
        node = cluster.node("a")
        node.register()
        job = cluster.submit(total_steps=10)
        cluster.until(lambda: (job, 1) in node.statuses)
        back_up(directory, backup)
    restore(backup, directory, replace=True)
    with engine_nodes(directory, LONG_S) as cluster:
        assert cluster.job(job).no_end == "nothing starts"
        explanation = cluster.service.explain(ADMIN, job)
        assert "Nothing is started for" in " ".join(explanation.facts)
        assert (explanation.no_end, explanation.forecast_kind) == ("nothing starts", "")
        with pytest.raises(ConflictError, match=r"^nothing is started for .*; ask again then$"):
            compared(cluster, WhatIf(add_nodes={"v100": 1}))
