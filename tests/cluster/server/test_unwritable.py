"""A server that cannot write its state says so wherever people look."""

from pathlib import Path

from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cli.terminal_views import status_screen
from fairlead.cluster.front.web.overview import summary

WHY = "state/state.db: cannot be written (database or disk is full)"


def test_status_page_and_explain_name_the_cause(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as cluster:
        job = cluster.submit()
        state = cluster.service.engine.state
        assert cluster.service.status(ADMIN).unwritable == ""
        state.commit_error = WHY
        try:
            status = cluster.service.status(ADMIN)
            facts = cluster.service.explain(ADMIN, job).facts
        finally:
            state.commit_error = ""
    assert status.unwritable == WHY
    assert facts[0].startswith("Nothing can be written down just now")
    assert WHY in facts[0]
    assert str(status_screen(status).renderables[0]) == f"NOTHING IS WRITTEN DOWN: {WHY}"
    assert WHY in str(summary(status).body)
