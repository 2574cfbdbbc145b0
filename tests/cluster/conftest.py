import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.cluster import Running, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with two nodes of fake devices, shared by the tests of a module."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    with running(directory, agents={"node-a": "v100=2", "node-b": "k80=2"}) as found:
        yield found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder to which all users of the machine have a way."""
    made = Path(tempfile.mkdtemp(prefix="fairlead-users-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)
