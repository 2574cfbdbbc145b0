"""Stacks of a rank that hangs: on a signal of its agent it writes the stacks of all its threads.

The interpreter's own ``faulthandler`` does that without the interpreter's lock, so it works inside a
collective that never returns. The file is named by ``FAIRLEAD_STACKS_FILE``; its first line says which
process listens for which signal. Nobody sends it to one that has not said so.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from typing import IO

VARIABLE = "FAIRLEAD_STACKS_FILE"
OFFSET = 11  # above SIGRTMIN: debuggers and language runtimes take the first ones, or the last
_open: list[IO[str]] = []  # for as long as the process lives


def register() -> None:
    """Listen from now on; does nothing where no agent wants to know, or where it cannot be done."""
    path = os.environ.get(VARIABLE, "")
    if not path or not hasattr(signal, "SIGRTMIN") or not hasattr(faulthandler, "register"):
        return
    number = signal.SIGRTMIN + OFFSET
    try:
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            return  # the script has its own use for it
        file = open(path, "w", encoding="ascii")  # noqa: SIM115
        faulthandler.register(number, file=file, all_threads=True, chain=False)
    except (OSError, ValueError, RuntimeError):
        return
    _open[:] = [file]
    file.write(f"{os.getpid()} {int(number)}\n")
    file.flush()
