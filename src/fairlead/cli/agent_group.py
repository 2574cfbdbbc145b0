"""One agent for each accelerator type of a host, started and ended as one."""

import os
import signal
from collections.abc import Sequence
from typing import TypeVar

from fairlead.cluster.end_signals import end_signals
from fairlead.model.child_signals import end_with_parent

_POLL_S = 0.2
T = TypeVar("T")


def fork_each(agents: Sequence[T]) -> T:
    """Return each of these in a process of its own. The calling process passes signals on to them, and exits
    when they have, with the first code that is not 0; where one fails, the others are told to end.

    Call it before there are threads.
    """
    parent = os.getpid()
    children: set[int] = set()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, end_signals())
    for one in agents:
        child = os.fork()
        if child == 0:
            os.setsid()  # Ctrl-C comes by way of the parent
            end_with_parent(parent, signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return one
        children.add(child)
    raise SystemExit(_wait(children))


def _wait(children: set[int]) -> int:
    """Signals are blocked, and taken between looks at the children."""
    first_code = 0
    while children:
        if (received := signal.sigtimedwait(end_signals(), _POLL_S)) is not None:
            _signal(children, received.si_signo)
        for child in tuple(children):
            pid, status = os.waitpid(child, os.WNOHANG)
            if not pid:
                continue
            children.discard(child)
            code = abs(os.waitstatus_to_exitcode(status))
            if code and not first_code:
                _signal(children, signal.SIGTERM)
            first_code = first_code or code
    return first_code


def _signal(children: set[int], number: int) -> None:
    for child in children:  # none has been waited for: its pid is still its own
        os.kill(child, number)
