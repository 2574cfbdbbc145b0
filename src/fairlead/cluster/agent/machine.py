"""Files that agents leave on a machine for those that come after, wherever their state directories are.

Each run of an agent has a directory of its own below that of its node: two locks, which say whether the agent
and its spawner live, and the records of its attempts. Whoever comes after can end what is left of it, and so
prove that nothing of it lives. The path depends on the user alone, never on the environment, for locks that
lie in two places do not meet.
"""

import contextlib
import hashlib
import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlead.cluster.agent import locks
from fairlead.cluster.agent.lock_holders import holds_removed
from fairlead.cluster.agent.survivors import (
    AttemptRecord,
    boot_id,
    end_survivors,
    read_records,
)
from fairlead.errors import ConfigError

OVERRIDE = "FAIRLEAD_RUN_DIR"  # for tests, which must not meet other clusters of this machine
_POLL_S = 0.05
_EXTRA_S = 15.0  # beyond the grace of its attempts, for the spawner of a dead agent to end
_RETENTION_S = 7 * 86400.0  # what nobody has touched for so long nobody will ask for


def run_directory() -> Path:
    """The user's directory on this machine, made if need be. Raises ConfigError if it is somebody else's."""
    path = Path(os.environ.get(OVERRIDE) or f"/tmp/fairlead-{os.getuid()}")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror}") from None
    wrong = ""
    if not stat.S_ISDIR(found.st_mode):
        wrong = "it is none"
    elif found.st_uid != os.getuid():
        wrong = f"it is user {found.st_uid}'s, and this is user {os.getuid()}"
    elif found.st_mode & 0o077:
        wrong = f"its mode is {stat.S_IMODE(found.st_mode):o} (chmod 700 {path})"
    if wrong:
        raise ConfigError(f"{path}: must be a directory that belongs to this user alone: {wrong}")
    return path


def machine_identity() -> str:
    """Return the identity of the running kernel and process table. An agent with another identity cannot see
    our processes."""
    table = os.stat("/proc/self/ns/pid").st_ino
    return f"{boot_id()}.{table}"


@dataclass(frozen=True)
class AgentFiles:
    """The directory of one run of an agent: ``path`` ends with its incarnation."""

    path: Path

    @property
    def incarnation(self) -> str:
        """Incarnation of the agent."""
        return self.path.name

    @property
    def attempt_records(self) -> Path:
        """Folder with the records of its attempts."""
        return self.path / "starts"

    def device_lock(self, device: int, simulated_devices: bool) -> Path:
        """The lock file of a device: of real ones the machine's, of simulated ones the node's."""
        node = self.path.parent
        return (node if simulated_devices else node.parent.parent) / "devices" / f"{device}.lock"

    def all_device_locks(self) -> list[Path]:
        """Return the device locks that attempts on this node may hold."""
        return [path for folder in self._lock_folders() for path in folder.glob("*.lock")]

    def records_of_others(self) -> Iterator[tuple[str, list[AttemptRecord]]]:
        """Yield the attempts of each other run of an agent of this machine, with the name of its node."""
        for folder in self.path.parents[1].glob("*/*/starts"):
            if folder != self.attempt_records and (found := read_records(folder, keep=True)):
                yield folder.parents[1].name.rpartition("-")[0], found

    def make(self) -> int:
        """Make the directories and take the agent's lock. Returns its descriptor. Raises ConfigError."""
        try:
            self._make_folders()
            lock = locks.take(self.path / "agent.lock")
        except OSError as problem:
            raise ConfigError(f"{self.path}: {problem.strerror}") from None
        if lock is None:
            raise ConfigError(f"{self.path}: another process has this incarnation")
        return lock

    def make_again(self) -> None:
        """Make anew what somebody has removed of the directories, once nothing holds a lock that was in them:
        whoever took it anew would share the device. Raises ConfigError or OSError."""
        missing = [
            folder
            for folder in (self.attempt_records, *self._lock_folders())
            if not folder.exists()
        ]
        if missing and not any(holds_removed(folder) for folder in missing):
            run_directory()
            self._make_folders()

    def _make_folders(self) -> None:
        self.attempt_records.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in self._lock_folders():
            folder.mkdir(mode=0o700, exist_ok=True)

    def _lock_folders(self) -> tuple[Path, Path]:
        """Return the folders with the locks of real devices and of simulated ones."""
        return self.device_lock(0, False).parent, self.device_lock(0, True).parent

    def take_spawner_lock(self, limit_s: float = float("inf")) -> int | None:
        """Wait until no spawner of this run lives, for so long at most; None: one still does."""
        deadline = time.monotonic() + limit_s
        while (lock := locks.take(self.path / "spawner.lock")) is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_S)
        return lock

    def touch(self) -> None:
        """So that nothing that removes old files takes them away from under a running agent."""
        with contextlib.suppress(OSError):
            for path in (self.path, *self.path.rglob("*")):
                os.utime(path)

    def predecessors(self) -> "list[AgentFiles]":
        """The other runs of agents of this node that left something here."""
        found = [path for path in self.path.parent.iterdir() if (path / "agent.lock").exists()]
        return [AgentFiles(path) for path in sorted(found) if path != self.path]

    def forget(self) -> None:
        """Remove what there is of it; no error if that cannot be."""
        shutil.rmtree(self.path, ignore_errors=True)


