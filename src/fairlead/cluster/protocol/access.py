"""Permissions: tokens, tenants, roles."""

from typing import Literal

import msgspec

Role = Literal["admin", "user", "agent"]


class Caller(msgspec.Struct, frozen=True):
    """Author of a request. An admin sees and changes all; a user the jobs of their own tenant; an agent
    neither."""

    user: str
    tenant: str
    role: Role
    node: str = ""  # of an agent with a token of its own; "" = it has that which enrols nodes
