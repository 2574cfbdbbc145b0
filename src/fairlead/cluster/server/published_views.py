"""Views that the front shows without asking: status and nodes, published after commits that change any."""

import itertools
from collections.abc import Callable, Collection, Iterable

from fairlead.cluster.front.messages import PublishedNodeView, PublishedStatus
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import ENDED_STATES
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.node_condition import usable
from fairlead.cluster.server.tally import (
    CountedJob,
    CountedNode,
    Tally,
)
from fairlead.cluster.server.view_builders import ViewBuilder
from fairlead.cluster.store.rows import ON_DEVICES, OPEN_STATES

# Nodes of which views are published with one commit; more than that wait for the next ones
MAX_VIEWS_PER_COMMIT = 500
STATUS_S = 1.0  # between two publications of the status where nothing changes but time
ADMIN = Caller(
    "front", "", "admin"
)  # as whom everything is published; the front hides what it must


class PublishedViews:
    """On the driver's thread."""

    def __init__(
        self,
        state: ClusterState,
        viewer: ViewBuilder,
        send_to_front: Callable[[PublishedNodeView | PublishedStatus], None],
    ) -> None:
        """send_to_front: given what the front shall show."""
        self._state = state
        self._send_to_front = send_to_front
        self.tally = Tally()
        self._viewer = viewer
        self._later: dict[str, None] = {}  # nodes whose views wait, in this order
        # Nodes whose state has a reason, which time changes
        self._nodes_with_reason: set[str] = set()
        self._has_published = False
        self._published_s = 0.0  # monotonic

    def publish(self, jobs: Collection[int], nodes: Iterable[str], *, waits: bool) -> None:
        """Show what a commit has changed. waits: somebody is answered next, and may look at once. Of what a
        round changes on thousands of nodes the rest is shown by ``publish_remaining``, when they are
        answered."""
        if not self._has_published:
            self._has_published = True
            jobs = list(self._state.registry.jobs)
            self._state.changed_nodes.update(self._state.fleet.nodes)
        for job in jobs:
            self.tally.note_job(job, self._counted(job))
        self.tally.ended = dict(self._state.ended_counts)  # with all jobs that ended since counted
        self._later.update(dict.fromkeys(nodes))
        if len(self._later) <= MAX_VIEWS_PER_COMMIT:
            self._show_later()
        now = self._state.fleet.monotonic()
        due = now - self._published_s >= STATUS_S
        if due:
            self._state.changed_nodes |= self._nodes_with_reason
        self._show_nodes(now)
        if due or waits or jobs:
            self.show_status()

    def publish_remaining(self) -> None:
        """Show more nodes, as many as take no long time."""
        if self._later:
            self._show_later()
            self._show_nodes(self._state.fleet.monotonic())

    def _show_later(self) -> None:
        """The next of those that wait are to be shown."""
        for name in list(itertools.islice(self._later, MAX_VIEWS_PER_COMMIT)):
            del self._later[name]
            self._state.changed_nodes.add(name)

    def refresh(self) -> None:
        """Show what time alone changes, while nothing can be committed: the status, and nodes whose state has
        a reason."""
        self._show(list(self._nodes_with_reason), self._state.fleet.monotonic())
        self.show_status()

    def show_status(self) -> None:
        """The cluster in one screen, as it is now."""
        self._published_s = self._state.fleet.monotonic()
        status = self._viewer.status(ADMIN, self.tally)
        self._send_to_front(
            PublishedStatus(
                status=status, at=self._published_s, displayed=dict(self.tally.displayed)
            )
        )

    def _counted(self, job: int) -> CountedJob | None:
        row = self._state.registry.jobs.get(job)
        if row is None or row.state not in OPEN_STATES:
            return None
        displayed_state = self._viewer.displayed_state(row)
        failure = row.save_failure if row.state in ON_DEVICES else None
        return CountedJob(
            tenant=row.tenant,
            state=row.state,
            displayed_state=displayed_state,
            weight=row.weight,
            devices=row.scale_factor,
            deadline_s=None if displayed_state in ENDED_STATES else row.deadline_s,
            unsaved_s=None if failure is None else failure.at_s,
        )

    def _show_nodes(self, now: float) -> None:
        touched, self._state.changed_nodes = self._state.changed_nodes, set()
        self._show(touched, now)

    def _show(self, names: Iterable[str], now: float) -> None:
        for name in names:
            node = self._state.fleet.nodes.get(name)
            if node is None:
                self._nodes_with_reason.discard(name)
                self.tally.note_node(name, None)
                self._send_to_front(PublishedNodeView(node=name, view=None))
                continue
            view = self._viewer.node(node, now, ADMIN)
            well = view.state == "up" and not view.reason
            (self._nodes_with_reason.discard if well else self._nodes_with_reason.add)(name)
            allocated = sum(map(bool, view.jobs))
            working = node.devices if usable(node, now) else 0
            self.tally.note_node(
                name, CountedNode(node.accelerator, node.devices, working, allocated)
            )
            shown = {job for jobs in view.jobs for job in jobs} | {one.job for one in view.parked}
            rows = map(self._state.registry.jobs.get, shown)
            owners = {row.id: row.tenant for row in rows if row is not None}
            self._send_to_front(PublishedNodeView(node=name, view=view, at=now, owners=owners))
