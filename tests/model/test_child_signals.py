"""Processes that a terminal's Ctrl-C is not for."""

import signal
import subprocess
import sys
import threading

from fairlead.model.child_signals import interrupts_blocked

# The handler is Python's own also where whoever runs the tests ignores the signal.
CHILD = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "print('up', flush=True); sys.stdin.read(); print('done')"
)


def started() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_child_started_in_any_thread_is_not_interrupted() -> None:
    children = []

    def start() -> None:
        with interrupts_blocked():
            children.append(started())

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with children[0] as child:
        child.send_signal(signal.SIGINT)  # it may be importing still
        assert child.communicate("", timeout=60) == ("up\ndone\n", "")
    assert child.returncode == 0


def test_others_are_as_before() -> None:
    with interrupts_blocked():
        pass
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with started() as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in child.communicate(timeout=60)[1]