def record_of(node: str, server: str, incarnation: str) -> AgentFiles:
    """The record of a run of an agent. Nodes of several clusters may have one name on one machine, and one
    server may be written in several ways, as localhost:8081 and 127.0.0.1:8081."""
    cluster = hashlib.sha256(_same_for_all_names(server).encode()).hexdigest()[:12]
    return AgentFiles(run_directory() / "nodes" / f"{node}-{cluster}" / incarnation)


def _same_for_all_names(server: str) -> str:
    """Return a text for host:port that is the same for all names and addresses of the host, as far as is
    known here."""
    host, _, port = server.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return server.lower()
    addresses = sorted({(family, address[0]) for family, _, _, _, address in found})
    if any(_is_here(*one) for one in addresses):
        return f"here:{port}"
    return f"{addresses[0][1]}:{port}"  # AF_INET comes before AF_INET6


def _is_here(family: int, address: str | int) -> bool:
    """Return whether this machine has the address."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((address, 0))
        return True
    return False


def clear(record: AgentFiles) -> int | None:
    """Make sure that nothing of a run of an agent lives: agent and spawner have let go of their locks, the
    process table has nothing of its attempts, and the locks of their devices are free. Returns how many
    processes were ended for it; None: something lives. The record stays, so that it can be said again."""
    agent = locks.take(record.path / "agent.lock")
    if agent is None:
        return None
    try:
        known = read_records(record.attempt_records, keep=True)
        grace_s = max((one.grace_s for one in known), default=0.0)
        spawner = record.take_spawner_lock(grace_s + _EXTRA_S)
        if spawner is None:
            return None
        try:
            return _end_all(record)
        finally:
            os.close(spawner)
    finally:
        os.close(agent)


def _end_all(record: AgentFiles) -> int | None:
    """None: something holds on, whatever it is told."""
    files = len(list(record.attempt_records.glob("*.json")))
    known = read_records(record.attempt_records, keep=True)
    ended = end_survivors(record.attempt_records, known, record.incarnation)
    paths = {Path(path) for one in known for path in one.locks}
    if len(known) < files:  # whose locks a damaged record named, nobody knows
        paths.update(record.all_device_locks())
    if not all(_is_free(path) for path in paths):
        return None  # and what is damaged stays too, so that it can be said again
    return None if read_records(record.attempt_records) else ended


def _is_free(path: Path) -> bool:
    lock = locks.take(path)
    if lock is not None:
        os.close(lock)
    return lock is not None


def remove_old(record: AgentFiles) -> None:
    """Forget runs of this node that ended long ago; nobody asks for them any more."""
    for old in record.predecessors():
        with contextlib.suppress(OSError):
            if time.time() - (old.path / "agent.lock").stat().st_mtime > _RETENTION_S:
                old.forget()
