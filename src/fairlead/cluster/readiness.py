"""A server tells the process that started it that it is ready: one line of JSON on a pipe."""

import os
import select
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from fairlead.errors import ConfigError

_LINE = 1 << 16  # bytes that the line is shorter than


class ReadyServer(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses on which a server listens."""

    url: str  # for people and tools
    agents: str  # host:port for agents
    state: str  # its state directory, with the tokens of its first users


def check_ready_fd(fd: int) -> None:
    """Keep a file descriptor from the processes that this one starts. Raises ConfigError for one that is not
    open."""
    try:
        os.set_inheritable(fd, False)
    except (OSError, OverflowError):
        raise ConfigError(f"--ready-fd: {fd} is not an open file descriptor") from None


def report_ready(fd: int, ready: ReadyServer) -> None:
    """Write the line, and close the file descriptor."""
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(msgspec.json.encode(ready) + b"\n")


class ReadyPipe:
    """For one start of a server: give it ``arguments`` and ``fds``, then ``wait``."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Options of ``fairlead serve``."""
        return "--ready-fd", str(self._write)

    @property
    def fds(self) -> tuple[int, ...]:
        """File descriptors that the process is to inherit."""
        return (self._write,)

    def wait(
        self,
        process: "subprocess.Popen[bytes]",
        limit_s: float,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> ReadyServer | None:
        """Return what the server says once it is ready; None: it has ended, or was not ready in ``limit_s``.
        To be called once, when it has been started. meanwhile: called about every half second."""
        os.close(self._write)
        until, line = time.monotonic() + limit_s, b""
        with os.fdopen(self._read, "rb", buffering=0) as pipe:
            while not line.endswith(b"\n") and len(line) < _LINE:
                left_s = until - time.monotonic()
                if left_s <= 0 or not select.select([pipe], [], [], min(left_s, 0.5))[0]:
                    meanwhile()
                    if left_s <= 0 or process.poll() is not None:
                        return None
                    continue
                if not (
                    more := pipe.read(_LINE)
                ):  # its end of the pipe closes a moment before it ends
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(left_s)
                    return None
                line += more
        return msgspec.json.decode(line, type=ReadyServer)
