"""A training job of almost no work, and an agent for it."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import fairlead
from fairlead.client.messages import FromRank
from fairlead.client.stub_agent import StubAgent

EPOCH = 7  # batches of a pass


class Script:
    """Its state is a digest of every batch that it was given, in order."""

    def __init__(self) -> None:
        self.digest = ""
        self.done: list[int] = []  # steps of this process
        self.save_fails: type[Exception] | None = None

    def batches(self, epoch: int, batch_size: int) -> Iterator[str]:
        """Those of one epoch."""
        return (f"{epoch}/{i}/{batch_size}" for i in range(EPOCH * 8 // batch_size))

    def train(self, batch: str) -> None:
        self.digest = hashlib.sha256((self.digest + batch).encode()).hexdigest()

    def save(self, path: Path) -> None:
        if self.save_fails is not None:
            path.write_text("half of it")
            raise self.save_fails("No space left on device")
        path.write_text(self.digest)

    def load(self, path: Path) -> None:
        self.digest = path.read_text()

    def iterator(self, folder: Path, steps: int | None, **more: object) -> "fairlead.Iterator[str]":
        return fairlead.Iterator(
            self.batches,
            load=self.load,
            save=self.save,
            total_steps=steps,
            batch_size=8,
            checkpoint_dir=folder,
            **more,  # type: ignore[arg-type]
        )

    def run(
        self,
        folder: Path,
        steps: int | None,
        at: Mapping[int, Callable[["fairlead.Iterator[str]"], object]] | None = None,
        **more: object,
    ) -> "fairlead.Iterator[str]":
        """Train; ``at``: what happens while that step (from 0) is under way."""
        batches = self.iterator(folder, steps, **more)
        for batch in batches:
            self.train(batch)
            self.done.append(batches.step)
            if at and batches.step in at:
                at[batches.step](batches)
        return batches


class Agent:
    """A host that answers from a thread of its own."""

    def __init__(self, host: StubAgent) -> None:
        self.host = host
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def open(self) -> None:
        self.host.open()
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.host.close()

    def received(self, kind: type[FromRank]) -> list[FromRank]:
        return [message for message in self.host.received if isinstance(message, kind)]

    def wait_for(self, kind: type[FromRank], count: int = 1, within_s: float = 120.0) -> None:
        self.wait_until(lambda: len(self.received(kind)) >= count, kind.__name__, within_s)

    def wait_until(self, holds: Callable[[], bool], awaited: str, within_s: float = 120.0) -> None:
        """awaited: for people."""
        until = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < until, f"no {awaited}: {self.host.received}"
            time.sleep(0.005)

    def _serve(self) -> None:
        while not self._over.is_set():
            self.host.poll(0.02)


@contextmanager
def agent(folder: Path, patch: pytest.MonkeyPatch, **options: float) -> Iterator[Agent]:
    """An agent, and this process as the rank that it has started."""
    host = StubAgent(folder / "agent.sock", **options)  # type: ignore[arg-type]
    for name, value in host.environment().items():
        patch.setenv(name, value)
    served = Agent(host)
    served.open()
    try:
        yield served
    finally:
        served.close()
