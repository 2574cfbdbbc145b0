"""Fixtures that every test may use."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data beside the checkout; the test is skipped, with a word, where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "golden").is_dir():
        pytest.skip(f"reference data not found beside the checkout ({folder.name}/)")
    return folder
