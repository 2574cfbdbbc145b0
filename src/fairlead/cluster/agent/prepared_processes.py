"""The prepared processes of a node: the one that its operator named, and some for what scripts import."""

import socket

from fairlead.cluster.agent.environment import base_environment
from fairlead.cluster.agent.spawner_messages import Launch, RankLaunch
from fairlead.cluster.agent.zygote import Zygote

MAX_PREPARED = 3  # for scripts, at a time


class PreparedProcesses:
    """The spawner's. Those for scripts are made as their imports are seen, and go for others."""

    def __init__(self, modules: str) -> None:
        """modules: that the operator named, "" = none."""
        self.named = Zygote(modules) if modules else None
        self.used = False  # was there ever one?
        self._by_modules: dict[str, Zygote] = {}  # least recently used first
        self._unfit: set[str] = set()  # sets that cannot be imported, or not before a fork

    def start_named(self) -> socket.socket | None:
        """Its answers arrive there; None: there is none."""
        if self.named is None:
            return None
        self.used = True
        return self.named.start(base_environment())

    def wants(self, modules: str) -> bool:
        """Return whether a process for these modules is still to be prepared; not if an earlier one found
        that it may not."""
        return bool(modules) and modules not in self._by_modules and modules not in self._unfit

    def evictable(self, busy: set[Zygote]) -> Zygote | None:
        """The one to ``drop`` before another can be made, not one that is about to fork; None: there is room,
        or none can go, see ``full``."""
        idle = (zygote for zygote in self._by_modules.values() if zygote not in busy)
        return next(idle, None) if self.full else None

    @property
    def full(self) -> bool:
        """Return whether there are as many as allowed."""
        return len(self._by_modules) >= MAX_PREPARED

    def start(self, modules: str) -> tuple[Zygote, socket.socket]:
        """One more; its answers arrive there. Raises OSError."""
        zygote = Zygote(modules, for_script=True)
        peer = zygote.start(base_environment())
        self.used, self._by_modules[modules] = True, zygote
        return zygote, peer

    def of(self, launch: Launch) -> Zygote | None:
        """The one to fork its ranks from; None: they are exec'd."""
        if launch.prefork and self.named is not None:
            return self.named
        zygote = self._by_modules.get(launch.modules)
        if zygote is None or not zygote.ready:
            return None
        if not all(_fits(zygote, rank) for rank in launch.ranks):
            return None
        self._by_modules[launch.modules] = self._by_modules.pop(launch.modules)
        return zygote

    def with_pid(self, pid: int) -> Zygote | None:
        """The one that is this process."""
        return next((zygote for zygote in self.all() if zygote.pid == pid), None)

    def all(self) -> list[Zygote]:
        """Return the prepared processes."""
        return [*([self.named] if self.named else []), *self._by_modules.values()]

    def drop(self, zygote: Zygote, *, evicted: bool = False) -> None:
        """End it, if it has not ended by itself. One that did so before it was ready is not made again."""
        zygote.stop()
        if self._by_modules.get(zygote.modules) is zygote:
            del self._by_modules[zygote.modules]
            if not zygote.ready and not evicted:
                self._unfit.add(zygote.modules)


def _fits(zygote: Zygote, rank: RankLaunch) -> bool:
    """Return whether the script would import the modules that are loaded there; not if a file next to it has
    the name of one."""
    return rank.neighbours is not None and zygote.loaded.isdisjoint(rank.neighbours)
