"""Kernels compiled by a process of their own: whoever compiles keeps half a gigabyte of memory for good."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from fairlead.model import jit
from fairlead.model.child_signals import end_with_parent, interrupts_blocked


def compile_in_child(modules: Sequence[str], before: Callable[[], None] = lambda: None) -> None:
    """Compile the kernels of these modules like ``jit.prepare``, in a child process if kernels that are
    missing can be cached; the child ends with this process. before: called if something has to be compiled,
    which takes minutes."""
    for name in modules:
        import_module(name)
    if jit.needs_compilation():
        before()
        _compile_in_child(modules)
    jit.prepare()  # where nothing can be kept


def _compile_in_child(modules: Sequence[str]) -> None:
    command = [sys.executable, "-P", "-m", __name__, str(os.getpid()), *modules]
    with interrupts_blocked():
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        child.wait()
    finally:
        child.kill()
        child.wait()


def main() -> None:
    """Arguments: the process id of who started this, and names of modules."""
    end_with_parent(int(sys.argv[1]))
    for name in sys.argv[2:]:
        import_module(name)
    jit.prepare()


if __name__ == "__main__":
    main()
