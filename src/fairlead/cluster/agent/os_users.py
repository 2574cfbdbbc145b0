"""Whom jobs run as: an operating-system user for each, by the node's table, where the agent is root."""

import grp
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from fairlead.errors import ConfigError
from fairlead.model.child_signals import prctl

DEFAULT = "default"  # key of the table for whoever has none of their own
_PREFIXES = ("user:", "tenant:")  # of the other keys, by precedence
_UMASK = 0o077
_NO_NEW_PRIVS = 38  # prctl(2)


class OsUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user of the operating system, as the node knows it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]  # supplementary ones
    home: str
    shell: str = "/bin/sh"

    @property
    def variables(self) -> dict[str, str]:
        """Return what its processes find in their environment of who they are."""
        name = self.name
        return {"HOME": self.home, "USER": name, "LOGNAME": name, "SHELL": self.shell}


@dataclass(frozen=True)
class RunAs:
    """The table: ``default``, ``tenant:NAME`` or ``user:NAME`` -> name of an operating-system user. Empty:
    jobs run as the agent's user."""

    table: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.table)

    def user_of(self, tenant: str, user: str) -> OsUser:
        """Return whom a job of this user of Fairlead runs as: the user's own entry counts before the
        tenant's. Raises ConfigError where there is none."""
        keys = f"user:{user}", f"tenant:{tenant}", DEFAULT
        for key in keys:
            if key in self.table:
                return find_os_user(self.table[key], key)
        wanted = " nor ".join(map(repr, keys))
        raise ConfigError(f"this node has no OS user for it: its table run_as has neither {wanted}")

    @property
    def trial_user(self) -> OsUser:
        """Return whom a test rank runs as: the default, or the first of the table. Raises ConfigError."""
        key = DEFAULT if DEFAULT in self.table else next(iter(self.table))
        return find_os_user(self.table[key], key)

    def check(self) -> dict[str, OsUser]:
        """Return all operating-system users of the table, by name. Raises ConfigError for one that is not
        there, a key that is none, and where this process may not change its user."""
        if self.table and os.geteuid() != 0:
            raise ConfigError(
                f"--run-as: only an agent of root can run jobs as others, and this one is run by {own_name()}"
            )
        for key in self.table:
            if key != DEFAULT and not any(
                key.startswith(one) and len(key) > len(one) for one in _PREFIXES
            ):
                raise ConfigError(
                    f"--run-as: expected default, tenant:NAME or user:NAME, got {key!r}"
                )
        found = (find_os_user(name, key) for key, name in self.table.items())
        return {one.name: one for one in found}


def find_os_user(name: str, key: str) -> OsUser:
    """Look a user up. key: of the table, for messages. Raises ConfigError where there is none, and for
    root."""
    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        raise ConfigError(f"run_as: {key}: this node has no OS user {name!r}") from None
    if entry.pw_uid == 0:
        raise ConfigError(f"run_as: {key}: {name!r} is root, who can read and do everything")
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    if 0 in groups:
        raise ConfigError(
            f"run_as: {key}: {name!r} is in the group {grp.getgrgid(0).gr_name!r} of root"
        )
    return OsUser(
        name=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=groups,
        home=entry.pw_dir or "/",
        shell=entry.pw_shell or "/bin/sh",
    )


def own_name() -> str:
    """Return the name of this process' user, or its number where it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def become(user: OsUser, *, no_new_privs: bool = True) -> None:
    """Turn this process, which is root's and has one thread, into one of this user, for good. Raises OSError.

    no_new_privs: programs with the setuid bit, such as ``sudo``, get it nothing more either."""
    os.umask(_UMASK)
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if no_new_privs:
        prctl(_NO_NEW_PRIVS, 1)
