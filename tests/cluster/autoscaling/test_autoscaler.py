"""Nodes by demand, turn by turn, with an engine and a cluster that are played."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.cluster.autoscaling.autoscaler import Autoscaler
from fairlead.cluster.autoscaling.demand import JobClass
from fairlead.cluster.autoscaling.engine_config import EngineConfig
from fairlead.cluster.autoscaling.launcher import LaunchedNode, LaunchError, NodeType
from fairlead.cluster.autoscaling.node_history import REGISTER_S
from fairlead.cluster.protocol.api_models import NodeView

V100 = NodeType(accelerator="v100", devices=4, maximum=3, walltime_s=1000.0)
K80 = NodeType(accelerator="k80", devices=4, maximum=3, walltime_s=1000.0)
CONFIG = EngineConfig(
    path=Path(),
    engine="slurm",
    kinds=(V100, K80),
    server="",
    program=(),
    ca="",
    token_file="",
    idle_s=60.0,
    interval_s=10.0,
    max_queued=2,
    dry_run=False,
    list="",
    address="",
)


@dataclass
class PlayedEngine:
    """Has what it was asked for; ``begin`` lets nodes run."""

    here: dict[str, LaunchedNode] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    walltimes: list[float] = field(default_factory=list)
    trouble: str = ""
    name: str = "played"
    number: int = 0
    stays: str = ""  # a node that cannot be ended
    refuses: str = ""  # why no node is started

    def check(self, kinds: Sequence[NodeType]) -> None: ...

    def launches(self) -> list[LaunchedNode]:
        if self.trouble:
            raise LaunchError(self.trouble)
        return list(self.here.values())

    def start(self, kind: NodeType, walltime_s: float) -> LaunchedNode:
        if self.refuses:
            raise LaunchError(self.refuses)
        self.number += 1
        self.walltimes.append(walltime_s)
        name = f"{kind.accelerator}-{self.number}"
        launch = LaunchedNode(
            id=str(self.number), node=name, accelerator=kind.accelerator, state="queued"
        )
        self.here[name] = launch
        return launch

    def stop(self, launch: LaunchedNode) -> None:
        if launch.node == self.stays:
            raise LaunchError("scancel: Access denied")
        self.stopped.append(launch.node)

    def begin(self, left_s: float = 1000.0) -> None:
        self.here = {
            name: replace(one, state="running", left_s=left_s) for name, one in self.here.items()
        }


@dataclass
class PlayedCluster:
    """Nodes and jobs as a test says."""

    classes: list[JobClass] = field(default_factory=list)
    there: dict[str, NodeView] = field(default_factory=dict)
    drained: list[str] = field(default_factory=list)

    def nodes(self) -> list[NodeView]:
        return list(self.there.values())

    def demand(self, accelerators: Collection[str]) -> list[JobClass]:
        return self.classes

    def drain(self, node: str) -> None:
        self.drained.append(node)
        self.register(node, state="drained")

    def register(self, node: str, *, jobs: int = 0, **changes: Any) -> None:
        values: dict[str, Any] = {"state": "up", "accelerator": node.partition("-")[0]} | changes
        self.there[node] = NodeView(
            name=node,
            devices=4,
            host="",
            simulated_devices=True,
            last_seen_s=0.1,
            jobs=tuple((7,) if d < jobs else () for d in range(4)),
            **values,
        )


class Played:
    """An autoscaler, and what it works with."""

    def __init__(self, config: EngineConfig = CONFIG) -> None:
        self.engine, self.cluster, self.now = PlayedEngine(), PlayedCluster(), 0.0
        self.autoscaler = Autoscaler(config, self.engine, self.cluster, monotonic=lambda: self.now)

    def turn(self, after_s: float = 10.0) -> None:
        self.now += after_s
        self.autoscaler.turn()

    @property
    def names(self) -> list[str]:
        return sorted(self.engine.here)

    def why(self, accelerator: str) -> str:
        types = self.autoscaler.view().types
        return next(one.why for one in types if one.accelerator == accelerator)

    def come_up(self) -> None:
        """All nodes run, and their agents have come."""
        self.engine.begin()
        for name in self.engine.here:
            self.cluster.register(name)


def jobs(count: int, left_s: float = 1e4, **rates: float) -> JobClass:
    return JobClass(count=count, devices=1, weight=1.0, rates=rates or {"v100": 1.0}, left_s=left_s)


def test_nodes_are_asked_for_by_price_and_few_at_a_time() -> None:
    played = Played()
    played.cluster.classes = [jobs(30, v100=4.0, k80=1.0)]
    played.turn()
    assert played.names == ["v100-1", "v100-2"], "two wait at most"
    played.turn()
    assert len(played.names) == 2
    assert played.why("v100").endswith("2 nodes wait already (max_queued)")
    played.come_up()
    played.turn()
    assert played.names == ["k80-4", "v100-1", "v100-2", "v100-3"]
    assert played.why("v100") == "3 nodes are the maximum"


def test_nodes_are_not_all_taken_away_at_once() -> None:
    played = Played(replace(CONFIG, max_queued=100))
    played.cluster.classes = [jobs(100)]
    played.turn()
    assert len(set(played.engine.walltimes)) == 3
    assert all(900 <= one <= 1000 for one in played.engine.walltimes)


def test_a_dry_run_asks_for_nothing_and_says_what_it_would() -> None:
    played = Played(replace(CONFIG, dry_run=True))
    played.cluster.classes = [jobs(5)]
    played.turn()
    played.turn()
    assert played.names == []
    view = played.autoscaler.view()
    assert [one.asks for one in view.types] == [2, 0]
    assert view.dry_run


def test_idle_nodes_are_drained_then_given_back() -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    played.turn()
    played.come_up()
    played.turn()
    played.cluster.classes = []
    for _ in range(6):
        played.turn()
        assert played.cluster.drained == []
    played.turn()
    assert (played.cluster.drained, played.engine.stopped) == (["v100-1"], [])
    played.turn()
    played.turn()
    assert played.engine.stopped == ["v100-1"], "once: an agent that is told again kills its jobs"
    assert played.autoscaler.view().launches[0].state == "given back"


def test_a_node_that_got_a_job_while_it_was_drained_is_ended_when_that_has_left() -> None:
    played = Played()
    played.cluster.register("v100-1")
    played.engine.start(V100, 1000.0)
    played.engine.begin()
    for _ in range(7):
        played.turn()
    assert played.cluster.drained == ["v100-1"]
    played.cluster.register("v100-1", jobs=1, state="drained")
    played.turn()
    assert played.engine.stopped == []
    played.cluster.register("v100-1", state="drained")
    played.turn()
    assert played.engine.stopped == ["v100-1"]


def test_a_node_on_which_something_runs_or_is_parked_is_kept() -> None:
    played = Played()
    played.engine.start(V100, 1000.0)
    played.engine.begin()
    played.cluster.register("v100-1", jobs=1)
    for _ in range(20):
        played.turn()
    assert played.cluster.drained == played.engine.stopped == []


def test_idle_nodes_of_a_gang_that_waits_for_more_are_kept() -> None:
    played = Played()
    played.cluster.classes = [
        JobClass(count=1, devices=12, weight=1.0, rates={"v100": 1.0}, left_s=1e4)
    ]
    played.turn()
    played.engine.begin()
    played.cluster.register("v100-1")
    played.engine.here["v100-2"] = replace(played.engine.here["v100-2"], state="queued")
    for _ in range(20):
        played.turn()
    assert played.cluster.drained == played.engine.stopped == []


def test_the_minimum_is_asked_for_and_kept_without_jobs() -> None:
    played = Played(replace(CONFIG, kinds=(replace(V100, minimum=1), K80)))
    played.turn()
    assert played.names == ["v100-1"]
    played.come_up()
    for _ in range(20):
        played.turn()
    assert (played.names, played.cluster.drained) == (["v100-1"], [])


def test_what_waits_and_is_wanted_no_more_is_asked_for_no_longer() -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    played.turn()
    played.cluster.classes = []
    for _ in range(7):
        played.turn()
    assert played.engine.stopped == ["v100-1"]


def test_the_successor_of_a_node_comes_in_time() -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    played.turn()
    played.come_up()
    played.turn()
    assert played.names == ["v100-1"]
    played.engine.begin(left_s=50.0)
    played.turn()
    assert played.names == ["v100-1", "v100-2"]
    assert played.engine.stopped == []


def test_an_engine_that_is_away_changes_nothing() -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    played.turn()
    played.come_up()
    played.engine.trouble = "squeue: Unable to contact slurm controller"
    for _ in range(20):
        played.turn()
    assert played.autoscaler.view().trouble == played.engine.trouble
    assert played.names == ["v100-1"]
    played.engine.trouble = ""
    played.turn()
    assert played.autoscaler.view().trouble == ""


def test_nodes_that_end_before_their_agents_come_are_asked_for_ever_more_seldom() -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    started = []
    for _ in range(60):
        played.turn(1.0)
        started.append(played.engine.number)
        played.engine.begin()
        played.turn(0.0)
        played.engine.here.clear()  # the agent's program is not there
    assert played.engine.number == 3, "after 0, 10 and 30 s"
    assert played.why("v100").startswith(
        "the last node ended before its agent registered (v100-3), as those before it, 3 in a row: "
    )


def test_a_node_without_an_agent_is_given_back() -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    played.turn()
    played.engine.begin()
    while played.now < REGISTER_S + 30:
        played.turn()
    assert played.engine.stopped == ["v100-1"]


def test_another_is_asked_for_in_place_of_a_node_that_is_no_use() -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    played.turn()
    played.engine.begin()
    played.cluster.register("v100-1", state="unhealthy")
    played.turn()
    assert played.names == ["v100-1", "v100-2"]
    for _ in range(8):
        played.engine.begin()
        played.cluster.register("v100-2")
        played.turn()
    assert played.cluster.drained == ["v100-1"]


def test_no_node_is_asked_for_that_would_come_too_late() -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    played.turn()
    for _ in range(30):
        played.turn()
    played.come_up()
    played.turn()
    assert played.names == ["v100-1"], "it waited for 310 s"
    played.cluster.classes = [jobs(8, left_s=100.0)]
    played.turn()
    assert played.names == ["v100-1"]
    assert played.why("v100") == "jobs are done in 1 min 40 s, and nodes wait 5 min 10 s"
    played.cluster.classes = [jobs(8, left_s=1000.0)]
    played.turn()
    assert played.names == ["v100-1", "v100-2"]


@pytest.mark.parametrize("state", ["up", "suspect"])
def test_nodes_that_others_brought_count(state: str) -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    played.cluster.register("mine", accelerator="v100", state=state)
    played.turn()
    assert played.names == []


def test_a_node_that_cannot_be_ended_holds_up_no_other() -> None:
    played = Played(replace(CONFIG, max_queued=10))
    played.cluster.classes = [jobs(8)]
    played.turn()
    played.come_up()
    played.turn()
    played.engine.stays = "v100-1"
    played.cluster.classes = []
    for _ in range(9):
        played.turn()
    assert played.engine.stopped == ["v100-2"]
    assert played.autoscaler.view().trouble == "scancel: Access denied"
    played.cluster.classes = [jobs(4)]
    played.turn()
    assert "v100-3" in played.names, "others are asked for meanwhile"
    played.engine.stays = ""
    played.turn()
    assert played.engine.stopped == ["v100-2", "v100-1"]
    assert played.autoscaler.view().trouble == ""


def test_an_engine_that_refuses_is_asked_ever_more_seldom() -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    played.engine.refuses = "sbatch: no more jobs for you"
    for _ in range(8):
        played.turn(4.0)
    assert "was refused (sbatch: no more jobs for you)" in played.why("v100")
    played.engine.refuses = ""
    played.turn(100.0)
    assert played.names == ["v100-1"]


def test_nodes_that_the_engine_forgets_count_as_long_as_they_are_there() -> None:
    played = Played(replace(CONFIG, kinds=(replace(V100, maximum=1),)))
    played.cluster.classes = [jobs(8)]
    played.turn()
    played.come_up()
    played.turn()
    played.engine.here.clear()
    for _ in range(5):
        played.turn()
    assert played.names == [], "squeue says nothing of it, but the node is up"


def test_a_node_that_was_cancelled_while_it_waited_is_not_asked_for_at_once() -> None:
    played = Played()
    played.cluster.classes = [jobs(4)]
    for _ in range(5):
        played.turn(1.0)
        played.engine.here.clear()
    assert played.engine.number == 1
