"""The cluster's time: seconds since it was first started, through restarts of server and machine."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec


class _Mark(msgspec.Struct, frozen=True):
    """One moment by every clock."""

    now_s: float  # the cluster's time
    boot: str  # which boot of the machine
    boot_s: float  # since then, sleep included
    wall_s: float


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def boot_s() -> float:
    """Seconds since the boot, those asleep included. Nobody can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """Never goes back and is never set.

    Within a boot the kernel's boot time counts, whatever is done to the wall clock. Over a reboot there is
    only the wall clock; if that has been set back meanwhile, no time has passed. Keep ``to_meta()`` with
    every commit, give it back to ``from_meta()`` after a restart.
    """

    def __init__(
        self,
        boot: Callable[[], str] = boot_id,
        boot_s: Callable[[], float] = boot_s,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """boot, boot_s, wall_s: the sources of time."""
        self._boot, self._boot_s, self._wall_s = boot, boot_s, wall_s
        self._offset_s: float | None = None  # the cluster's time less boot_s
        self.restored_s = 0.0  # the cluster's time when that was kept which it went on from

    def from_meta(self, meta: str | None, at_least_s: float = 0.0) -> "Clock":
        """Go on from what was kept; None: begin at 0. at_least_s: a time that has been seen already.

        Raises msgspec.DecodeError if ``meta`` did not come from ``to_meta``.
        """
        now_s = at_least_s
        if meta is not None:
            mark = msgspec.json.decode(meta, type=_Mark)
            self.restored_s = mark.now_s
            now_s = max(now_s, mark.now_s + max(self._since(mark), 0.0))
        self._offset_s = now_s - self._boot_s()
        return self

    def _since(self, mark: _Mark) -> float:
        if self._boot() == mark.boot:
            return self._boot_s() - mark.boot_s
        return self._wall_s() - mark.wall_s

    def now_s(self) -> float:
        """The cluster's time; begins at 0 with the first call if there was nothing to go on from."""
        if self._offset_s is None:
            self.from_meta(None)
        assert self._offset_s is not None
        return self._offset_s + self._boot_s()

    def to_meta(self) -> str:
        """Return the text that ``from_meta`` needs."""
        if self._offset_s is None:
            self.from_meta(None)
        assert self._offset_s is not None
        at_s = self._boot_s()
        mark = _Mark(self._offset_s + at_s, self._boot(), at_s, self._wall_s())
        return msgspec.json.encode(mark).decode()
