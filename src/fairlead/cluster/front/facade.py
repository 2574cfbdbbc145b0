"""The interface of the live cluster for its HTTP API, its page and its metrics: one narrow door.

``Service`` (fairlead.cluster.server.service) is the real one. Every method may be called from any
thread; those that
change something return when the change is durable, and raise InputError, with one sentence, for what
cannot be done, ``NotFoundError`` for a job or node that is not there or that the caller may not see.
"""

from collections.abc import Iterator
from datetime import date
from typing import Protocol

from fairlead.cluster.protocol.access import Caller, Role
from fairlead.cluster.protocol.accounting import Grouping, UsageView
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    Comparison,
    DeviceUsageView,
    Explanation,
    JobView,
    NodeView,
    ReloadAnswer,
    Sample,
    StatusView,
    UserView,
    WhatIf,
)
from fairlead.cluster.protocol.audit import AuditFilter, AuditPage
from fairlead.cluster.protocol.engine_views import EngineView
from fairlead.cluster.protocol.job_search import FoundJobs, JobQuery
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.study import SearchView, StudySpec
from fairlead.errors import InputError


class NotFoundError(InputError):
    """There is no such job, array, node or user, as far as the caller may know."""


class ForbiddenError(InputError):
    """The caller's role does not allow it."""


class InvalidTokenError(InputError):
    """No valid token came with the call."""


class TooManyError(InputError):
    """The caller asks for more in a while than it may; later it may again."""

    def __init__(self, sentence: str, wait_s: float = 5.0) -> None:
        """wait_s: until it may; whoever names it in the sentence gives the same."""
        super().__init__(sentence)
        self.wait_s = wait_s


class ConflictError(InputError):
    """It cannot be done as things are: the job has ended, the key was used for other jobs."""


