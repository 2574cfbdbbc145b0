"""SIGTERM while a loop is under a lease: noted, and acted on at the next step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class SigtermCatcher:
    """The handler of SIGTERM between ``catch`` and ``release``; outside the main thread there is none."""

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self.is_received = False
        self.may_wait = False  # for the next step: there is work that can be saved
        self._on_signal = on_signal
        self._before: Any = None  # the handler before this one

    def catch(self) -> None:
        """Be the handler. None has come yet."""
        self.is_received = False
        if _in_main_thread():
            self._before = signal.signal(signal.SIGTERM, self._receive)

    def catch_again(self) -> None:
        """Be the handler again, after somebody has put another in its place."""
        if _in_main_thread():
            signal.signal(signal.SIGTERM, self._receive)

    def release(self) -> None:
        """Put back the handler from before ``catch``."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def _receive(self, _: int, __: FrameType | None) -> None:
        self.is_received = True
        self._on_signal()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
