"""Programs without the iterator that are parked as they are: all of their processes are stopped (SIGSTOP)."""

import signal

from fairlead.cluster.agent import proc
from fairlead.cluster.agent.running_attempts import SpawnedAttempt, owner_of

_MAX_LOOKS = 20  # for processes that were forked while others were stopped


def stop_processes(attempt: SpawnedAttempt) -> bool:
    """Stop all that belongs to an attempt. Returns whether all its ranks stand still; else all go on."""
    stopped = set[proc.Process]()
    for _ in range(_MAX_LOOKS):
        news = {one for one in _processes_of(attempt) if one not in stopped}
        if not news:
            break
        for one in news:
            proc.kill_exactly(one, signal.SIGSTOP)
        stopped |= news
    leaders = [proc.process(pid) for pid in attempt.processes.leaders]
    if all(one is not None and one in stopped and one.state not in "ZX" for one in leaders):
        return True
    continue_processes(attempt)
    return False


def continue_processes(attempt: SpawnedAttempt) -> None:
    """Let all that belongs to an attempt go on."""
    for one in _processes_of(attempt):
        proc.kill_exactly(one, signal.SIGCONT)


def kill_processes(attempt: SpawnedAttempt) -> None:
    """Kill all that belongs to an attempt, also what has left the sessions of its ranks."""
    for one in _processes_of(attempt):
        proc.kill_exactly(one, signal.SIGKILL)


def _processes_of(attempt: SpawnedAttempt) -> list[proc.Process]:
    return [one for one in proc.processes() if owner_of(one, (attempt,)) is attempt]