class Facade(Protocol):
    """See the module. ``caller`` is who asks. What a role does not allow raises ForbiddenError; a job, node
    or user that there is not, or that the caller may not see, NotFoundError; what is impossible as things
    are, ConflictError; other input that cannot be used, InputError."""

    # --- people ----------------------------------------------------------------------------------
    def authenticate(self, token: str) -> Caller | None:
        """Return whose token this is; None = nobody's."""

    def add_user(
        self, caller: Caller, user: str, tenant: str, role: Role, lasts_s: float | None = None
    ) -> str:
        """Add a user, or give a known one another token. Returns the token, of which only the hash is
        stored. lasts_s: seconds for which it is good, None = until there is another."""

    def remove_user(self, caller: Caller, user: str) -> None:
        """Refuse a user's token from now on; their jobs stay."""

    def users(self, caller: Caller) -> list[UserView]:
        """Return all users."""

    # --- jobs ------------------------------------------------------------------------------------
    def submit(
        self, caller: Caller, specs: list[JobSpec], tenant: str = "", key: str = ""
    ) -> list[int]:
        """Submit jobs. Returns their ids once they are durable. tenant: an admin may submit for another; key:
        the same key again gives the same ids and submits nothing."""

    def cancel(self, caller: Caller, job: int) -> None:
        """End a job for good; one that has ended stays as it is."""

    def cancel_array(self, caller: Caller, array: int) -> list[int]:
        """End all tasks of an array for good that have not ended. Returns their ids."""

    def pause(self, caller: Caller, job: int) -> list[str]:
        """Have a job save, stop, and wait until it is resumed. Returns a sentence where it cannot save, and
        loses work."""

    def resume(self, caller: Caller, job: int, accept_loss: bool = False) -> None:
        """Let a paused job run again; ConflictError for one that is not paused. accept_loss: also one that
        waits for its checkpoints; its next attempt begins with whatever is there."""

    def set_weight(self, caller: Caller, job: int, weight: float) -> None:
        """Give a job another weight, from the next round on."""

    def jobs(
        self,
        caller: Caller,
        state: str = "",
        tenant: str = "",
        after: int = -1,
        limit: int = 1000,
        array: int | None = None,
    ) -> list[JobView]:
        """Return at most ``limit`` jobs in order of id, those above ``after``. state: "" = all, "open" = not
        ended; tenant: "" = all that the caller may see; array: only the tasks of this one, None = all."""

    def find_jobs(self, caller: Caller, query: JobQuery) -> FoundJobs:
        """Return the jobs that the caller may see and ``query`` asks for. Of jobs that have ended only the
        newest are searched."""

    def jobs_of(self, caller: Caller, ids: list[int]) -> list[JobView]:
        """Return those of these jobs that there are and that the caller may see, in order of id."""

    def job(self, caller: Caller, job: int) -> JobView:
        """Return a job as it is now."""

    def attempts(self, caller: Caller, job: int) -> list[AttemptView]:
        """Return the attempts of a job, oldest first."""

    def usage(self, caller: Caller, job: int) -> list[DeviceUsageView]:
        """Return how busy the devices of a job were, by attempt and rank, as far as that is known."""

    def explain(self, caller: Caller, job: int) -> Explanation:
        """Return where a job is and why, its attempts, and when it is forecast to end."""

    def log(
        self, caller: Caller, job: int, cursor: str = "", limit: int = 1 << 16
    ) -> tuple[str, str]:
        """Return output from the cursor on ("" = from the beginning, "tail" = the end of the newest attempt;
        ranks of several are marked), and the cursor behind it. The newest ``log_bytes`` of a job are kept."""

    def metrics(self, caller: Caller, job: int, name: str = "") -> list[MetricCurve]:
        """Return the metrics that a job has reported, in order of name. name: only this one, "" = all."""

    # --- searches --------------------------------------------------------------------------------
    def submit_search(
        self, caller: Caller, study: StudySpec, tenant: str = "", key: str = ""
    ) -> int:
        """Begin a search. Returns its id once it is durable. tenant, key: as of ``submit``."""

    def stop_search(self, caller: Caller, search: int) -> None:
        """End a search and its trials for good; ConflictError for one that has ended."""

    def searches(self, caller: Caller) -> list[SearchView]:
        """Return the searches that the caller may see, without their trials."""

    def search(self, caller: Caller, search: int) -> SearchView:
        """Return a search with its trials."""

    def search_curves(self, caller: Caller, search: int) -> dict[int, MetricCurve]:
        """Return what the newest 500 trials of a search have reported of its metric, by number."""

    # --- cluster ---------------------------------------------------------------------------------
    def status(self, caller: Caller) -> StatusView:
        """Return the state of the cluster. To a user, tenants other than their own are ``others``."""

    def nodes(self, caller: Caller) -> list[NodeView]:
        """Return all nodes."""

    def failed_nodes(self, caller: Caller) -> list[NodeView]:
        """Return the nodes that are silent, lost or unhealthy."""

    def drain(self, caller: Caller, node: str) -> list[str]:
        """Take a node out of service: its jobs save and move, and none comes to it. Returns a sentence for
        each job that cannot save, and loses work."""

    def undrain(self, caller: Caller, node: str) -> None:
        """Put a drained node back into service."""

    def remove_node(self, caller: Caller, node: str) -> None:
        """Forget a node that is drained, offline or lost."""

    def revoke_node(self, caller: Caller, node: str) -> None:
        """Let the token of a node count no more, and give it no other until it is put back into service
        (``undrain``): it is lost once its leases are over."""

    def engine_plan(self, caller: Caller) -> EngineView:
        """Return what the engine that starts nodes is asked for now, and why; ConflictError where the server
        has none."""

    def set_policy(self, caller: Caller, policy: str) -> None:
        """Decide by another policy, ``NAME[:ARG]``, from the next round on."""

    def what_if(self, caller: Caller, question: WhatIf) -> Comparison:
        """Return forecasts of the cluster as it is and with the changes of ``question``. Nothing changes."""

    def reload(self, caller: Caller) -> ReloadAnswer:
        """Take over what the server's configuration file says now, as far as that can change while it runs.
        Where something is wrong with the file nothing changes."""

    def samples(self, caller: Caller, since_s: float = 0.0) -> list[Sample]:
        """Return samples of the cluster, one per round, from ``since_s`` (the cluster's time) on."""

    def backup(self, caller: Caller) -> Iterator[bytes]:
        """Yield a backup of the cluster's state, made now, in chunks of bytes."""

    def audit(
        self, caller: Caller, wanted: AuditFilter, cursor: str = "", limit: int = 1000
    ) -> AuditPage:
        """Return at most ``limit`` entries of the audit log, oldest first, from the cursor on ("" = from the
        oldest that is kept)."""

    def accounting(
        self,
        caller: Caller,
        by: tuple[Grouping, ...] = (),
        since: date | None = None,
        until: date | None = None,
    ) -> UsageView:
        """Return the device time that was billed, and what it costs, by groups: to a user their tenant's, to
        an admin all. since, until: the first day, and the one after the last."""
