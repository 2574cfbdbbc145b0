"""Lock files of devices and jobs, held by the ranks for their whole life.

flock(2) belongs to the open file, not to the process: ranks inherit the open file, and the lock is free
when the last of them (and of their forks) has ended, whatever happened to the agent.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

SLOTS = 2  # of a device: a packed pair may share it


def take(path: Path) -> int | None:
    """A file descriptor that holds the lock, None where another holds it."""
    access = os.O_RDONLY  # jobs inherit it, and shall write nothing there
    while True:
        descriptor = os.open(path, access | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_still(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as problem:
            os.close(descriptor)
            if problem.errno != errno.EBADF or access == os.O_RDWR:
                raise
            access = os.O_RDWR  # NFS locks for writing what is open for writing
            continue
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder removed the file meanwhile


def retake(descriptor: int) -> bool:
    """Lock an open file again that was unlocked, for all processes that have inherited it. Returns whether
    it is locked: another may have it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_still(path: Path, descriptor: int) -> bool:
    """Return whether this open file is the one of this name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def unlock(descriptors: Iterable[int]) -> None:
    """Unlock them for all processes that have inherited them, and close them."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        with contextlib.suppress(OSError):
            os.close(descriptor)


def release(descriptors: Iterable[int]) -> None:
    """Close them; inherited copies keep their lock."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def lock_slots(folder: Path, job: int, devices: Iterable[int]) -> dict[int | None, int] | None:
    """One seat on each device, and the job itself (under None): all of them, or None of them."""
    locks: dict[int | None, int] = {}
    try:
        for device in (None, *sorted(set(devices))):
            descriptor = _lock_any(_files(folder, job, device))
            if descriptor is None:
                release(locks.values())
                return None
            locks[device] = descriptor
    except BaseException:
        release(locks.values())
        raise
    return locks


def slot_files(folder: Path, device: int) -> list[Path]:
    """The lock files of the seats on a device."""
    return _files(folder, 0, device)


def forget_job(folder: Path, job: int) -> None:
    """Remove the lock file of a job; the caller holds its lock."""
    with contextlib.suppress(OSError):
        (folder / f"job-{job}.lock").unlink()


def _files(folder: Path, job: int, device: int | None) -> list[Path]:
    if device is None:
        return [folder / f"job-{job}.lock"]
    return [folder / f"device-{device}-{slot}.lock" for slot in range(SLOTS)]


def _lock_any(files: Iterable[Path]) -> int | None:
    for file in files:
        descriptor = take(file)
        if descriptor is not None:
            return descriptor
    return None
