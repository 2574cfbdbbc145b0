"""Processes, and what the kernel tells of them (Linux, proc(5))."""

import contextlib
import os
import resource
import signal
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fairlead.errors import ConfigError
from fairlead.model.child_signals import prctl

try:
    import ctypes
except ImportError:  # an interpreter that was built without it
    ctypes = None  # type: ignore[assignment]

TOKEN = "FAIRLEAD_TOKEN"
_SET_CHILD_SUBREAPER = 36  # prctl(2)
_ENV_START = 49  # field 50 of proc_pid_stat(5)
# RLIMIT_LOCKS: kernels since 2.4.25 ignore it, so it means nothing to any program, and ``resource`` does not
# name it.
_TAG_LIMIT = 10
_TAG_LINE = "Max file locks"  # of it in /proc/PID/limits
_TAG_DIGITS = 15  # of a token; with the flag they fit into a limit
_TAG_FLAG = 1 << 60  # no number that anybody else would set
HAS_PIDFD = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
STOPPED = "Tt"  # states of a process that a signal, or a tracer, keeps from running


@dataclass(frozen=True, slots=True)
class Process:
    """A process, or a zombie."""

    pid: int
    start_time: int  # clock ticks since boot: with the pid, which process it is
    session: int
    parent: int = field(compare=False)
    state: str = field(compare=False)  # "Z" = ended, not waited for


class ProcessOwner(NamedTuple):
    """The real user and group of a process."""

    uid: int
    gid: int


def process(pid: int) -> Process | None:
    """Return the process with this pid; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    after = text[text.rindex(")") + 2 :].split()  # the name before may contain anything
    return Process(pid, int(after[19]), int(after[3]), int(after[1]), after[0])


def owner_of(pid: int) -> ProcessOwner | None:
    """Return whose the process is; None if there is none."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return ProcessOwner(int(lines["Uid"].split()[0]), int(lines["Gid"].split()[0]))


def processes() -> Iterator[Process]:
    """All that are alive."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := process(int(name))) and found.state not in "ZX":
            yield found


def below(sessions: Collection[int]) -> list[Process]:
    """Return the processes of these sessions, and what those have started, in whatever session it is."""
    known = {one.pid: one for one in processes()}

    def is_below(one: Process | None) -> bool:
        while one is not None and one.session not in sessions:
            one = known.get(one.parent)
        return one is not None

    return [one for one in known.values() if is_below(one)]


def oom_kills() -> int:
    """Processes that the kernel has ended for want of memory since boot, of control groups too; 0 = it does
    not say."""
    try:
        counts = Path("/proc/vmstat").read_text().split()
        return int(counts[counts.index("oom_kill") + 1])
    except (OSError, ValueError, IndexError):
        return 0


def token_tag(token: str) -> str:
    """The beginning of a token, which processes of its attempt show."""
    return token[:_TAG_DIGITS]


def tag_process(token: str) -> None:
    """Let this process, and all that will descend from it, show what start they are of: in a resource limit,
    which a process keeps though it leaves its session, clears its environment, closes its files and is
    orphaned. Where the kernel refuses, the environment has to do."""
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(_TAG_LIMIT)
        resource.setrlimit(_TAG_LIMIT, (_TAG_FLAG | int(token_tag(token), 16), most))


def tag_of(pid: int) -> str:
    """``token_tag`` of the attempt that the process is of; "" = of none, or not ours."""
    return inherited_tag(pid) or token_tag(_token_of(pid))


def inherited_tag(pid: int) -> str:
    """Return the tag that the process shows in its resource limit alone; "" = none, or not ours."""
    try:
        limit = _tag_limit(pid)
    except (OSError, ValueError):  # it has ended
        return ""
    if limit > 0 and limit & ~(_TAG_FLAG - 1) == _TAG_FLAG:
        return f"{limit & (_TAG_FLAG - 1):0{_TAG_DIGITS}x}"
    return ""


def _tag_limit(pid: int) -> int:
    """Raises OSError or ValueError."""
    with contextlib.suppress(
        AttributeError,  # an interpreter that was built against an old C library, as conda's are
        PermissionError,  # another user's process: of a job that called ``sudo``, for example
    ):
        return resource.prlimit(pid, _TAG_LIMIT)[0]
    os.kill(pid, 0)  # one that cannot be ended anyway is not ours
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    text = next((line for line in lines if line.startswith(_TAG_LINE)), f"{_TAG_LINE} unlimited")
    soft = text.removeprefix(_TAG_LINE).split()[0]
    return -1 if soft == "unlimited" else int(soft)


def _token_of(pid: int) -> str:
    """FAIRLEAD_TOKEN in the environment that the process was started with; "" = none, or not ours."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    head = f"{TOKEN}=".encode()
    return next(
        (v[len(head) :].decode(errors="replace") for v in variables if v.startswith(head)), ""
    )


