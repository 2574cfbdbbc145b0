"""The signals that end an agent, a server or a cluster in order."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from types import TracebackType


def end_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT and SIGHUP; the last not where it is ignored, as under nohup."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *((signal.SIGHUP,) if hangs_up else ()))


def ignore_end_signals() -> None:
    """All that is left to do is to end: none of them makes that any faster, and none may make it look like a
    crash. Ignored by the kernel, for the interpreter drops its handlers before it has ended."""
    for number in end_signals():
        signal.signal(number, signal.SIG_IGN)


class EndSignals:
    """In its block each of these signals has the running loop call ``notify``; after it they are ignored: the
    process is about to end."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()

        # No handlers of the loop's: it takes these away when it is closed, and the process lives on a while.
        def receive(*_: object) -> None:
            with contextlib.suppress(RuntimeError):  # it has been closed
                loop.call_soon_threadsafe(self._notify)

        for number in end_signals():
            signal.signal(number, receive)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ignore_end_signals()
