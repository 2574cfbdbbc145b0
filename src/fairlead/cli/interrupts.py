"""The effect of Ctrl-C on the command line.

Before a command has begun its work, and after it, the process ends at once and without a word. Meanwhile
KeyboardInterrupt is raised, as everywhere in Python, and reaches the command wherever it hits: also in a
callback of the interpreter's, which would print and forget it.
"""

import os
import sys

TYPE_CHECKING = False  # nothing is imported here that takes long: Ctrl-C is not settled before that
if TYPE_CHECKING:
    import signal
    from types import FrameType
    from typing import Any
else:
    import _signal as signal  # what signal makes enums of: those take longer than all else until here

CODE = 128 + signal.SIGINT  # exit code of what was interrupted
_lost = False  # see take_lost
RESEND_INTERVAL_S = 0.02  # until an interrupt that was lost in a callback comes again


def end_process() -> None:
    """From now on Ctrl-C ends the process: nothing has been begun, or all is done. Where it is ignored, as
    under nohup, or the caller has a handler, that stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
        sys.unraisablehook = _bring_back


def raise_interrupt() -> None:
    """From now on it raises KeyboardInterrupt: a command begins its work."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def forget_caught() -> None:
    """An interrupt that left code which was run from a string, as that of dataclasses, counts for the
    interpreter as caught by nobody until more of such code is run: ``python -m`` would end by the signal,
    whatever exit code was asked for."""
    exec("")


def _end(_number: int, _frame: "FrameType | None") -> None:
    os._exit(CODE)  # whatever is being imported: no exception to be caught, or to be printed


def take_lost() -> bool:
    """Return whether an interrupt has been lost in a callback since this was asked last: it comes again."""
    global _lost
    lost, _lost = _lost, False
    return lost


def _bring_back(problem: "Any") -> None:
    """Handle an exception that could not be raised: send an interrupt again, so that it can be caught."""
    global _lost
    if not issubclass(problem.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(problem)
        return
    _lost = True
    import threading

    main = threading.main_thread().ident  # it may sleep: another thread's signal would not wake it
    again = threading.Timer(RESEND_INTERVAL_S, signal.pthread_kill, (main, signal.SIGINT))
    again.daemon = True
    again.start()