def has_handler(pid: int, *numbers: int) -> bool:
    """Return whether the process has a handler for one of these signals."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    caught = next((v for v in status.splitlines() if v.startswith("SigCgt:")), "SigCgt: 0")
    mask = int(caught.split()[1], 16)
    return any(mask >> (number - 1) & 1 for number in numbers)


def children() -> list[int]:
    """Pids of this process' children, zombies included. Single-threaded processes only."""
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [found.pid for found in processes() if found.parent == me]


def kill_exactly(known: Process, number: signal.Signals) -> None:
    """Signal this process, and never another that has got its pid since. Interpreters that were built against
    an old kernel's headers, as conda's are, have no handles of processes: then the pid would have to be given
    away between the look and the signal."""
    handle = None
    try:
        handle = os.pidfd_open(known.pid) if HAS_PIDFD else None
        now = process(known.pid)
        if now is None or now.start_time != known.start_time:
            return
        for one in _with_continue(number):
            if handle is None:
                os.kill(known.pid, one)
            else:
                signal.pidfd_send_signal(handle, one)
    except OSError:
        return
    finally:
        if handle is not None:
            os.close(handle)


def kill_group(leader: int, number: signal.Signals) -> None:
    """Signal a process group of ours whose leader has not been waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        for one in _with_continue(number):
            os.killpg(leader, one)


def _with_continue(number: signal.Signals) -> tuple[signal.Signals, ...]:
    """Return the signals to send: one that is stopped hears of SIGTERM only if it is let go on."""
    return (number, signal.SIGCONT) if number == signal.SIGTERM else (number,)


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, not of init. Raises OSError."""
    prctl(_SET_CHILD_SUBREAPER, 1)


def check_subreaper() -> None:
    """Raises ConfigError where ``become_subreaper`` would fail. For processes that are none."""
    try:
        prctl(_SET_CHILD_SUBREAPER, 0)
    except OSError as problem:
        raise ConfigError(
            f"agent: orphans of jobs could not be found: {problem.strerror}; it needs an interpreter "
            "that has ctypes and is not linked statically"
        ) from None


def show_token(placeholder: str, token: str) -> None:
    """Put a token of equal length in place of ``placeholder`` in /proc/self/environ.

    A forked rank would otherwise show the environment of the process that it was forked from. Where that
    cannot be done, it has its tag.
    """
    if len(placeholder) != len(token):
        raise ValueError(f"token must have {len(placeholder)} characters, got {len(token)}")
    if ctypes is None:
        return
    shown = Path("/proc/self/environ").read_bytes()
    at = shown.find(f"{TOKEN}={placeholder}".encode())
    if at < 0:
        return
    text = Path("/proc/self/stat").read_text(errors="replace")
    begin = int(text[text.rindex(")") + 2 :].split()[_ENV_START - 2])
    ctypes.memmove(begin + at + len(TOKEN) + 1, token.encode(), len(token))


def signal_name(number: int) -> str:
    """Name of a signal: SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
