"""Orphans of a spawner that has died: its agent adopts them, so that none is lost sight of.

While a spawner lives, what its ranks leave behind becomes its own child. When it dies, all of that becomes
the agent's, though it has left its session and cleared its environment. From its first thread the agent
starts nothing but spawners, and orphans become children of that thread: so what else is there has been
adopted.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

from fairlead.cluster.agent import proc

_POLL_S = 0.02
_KILL_TIMEOUT_S = 10.0  # a process that does not die of SIGKILL is inside the kernel
_EMPTY_POLLS = 3  # in a row that find nobody: the kernel's list may leave some out while others end


def adopt() -> bool:
    """Adopt orphans from now on. Not where this process has children already, or is everybody's parent (of a
    container): theirs would be taken for those of a spawner. Returns whether it does."""
    if os.getpid() == 1 or _children(os.getpid()):
        return False
    try:
        proc.become_subreaper()
    except OSError:
        return False
    return True


def ended_children(pid: int) -> frozenset[int]:
    """Pids of children of a process that have ended, and that it has not waited for."""
    found = [proc.process(child) for child in _children(pid)]
    return frozenset(one.pid for one in found if one is not None and one.state == "Z")


def reap(spawner: int) -> dict[int, int]:
    """Wait for those that have ended. Returns their pids and exit codes. spawner: pid of the present one,
    which is left to its owner."""
    codes = {}
    for pid in _children(os.getpid()):
        found = None if pid == spawner else proc.process(pid)
        if found is not None and found.state == "Z":
            with contextlib.suppress(ChildProcessError):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    codes[pid] = os.waitstatus_to_exitcode(status)
    return codes


def end_adopted(agent: int) -> int:
    """Kill all that an agent has adopted, but this process, the spawner that has just been started. Returns
    how many processes there were. agent: its pid; 0 = it adopts nobody."""
    seen: set[int] = set()
    looks, hopeless = 0, time.monotonic() + _KILL_TIMEOUT_S
    while agent and looks < _EMPTY_POLLS and time.monotonic() < hopeless:
        found = [proc.process(pid) for pid in _children(agent) if pid != os.getpid()]
        left = [one for one in found if one is not None and one.state not in "ZX"]
        looks = 0 if left else looks + 1
        for one in left:
            seen.add(one.pid)
            proc.kill_exactly(one, signal.SIGKILL)
        time.sleep(_POLL_S if left else 0.0)
    return len(seen)


def _children(pid: int) -> list[int]:
    """Return the children of the first thread; none if the kernel does not list them."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
