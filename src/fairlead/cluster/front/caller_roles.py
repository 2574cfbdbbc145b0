"""Checks of what callers may do, by their roles."""

from fairlead.cluster.front.facade import ForbiddenError
from fairlead.cluster.protocol.access import Caller


def check_admin(caller: Caller) -> None:
    """Raises ForbiddenError for all but admins."""
    if caller.role != "admin":
        raise ForbiddenError(f"user {caller.user!r}: only an admin may do this")


def check_person(caller: Caller) -> None:
    """Raises ForbiddenError for agents."""
    if caller.role == "agent":
        raise ForbiddenError(f"user {caller.user!r}: an agent's token is not one for people")
