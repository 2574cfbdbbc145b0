"""What all tests of a process share, and none may leave changed: its environment, its signals, its limits."""

import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)
_OF_PYTEST = "PYTEST_CURRENT_TEST"
# Libraries set variables when they are imported; what steers programs of ours, they do not.
_OURS = ("FAIRLEAD_", "NUMBA_", "PYTHON", "XDG_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "HOME")
_AT_FIRST = frozenset(os.environ)


@dataclass(frozen=True)
class ProcessState:
    """A copy of it, by name of the part."""

    parts: dict[str, Any]

    @staticmethod
    def now() -> "ProcessState":
        """How it is."""
        return ProcessState({name: read() for name, (read, _) in _PARTS.items()})

    def restore(self) -> list[str]:
        """Put right what differs from it; what that was, in a sentence for each part."""
        changed = []
        for name, (read, write) in _PARTS.items():
            before, after = self.parts[name], read()
            if before != after:
                changed.append(f"{name}: {_difference(before, after)}")
                write(before)
        return changed


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, dict):
        names = [k for k in {**before, **after} if before.get(k) != after.get(k)]
        return ", ".join(f"{k} {before.get(k)!r} -> {after.get(k)!r}" for k in names)
    return f"{before!r} -> {after!r}"


def _environment() -> dict[str, str]:
    names = [name for name in os.environ if name.startswith(_OURS) or name in _AT_FIRST]
    return {name: os.environ[name] for name in names if name != _OF_PYTEST}


def _set_environment(before: dict[str, str]) -> None:
    for name in _environment().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # deleted
        return ""


def _umask() -> int:
    """Without setting it, which other threads would see."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return -1


def _set_umask(before: int) -> None:
    if before >= 0:
        os.umask(before)


def _handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in _SIGNALS}


def _set_handlers(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _limits() -> dict[int, tuple[int, int]]:
    return {number: resource.getrlimit(number) for number in _LIMITS}


def _set_limits(before: dict[int, tuple[int, int]]) -> None:
    for number, limit in before.items():
        resource.setrlimit(number, limit)


def _timer() -> bool:
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0


def _set_timer(_: bool) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.0)


def _log_handlers() -> list[logging.Handler]:
    """Of the root logger, less pytest's own, which come and go."""
    handlers = logging.getLogger().handlers
    return [one for one in handlers if not type(one).__module__.startswith("_pytest")]


def _set_log_handlers(before: list[logging.Handler]) -> None:
    for one in _log_handlers():
        if one not in before:
            logging.getLogger().removeHandler(one)


def _set_path(before: list[str]) -> None:
    sys.path[:] = before


def _set_collector(before: bool) -> None:
    (gc.enable if before else gc.disable)()


_PARTS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "os.environ": (_environment, _set_environment),
    "the working directory": (_folder, os.chdir),
    "the umask": (_umask, _set_umask),
    "signal handlers": (_handlers, _set_handlers),
    "the timer of SIGALRM": (_timer, _set_timer),
    "resource limits": (_limits, _set_limits),
    "handlers of the root logger": (_log_handlers, _set_log_handlers),
    "sys.path": (lambda: [*sys.path], _set_path),
    "whether garbage is collected": (gc.isenabled, _set_collector),
}
