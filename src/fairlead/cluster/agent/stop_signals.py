"""SIGTERM, SIGINT and SIGHUP to an agent."""

import asyncio
import signal
from collections.abc import Callable

from fairlead.cluster.end_signals import end_signals


class StopSignals:
    """``leave`` is set with the first one; from the second one on ``kill`` is called."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self.leave = asyncio.Event()
        self._kill = kill
        self._count = 0
        self._numbers: tuple[signal.Signals, ...] = ()

    def watch(self) -> None:
        """From now on, in the running loop."""
        loop = asyncio.get_running_loop()
        self._numbers = end_signals()
        for number in self._numbers:
            loop.add_signal_handler(number, self._signalled)

    def unwatch(self) -> None:
        """They end the process again."""
        loop = asyncio.get_running_loop()
        for number in self._numbers:
            loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        self._count += 1
        self.leave.set()
        if self._count > 1:
            self._kill()
