"""What the tests of workloads share."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def kept_determinism(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command chooses deterministic kernels; other tests of this process are not to notice."""
    import torch

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.use_deterministic_algorithms(False)
