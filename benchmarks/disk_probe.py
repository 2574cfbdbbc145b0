"""How long the disk itself takes: what a server makes durable cannot be answered sooner."""

import os
import threading
import time
from pathlib import Path
from types import TracebackType

PERIOD_S = 0.1  # between two writes
SIZE = 4096  # bytes of one


class DiskProbe:
    """Writes a page and syncs it, again and again, on a thread of its own for as long as the block lasts."""

    def __init__(self, folder: Path) -> None:
        """folder: on the disk in question."""
        self.at: list[float] = []  # monotonic seconds
        self.took_s: list[float] = []
        self._path = folder / "probe"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)

    def __enter__(self) -> "DiskProbe":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        page = b"\0" * SIZE
        with self._path.open("wb", buffering=0) as file:
            while not self._over.wait(PERIOD_S):
                began = time.monotonic()
                os.pwrite(file.fileno(), page, 0)
                os.fdatasync(file.fileno())
                self.at.append(began)
                self.took_s.append(time.monotonic() - began)
