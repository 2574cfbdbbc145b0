"""Tokens, by which callers are known, and the names that users, tenants and nodes may have."""

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from fairlead.cluster.protocol.access import OTHERS, Caller
from fairlead.cluster.store.rows import UserRow
from fairlead.errors import ConfigError

PREFIX = "fl_"  # lets secret scanners know one when they see it
NODE_KEY = "node_key"  # of the value in the store that tokens of nodes are signed with
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MAX_DIGITS = 19  # of the number of a commit
_MAX_TOKEN = 256  # characters of a token; more is a stranger


def make_token() -> str:
    """A new token of 256 random bits, in characters that need no quoting anywhere."""
    return PREFIX + secrets.token_urlsafe(32)


class MetaReader(Protocol):
    """A store, as far as it is asked for single values."""

    def meta(self, key: str) -> str | None:
        """Return the value; None = there is none."""


def read_node_key(store: MetaReader) -> bytes:
    """The key of a cluster that its nodes' tokens are signed with; b"" = it has none."""
    return bytes.fromhex(store.meta(NODE_KEY) or "")


def make_node_token(key: bytes, node: str, commit: int) -> str:
    """A new token of a node, which says whose it is, and who issued it when. key: of the cluster; commit: the
    first that knows of it."""
    secret = secrets.token_urlsafe(32)
    return f"{PREFIX}{node}.{commit}.{secret}.{_signature(key, node, commit, secret)}"


class IssuedToken(NamedTuple):
    """The node and the commit that a node's token states."""

    node: str
    commit: int  # the first that knows of it


def read_issued(token: str, key: bytes) -> IssuedToken | None:
    """Return what a token states that the cluster with this key has ever issued; None = it is none of its."""
    parts = token.removeprefix(PREFIX).rsplit(".", 3)
    if not key or len(parts) != 4 or not token.isascii() or not parts[1].isdigit():
        return None
    node, number, secret, signature = parts
    commit = int(number[:_MAX_DIGITS])
    good = hmac.compare_digest(signature, _signature(key, node, commit, secret))
    return IssuedToken(node, commit) if good else None


def _signature(key: bytes, node: str, commit: int, secret: str) -> str:
    made = hmac.digest(key, f"{node}.{commit}.{secret}".encode(), "sha256")
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def hash_token(token: str) -> bytes:
    """Return the hash that is stored in place of a token.

    One round of SHA-256 without salt is right here: slow, salted hashes protect secrets that people
    choose, by making guesses dear. Nobody guesses 256 random bits, and none is used twice.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class TokenTable:
    """Finds who has a token. One thread changes it, any may look up."""

    def __init__(self) -> None:
        self._users: dict[bytes, Caller] = {}
        self._nodes: dict[bytes, Caller] = {}
        self._hash_of: dict[str, bytes] = {}  # of the token of a node; b"" = none, it is revoked
        self._key = b""  # that tokens of nodes are signed with
        self._commit = 0  # the newest of this state

    def set_users(self, users: Iterable[UserRow]) -> None:
        """These are the users, and no others."""
        self._users = {
            row.token_hash: Caller(row.user, row.tenant, row.role, expires_s=row.expires_s)
            for row in users
        }

    def set_key(self, key: bytes) -> None:
        """Tokens of nodes are signed with this key."""
        self._key = key

    def set_commit(self, commit: int) -> None:
        """The state has come so far."""
        self._commit = max(self._commit, commit)

    def set_node(self, node: str, token_hash: bytes, *, revoked: bool) -> None:
        """A node has this token alone. token_hash: b"" = none yet."""
        known = b"" if revoked else token_hash or None
        before = self._hash_of.get(node)
        if before == known:
            return
        if known is None:
            del self._hash_of[node]
        else:
            self._hash_of[node] = known
        if known:
            self._nodes[known] = Caller(user=f"node {node}", tenant="", role="agent", node=node)
        if before:
            del self._nodes[before]

    def remove_node(self, node: str) -> None:
        """A node is there no more."""
        self.set_node(node, b"", revoked=False)

    def is_enrolled(self, node: str) -> bool:
        """Return whether a node has had a token of its own."""
        return node in self._hash_of

    def find(self, token: str) -> Caller | None:
        """The caller whose token this is; None = nobody's.

        The time that it takes tells nothing of use: what is looked up is the hash, whose bits a stranger
        cannot choose.
        """
        if len(token) > _MAX_TOKEN:
            return None
        mine = hash_token(token)
        caller = self._users.get(mine) or self._nodes.get(mine)
        if caller is None or caller.expires_s is None or time.time() < caller.expires_s:
            return caller
        return None

    def find_agent(self, token: str) -> Caller | None:
        """As ``find``, also the node to which a token was given by a later state than this one. Of one that
        was given before, this state would know, unless it has ended since."""
        if (caller := self.find(token)) is not None or len(token) > _MAX_TOKEN:
            return caller
        issued = read_issued(token, self._key)
        if issued is None or issued.commit <= self._commit:
            return None
        node = issued.node
        return Caller(user=f"node {node}", tenant="", role="agent", node=node, is_known=False)


def check_name(what: str, name: str) -> str:
    """The name itself, or ConfigError. what: whose name it is, for the sentence.

    Such a name is one part of a path, wherever it comes from, and cannot lead out of a directory.
    """
    if not _NAME.fullmatch(name) or not name.strip("."):
        shown = name if len(name) <= 80 else name[:77] + "..."
        raise ConfigError(
            f"{what} {shown!r}: must be 1 to 64 letters, digits, '.', '_' or '-', and not only dots"
        )
    return name


def check_tenant(name: str) -> str:
    """The name itself, or ConfigError where no tenant may be called so."""
    if name == OTHERS:
        raise ConfigError(
            f"tenant {name!r}: is what a user is shown of all other tenants; choose another name"
        )
    return check_name("tenant", name)
