"""What tests of the front share: a server for each file of them, and a user of it."""

from collections.abc import Iterator

import pytest
from tests.cluster.served import Served, served


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without jobs; a file whose tests need some has a fixture of this name of its own."""
    with served(tmp_path_factory.mktemp("state") / "s") as running:
        yield running


@pytest.fixture(scope="module")
def ann(cluster: Served) -> str:
    """The token of a user of the tenant apes."""
    with cluster.client() as admin:
        return admin.add_user("ann", "apes", "user")
