"""A process between fork and exec, which may hang there: its working directory may be on a dead file server.

Nobody waits for it: it says on a pipe how far it is, and the pipe closes when its program runs.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from fairlead.cluster.agent.proc import TOKEN, tag_process

_SESSION, _INSIDE, _FAILED = b"s", b"d", b"!"
_RESET = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
_MAX_READ = 1 << 16


class PendingExec:
    """It has a session of its own. pipe: readable when there is something to ``read``."""

    def __init__(self, pid: int, pipe: int, argv: Sequence[str], cwd: str, limit_s: float) -> None:
        self.pid, self.pipe = pid, pipe
        self.until_s = time.monotonic() + limit_s
        self._argv, self._cwd, self._limit_s = argv, cwd, limit_s
        self._output = b""

    def read(self) -> str | None:
        """None = it has not come to its program yet; "" = it runs, or was killed; else why it cannot."""
        try:
            while data := os.read(self.pipe, _MAX_READ):
                self._output += data
        except BlockingIOError:
            return None
        _, failed, why = self._output.partition(_FAILED)
        return why.decode(errors="replace") if failed else ""

    @property
    def hangs(self) -> str:
        """Return why the process has not begun, once its time is over: the step that it has not come past."""
        if _INSIDE in self._output:
            return f"{self._argv[0]!r} could not be loaded within {self._limit_s:g} s"
        return f"working directory {self._cwd!r}: no answer within {self._limit_s:g} s"

    def close(self) -> None:
        """Listen to it no more."""
        os.close(self.pipe)


def fork_rank(
    argv: Sequence[str],
    env: dict[str, str],
    cwd: str,
    *,
    output: int,
    keep: Sequence[int],
    limit_s: float,
    prepare: Callable[[], object] = bool,
) -> PendingExec:
    """Fork a process that becomes the leader of a session and executes a program, without waiting for that.
    For processes with one thread. output: its stdout and stderr; keep: descriptors that it inherits;
    prepare: called in it before it touches anything that the caller has not named, may raise OSError.
    Raises OSError."""
    ours, theirs = os.pipe()
    # Handlers of this process must not run in the other one.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _RESET)
    try:
        pid = os.fork()
        if pid == 0:
            _become(argv, env, cwd, (output, *keep, theirs), before, prepare)
    except OSError:
        os.close(ours)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(theirs)
    os.read(ours, 1)  # at once: from here on its group can be signalled
    os.set_blocking(ours, False)
    return PendingExec(pid, ours, argv, cwd, limit_s)


def _become(
    argv: Sequence[str],
    env: dict[str, str],
    cwd: str,
    descriptors: Sequence[int],
    mask: set[int | signal.Signals],
    prepare: Callable[[], object],
) -> NoReturn:
    """descriptors: the output, those to be kept, the pipe."""
    output, *keep, pipe = descriptors
    where = "cannot be started"
    try:
        tag_process(env.get(TOKEN, ""))
        os.setsid()
        os.write(pipe, _SESSION)
        _inherit(output, keep, pipe)
        signal.set_wakeup_fd(-1)
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        where = f"the user of {argv[0]!r} cannot be set"
        prepare()
        where = f"working directory {cwd!r}"
        os.chdir(cwd)
        os.write(pipe, _INSIDE)
        where = f"{argv[0]!r} cannot be started"
        os.execvpe(argv[0], list(argv), env)
    except FileNotFoundError as problem:
        found = problem.filename == cwd
        _fail(pipe, f"{where}: {problem.strerror}" if found else f"command not found: {argv[0]!r}")
    except OSError as problem:
        _fail(pipe, f"{where}: {problem.strerror}")
    except BaseException as problem:
        _fail(pipe, f"{where}: {problem}")


def _inherit(output: int, keep: Sequence[int], pipe: int) -> None:
    for target in (1, 2):
        os.dup2(output, target)
    low = 3
    for descriptor in sorted({*keep, pipe}):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
    null = os.open(
        os.devnull, os.O_RDONLY
    )  # now: before that there may have been no descriptor left
    os.dup2(null, 0)
    if null > 0:
        os.close(null)
    for descriptor in keep:
        os.set_inheritable(descriptor, True)


def _fail(pipe: int, why: str) -> NoReturn:
    os.write(pipe, _FAILED + why.encode(errors="replace")[: _MAX_READ >> 1])
    os._exit(127)
