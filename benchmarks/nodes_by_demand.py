"""Nodes by demand over a bursty day: how many devices stand idle, and how long jobs wait.

    python benchmarks/nodes_by_demand.py [--hours 24 --seed 1 --idle-timeout 300 --wait 300 --json]

The autoscaler of the server is driven by a played engine and a played cluster, ten seconds of theirs at a
time. Jobs come in bursts: by the hour of the day, and twenty at once now and then. They need one, two or four
devices, run for 40 minutes on average on a V100, and on a K80 a third as fast or, those of every second
family, as fast. Nodes of four devices wait for the engine (exponential), and are taken away after four hours.
A waiting job is put where it runs fastest, on the fullest nodes, over several where it must; none is moved
but off a node that ends.
"""

import heapq
import json
import math
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from command_line import finite, parser_of, run, whole

from fairlead.cluster.autoscaling.autoscaler import Autoscaler
from fairlead.cluster.autoscaling.demand import JobClass
from fairlead.cluster.autoscaling.engine_config import EngineConfig
from fairlead.cluster.autoscaling.launcher import LaunchedNode, NodeType
from fairlead.cluster.protocol.api_models import NodeView

TURN_S = 10.0
DEVICES = 4
MAXIMUM = 48
WALLTIME_S = 4 * 3600.0
LEAVE_S = 60.0  # before its end a node gets no job
DAY_S = 86_400.0
LONG_RUN_S = 2_400.0
RATES = ({"v100": 1.0, "k80": 1.0 / 3.0}, {"v100": 1.0, "k80": 1.0})


@dataclass(eq=False)
class Job:
    """left: seconds on a V100. on: node -> how many devices it has there."""

    devices: int
    rates: dict[str, float]
    left: float
    arrived_s: float
    on: dict[str, int] = field(default_factory=dict)
    started: bool = False


