"""Precedence of the driver's thread over questions, which other threads of its process answer: they share an
interpreter, and a round that has been decided is to reach its nodes first."""

import threading

MAX_YIELD_S = 2.0  # that a question waits at most
MAX_WAITING = 100  # nodes with news at once: work that questions would hold up


class Yielder:
    """One thread takes it and gives it back; any thread may wait."""

    def __init__(self, timeout_s: float = MAX_YIELD_S) -> None:
        self._timeout_s = timeout_s
        self._free = threading.Event()
        self._free.set()

    def take(self) -> None:
        """Questions wait from now on. A second call changes nothing."""
        self._free.clear()

    def give_back(self) -> None:
        """Questions go on."""
        if not self._free.is_set():
            self._free.set()

    def wait(self) -> None:
        """Until it is given back, at most for the timeout."""
        self._free.wait(self._timeout_s)
