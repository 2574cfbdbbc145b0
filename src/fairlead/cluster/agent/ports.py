"""Ports for the rendezvous of ranks, chosen seconds before they listen there."""

import contextlib
import random
import socket
from collections.abc import Set as AbstractSet
from pathlib import Path

_FIRST = 20_000
_LOCAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_MIN_PORTS = 1_000  # ports below the system's own range, to choose from those
_MAX_TRIES = 200


def free_ports(count: int, taken: AbstractSet[int]) -> list[int]:
    """So many different ports on which nobody listens; none is one of ``taken``.

    They are below the range from which the system gives ports to outgoing connections: one out of that
    range may belong to somebody else by the time that the rank has imported what it needs.
    """
    found: list[int] = []
    last = _first_local() - 1
    choices = range(_FIRST, last) if last - _FIRST >= _MIN_PORTS else range(0)
    for port in random.sample(choices, min(_MAX_TRIES, len(choices))):
        if len(found) == count:
            return found
        if port not in taken and _is_free(port):
            found.append(port)
    with (
        contextlib.ExitStack() as stack
    ):  # the system's choice; all open at once, so that they differ
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            one.bind(("", 0))
            found.append(one.getsockname()[1])
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True


def _first_local() -> int:
    """The first port that the system gives away itself."""
    try:
        return int(_LOCAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
