"""Fixtures that every test may use."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples each time, so that a change is to blame when a test fails; look further with
# pytest --hypothesis-profile=default.
# How fast a machine draws them is no test of ours.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data beside the checkout; the test is skipped, with a word, where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "golden").is_dir():
        pytest.skip(f"reference data not found beside the checkout ({folder.name}/)")
    return folder
