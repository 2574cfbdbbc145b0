"""Whom SIGTERM goes to: first to the processes that can save, to all others once these have ended.

What a process has started to help it (the workers of a loader) would die of a SIGTERM, and it would fail for
that before it has saved. So a process that is known to act on SIGTERM gets it alone: one that trains under
a lease, or else the first Python process of a rank, where that has a handler for it. Of a shell script the
whole process group gets it at once: a shell acts on it only when the command that it waits for has ended.
"""

import contextlib
import os
import signal
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from fairlead.client.stacks import OFFSET
from fairlead.cluster.agent.proc import Process, has_handler, kill_exactly, process, processes

POLL_S = 0.05  # between looks whether those that were told first have ended
# A process that trains under a lease, or did, has a handler for one of these. SIGRTMIN is another with musl
# (Alpine) than with glibc, and a job in a container may have another C library than its agent.
_STACKS = (34 + OFFSET, 35 + OFFSET)
_INTERPRETERS = ("python", "pypy")


def trees_of(leaders: Iterable[int]) -> dict[int, list[Process]]:
    """Return for each of these ranks its first process and all descendants. A rank that trains under a lease
    stands for itself: its descendants are left out."""
    by_parent: dict[int, list[Process]] = {}
    grown = {}
    for leader in leaders:
        first = process(leader)
        found = [] if first is None or first.state in "ZX" else [first]
        if not _leased(found):
            if not by_parent:
                with contextlib.suppress(OSError):  # no file descriptor is left
                    for one in processes():
                        by_parent.setdefault(one.parent, []).append(one)
            for one in found:  # grows
                found.extend(by_parent.get(one.pid, ()))
        grown[leader] = found
    return grown


def trees(found: Iterable[Process]) -> list[list[Process]]:
    """Return for each process itself and its descendants among the given ones."""
    by_pid = {one.pid: one for one in found}
    grown: dict[Process, list[Process]] = {}
    for one in by_pid.values():
        root = one
        while root.parent in by_pid and by_pid[root.parent] != root:
            root = by_pid[root.parent]
        grown.setdefault(root, []).append(one)
    return list(grown.values())


def savers(tree: Collection[Process]) -> list[Process]:
    """Those of a rank's processes that get SIGTERM before all others; empty: all get it at once."""
    python = [one for one in tree if _is_python(one.pid)]
    return _outermost(_leased(tree), tree) or _acting(_outermost(python, tree))


def has_begun(tree: Collection[Process]) -> bool:
    """Return whether one of a rank's processes trains under a lease, or did."""
    return any(has_handler(one.pid, *_STACKS) for one in tree if _is_python(one.pid))


def still_alive(known: Iterable[Process]) -> list[Process]:
    """Return the processes that have not ended."""
    return [one for one in known if _is_alive(one)]


class Terminations:
    """SIGTERM to processes that are not our children, a tree at a time: ``begin``, then ``go_on`` until
    nothing is pending."""

    def __init__(self) -> None:
        self._pending: list[tuple[list[Process], list[Process]]] = []  # (who saves, the others)

    @property
    def pending(self) -> bool:
        """Return whether some wait for others to save."""
        return bool(self._pending)

    def begin(self, found: Iterable[Process]) -> None:
        """Tell those that can save, or else all of a tree."""
        for tree in trees(found):
            first = savers(tree)
            _terminate(first or tree)
            if first:
                self._pending.append((first, [one for one in tree if one not in first]))

    def go_on(self) -> None:
        """Tell the others of the trees in which all that could save have ended."""
        waiting = []
        for first, others in self._pending:
            if alive := still_alive(first):
                waiting.append((alive, others))
            else:
                _terminate(others)
        self._pending = waiting


def _is_alive(known: Process) -> bool:
    found = process(known.pid)
    if found is not None:
        return found == known and found.state not in "ZX"
    try:  # there may only be no file descriptor left to read its state
        os.kill(known.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _terminate(found: Sequence[Process]) -> None:
    for one in found:
        kill_exactly(one, signal.SIGTERM)


def _outermost(wanted: Collection[Process], tree: Collection[Process]) -> list[Process]:
    """Return the processes of which no ancestor in the tree is wanted too."""
    parents = {one.pid: one.parent for one in tree}
    pids = {one.pid for one in wanted}
    outermost = []
    for one in wanted:
        above = one.parent
        while above in parents and above not in pids:
            above = parents[above]
        if above not in pids:
            outermost.append(one)
    return outermost


def _leased(found: Iterable[Process]) -> list[Process]:
    """Return the processes that train under a lease, and what they have forked."""
    python = [one for one in found if _is_python(one.pid)]
    return [one for one in _acting(python) if has_handler(one.pid, *_STACKS)]


def _acting(found: Iterable[Process]) -> list[Process]:
    return [one for one in found if has_handler(one.pid, signal.SIGTERM)]


def _is_python(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith(_INTERPRETERS)
    except OSError:
        return False
