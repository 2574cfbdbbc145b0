"""The files that a spawner keeps on disk, and the devices of an attempt there."""

import fcntl
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairlead.cluster.agent import locks
from fairlead.cluster.agent.device_locks import DeviceLocks
from fairlead.cluster.agent.spawner_messages import RankLaunch

NOT_ENDED = "what ran there before has not ended"
_MOMENT_S = 1.0


@dataclass(frozen=True)
class SpawnerStorage:
    """Folder in which a spawner keeps what outlives it."""

    state: Path  # of the agent: lock files of jobs, and of seats on devices
    attempt_records: tuple[
        Path, ...
    ]  # folders with a record of each attempt: below the state, and on the machine
    devices: DeviceLocks


@dataclass(frozen=True)
class InheritedLocks:
    """The open files of locks that processes have inherited which are stopped as they are. They hold the lock
    of their job; those of devices are free until they are taken again."""

    slots: dict[int | None, int]  # of the agent: device -> descriptor; None -> that of the job
    devices: dict[int, int]  # of the machine


@dataclass
class DeviceClaim:
    """The devices of an attempt here: held, or waited for."""

    job: int
    devices: frozenset[int]  # of all its ranks here
    locks: dict[int | None, int] | None = None  # lock of each device; None = it waits for them
    retry_s: float = 0.0  # not before this time
    waits_for: str = ""  # as the agent was told
    search_s: float | None = None  # when to look for who holds its devices; None = nobody does
    blocked_s: float | None = (
        None  # since when another attempt of this agent has them; None = none has
    )
    free_s: float = 0.0  # when the devices were free
    given_back: bool = False  # its ranks are about to be parked, and need no device any more
    inherited: InheritedLocks | None = None  # of processes that are parked as they are
    retaken: bool = False  # are its locks those of such processes, which do not go on yet?

    def blocked(self, now: float) -> str:
        """Note that another attempt of this agent has its devices. Return what to tell of it: most make way
        in a moment, so "" before that."""
        self.blocked_s = now if self.blocked_s is None else self.blocked_s
        return NOT_ENDED if now - self.blocked_s >= _MOMENT_S else ""

    def lock_files(self, storage: SpawnerStorage) -> dict[Path, int]:
        """Lock file -> its device, of those that it needs."""
        folder = storage.state / "locks"
        files = {file: d for d in self.devices for file in locks.slot_files(folder, d)}
        return files | {storage.devices.path(device): device for device in self.devices}

    def take(self, storage: SpawnerStorage) -> str:
        """Take the locks; "" = done, else why not. Raises OSError."""
        locked = locks.lock_slots(storage.state / "locks", self.job, self.devices)
        if locked is None:
            return NOT_ENDED
        try:
            taken = storage.devices.take(self.devices)
        except OSError:
            locks.release(locked.values())
            raise
        if taken is not None:
            locks.release(locked.values())
            return f"device {taken} is in use by another agent of this machine, or what it left"
        self.locks, self.free_s = locked, time.monotonic()
        return ""

    def retake(self, inherited: InheritedLocks, storage: SpawnerStorage) -> str:
        """Take locks that processes have inherited; "" = done, else why not. Raises OSError."""
        slots: dict[int | None, int] = {None: os.dup(inherited.slots[None])}
        for device, descriptor in inherited.slots.items():
            if device is not None and locks.retake(descriptor):
                slots[device] = os.dup(descriptor)
        if len(slots) < len(inherited.slots):
            _unlock_slots(slots)
            return NOT_ENDED
        if (taken := storage.devices.retake(inherited.devices)) is not None:
            _unlock_slots(slots)
            return f"device {taken} is in use by another agent of this machine, or what it left"
        self.locks, self.free_s, self.retaken = slots, time.monotonic(), True
        return ""

    def unlock_devices(self, storage: SpawnerStorage) -> None:
        """Close the locks; ranks that live keep theirs, unless they are still stopped."""
        if self.locks is not None:
            if self.retaken:
                _unlock_slots(self.locks)
            else:
                locks.release(self.locks.values())
            storage.devices.unlock_devices(self.devices, given_back=self.retaken)
            self.locks, self.retaken = None, False

    def suspend(self, storage: SpawnerStorage) -> None:
        """Give the devices to others; its ranks, which stand still, have inherited the locks, and these can
        be taken again. The lock of the job is kept."""
        assert self.locks is not None
        devices = {device: os.dup(storage.devices.descriptor(device)) for device in self.devices}
        self.inherited = InheritedLocks(self.locks, devices)
        for device, descriptor in self.locks.items():
            if device is not None:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        storage.devices.unlock_devices(self.devices, given_back=True)
        self.devices, self.given_back, self.locks = frozenset(), True, None

    def drop_inherited(self) -> None:
        """Close the open files: the processes that have inherited them go on, or have ended."""
        if self.inherited is not None:
            locks.release((*self.inherited.slots.values(), *self.inherited.devices.values()))
            self.inherited = None

    def give_back(self, storage: SpawnerStorage) -> None:
        """Give the devices to others, also where ranks that live have inherited their locks. The lock of the
        job is kept."""
        assert self.locks is not None
        locks.unlock(lock for device, lock in self.locks.items() if device is not None)
        self.locks = {None: self.locks[None]}
        storage.devices.unlock_devices(self.devices, given_back=True)
        self.devices, self.given_back = frozenset(), True

    def give_up(self, storage: SpawnerStorage) -> None:
        """Give up what is left: the lock of the job, which runs no more."""
        if self.locks is None:  # it is kept
            return
        locks.forget_job(storage.state / "locks", self.job)
        locks.unlock(self.locks.values())
        self.locks = None

    def locks_of(self, rank: RankLaunch, storage: SpawnerStorage) -> list[int]:
        """Descriptors of the locks that a rank inherits."""
        assert self.locks is not None
        mine = [self.locks[device] for device in (None, *rank.devices)]
        return [*mine, *(storage.devices.descriptor(device) for device in rank.devices)]


def _unlock_slots(slots: Mapping[int | None, int]) -> None:
    """Unlock devices for all that have inherited their locks, and close these; that of the job stays."""
    locks.unlock(descriptor for device, descriptor in slots.items() if device is not None)
    locks.release([slots[None]])
