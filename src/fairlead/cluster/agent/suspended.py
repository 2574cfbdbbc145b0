"""Programs without the iterator that are parked as they are: all of their processes are stopped (SIGSTOP)."""

import signal
from collections.abc import Collection

from fairlead.cluster.agent import proc
from fairlead.cluster.agent.running_attempts import SpawnedAttempt, owner_of

_MAX_LOOKS = 20  # for processes that were forked while others were stopped, or killed
_QUIET_LOOKS = 2  # in a row that find no more: a list may leave out what is forked while it is made


def stop_processes(attempt: SpawnedAttempt) -> frozenset[proc.Process]:
    """Stop all that belongs to an attempt. Returns what stands still now; empty: not all its ranks do, or
    something goes on forking, and all go on."""
    stopped = set[proc.Process]()
    if _until_quiet(attempt, signal.SIGSTOP, stopped):
        leaders = [proc.process(pid) for pid in attempt.processes.leaders]
        if all(one is not None and one in stopped and one.state not in "ZX" for one in leaders):
            # What is ending just now is none of them, though it had the signal.
            still = filter(_stands_still, stopped)
            return frozenset(still) | {one for one in leaders if one is not None}
    continue_processes(attempt)
    return frozenset()


def has_lost(stopped: Collection[proc.Process]) -> bool:
    """Return whether a process that stood still is gone: it was killed."""
    return not all(map(_lives, stopped))


def _stands_still(one: proc.Process) -> bool:
    now = proc.process(one.pid)
    return now == one and now is not None and now.state in proc.STOPPED


def _lives(one: proc.Process) -> bool:
    now = proc.process(one.pid)
    return now == one and now is not None and now.state not in "ZX"


def continue_processes(attempt: SpawnedAttempt) -> None:
    """Let all that belongs to an attempt go on."""
    for one in _processes_of(attempt):
        proc.kill_exactly(one, signal.SIGCONT)


def kill_processes(attempt: SpawnedAttempt) -> None:
    """Kill all that belongs to an attempt, also what has left the sessions of its ranks, and what that forks
    meanwhile."""
    _until_quiet(attempt, signal.SIGKILL, set())


def _until_quiet(attempt: SpawnedAttempt, number: signal.Signals, known: set[proc.Process]) -> bool:
    """Send a signal to all that belongs to an attempt until no more of it is found. known: those that had it,
    which is added to. Returns whether none is left."""
    quiet = 0
    for _ in range(_MAX_LOOKS):
        found = [one for one in _processes_of(attempt) if one not in known]
        quiet = 0 if found else quiet + 1
        if quiet == _QUIET_LOOKS:
            return True
        for one in found:
            proc.kill_exactly(one, number)
        known.update(found)
    return False


def _processes_of(attempt: SpawnedAttempt) -> list[proc.Process]:
    return [one for one in proc.processes() if owner_of(one, (attempt,)) is attempt]
