"""A bound on what is done at once for one caller where all wait in one line, as for the driver. Who asks for
little then waits behind little of what another one has asked for."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fairlead.cluster.front.compute_turns import TURNS, caller

AT_ONCE = 8


@dataclass(slots=True)
class _Own:
    """The turns of one caller."""

    free: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(AT_ONCE))
    users: int = 0  # threads that have one, or wait for one


class OwnTurns:
    """Turns for threads, of each caller as many; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: dict[str, _Own] = {}

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have one of the caller's turns for the block."""
        whose = caller.get()
        with self._lock:
            own = self._own.setdefault(whose, _Own())
            own.users += 1
        try:
            with TURNS.waiting():
                own.free.acquire()
            try:
                yield
            finally:
                own.free.release()
        finally:
            with self._lock:
                own.users -= 1
                if not own.users:
                    del self._own[whose]
