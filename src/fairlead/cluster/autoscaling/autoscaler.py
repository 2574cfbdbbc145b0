"""Asks an engine for the nodes that the jobs are worth, and gives those back that they are not."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from fairlead.cluster.autoscaling.demand import JobClass, NodeDemand, NodeSize, wanted_nodes
from fairlead.cluster.autoscaling.engine_config import EngineConfig
from fairlead.cluster.autoscaling.launcher import LaunchedNode, Launcher, LaunchError
from fairlead.cluster.autoscaling.node_history import NodeHistory
from fairlead.cluster.protocol.api_models import NodeView
from fairlead.cluster.protocol.engine_views import EngineView, LaunchView, NodeTypeView
from fairlead.errors import FairleadError
from fairlead.model.duration_text import duration

DRAIN_S = 60.0  # before a node is taken away, in which its successor is to be there
STAGGER = 0.1  # part of the walltime by which nodes differ: they are not taken away all at once
_GOLDEN = 0.6180339887498949  # its multiples are spread evenly over 0 to 1
_log = logging.getLogger(__name__)


class ScaledCluster(Protocol):
    """The cluster as an autoscaler sees it. Called on the autoscaler's thread."""

    def nodes(self) -> list[NodeView]:
        """Return all nodes."""

    def demand(self, accelerators: Collection[str]) -> list[JobClass]:
        """Return the jobs that want devices, with their rates on these types and on those that there are."""

    def drain(self, node: str) -> None:
        """Have its jobs leave a node, and give it none."""


@dataclass(slots=True)
class _Turn:
    """What is found in a turn, and what is made of it."""

    now: float  # monotonic
    launches: list[LaunchedNode]
    nodes: dict[str, NodeView]
    capacity: dict[str, int]  # accelerator type -> devices that are, or were asked for, and stay
    counts: dict[str, int]  # accelerator type -> nodes of the engine among them
    demand: NodeDemand
    asks: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    gives_back: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    why: dict[str, str] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)  # what the engine refused


