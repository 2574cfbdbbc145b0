"""Entries of the audit log: who changed what, when, from where, and who was refused it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

Outcome = Literal["accepted", "refused", "failed"]
MAX_TEXT = 256  # characters of a field that a stranger may write
SERVER_USER = "fairlead"  # the author of what the server does by itself

# What people can do that is noted; refused requests and the server itself have others.
ACTIONS = (
    "submit", "cancel", "cancel_array", "submit_search", "stop_search", "pause", "resume", "set_weight",
    "drain", "undrain", "remove_node", "revoke_node", "set_policy", "add_user", "remove_user", "backup",
    "reload", "enrol",
)  # fmt: skip


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request, or what the server or somebody at its machine has done. ``omit_defaults``: an entry has
    only the fields that it needs."""

    time: str  # UTC, ISO 8601, as 2026-01-31T23:59:59.123456Z
    user: str = ""  # "" = nobody who is known
    tenant: str = ""
    actor: str = ""  # what has acted for the user without being asked, as "search 4"
    token_kind: str = ""  # admin, user, agent, node, unknown, none; "" = no token was needed
    token_id: str = ""  # the first digits of the token's SHA-256; "" = its owner is not known
    source: str = (
        ""  # the address at the other end of the connection; "local" = this machine's shell
    )
    forwarded_for: str = (
        ""  # what the request itself says of that: anybody may write anything there
    )
    action: str
    object: str = ""  # as "job 4", "jobs 4-9", "node a", "user ann"
    outcome: Outcome
    status: int = 0  # of HTTP; 0 = it was no HTTP request
    reason: str = ""  # the sentence of a refusal
    left_out: int = (
        0  # like refusals of the same source within a minute that have no entry of their own
    )


class AuditPage(msgspec.Struct, frozen=True):
    """A part of the audit log, oldest entry first."""

    entries: list[AuditEntry]
    cursor: str  # give it to get what comes next
    more: bool  # whether there was more to read behind the cursor


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are wanted; "" = of any."""

    user: str = ""
    action: str = ""
    since: str = ""  # as ``AuditEntry.time``, entries of that time included
    until: str = ""  # those before this time

    def matches(self, entry: AuditEntry) -> bool:
        """Return whether an entry is wanted."""
        return (
            self.user in ("", entry.user)
            and self.action in ("", entry.action)
            and entry.time >= self.since
            and (not self.until or entry.time < self.until)
        )


def audit_time(seconds: float) -> str:
    """The time of an entry, from seconds of the wall clock; entries sort by it."""
    at = datetime.fromtimestamp(seconds, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def jobs_text(ids: Sequence[int]) -> str:
    """Ids in ascending order as "job 4" or "jobs 4-9, 12"."""
    parts: list[list[int]] = []
    for id_ in ids:
        if parts and id_ == parts[-1][-1] + 1:
            parts[-1][1:] = [id_]
        else:
            parts.append([id_])
    return f"job{'s' * (len(ids) != 1)} " + ", ".join("-".join(map(str, part)) for part in parts)
