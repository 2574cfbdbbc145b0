"""A port of this machine for a process that a test starts."""

import contextlib
import random
import socket

# Below those that the system gives to whoever asks for any: between being found free and being used a port
# of these could become that of somebody's connection.
_PORTS = range(15_000, 32_000, 2)
_random = random.SystemRandom()  # tests that run side by side find different ones


def free_port() -> int:
    """Of the loopback; the one behind it is free too."""
    while True:
        port = _random.choice(_PORTS)
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", port)),
            socket.create_server(("127.0.0.1", port + 1)),
        ):
            return port
