"""A job that ends while a view of it is made is shown as it was before, or with all of its end."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.server.view_builders import ViewBuilder
from fairlead.cluster.store.rows import JobRow


def test_no_view_has_half_of_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views are made beside the driver's thread."""
    with engine_nodes(tmp_path) as cluster:
        job = cluster.submit()

        def ends_meanwhile(_: ViewBuilder, row: JobRow) -> str:
            row.reason, row.state, row.ended_s = "cancelled by ann", "cancelled", 5.0
            return ""

        before = cluster.service.job(ADMIN, job)
        with monkeypatch.context() as patch:
            patch.setattr(ViewBuilder, "_end", ends_meanwhile)
            meanwhile = cluster.service.job(ADMIN, job)
        after = cluster.service.job(ADMIN, job)
        assert (meanwhile.state, meanwhile.ended_s) == (before.state, None)
        assert (after.state, after.ended_s, after.reason) == ("cancelled", 5.0, "cancelled by ann")
