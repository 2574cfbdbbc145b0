"""What a server refuses to start from."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import engine_nodes

from fairlead.cluster.store.store import Store
from fairlead.errors import RunError
from fairlead.model.commands import WakeAt
from fairlead.scheduler.journal import encode


def test_a_journal_with_other_decisions_is_refused_as_a_state_that_cannot_be_used(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("one").register()
        cluster.submit()
    with Store(tmp_path) as store, store.transaction() as transaction:
        transaction.append([encode(WakeAt(1.0, 2.0))])
    with (
        pytest.raises(
            RunError, match=r"the core commands nothing; start the version that wrote it"
        ),
        engine_nodes(tmp_path),
    ):
        pass
