"""A port of this machine for a process that a test starts."""

import contextlib
import socket


def free_port() -> int:
    """Of the loopback; the one behind it is free too."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return port
