"""SIGTERM, SIGINT and SIGHUP to an agent."""

import asyncio
from collections.abc import Callable


class StopSignals:
    """``leave`` is set with the first one; from the second one on ``kill`` is called."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self.leave = asyncio.Event()
        self._kill = kill

    def receive(self) -> None:
        """One has come: see ``EndSignals``."""
        if self.leave.is_set():
            self._kill()
        self.leave.set()
