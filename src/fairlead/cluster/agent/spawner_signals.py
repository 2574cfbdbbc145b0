"""The signals that wake a spawner: its children have ended, or it is to leave."""

import contextlib
import selectors
import signal
import socket
from collections.abc import Callable


def watch_signals(
    selector: selectors.BaseSelector, leave: Callable[[], None]
) -> tuple[socket.socket, socket.socket]:
    """Have signals wake the selector; ``leave`` is called for those that end a process. Returns the sockets
    by which that is done."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: leave())

    def drain() -> None:
        with contextlib.suppress(BlockingIOError):
            reader.recv(4096)

    selector.register(reader, selectors.EVENT_READ, drain)
    return reader, writer
