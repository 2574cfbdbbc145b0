"""What the front shows without asking: status and nodes, published after the commits that change them."""

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from fairlead.cluster.front.messages import ShownNode, ShownStatus
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.node_states import usable
from fairlead.cluster.server.tally import (
    CountedJob,
    CountedNode,
    Tally,
)
from fairlead.cluster.server.view_builders import ViewBuilder
from fairlead.cluster.store.rows import OPEN_STATES

if TYPE_CHECKING:
    from fairlead.cluster.server.server_loop import ServerLoop

MANY = (
    500  # nodes of which views are published with one commit; more than that wait for the next ones
)
STATUS_S = 1.0  # between two publications of the status where nothing changes but time
ADMIN = Caller(
    "front", "", "admin"
)  # as whom everything is published; the front hides what it must


class PublishedViews:
    """Part of the engine, on the driver's thread."""

    def __init__(self, engine: "ServerLoop") -> None:
        self.engine = engine
        self.tell: Callable[[ShownNode | ShownStatus], None] = _tell_nobody
        self.tally = Tally()
        self._viewer = ViewBuilder(engine)
        self._touched: set[str] = set()
        self._later: dict[str, None] = {}  # nodes whose views wait, in this order
        self._unwell: set[str] = set()  # nodes whose state has a reason, which time changes
        self._begun = False
        self._published_s = 0.0  # monotonic

    def touch(self, node: str) -> None:
        """What is shown of a node has changed."""
        self._touched.add(node)

    def publish(self, jobs: Collection[int], nodes: Iterable[str], *, waits: bool) -> None:
        """Show what a commit has changed. waits: somebody is answered next, and may look at once. Of what a
        round changes on thousands of nodes the rest is shown by ``publish_rest``, when they are answered."""
        if not self._begun:
            self._begun = True
            jobs = list(self.engine.book.jobs)
            self._touched.update(self.engine.fleet.nodes)
        for job in jobs:
            self.tally.note_job(job, self._counted(job))
        self._later.update(dict.fromkeys(nodes))
        if len(self._later) <= MANY:
            self._show_later()
        now = self.engine.fleet.monotonic()
        due = now - self._published_s >= STATUS_S
        if due:
            self._touched |= self._unwell
        self._show_nodes(now)
        if due or waits or jobs:
            self.show_status()

    def publish_rest(self) -> None:
        """Show more nodes, as many as take no long time."""
        if self._later:
            self._show_later()
            self._show_nodes(self.engine.fleet.monotonic())

    def _show_later(self) -> None:
        """The next of those that wait are to be shown."""
        for name in list(itertools.islice(self._later, MANY)):
            del self._later[name]
            self._touched.add(name)

    def show_status(self) -> None:
        """The cluster in one screen, as it is now."""
        self._published_s = self.engine.fleet.monotonic()
        status = self._viewer.status(ADMIN, self.tally)
        self.tell(ShownStatus(status=status, at=self._published_s))

    def _counted(self, job: int) -> CountedJob | None:
        row = self.engine.book.jobs.get(job)
        if row is None or row.state not in OPEN_STATES:
            return None
        standing = self._viewer.standing(row)
        return CountedJob(row.tenant, row.state, standing, row.weight, row.spec.scale_factor)

    def _show_nodes(self, now: float) -> None:
        touched, self._touched = self._touched, set()
        for name in touched:
            node = self.engine.fleet.nodes.get(name)
            if node is None:
                self._unwell.discard(name)
                self.tally.note_node(name, None)
                self.tell(ShownNode(node=name, view=None))
                continue
            view = self._viewer.node(node, now, ADMIN)
            well = view.state == "up" and not view.reason
            (self._unwell.discard if well else self._unwell.add)(name)
            held = sum(map(bool, view.jobs))
            working = node.devices if usable(node, now) else 0
            self.tally.note_node(name, CountedNode(node.accelerator, node.devices, working, held))
            rows = (self.engine.book.jobs.get(job) for jobs in view.jobs for job in jobs)
            owners = {row.id: row.tenant for row in rows if row is not None}
            self.tell(ShownNode(node=name, view=view, at=now, owners=owners))


def _tell_nobody(message: ShownNode | ShownStatus) -> None:
    del message