@dataclass
class World:
    """An engine and a cluster; ``pass_time`` lets jobs come, run and end."""

    seed: int
    hours: float
    wait_s: float
    now: float = 0.0
    name: str = "played"
    waiting: list[Job] = field(default_factory=list)
    running: dict[str, list[Job]] = field(default_factory=dict)  # node -> its jobs
    here: dict[str, LaunchedNode] = field(default_factory=dict)
    begins: list[tuple[float, str]] = field(default_factory=list)
    ends_s: dict[str, float] = field(default_factory=dict)
    drained: set[str] = field(default_factory=set)
    idle_s: float = 0.0  # device-seconds
    held_s: float = 0.0
    asked: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.arrivals = list(self._arrivals())

    # --- the engine ------------------------------------------------------------------------------
    def check(self, kinds: Sequence[NodeType]) -> None:
        """Nothing can be wrong."""

    def launches(self) -> list[LaunchedNode]:
        """Return the nodes that wait or run."""
        return [
            replace(one, left_s=self.ends_s[name] - self.now) if name in self.ends_s else one
            for name, one in self.here.items()
        ]

    def start(self, kind: NodeType, walltime_s: float) -> LaunchedNode:
        """A node waits for as long as chance has it."""
        self.number += 1
        self.asked[kind.accelerator] += 1
        name = f"{kind.accelerator}-{self.number}"
        begins_s = self.now + self.dice.expovariate(1.0 / self.wait_s)
        heapq.heappush(self.begins, (begins_s, name))
        self.ends_s[name] = begins_s + walltime_s
        self.here[name] = LaunchedNode(
            id=name, node=name, accelerator=kind.accelerator, state="queued"
        )
        return self.here[name]

    def stop(self, launch: LaunchedNode) -> None:
        """End a node at once."""
        self.here.pop(launch.node, None)
        for job in self.running.pop(launch.node, []):
            for node in job.on.keys() - {launch.node}:
                self.running[node].remove(job)
            job.on = {}
            self.waiting.append(job)

    # --- the cluster -----------------------------------------------------------------------------
    def nodes(self) -> list[NodeView]:
        """Return the nodes that run."""
        return [self._view(name) for name in self.running]

    def demand(self, accelerators: Collection[str]) -> list[JobClass]:
        """Return all jobs, by class."""
        running = dict.fromkeys(job for some in self.running.values() for job in some)
        jobs = [*self.waiting, *running]
        alike: dict[tuple[int, int], list[Job]] = {}
        for job in jobs:
            alike.setdefault((job.devices, RATES.index(job.rates)), []).append(job)
        return [
            JobClass(
                count=len(some),
                devices=devices,
                weight=1.0,
                rates={name: RATES[family][name] for name in accelerators},
                left_s=max(job.left for job in some),
            )
            for (devices, family), some in alike.items()
        ]

    def drain(self, node: str) -> None:
        """Give it no job."""
        self.drained.add(node)

    # --- time ------------------------------------------------------------------------------------
    def pass_time(self) -> None:
        """Ten seconds go by."""
        for name, jobs in self.running.items():
            self.held_s += DEVICES * TURN_S
            self.idle_s += self._free(name) * TURN_S
            for job in jobs:
                if name == next(iter(job.on)):
                    job.left -= job.rates[self.here[name].accelerator] * TURN_S
        for name, jobs in self.running.items():
            self.running[name] = [job for job in jobs if job.left > 0]
        self.now += TURN_S
        while self.begins and self.begins[0][0] <= self.now:
            _, name = heapq.heappop(self.begins)
            if name in self.here:
                self.here[name] = replace(self.here[name], state="running")
                self.running[name] = []
        for name in [name for name in self.running if self.ends_s[name] - LEAVE_S <= self.now]:
            self.stop(self.here[name])
        while self.arrivals and self.arrivals[0].arrived_s <= self.now:
            self.waiting.append(self.arrivals.pop(0))
        self._place()

    def _place(self) -> None:
        left = []
        for job in self.waiting:
            for kind in sorted(job.rates, key=lambda kind: (-job.rates[kind], kind == "k80")):
                free = {
                    name: self._free(name)
                    for name in self.running
                    if self.here[name].accelerator == kind and name not in self.drained
                }
                if sum(free.values()) >= job.devices:
                    self._begin(job, free)
                    break
            else:
                left.append(job)
        self.waiting = left

    def _begin(self, job: Job, free: dict[str, int]) -> None:
        missing = job.devices
        whole = [name for name, count in free.items() if count >= missing]
        order = sorted(whole or free, key=lambda name: (free[name], name), reverse=not whole)
        for name in order:
            if taken := min(missing, free[name]):
                job.on[name] = taken
                self.running[name].append(job)
                missing -= taken
        if not job.started:
            self.waits_s.append(self.now - job.arrived_s)
        job.started = True

    def _free(self, name: str) -> int:
        return DEVICES - sum(job.on[name] for job in self.running[name])

    def _arrivals(self) -> Iterator[Job]:
        at = 0.0
        while at < self.hours * 3600:
            busy = 1.0 + 0.9 * math.sin(2 * math.pi * at / DAY_S - math.pi / 2)
            at += self.dice.expovariate(max(busy, 0.1) / 60.0)
            for _ in range(20 if self.dice.random() < 0.01 else 1):
                yield Job(
                    devices=self.dice.choice((1, 1, 1, 2, 4)),
                    rates=self.dice.choice(RATES),
                    left=self.dice.expovariate(1.0 / LONG_RUN_S) + TURN_S,
                    arrived_s=at,
                )

    def _view(self, name: str) -> NodeView:
        held = DEVICES - self._free(name)
        return NodeView(
            name=name,
            accelerator=self.here[name].accelerator,
            devices=DEVICES,
            state="drained" if name in self.drained else "up",
            host="",
            simulated_devices=True,
            last_seen_s=0.0,
            jobs=tuple((0,) if device < held else () for device in range(DEVICES)),
        )


def main() -> None:
    """Play the day and print what came of it."""
    parser = parser_of(__doc__)
    parser.add_argument("--hours", type=finite(above=True), default=24.0)
    parser.add_argument("--seed", type=whole(0), default=1)
    parser.add_argument("--idle-timeout", type=finite(), default=300.0)
    parser.add_argument(
        "--wait", type=finite(above=True), default=300.0, help="mean, of the engine (s)"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    world = World(given.seed, given.hours, given.wait)
    kinds = tuple(
        NodeType(accelerator=name, devices=DEVICES, maximum=MAXIMUM, walltime_s=WALLTIME_S)
        for name in ("v100", "k80")
    )
    config = EngineConfig(
        path=Path(),
        engine="local",
        kinds=kinds,
        server="",
        program=(),
        ca="",
        token_file="",
        idle_s=given.idle_timeout,
        interval_s=TURN_S,
        max_queued=8,
        dry_run=False,
        list="",
        address="",
    )
    autoscaler = Autoscaler(config, world, world, monotonic=lambda: world.now)
    n_jobs = len(world.arrivals)
    while world.arrivals or world.waiting or any(world.running.values()):
        autoscaler.turn()
        world.pass_time()
    waits = sorted(world.waits_s)
    found = {
        "jobs": n_jobs,
        "nodes_asked_for": dict(world.asked),
        "idle": world.idle_s / world.held_s,
        "median_wait_s": waits[len(waits) // 2],
        "p95_wait_s": waits[int(0.95 * len(waits))],
    }
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:>22}  {value}")


if __name__ == "__main__":
    run(main)
