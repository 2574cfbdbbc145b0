"""What the live cluster offers to its HTTP API, its page and its metrics: one narrow door.

``Service`` (fairlead.cluster.server.service) is the real one. Every method may be called from any
thread; those that
change something return when the change is durable, and raise InputError, with one sentence, for what
cannot be done, ``NotFoundError`` for a job or node that is not there or that the caller may not see.
"""

from collections.abc import Iterator
from typing import Protocol

from fairlead.cluster.protocol.access import Caller, Role
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    Comparison,
    Explanation,
    JobView,
    NodeView,
    Sample,
    StatusView,
    WhatIf,
)
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import InputError


class NotFoundError(InputError):
    """No such job, node or user, as far as the caller may know."""


class ForbiddenError(InputError):
    """The caller's role does not allow it."""


class ConflictError(InputError):
    """It cannot be done as things are: the job has ended, the key was used for other jobs."""


class Facade(Protocol):
    """See the module."""

    # --- people ----------------------------------------------------------------------------------
    def authenticate(self, token: str) -> Caller | None: ...
    def add_user(self, caller: Caller, user: str, tenant: str, role: Role) -> str:
        """Returns the token, which is shown once and stored hashed. A known user gets a new one."""

    def remove_user(self, caller: Caller, user: str) -> None: ...
    def users(self, caller: Caller) -> list[Caller]: ...

    # --- jobs ------------------------------------------------------------------------------------
    def submit(
        self, caller: Caller, specs: list[JobSpec], tenant: str = "", key: str = ""
    ) -> list[int]:
        """Ids of the jobs. tenant: an admin may submit for another; key: the same key again gives the
        same ids and submits nothing."""

    def cancel(self, caller: Caller, job: int) -> None: ...
    def pause(self, caller: Caller, job: int) -> None: ...
    def resume(self, caller: Caller, job: int) -> None: ...
    def set_weight(self, caller: Caller, job: int, weight: float) -> None: ...
    def jobs(
        self, caller: Caller, state: str = "", tenant: str = "", after: int = -1, limit: int = 1000
    ) -> list[JobView]:
        """In order of id, those behind ``after``. state: "" = all, "open" = not ended."""

    def job(self, caller: Caller, job: int) -> JobView: ...
    def attempts(self, caller: Caller, job: int) -> list[AttemptView]: ...
    def explain(self, caller: Caller, job: int) -> Explanation: ...
    def log(
        self, caller: Caller, job: int, cursor: str = "", limit: int = 1 << 16
    ) -> tuple[str, str]:
        """Output from the cursor on ("" = from the beginning, "tail" = the end of the newest start;
        ranks of several are marked), and the cursor behind it. The newest ``log_bytes`` of a job are kept."""

    # --- cluster ---------------------------------------------------------------------------------
    def status(self, caller: Caller) -> StatusView:
        """To a user, tenants other than their own are not shown by name ("others")."""

    def nodes(self, caller: Caller) -> list[NodeView]: ...
    def drain(self, caller: Caller, node: str) -> None: ...
    def undrain(self, caller: Caller, node: str) -> None: ...
    def remove_node(self, caller: Caller, node: str) -> None: ...
    def set_policy(self, caller: Caller, policy: str) -> None: ...
    def what_if(self, caller: Caller, question: WhatIf) -> Comparison: ...
    def samples(self, caller: Caller, since_s: float = 0.0) -> list[Sample]: ...
    def backup(self, caller: Caller) -> Iterator[bytes]:
        """A backup of the cluster's state, made now, piece by piece."""
