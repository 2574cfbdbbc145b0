"""What tests of the front share: a server for each file of them, and a user of it."""

from collections.abc import Iterator

import pytest
from tests.cluster.served import Served, served


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without nodes and jobs."""
    with served(tmp_path_factory.mktemp("state") / "s") as running:
        yield running


@pytest.fixture(scope="module")
def ann(front: Served) -> str:
    """The token of a user of the tenant apes."""
    with front.client() as admin:
        return admin.add_user("ann", "apes", "user")
