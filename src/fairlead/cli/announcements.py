"""Messages of commands that run on: none of them ends because nobody reads its output."""

import contextlib
import os
import sys


def announce(line: str) -> None:
    """Print it. Where the reader has gone (``| head``, a terminal that was closed), this line and all that
    follow are dropped."""
    try:
        print(line, flush=True)
    except OSError:
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())  # what is buffered goes there too, at the end
            os.close(nowhere)
