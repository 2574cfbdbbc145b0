"""What all tests of a process share, and none may leave changed: its environment, its signals, its limits."""

import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Those that programs of ours catch; SIGCHLD belongs to libraries with processes of their own.
_SIGNALS = tuple(
    getattr(signal, f"SIG{name}") for name in ("INT", "TERM", "HUP", "ALRM", "USR1", "USR2")
)
_LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_AS)
# Libraries set variables of their own when they are imported: these are left to them.
_OURS = ("FAIRLEAD_", "HOME", "PATH", "PYTHONPATH", "TMPDIR", "XDG_")


@dataclass(frozen=True)
class ProcessState:
    """A copy of it, by name of the part."""

    parts: dict[str, Any]

    @staticmethod
    def now() -> "ProcessState":
        """How it is."""
        return ProcessState({name: read() for name, (read, _) in _PARTS.items()})

    def restore(self) -> list[str]:
        """Put right what differs from it; what that was, in a sentence for each part. Signal handlers are put
        right without a word: those of a training loop that a test breaks off stay behind."""
        changed = []
        for name, (read, write) in _PARTS.items():
            before, after = self.parts[name], read()
            if before != after:
                write(before)
                if name != _HANDLERS:
                    changed.append(f"{name}: {_difference(before, after)}")
        return changed


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, dict):
        names = [k for k in {**before, **after} if before.get(k) != after.get(k)]
        return ", ".join(f"{k} {before.get(k)!r} -> {after.get(k)!r}" for k in names)
    return f"{before!r} -> {after!r}"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_OURS)}


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


_HANDLERS = "signal handlers"
_PARTS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "os.environ": (_environment, _set_environment),
    "the working directory": (_folder, os.chdir),
    "the umask": (_umask, _set_umask),
    _HANDLERS: (_handlers, _set_handlers),
    "the timer of SIGALRM": (_timer, _set_timer),
    "resource limits": (_limits, _set_limits),
}
