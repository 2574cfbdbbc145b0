"""What the tests of workloads share."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def kept_determinism(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command chooses deterministic kernels; other tests of this process are not to notice."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.use_deterministic_algorithms(False)
