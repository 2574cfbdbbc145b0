"""Kernels compiled by processes of their own: whoever compiles keeps half a gigabyte of memory for good."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module

from fairlead.cluster.server import kept_kernels
from fairlead.model import jit
from fairlead.model.child_signals import end_with_parent, interrupts_blocked

# From which end a process takes the kernels that are missing; the third one leaves the processors to others.
_FORWARDS, _BACKWARDS, _BACKGROUND = "forwards", "backwards", "background"
_NICENESS = 19
_REPORT_S = 10.0  # between two lines of progress


def compile_in_child(modules: Sequence[str], before: Callable[[], None] = lambda: None) -> int:
    """Compile the kernels of these modules like ``jit.prepare``, in child processes if kernels that are
    missing can be cached; the children end with this process. before: called if something has to be compiled,
    which takes minutes. Returns how many were missing."""
    if _is_noted(modules):
        return 0
    missing, compiles = _missing(modules), jit.needs_compilation()
    if missing or compiles:
        before()
    if compiles:
        jit.announce_all(missing)
        # They meet in the middle.
        ends = (_FORWARDS, _BACKWARDS)[: min(missing, len(os.sched_getaffinity(0)))]
        with ExitStack() as stack:
            for child in [stack.enter_context(_compiler(modules, end)) for end in ends]:
                child.wait()
    if jit.prepare() == 0:  # else nothing can be kept
        _note(modules)
    return missing


@contextmanager
def compiled_in_background(
    modules: Sequence[str], before: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """In the block, a child process compiles the kernels of these modules that are missing. Meanwhile they
    are interpreted in this process and its other children (``jit.interpret_while``).

    before: called if something has to be compiled."""
    if _is_noted(modules):
        yield
        return
    missing, compiles = _missing(modules), jit.needs_compilation()
    if missing or compiles:
        before()
    if not compiles:
        if jit.prepare() == 0:  # else nothing can be kept
            _note(modules)
        yield
        return
    jit.announce_all(missing, " in the background")
    with _compiler(modules, _BACKGROUND) as child:
        # A process of which nobody has taken the end would still count as living.
        threading.Thread(target=child.wait, name="kernels", daemon=True).start()
        jit.interpret_while(child.pid)
        yield


def _is_noted(modules: Sequence[str]) -> bool:
    return list(modules) == jit.modules_with_kernels() and kept_kernels.are_all_kept()


def _note(modules: Sequence[str]) -> None:
    if list(modules) == jit.modules_with_kernels():
        kept_kernels.note_that_all_are_kept()


def _missing(modules: Sequence[str]) -> int:
    for name in modules:
        import_module(name)
    return len(jit.missing_kernels())


@contextmanager
def _compiler(modules: Sequence[str], end: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a process that compiles; it is ended after the block."""
    command = [sys.executable, "-P", "-m", __name__, str(os.getpid()), end, *modules]
    with interrupts_blocked():
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def main() -> None:
    """Arguments: the process id of who started this, from which end to compile, and names of modules."""
    end_with_parent(int(sys.argv[1]))
    end, modules = sys.argv[2], sys.argv[3:]
    if end == _BACKGROUND:
        os.nice(_NICENESS)
    for name in modules:
        import_module(name)
    missing = jit.missing_kernels()
    if end == _BACKWARDS:
        missing.reverse()
    reported = time.monotonic()
    for number, one in enumerate(missing):
        if end == _BACKGROUND and time.monotonic() - reported >= _REPORT_S:
            reported = time.monotonic()
            print(
                f"compiling kernels in the background: {number} of {len(missing)}",
                file=sys.stderr,
                flush=True,
            )
        if not one.is_cached():  # nor by another process meanwhile
            one.compiled()


if __name__ == "__main__":
    main()
