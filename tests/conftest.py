"""Fixtures that every test may use."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.process_state import ProcessState

os.environ.setdefault("FAIRLEAD_CHECK_RECORDS", "1")  # read when fairlead.model.jit is imported
# Where no kernels are kept, the first command to need one says that it compiles: whichever test that is in
# would find a line more on stderr. Tests of that line unset it.
os.environ["FAIRLEAD_TOLD_OF_COMPILING"] = "1"

# Tests start hundreds of processes: each would compile all source anew, a third of the CPU time of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as of what a shell runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests' programs are interrupted

# The same examples each time, so that a change is to blame when a test fails; scripts/explore looks further.
# How fast a machine draws them is no test of ours.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore",
    max_examples=int(os.environ.get("FAIRLEAD_EXAMPLES", "500")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("fixed")


@pytest.fixture(scope="session", autouse=True)
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Agents of tests leave what they leave on a machine in a place of its own."""
    os.environ["FAIRLEAD_RUN_DIR"] = str(tmp_path_factory.mktemp("run") / "d")
    yield
    del os.environ["FAIRLEAD_RUN_DIR"]


@pytest.fixture(autouse=True)
def leaves_the_process_as_it_was() -> Iterator[None]:
    """No test finds what another one has done to the process; the one that did it is an error."""
    before = ProcessState.now()
    yield
    changed = before.restore()
    assert not changed, f"the test leaves changed: {'; '.join(changed)}"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data beside the checkout; the test is skipped, with a word, where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "golden").is_dir():
        pytest.skip(f"reference data not found beside the checkout ({folder.name}/)")
    return folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those that wait for processes come first: beside them the others have time to compute. The long ones
    run only where they are asked for."""
    if "long" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("long") is not None]
        items[:] = [item for item in items if item.get_closest_marker("long") is None]
        config.hook.pytest_deselected(items=long)
    waiting = (  # the longest of them, by file
        "test_chaos",
        "test_fidelity",
        "test_backup",
        "test_what_if",
        "test_retries",
        "test_front",
        "test_live_cluster",
        "test_torch",
        "test_web_browser",
        "test_death",
        "test_warden",
    )
    rank = {name: number for number, name in enumerate(waiting)}
    items.sort(
        key=lambda item: rank.get(item.path.stem, len(rank) + ("cluster" not in item.path.parts))
    )
