import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.client.open_loop import OPEN_LOOP


class _Forgetful(set[tuple[int, str]]):
    """Keeps nothing."""

    def add(self, one: tuple[int, str]) -> None: ...


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scheduler around these tests but their own."""
    for name in [*os.environ]:
        if name.startswith("FAIRLEAD_") or name in {"RANK", "WORLD_SIZE"}:
            monkeypatch.delenv(name)
    # This process is not one that an agent has started, though it may lead its session.
    monkeypatch.setattr("fairlead.client.quick_exit.end_quickly", lambda: None)
    # Each loop of a test stands for a start, which has a process of its own.
    monkeypatch.setattr(OPEN_LOOP, "_completed", _Forgetful())


@pytest.fixture(autouse=True)
def random_state_as_before() -> Iterator[None]:
    """Trainers seed the generator of the whole process."""
    before = random.getstate()
    yield
    random.setstate(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a job saves."""
    return tmp_path / "checkpoints"
