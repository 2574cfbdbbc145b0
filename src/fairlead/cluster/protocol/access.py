"""Permissions: tokens, tenants, roles."""

from typing import Literal

import msgspec

TENANT = r"[A-Za-z0-9._-]{0,64}"  # a pattern of names; "" = one's own
OTHERS = "others"  # as which users are shown all tenants but their own: the name of none
Role = Literal["admin", "user", "agent"]
TokenKind = Literal["enrolment", "own", "outdated"]  # of an agent


class Caller(msgspec.Struct, frozen=True):
    """Author of a request. An admin sees and changes all; a user the jobs of their own tenant; an agent
    neither."""

    user: str
    tenant: str
    role: Role
    node: str = ""  # of an agent with a token of its own; "" = it has that which enrols nodes
    is_known: bool = (
        True  # False: the cluster has issued its token, but this state knows nothing of it
    )

    # seconds since 1970; the token is refused from then on, None = never
    expires_s: float | None = None

    @property
    def token_kind(self) -> TokenKind:
        """With what kind of token an agent comes."""
        if not self.node:
            return "enrolment"
        return "own" if self.is_known else "outdated"
