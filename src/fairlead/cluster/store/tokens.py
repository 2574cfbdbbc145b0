"""Tokens, by which callers are known, and the names that users, tenants and nodes may have."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable

from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.store.rows import UserRow
from fairlead.errors import ConfigError

PREFIX = "fl_"  # lets secret scanners know one when they see it
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MAX_TOKEN = 256  # characters of a token; more is a stranger


def make_token() -> str:
    """A new token of 256 random bits, in characters that need no quoting anywhere."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_token(token: str) -> bytes:
    """What is stored of a token.

    One round of SHA-256 without salt is right here: slow, salted hashes protect secrets that people
    choose, by making guesses dear. Nobody guesses 256 random bits, and none is used twice.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class TokenTable:
    """Finds the user of a token. Replaced as a whole when users change, so any thread may look up."""

    def __init__(self, users: Iterable[UserRow]) -> None:
        self._by_hash = {row.token_hash: row for row in users}

    def find(self, token: str) -> Caller | None:
        """The caller whose token this is; None = nobody's.

        The time that it takes tells nothing: what is looked up is the hash, whose bits a stranger cannot
        choose, and the hashes are then compared in constant time.
        """
        if len(token) > _MAX_TOKEN:
            return None
        mine = hash_token(token)
        row = self._by_hash.get(mine)
        if row is None or not hmac.compare_digest(row.token_hash, mine):
            return None
        return Caller(user=row.user, tenant=row.tenant, role=row.role)


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
