"""What a round changes on many nodes is shown by and by; what somebody has asked for, before the answer."""

from types import SimpleNamespace
from typing import Any

from tests.cluster.server_parts import cluster_state

from fairlead.cluster.front.messages import PublishedNodeView, PublishedStatus
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.server.published_views import MAX_VIEWS_PER_COMMIT, PublishedViews


class Watched(PublishedViews):
    """Nodes are all unknown, so what is shown of each is that it is not there."""

    def __init__(self, names: list[str]) -> None:
        state: Any = SimpleNamespace(
            fleet=SimpleNamespace(monotonic=lambda: 0.5, nodes=dict.fromkeys(names)),
            registry=SimpleNamespace(jobs={}),
            changed_nodes=set(),
            ended_counts={},
        )
        self.state = state
        viewer: Any = None  # no node is known, so nothing is made a view of
        super().__init__(state, viewer, self._note)
        self.told: list[str] = []

    def _note(self, message: PublishedNodeView | PublishedStatus) -> None:
        assert isinstance(message, PublishedNodeView)
        self.told.append(message.node)

    def show_status(self) -> None:
        """Noted alone."""
        self.told.append("status")

    def take(self) -> list[str]:
        told, self.told = self.told, []
        return told


NAMES = [f"node-{i:04}" for i in range(3 * MAX_VIEWS_PER_COMMIT)]


def begun() -> Watched:
    views = Watched(NAMES)
    views.publish([], [], waits=False)
    assert sorted(views.take()) == NAMES, "all of them, once there is somebody to show them to"
    return views


def test_few_nodes_are_shown_before_whoever_waits_is_answered() -> None:
    views = begun()
    views.publish([], NAMES[:MAX_VIEWS_PER_COMMIT], waits=True)
    assert sorted(views.take()) == [*NAMES[:MAX_VIEWS_PER_COMMIT], "status"]
    views.publish_remaining()
    assert views.take() == []


def test_many_nodes_are_shown_with_the_commits_that_follow() -> None:
    views = begun()
    views.state.changed_nodes.add(NAMES[-1])  # drained, say
    views.publish([], NAMES, waits=True)
    assert views.take() == [NAMES[-1], "status"], "nobody waits for the others"
    for part in range(3):
        views.publish_remaining()
        assert (
            sorted(views.take())
            == NAMES[part * MAX_VIEWS_PER_COMMIT : (part + 1) * MAX_VIEWS_PER_COMMIT]
        )
    views.publish_remaining()
    assert views.take() == []


def test_jobs_that_end_are_counted_once_whenever_the_status_is_shown() -> None:
    """They are counted as ended when that is decided, and leave the open ones with the commit of it."""
    views = begun()
    views.state.ended_counts["completed"] = 1
    assert views.tally.ended == {}, "its commit is not written yet, and it is still counted as open"
    views.publish([7], [], waits=False)
    assert views.tally.ended == {"completed": 1}


def test_what_time_changes_is_shown_while_nothing_can_be_committed() -> None:
    told: list[str] = []

    class Viewer:
        """Of nodes, one of which is well."""

        def node(self, node: LiveNode, _now: float, _caller: object) -> Any:
            reason = "" if node.name == "well" else "silent"
            return SimpleNamespace(
                state="suspect" if reason else "up", reason=reason, jobs=(), parked=()
            )

        def status(self, _caller: object, _tally: object) -> Any:
            return None

    def note(message: PublishedNodeView | PublishedStatus) -> None:
        told.append(message.node if isinstance(message, PublishedNodeView) else "status")

    fleet = Fleet(10.0, 0.01, lambda: 100.0, lambda _: None)
    for name in ("well", "silent"):
        fleet.add(name, "v100", 1)
    views = PublishedViews(cluster_state(fleet, lambda: 100.0), Viewer(), note)  # type: ignore[arg-type]
    views.publish((), (), waits=True)
    assert sorted(told) == ["silent", "status", "well"]
    told.clear()
    fleet.nodes["well"].drained = True  # which is not durable yet
    views.refresh()
    assert told == ["silent", "status"]
