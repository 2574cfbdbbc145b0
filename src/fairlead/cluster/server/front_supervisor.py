"""The driver's side of the front: starts its process, listens to it, and starts it anew when it ends."""

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from fairlead.cluster.front.messages import (
    Call,
    Configure,
    EnrolledNodes,
    FrontListening,
    FrontRefused,
    NodeRenewal,
    PublishedNodeView,
    PublishedPosition,
    PublishedSettings,
    PublishedStatus,
    Reported,
    SchedulingHalted,
    StopFront,
    ToFront,
    UserList,
)
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.front_link import DriverLink
from fairlead.errors import ConfigError, FairleadError
from fairlead.model.child_signals import interrupts_blocked

RESTART_DELAY_S = 0.5  # before the front is started anew, once it has ended soon after its start
MIN_UPTIME_S = 5.0
MAX_FIRST_STARTS = 5  # of fronts of which none has come to listen, before the server gives up
FRONT = ("fairlead.cluster.front",)  # the module that is run, and what its arguments begin with
END_S = 10.0  # for it to end when it is told to
_RESENT_MESSAGES = (
    EnrolledNodes,
    UserList,
    PublishedStatus,
    PublishedNodeView,
    PublishedPosition,
    SchedulingHalted,
    PublishedSettings,
)
_log = logging.getLogger(__name__)


class FrontError(FairleadError):
    """The front's process does not start."""


class FrontSupervisor:
    """One thread starts the process and listens to it: it is killed by the kernel when that thread ends, so
    with the server, however that ends."""

    def __init__(self, directory: Path, fleet: Fleet, answer: Callable[[Call], None]) -> None:
        """answer: has a call of the front answered, and returns at once."""
        self.directory = directory
        self.fleet = fleet
        self.answer = answer
        self.process: subprocess.Popen[bytes] | None = None
        self.port: Future[int] = Future()  # for agents, once the first front listens
        self._configure: Configure | None = None
        self._greeting: dict[str, ToFront] = {}  # what every front is told first
        self._is_started = threading.Event()
        self._stopping = False
        self._link: DriverLink | None = None
        self._lock = threading.Lock()  # of the link, and of what a new one is told first
        self._http: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="front", daemon=True)

    def prepare(self, http: socket.socket) -> None:
        """Start the process, which then waits for ``begin``. http: bound, for people and tools."""
        self._http = http
        self._thread.start()

    def begin(self, configure: Configure) -> "Future[int]":
        """Let it listen. The future has the port for agents, or the reason why there is none."""
        self._configure = configure
        self._is_started.set()
        return self.port

    def send(self, message: ToFront) -> None:
        """Send the front a message. Any thread; returns at once."""
        with self._lock:
            if isinstance(message, _RESENT_MESSAGES):
                self._greeting[message.key] = message
            if self._link is not None:
                self._link.put(message)

    def stop(self) -> None:
        """Have it stop listening and end."""
        self._stopping = True
        self._is_started.set()
        process = self.process
        self.send(StopFront())
        if process is not None and self._configure is None:
            process.kill()
        if not self._thread.is_alive():
            return
        self._thread.join(END_S)
        if self._thread.is_alive() and process is not None:
            process.kill()
            self._thread.join()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        starts = 0
        while not self._stopping:
            began, starts = time.monotonic(), starts + 1
            try:
                self._live()
            except Exception:
                _log.exception("the front could not be started")
            if self._stopping:
                break
            if not self.port.done():  # it has been killed, perhaps, before it listened
                if starts >= MAX_FIRST_STARTS:
                    break
                _log.error("the front has ended before it listened; starting it anew")
            elif self.port.exception() is not None:
                break
            else:
                _log.error("the front has ended; starting it anew, jobs go on")
            if time.monotonic() - began < MIN_UPTIME_S:
                time.sleep(RESTART_DELAY_S)
        if not self.port.done():
            self.port.set_exception(FrontError("the front's process does not start"))

    def _live(self) -> None:
        """The life of one front."""
        mine, theirs = socket.socketpair()
        with mine:
            with theirs:
                self.process = self._spawn(theirs.fileno())
            try:
                self._talk(DriverLink(mine, self._take))
            finally:
                with self._lock:
                    self._link = None
                self.fleet.front_lost()
                self.process.kill()  # whatever has closed the socket is not to go on listening
                self.process.wait()

    def _talk(self, link: DriverLink) -> None:
        self._is_started.wait()
        if self._configure is not None:
            link.put(self._configure)
            self._open(link)
        if self._stopping:
            link.put(StopFront())
        link.listen()

    def _open(self, link: DriverLink) -> None:
        """All that is published goes through it, from what was published before."""
        with self.fleet.lock, self._lock:
            users = [one for one in self._greeting.values() if isinstance(one, UserList)]
            for message in self._greeting.values():
                if message not in users:
                    link.put(message)
            for state in self.fleet.again():
                link.put(state)
            for message in users:  # last: see ``UserList``
                link.put(message)
            self._link = link

    def _spawn(self, fd: int) -> "subprocess.Popen[bytes]":
        assert self._http is not None
        # The directory is for people who look at the list of processes.
        arguments = (str(fd), str(os.getpid()), f"{self.directory}/")
        with interrupts_blocked():
            return subprocess.Popen(
                [sys.executable, "-m", *FRONT, *arguments],
                pass_fds=(fd, self._http.fileno()),
                stdin=subprocess.DEVNULL,
            )

    def _take(self, message: Any) -> None:
        match message:
            case Reported():
                self.fleet.apply_report(message)
            case NodeRenewal():
                self.fleet.apply_renewal(message)
            case Call():
                self.answer(message)
            case FrontListening():
                assert self._configure is not None
                # The next one listens where agents look for this one.
                self._configure = msgspec.structs.replace(
                    self._configure, agent_port=message.agent_port
                )
                if not self.port.done():
                    self.port.set_result(message.agent_port)
            case FrontRefused():
                if not self.port.done():
                    self.port.set_exception(ConfigError(message.sentence))
                else:
                    _log.error("the front cannot listen: %s", message.sentence)
