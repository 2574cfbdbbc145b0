"""The state directory of an agent: whose it is, and who the agent is that has it."""

import contextlib
import logging
import os
import pwd
import re
import secrets
import stat
from pathlib import Path

import msgspec

from fairlead.cluster.agent import locks, proc
from fairlead.cluster.agent.client_files import is_offered, offer_client
from fairlead.cluster.agent.lock_holders import holds_removed
from fairlead.cluster.agent.machine import machine_identity
from fairlead.cluster.agent.untrusted_files import read_regular, write_anew
from fairlead.cluster.protocol.validation_messages import UNREADABLE
from fairlead.errors import ConfigError

_IDENTITY = re.compile(rb"[0-9a-f]{16}")
_MAX_BYTES = 4096  # bytes of the file that names the owner
_log = logging.getLogger(__name__)


class StateOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The process that has a state directory."""

    machine: str
    pid: int
    start_time: int  # clock ticks since boot

    @property
    def lives(self) -> bool:
        """Return whether it is a process of this machine that has not ended."""
        found = proc.process(self.pid) if self.machine == machine_identity() else None
        return found is not None and found.start_time == self.start_time and found.state not in "ZX"


def identity_of(state: Path) -> str:
    """Return the id of this agent among others of its name, the same through all its runs. A damaged one
    is made anew: to the server it is another agent then, and takes the name over. Raises ConfigError."""
    path = state / "identity"
    try:
        known = read_regular(path, 64) if path.exists() else None
        if known is not None and _IDENTITY.fullmatch(known):
            return known.decode()
        if known is not None:
            _log.warning("%s: is damaged; this agent is a new one to the server", path)
        made = secrets.token_hex(8)
        whole = path.with_suffix(".new")
        write_anew(whole, made.encode())
        whole.replace(path)
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror}") from None
    return made


def lock_state(state: Path) -> int:
    """The lock of the state directory, which is made if need be. Raises ConfigError where another agent has
    it, or it is a copy of one that another agent has: what that one runs is not to be ended."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owners(state)
        lock = locks.take(state / "agent.lock")
    except OSError as problem:
        raise ConfigError(f"--state {state}: {problem.strerror}") from None
    if lock is None:
        raise ConfigError(f"--state {state}: another agent runs there")
    owner = owner_of(state)
    if owner is not None and owner.lives:
        os.close(lock)
        raise ConfigError(
            f"--state {state}: is the state of an agent that runs, process {owner.pid}, or a copy of it; "
            "another agent needs a directory of its own"
        )
    _write_owner(state)
    return lock


def _check_owners(state: Path) -> None:
    """Raise ConfigError where another user could replace what is in the directory, and with it what jobs run:
    it is that user's, or below a folder of theirs in a directory where everybody may make one, as /tmp."""
    for way in (found := state.resolve(), *found.parents):
        owner = way.stat().st_uid
        public = bool(way.parent.stat().st_mode & stat.S_IWOTH)
        if owner not in (0, os.geteuid()) and (way == found or public):
            raise ConfigError(
                f"--state {state}: {way} belongs to another user ({_user_name(owner)}), who could replace "
                "what jobs run"
            )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class StateLock:
    """The lock of a state directory, which an agent holds for as long as it runs."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._descriptor = -1

    def take(self) -> None:
        """Before anything is done in the directory. Raises ConfigError: see ``lock_state``."""
        self._descriptor = lock_state(self._state)

    def hold_again(self) -> None:
        """Take it anew where somebody has removed its file. To be called every so often, before anything is
        made again that was removed with it. Raises ConfigError where another agent has the directory since:
        each would put its own socket in the place of the other's, and refuse the other's ranks."""
        path = self._state / "agent.lock"
        if locks.is_still(path, self._descriptor):
            return
        try:
            self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
            taken = locks.take(path)
        except OSError:
            return  # tried again; nobody else has it either
        if taken is None:
            raise ConfigError(
                f"--state {self._state}: was removed while this agent ran, and another agent runs there now; "
                "this one has ended its jobs"
            )
        locks.release([self._descriptor])
        self._descriptor = taken
        _write_owner(self._state)

    def release(self) -> None:
        """Another agent may have it."""
        locks.release([self._descriptor])


def make_again(state: Path) -> None:
    """Make anew what somebody has removed of what attempts need: the folder of locks once nothing holds one
    that was in it, or a job could run twice. Raises ConfigError or OSError."""
    (state / "starts").mkdir(parents=True, exist_ok=True)
    if not is_offered(state):
        _log.warning("%s: was removed while the agent runs; what is needed is made anew", state)
        offer_client(state)
    if not (state / "locks").exists() and not holds_removed(state / "locks"):
        (state / "locks").mkdir()


def owner_of(state: Path) -> StateOwner | None:
    """The last that had it; None: nobody knows."""
    try:
        return msgspec.json.decode(read_regular(state / "owner", _MAX_BYTES), type=StateOwner)
    except (OSError, *UNREADABLE):
        return None


def _write_owner(state: Path) -> None:
    me = proc.process(os.getpid())
    assert me is not None
    owner = StateOwner(machine=machine_identity(), pid=me.pid, start_time=me.start_time)
    whole = state / "owner.new"
    with contextlib.suppress(OSError):  # on a full disk a copy would not be known for one
        write_anew(whole, msgspec.json.encode(owner))
        whole.replace(state / "owner")
