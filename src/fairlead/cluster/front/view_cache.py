"""The views that the driver has published for people: shown without asking it, however long it computes."""

import math
import time
from collections.abc import Callable, Mapping

import msgspec

from fairlead.cluster.front.messages import PublishedNodeView, PublishedStatus
from fairlead.cluster.front.visible_tenants import storage_trouble_for, tenants_for
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import JobState, NodeView, StatusView
from fairlead.cluster.protocol.node_states import FAILED_STATES, without_foreign_jobs

STATUS_TIMEOUT_S = 3.0  # a driver that has not published its status for so long does not answer now


class ViewCache:
    """The last status and nodes that the driver published. Changed on the event loop, read on any thread."""

    def __init__(
        self,
        seen: Callable[[str], float],
        monotonic: Callable[[], float] = time.monotonic,
        timeout_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """seen: when a node was heard of last, monotonic; 0 = never. timeout_s: after so much silence of
        a node it is shown as suspect, though the driver, which stands still, has not said so."""
        self._seen = seen
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._status: PublishedStatus | None = None
        self._nodes: dict[str, PublishedNodeView] = {}

    def take(self, message: PublishedStatus | PublishedNodeView) -> None:
        """Take over a view that the driver publishes; a node without one is forgotten."""
        if isinstance(message, PublishedStatus):
            self._status = message
        elif message.view is None:
            self._nodes.pop(message.node, None)
        else:
            self._nodes[message.node] = message

    @property
    def age_s(self) -> float:
        """Seconds since the driver published its status; infinite before the first time."""
        return float("inf") if self._status is None else self._monotonic() - self._status.at

    @property
    def status_age_s(self) -> float | None:
        """Age of the status as shown to people, s; None if the driver answers, or has never published
        anything."""
        return self.age_s if STATUS_TIMEOUT_S < self.age_s < math.inf else None

    @property
    def is_stale(self) -> bool:
        """Return whether the driver stands still or computes."""
        return self.age_s > STATUS_TIMEOUT_S

    def status(self, caller: Caller) -> StatusView | None:
        """The cluster in one screen; None = nothing has been published yet."""
        shown, age_s = self._status, self.age_s
        if shown is None:
            return None
        status = shown.status
        ends_s = status.round_ends_in_s
        return msgspec.structs.replace(
            status,
            now_s=status.now_s + age_s,
            round_ends_in_s=None if ends_s is None else max(ends_s - age_s, 0.0),
            tenants=tenants_for(caller, status.tenants),
            checkpoints_trouble=storage_trouble_for(
                caller, status.checkpoints_trouble, status.await_storage
            ),
            age_s=self.status_age_s,
        )

    @property
    def displayed_states(self) -> Mapping[int, JobState]:
        """State of the open jobs that are not shown as their rows say."""
        return {} if self._status is None else self._status.displayed

    def nodes(self, caller: Caller) -> list[NodeView]:
        """All nodes; to a user, jobs of other tenants are -1, and such as are parked are left out."""
        return [self._node(node, caller) for _, node in sorted(self._nodes.copy().items())]

    def failed_nodes(self, caller: Caller) -> list[NodeView]:
        """Those of all nodes that have failed. Cheap where few have, unless the driver stands still."""
        shown = sorted(self._nodes.copy().items())
        suspicious = [node for _, node in shown if self.is_stale or _has_failed(node.view)]
        return [view for node in suspicious if _has_failed(view := self._node(node, caller))]

    def _node(self, shown: PublishedNodeView, caller: Caller) -> NodeView:
        view = shown.view
        assert view is not None
        seen = self._seen(view.name)
        now = self._monotonic()
        since_s = view.state_since_s
        view = msgspec.structs.replace(
            view,
            last_seen_s=now - seen if seen else view.last_seen_s,
            state_since_s=None if since_s is None else since_s + now - shown.at,
            age_s=self.status_age_s,
            parked=tuple(
                msgspec.structs.replace(one, age_s=one.age_s + now - shown.at)
                for one in view.parked
            ),
        )
        if view.age_s is not None and view.state == "up" and seen:
            view = self._as_suspect(view, now - seen)
        if caller.role == "admin":
            return view
        mine = {job for job, tenant in shown.owners.items() if tenant == caller.tenant}
        hidden = tuple(tuple(job if job in mine else -1 for job in jobs) for jobs in view.jobs)
        parked = tuple(one for one in view.parked if one.job in mine)
        reason = without_foreign_jobs(view.reason, mine)
        return msgspec.structs.replace(view, jobs=hidden, parked=parked, reason=reason)

    def _as_suspect(self, view: NodeView, silent_s: float) -> NodeView:
        """The node as it is, where the driver cannot say so: silent for too long."""
        if silent_s <= self._timeout_s():
            return view
        return msgspec.structs.replace(
            view,
            state="suspect",
            reason=f"silent for {silent_s:.0f} s",
            state_since_s=silent_s - self._timeout_s(),
        )


def _has_failed(view: NodeView | None) -> bool:
    return view is not None and view.state in FAILED_STATES
