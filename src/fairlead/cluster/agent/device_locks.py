"""Locks of devices for the whole machine: two agents never use one device at once.

One open file per device, which all attempts of a spawner on that device share and their ranks inherit: the
lock is free when the last of them has ended.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fairlead.cluster.agent import locks


class DeviceLocks:
    """Device locks of one spawner. path: device -> its lock file."""

    def __init__(self, path: Callable[[int], Path]) -> None:
        self.path = path
        self._open: dict[int, int] = {}  # device -> descriptor
        self._users: dict[int, int] = {}  # device -> attempts that use it
        self._given_back: set[int] = (
            set()
        )  # devices whose locks processes have inherited that are parked

    def take(self, devices: Iterable[int]) -> int | None:
        """Count one user more of each; None = all were free or ours, else a device that another process has.
        Raises OSError."""
        taken: list[int] = []
        try:
            for device in sorted(set(devices)):
                if device not in self._open:
                    descriptor = locks.take(self.path(device))
                    if descriptor is None:
                        self.unlock_devices(taken)
                        return device
                    self._open[device] = descriptor
                self._users[device] = self._users.get(device, 0) + 1
                taken.append(device)
        except OSError:
            self.unlock_devices(taken)
            raise
        return None

    def unlock_devices(self, devices: Iterable[int], *, given_back: bool = False) -> None:
        """One user less of each; processes that inherited the lock keep it, unless one that is parked, or its
        children, may be among them. given_back: that is so."""
        for device in set(devices):
            if given_back:
                self._given_back.add(device)
            self._users[device] -= 1
            if self._users[device]:
                continue
            del self._users[device]
            if device in self._given_back:
                self._given_back.remove(device)
                locks.unlock([self._open.pop(device)])
            else:
                os.close(self._open.pop(device))

    def retake(self, inherited: Mapping[int, int]) -> int | None:
        """Take locks again that processes have inherited, and count a user of each. inherited: device -> a
        descriptor of its open file. Returns None, or a device that another has. Raises OSError."""
        taken: list[int] = []
        for device, descriptor in sorted(inherited.items()):
            if device in self._open or not locks.retake(descriptor):
                self.unlock_devices(taken, given_back=True)
                return device
            self._open[device] = os.dup(descriptor)
            self._users[device] = 1
            taken.append(device)
        return None

    def descriptor(self, device: int) -> int:
        """Return the file descriptor of a taken device's lock, for a rank to inherit."""
        return self._open[device]
