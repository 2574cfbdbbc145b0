"""Which processes hold the lock of a file, as the kernel shows it.

A lock of flock(2) belongs to an open file, which one process may pass to another over a socket: so it is
looked for among the open files of all processes, not among those that were started with it.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from fairlead.cluster.agent.proc import Process, processes


def lock_holders(paths: Iterable[Path]) -> dict[Process, Path]:
    """Process -> a file of these of which it holds the lock, as far as processes of this user do. What else
    they have open is not looked at: it could hang."""
    paths_by_inode = {os.path.realpath(path): path for path in paths}
    found = {}
    for one in processes():
        path = _held_file(one.pid, paths_by_inode) if one.pid != os.getpid() else None
        if path is not None:
            found[one] = path
    return found


def holds_removed(folder: Path) -> bool:
    """Return whether a process has a lock file open that was removed from a folder."""
    beginning, end = f"{os.path.realpath(folder)}{os.sep}", ".lock (deleted)"
    for one in processes():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            for descriptor in os.listdir(f"/proc/{one.pid}/fd"):
                path = os.readlink(f"/proc/{one.pid}/fd/{descriptor}")
                if path.startswith(beginning) and path.endswith(end):
                    return True
    return False


def _held_file(pid: int, paths_by_inode: dict[str, Path]) -> Path | None:
    folder = Path(f"/proc/{pid}")
    descriptors = []
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        descriptors = os.listdir(folder / "fd")
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            path = paths_by_inode.get(os.readlink(folder / "fd" / descriptor))
            if path is not None and _has_lock(folder / "fdinfo" / descriptor):
                return path
    return None


def _has_lock(info: Path) -> bool:
    return any(
        line.startswith("lock:") and " FLOCK " in line for line in info.read_text().splitlines()
    )
