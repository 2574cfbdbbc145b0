"""Stepping aside without an exit: a rank that is preempted keeps its process, with its state in the memory
of its node, and goes on from there once its job has devices again. Source: Gandiva (OSDI'18), section 4.1.

Whoever has started the rank holds the other end of a socket. The rank says there that its devices are free,
before it saves, so that the next job does not wait for the disk; and that it is parked: its state is durable
and nothing of it runs. It then waits for the variables of its next attempt, with the log and the locks of
that. Meanwhile it is stopped (SIGSTOP), with all that it has started: the job may run elsewhere. If it has no
use any more it is killed; nothing of its script runs again.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from fairlead.client.quick_exit import flush_files
from fairlead.client.rank_environment import print_to_log

VARIABLE = "FAIRLEAD_PARKING"  # descriptors, see ``ParkingDescriptors``
RELEASED, PARKED = b"released", b"parked"
MAX_VARIABLES = 1 << 16  # bytes of those of an attempt
MAX_LOCKS = 250  # that the kernel passes with one message
_DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")


class ParkingDescriptors(NamedTuple):
    """The descriptors that a rank inherits: its end of the socket, the locks of its job, and those of its
    devices. As text ``SOCKET;JOB,...;DEVICE,...``."""

    socket: int
    job: tuple[int, ...]
    devices: tuple[int, ...]

    def __str__(self) -> str:
        return ";".join((str(self.socket), _joined(self.job), _joined(self.devices)))

    @classmethod
    def parse(cls, text: str) -> ParkingDescriptors | None:
        """Return what a text says; None where it says nothing of this process."""
        try:
            number, job, devices = text.split(";")
            return cls(int(number), _split(job), _split(devices))
        except ValueError:
            return None


class ParkingHooks(NamedTuple):
    """Functions of a script: ``on_park`` takes all that it has on its devices to the memory of the host, and
    ``on_resume`` brings it back. None: it has nothing there."""

    on_park: Callable[[], None] | None = None
    on_resume: Callable[[], None] | None = None


class Parking:
    """The rank's side. ``open`` it when the loop begins."""

    def __init__(self, hooks: ParkingHooks) -> None:
        self.hooks = hooks
        self._socket: socket.socket | None = None
        self._job_locks: tuple[int, ...] = ()
        self._device_locks: tuple[int, ...] = ()

    def open(self) -> None:
        """Take the socket, if this is the very process that was given it: it leads its session."""
        if self._socket is not None:
            return
        found = ParkingDescriptors.parse(os.environ.pop(VARIABLE, ""))
        if found is None or os.getsid(0) != os.getpid() or not _is_socket(found.socket):
            return
        sock = socket.socket(fileno=found.socket)
        if (sock.family, sock.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
            sock.detach()  # another one, of a process that has inherited the variable alone
            return
        self._socket = sock
        os.set_inheritable(found.socket, False)
        self._job_locks, self._device_locks = found.job, found.devices

    def release(self) -> bool:
        """Give the devices back. False: it cannot be done, and the process has to end."""
        if self._socket is None:
            return False
        if self.hooks.on_park is not None:
            try:
                self.hooks.on_park()
            except Exception as error:
                print_to_log(f"warning: this process cannot be parked, and ends: {error}")
                return False
        elif holds_device():
            return False
        _close(self._device_locks)
        self._device_locks = ()
        return self._tell(RELEASED)

    def wait(self) -> bool:
        """Wait parked until there are devices again; the environment is then that of the next attempt. False:
        there will be none, and the process has to end at once. Files are flushed before that."""
        flush_files()
        handler = _default_sigterm()
        _close(self._job_locks)
        self._job_locks = ()
        if self._socket is None or not self._tell(PARKED):
            return False
        try:
            message, descriptors, _, _ = socket.recv_fds(self._socket, MAX_VARIABLES, MAX_LOCKS + 1)
        except OSError:
            return False
        if not message or not descriptors:
            return False
        log, *taken = descriptors
        for target in (1, 2):
            os.dup2(log, target)
        os.close(log)
        order = json.loads(message)
        jobs = order["job_locks"]
        self._job_locks, self._device_locks = tuple(taken[:jobs]), tuple(taken[jobs:])
        os.environ.update(order["variables"])
        if handler is not None:
            signal.signal(signal.SIGTERM, handler)
        return True

    def resume(self) -> None:
        """Have the script bring its state back to the devices."""
        if self.hooks.on_resume is not None:
            self.hooks.on_resume()

    def _tell(self, word: bytes) -> bool:
        try:
            return self._socket is not None and self._socket.send(word) == len(word)
        except OSError:
            return False


def _default_sigterm() -> Any:
    """Let SIGTERM end this process at once, where that can be said. Returns the handler before; None = it
    stays."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, signal.SIG_DFL)


def resume_order(variables: Mapping[str, str], job_locks: int) -> bytes:
    """Return the message by which a parked rank goes on. With it come descriptors: the log first, then
    ``job_locks`` locks of the job, then those of its devices."""
    return json.dumps({"variables": dict(variables), "job_locks": job_locks}).encode()


def holds_device(process: int | str = "self") -> bool:
    """Whether a process, by default this one, has the file of an accelerator open, and so may have something
    in its memory."""
    folder = f"/proc/{process}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        with suppress(OSError):
            if os.readlink(f"{folder}/{name}").startswith(_DEVICE_FILES):
                return True
    return False


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _close(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)


def _joined(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _split(text: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, text.split(","))))