class Autoscaler:
    """Works on a thread of its own; each turn looks at the engine and the cluster anew.

    What it remembers between turns is how long nodes were idle, how long they waited, and which failed:
    after a restart it begins to count again, and nothing is started twice.
    """

    def __init__(
        self,
        config: EngineConfig,
        launcher: Launcher,
        cluster: ScaledCluster,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._launcher = launcher
        self._cluster = cluster
        self._monotonic = monotonic
        self._sizes = [
            NodeSize(accelerator=one.accelerator, devices=one.devices, maximum=one.maximum)
            for one in config.kinds
        ]
        self._kinds = {one.accelerator: one for one in config.kinds}
        self._history = NodeHistory(monotonic)
        self._useless_since: dict[str, float] = {}  # node -> monotonic
        self._given_back: set[str] = set()  # nodes that are drained, to be ended
        self._stopped: set[str] = set()  # of them, those that were told to end
        self._number = 0  # of the nodes that were asked for
        self._view: EngineView = self._empty_view("")
        self._view_s: float | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autoscaler", daemon=True)

    def start(self) -> None:
        """Once the server drives."""
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Ask for nothing more; nodes stay. A command of the engine that hangs is not waited for."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def view(self) -> EngineView:
        """Return what was found in the last turn. Any thread."""
        view, at_s = self._view, self._view_s
        age_s = None if at_s is None else self._monotonic() - at_s
        return EngineView(
            engine=view.engine,
            dry_run=view.dry_run,
            age_s=age_s,
            trouble=view.trouble,
            types=view.types,
            launches=view.launches,
        )

    def _run(self) -> None:
        while not self._closed.is_set():
            self.turn()
            self._closed.wait(self._config.interval_s)

    def turn(self) -> None:
        """Look, decide, and have it done."""
        try:
            turn = self._look()
            self._end_silent(turn)
            self._take_back(turn)
            self._ask(turn)
        except FairleadError as problem:
            self._tell(str(problem))
        except Exception as problem:
            _log.exception("the engine's nodes cannot be looked after")
            self._tell(f"{type(problem).__name__}: {problem}")
        else:
            before, self._view = self._view.trouble, self._view_of(turn)
            self._view_s = self._monotonic()
            if trouble := "; ".join(dict.fromkeys(turn.troubles)):
                self._tell(trouble)
            elif before:
                _log.warning("engine %s: answers again", self._launcher.name)

    def _tell(self, trouble: str) -> None:
        if trouble != self._view.trouble:
            _log.warning("engine %s: %s", self._launcher.name, trouble)
        view = self._view
        self._view = EngineView(
            engine=view.engine,
            dry_run=view.dry_run,
            age_s=None,
            trouble=trouble,
            types=view.types,
            launches=view.launches,
        )

    # --- what there is ---------------------------------------------------------------------------
    def _look(self) -> _Turn:
        launches = [one for one in self._launcher.launches() if one.accelerator in self._kinds]
        nodes = {one.name: one for one in self._cluster.nodes()}
        now = self._monotonic()
        for failed in self._history.follow(launches, nodes, self._given_back):
            _log.warning("engine %s: %s", self._launcher.name, failed)
        self._given_back &= {one.node for one in launches}
        self._stopped &= self._given_back
        mine = {one.node for one in launches}
        capacity: dict[str, int] = defaultdict(int)
        counts: dict[str, int] = defaultdict(int)
        for node in nodes.values():
            if node.name not in mine and _may_get_jobs(node):
                capacity[node.accelerator] += node.devices
                counts[node.accelerator] += self._history.has_come(node.name)
        for one in launches:
            given = one.node in self._given_back or not _may_get_jobs(nodes.get(one.node))
            if given or self._is_ending(one):
                continue
            counts[one.accelerator] += 1
            capacity[one.accelerator] += self._kinds[one.accelerator].devices
        there = {one.accelerator for one in nodes.values()}
        classes = self._cluster.demand(there | self._kinds.keys())
        return _Turn(now, launches, nodes, capacity, counts, NodeDemand(classes, self._sizes))

    def _is_ending(self, launch: LaunchedNode) -> bool:
        """Return whether the successor of a node has to be asked for by now."""
        if launch.left_s is None or launch.state != "running":
            return False
        lead_s = DRAIN_S + self._history.wait_s(launch.accelerator)
        return launch.left_s < min(lead_s, self._kinds[launch.accelerator].walltime_s / 2)

    # --- what is done ----------------------------------------------------------------------------
    def _take_back(self, turn: _Turn) -> None:
        """Give back what was worth nothing to any job for as long as idle nodes are kept. A node is drained
        first, so that no job is begun there meanwhile, and ended in a later turn."""
        useless = set[str]()
        for one in sorted(turn.launches, key=lambda one: one.state != "queued"):
            if one.node in self._given_back:
                turn.gives_back[one.accelerator] += 1
                node = turn.nodes.get(one.node)
                if node is None or _is_idle(node):
                    self._stop(one, turn)
            elif self._is_useless(one, turn):
                useless.add(one.node)
                since = self._useless_since.setdefault(one.node, turn.now)
                if turn.now - since >= self._config.idle_s:
                    self._give_back(one, turn)
        self._useless_since = {
            node: since for node, since in self._useless_since.items() if node in useless
        }

    def _is_useless(self, launch: LaunchedNode, turn: _Turn) -> bool:
        """Return whether nothing is on a node, and no job would miss it."""
        name, node = launch.accelerator, turn.nodes.get(launch.node)
        if launch.state == "running" and (node is None or not _is_idle(node)):
            return False
        if not _may_get_jobs(node):
            return True
        if self._is_ending(launch) or turn.counts[name] <= self._kinds[name].minimum:
            return False  # in the first case it leaves by itself
        return not turn.demand.is_worth_keeping(turn.capacity, self._size(name))

    def _give_back(self, launch: LaunchedNode, turn: _Turn) -> None:
        name, node = launch.accelerator, turn.nodes.get(launch.node)
        turn.gives_back[name] += 1
        if _may_get_jobs(node):
            turn.capacity[name] -= self._kinds[name].devices
            turn.counts[name] -= 1
        if self._config.dry_run:
            return
        self._given_back.add(launch.node)
        if node is None or node.state == "drained":
            self._stop(launch, turn)
        else:
            self._cluster.drain(launch.node)

    def _stop(self, launch: LaunchedNode, turn: _Turn) -> None:
        """End a node, once: to be told again kills what an agent is about to save."""
        if launch.node in self._stopped:
            return
        try:
            self._launcher.stop(launch)
        except LaunchError as problem:  # others are not to stay for this one
            turn.troubles.append(str(problem))
        else:
            self._stopped.add(launch.node)
            _log.info("engine %s: gave %s back", self._launcher.name, launch.node)

    def _end_silent(self, turn: _Turn) -> None:
        """End nodes whose agents have not come."""
        for one in turn.launches:
            if one.node not in self._given_back and self._history.is_silent(one.node):
                failed = self._history.fail(one)
                _log.warning("engine %s: %s", self._launcher.name, failed)
                self._given_back.add(one.node)
                self._stop(one, turn)

    def _ask(self, turn: _Turn) -> None:
        """Ask for what jobs are worth, the dearest first, and for the minimum of each type."""
        queued = sum(one.state == "queued" for one in turn.launches)
        most = max(self._config.max_queued - queued, 0)
        missing = [
            one
            for one in self._sizes
            for _ in range(self._kinds[one.accelerator].minimum - turn.counts[one.accelerator])
        ]
        for size in missing:
            if most > 0 and self._may_ask(size.accelerator, turn):
                most -= 1
                self._start(size.accelerator, turn)
        allowed = [one for one in self._sizes if self._may_ask(one.accelerator, turn)]
        for wanted in wanted_nodes(
            turn.demand, allowed, turn.capacity, nodes=turn.counts, most=most
        ):
            self._start(wanted.size.accelerator, turn)

    def _may_ask(self, accelerator: str, turn: _Turn) -> bool:
        """Return whether a node of a type may be asked for now; notes why not."""
        if failed := self._history.failure(accelerator):
            turn.why[accelerator] = failed
            return False
        wait_s, left_s = self._history.wait_s(accelerator), turn.demand.left_s(accelerator)
        if self._kinds[accelerator].minimum > turn.counts[accelerator]:
            return True
        if 0 < left_s < wait_s:
            turn.why[accelerator] = (
                f"jobs are done in {duration(left_s)}, and nodes wait {duration(wait_s)}"
            )
            return False
        return True

    def _start(self, accelerator: str, turn: _Turn) -> None:
        turn.asks[accelerator] += 1
        turn.counts[accelerator] += 1
        kind = self._kinds[accelerator]
        turn.capacity[accelerator] += kind.devices
        if self._config.dry_run:
            return
        self._number += 1
        shorter = STAGGER * (self._number * _GOLDEN % 1.0)
        try:
            launch = self._launcher.start(kind, kind.walltime_s * (1.0 - shorter))
        except LaunchError as problem:
            turn.troubles.append(str(problem))
            turn.counts[accelerator] -= 1
            turn.capacity[accelerator] -= kind.devices
            self._history.refuse(accelerator, str(problem))
            return
        turn.launches.append(launch)
        self._history.add(launch)
        _log.info("engine %s: asked for %s", self._launcher.name, launch.node)

    # --- what is told ----------------------------------------------------------------------------
    def _view_of(self, turn: _Turn) -> EngineView:
        return EngineView(
            engine=self._launcher.name,
            dry_run=self._config.dry_run,
            age_s=None,
            trouble="",
            types=tuple(self._type_view(one, turn) for one in self._sizes),
            launches=tuple(
                LaunchView(
                    id=one.id,
                    node=one.node,
                    accelerator=one.accelerator,
                    state="given back" if one.node in self._given_back else one.state,
                    left_s=one.left_s,
                    why=one.why,
                )
                for one in turn.launches
            ),
        )

    def _type_view(self, size: NodeSize, turn: _Turn) -> NodeTypeView:
        name = size.accelerator
        mine = [one for one in turn.launches if one.accelerator == name]
        gain = turn.demand.gain(turn.capacity, size)
        return NodeTypeView(
            accelerator=name,
            devices=size.devices,
            minimum=self._kinds[name].minimum,
            maximum=size.maximum,
            running=sum(one.state == "running" for one in mine),
            queued=sum(one.state == "queued" for one in mine),
            ending=sum(one.node in self._given_back or self._is_ending(one) for one in mine),
            price=gain / size.devices,
            asks=turn.asks[name],
            gives_back=turn.gives_back[name],
            why=turn.why.get(name) or self._why(size, turn, gain),
            hindered=name in turn.why,
        )

    def _why(self, size: NodeSize, turn: _Turn, gain: float) -> str:
        name = size.accelerator
        if turn.counts[name] >= size.maximum:
            return (
                "1 node is the maximum"
                if size.maximum == 1
                else f"{size.maximum} nodes are the maximum"
            )
        queued = sum(one.state == "queued" for one in turn.launches)
        if gain < 1e-9:
            return "no job would run faster with another node"
        told = f"another node would bring {gain:.2g} jobs at their best rate"
        if queued >= self._config.max_queued:
            return f"{told}; {queued} nodes wait already (max_queued)"
        return told

    def _size(self, accelerator: str) -> NodeSize:
        return next(one for one in self._sizes if one.accelerator == accelerator)

    def _empty_view(self, trouble: str) -> EngineView:
        return EngineView(
            engine=self._launcher.name,
            dry_run=self._config.dry_run,
            age_s=None,
            trouble=trouble,
            types=(),
            launches=(),
        )


def _is_idle(node: NodeView) -> bool:
    """Return whether nothing runs on a node, and nothing is parked there."""
    return not any(node.jobs) and not node.parked


def _may_get_jobs(node: NodeView | None) -> bool:
    """Return whether a node, which need not have registered yet, is or will be given jobs."""
    return node is None or node.state in ("up", "suspect", "waiting", "never seen")
