"""The faults: what is done to which part of the cluster, and how it is put right again."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec

from fairlead.cluster.agent.proc import (
    Process,
    kill_exactly,
    process,
)
from fairlead.cluster.agent.survivors import AttemptRecord
from fairlead.cluster.chaos.cluster import (
    LEASE_S,
    NODES,
    ChaosCluster,
)
from fairlead.errors import FairleadError, InputError

FRONT = "fairlead.cluster.front"  # in the command of that process
DAY_S = 86_400.0
POLICIES = (
    "las_aware",
    "fifo_aware",
    "finish_time_aware",
    "makespan_aware",
    "srtf",
    "gandiva",
    "sia",
)

Repair: TypeAlias = Callable[[], None]
Inject: TypeAlias = Callable[[ChaosCluster, str, random.Random], "Injection | None"]


class Injection(NamedTuple):
    """A fault in force: what was done, and what puts it right."""

    what: str
    repair: Repair


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    name: str
    about: str
    targets: tuple[str, ...]  # one of these is hurt, and by one fault at a time
    hold_s: tuple[float, float]  # from the fault to its repair, least and most
    inject: Inject  # returns None where there is nothing to hurt now
    exclusive: bool = (
        False  # no other fault is in force, all targets are hurt; the first one is told
    )
    leases: bool = False  # hold_s is for a lease of LEASE_S, and grows with it

    def hold(self, lease_s: float, rng: random.Random) -> float:
        """Seconds from the fault to its repair."""
        return rng.uniform(*self.hold_s) * (lease_s / LEASE_S if self.leases else 1.0)


def nothing() -> None:
    """Heals by itself."""
    return


def kill_server(cluster: ChaosCluster, _: str, __: random.Random) -> Injection:
    """The server dies."""
    cluster.processes.kill("server")
    return Injection("kill -9 of the server", lambda: persist(cluster.start_server))


def freeze_server(cluster: ChaosCluster, _: str, __: random.Random) -> Injection:
    """The server stands still, driver and front."""
    pids = [cluster.processes.named["server"].pid, *cluster.processes.part("server", FRONT)]
    cluster.processes.signal(pids, signal.SIGSTOP)
    return Injection("server frozen", lambda: cluster.processes.signal(pids, signal.SIGCONT))


def freeze_driver(cluster: ChaosCluster, _: str, __: random.Random) -> Injection:
    """Freeze the driver, which decides and writes; the front, which renews leases, goes on."""
    pid = cluster.processes.named["server"].pid
    cluster.processes.signal([pid], signal.SIGSTOP)
    return Injection("driver frozen", lambda: cluster.processes.signal([pid], signal.SIGCONT))


def freeze_front(cluster: ChaosCluster, _: str, __: random.Random) -> Injection | None:
    """Freeze the front, which agents and people talk to; the driver, which decides, goes on."""
    found = cluster.processes.part("server", FRONT)
    cluster.processes.signal(found, signal.SIGSTOP)
    what = "front frozen"
    return (
        Injection(what, lambda: cluster.processes.signal(found, signal.SIGCONT)) if found else None
    )


def kill_front(cluster: ChaosCluster, _: str, __: random.Random) -> Injection | None:
    """Kill the front, which agents and people talk to; the server starts it anew."""
    found = cluster.processes.part("server", FRONT)
    cluster.processes.signal(found, signal.SIGKILL)
    return Injection("kill -9 of the front", nothing) if found else None


def kill_agent(cluster: ChaosCluster, node: str, _: random.Random) -> Injection:
    """An agent dies; its spawner lives on."""
    cluster.processes.kill(node)

    def repair() -> None:
        cluster.start_agent(node)

    return Injection(f"kill -9 of the agent of {node}", repair)


def freeze_agent(cluster: ChaosCluster, node: str, _: random.Random) -> Injection:
    """An agent stands still; its ranks go on."""
    pid = cluster.processes.named[node].pid
    cluster.processes.signal([pid], signal.SIGSTOP)
    return Injection(
        f"agent of {node} frozen", lambda: cluster.processes.signal([pid], signal.SIGCONT)
    )


def freeze_spawner(cluster: ChaosCluster, node: str, _: random.Random) -> Injection | None:
    """Freeze the spawner, which owns the ranks: its warden hears of no lease; the agent goes on."""
    found = cluster.processes.part(node, "fairlead.cluster.agent.spawner")
    cluster.processes.signal(found, signal.SIGSTOP)
    what = f"spawner of {node} frozen"
    return (
        Injection(what, lambda: cluster.processes.signal(found, signal.SIGCONT)) if found else None
    )


def freeze_node(cluster: ChaosCluster, node: str, _: random.Random) -> Injection | None:
    """Suspend a node like a virtual machine: its jobs resume long after they were started elsewhere."""
    running = len(ranks_of(cluster, node))
    if not running:
        return None
    frozen = [cluster.processes.named[node].pid, *cluster.processes.part(node, "")]
    cluster.processes.signal(frozen, signal.SIGSTOP)
    what = f"{node} frozen with {running} jobs"
    return Injection(what, lambda: cluster.processes.signal(frozen, signal.SIGCONT))


def kill_spawner(cluster: ChaosCluster, node: str, _: random.Random) -> Injection | None:
    """The parent of all ranks of a node dies."""
    found = cluster.processes.part(node, "fairlead.cluster.agent.spawner")
    cluster.processes.signal(found, signal.SIGKILL)
    return Injection(f"kill -9 of the spawner of {node}", nothing) if found else None


def kill_zygote(cluster: ChaosCluster, node: str, _: random.Random) -> Injection | None:
    """The process that ranks are forked from dies."""
    ranks = {one.pid for record in ranks_of(cluster, node) for one in record.alive}
    found = [
        pid
        for pid in cluster.processes.part(node, "fairlead.cluster.agent.zygote")
        if pid not in ranks
    ]
    cluster.processes.signal(found, signal.SIGKILL)
    return Injection(f"kill -9 of the prefork process of {node}", nothing) if found else None


def kill_rank(cluster: ChaosCluster, node: str, rng: random.Random) -> Injection | None:
    """One process of a job dies."""
    running = ranks_of(cluster, node)
    if not running:
        return None
    one = rng.choice(running)
    kill_exactly(rng.choice(one.alive), signal.SIGKILL)
    return Injection(f"kill -9 of a rank of job {one.job} on {node}", nothing)


def kill_job(cluster: ChaosCluster, node: str, rng: random.Random) -> Injection | None:
    """All processes of a job die."""
    running = ranks_of(cluster, node)
    if not running:
        return None
    job = rng.choice(running).job
    for name in NODES:
        for one in [one for one in ranks_of(cluster, name) if one.job == job]:
            for rank in one.alive:
                kill_exactly(rank, signal.SIGKILL)
    return Injection(f"kill -9 of all ranks of job {job}", nothing)


def freeze_rank(cluster: ChaosCluster, node: str, rng: random.Random) -> Injection | None:
    """One process of a job stands still."""
    running = ranks_of(cluster, node)
    if not running:
        return None
    one = rng.choice(running)
    rank = rng.choice(one.alive)
    kill_exactly(rank, signal.SIGSTOP)
    what = f"a rank of job {one.job} on {node} frozen"
    return Injection(what, lambda: kill_exactly(rank, signal.SIGCONT))


def kill_all(cluster: ChaosCluster, _: str, __: random.Random) -> Injection:
    """Server and agents die at once."""
    nodes = [node for node in NODES if node not in cluster.dead]
    for name in ("server", *nodes):
        cluster.processes.kill(name)

    def repair() -> None:
        for node in nodes:
            cluster.start_agent(node)
        persist(cluster.start_server)

    return Injection("kill -9 of the server and all agents", repair)


def fill_state(cluster: ChaosCluster, _: str, __: random.Random) -> Injection | None:
    """Fill the disk of the server's state."""
    if not cluster.folders.server.mounted:
        return None
    cluster.folders.server.fill()
    return Injection("no space left for the server's state", cluster.folders.server.empty)


def fill_checkpoints(cluster: ChaosCluster, _: str, __: random.Random) -> Injection | None:
    """Fill the disk of the checkpoints."""
    if not cluster.folders.checkpoints.mounted:
        return None
    cluster.folders.checkpoints.fill()
    return Injection("no space left for checkpoints", cluster.folders.checkpoints.empty)


def cut(cluster: ChaosCluster, node: str, rng: random.Random) -> Injection:
    """Connections of an agent break, a few times."""
    for _ in range(rng.randint(1, 4)):
        cluster.proxies.cut(node)
        time.sleep(rng.uniform(0.0, 0.3))
    return Injection(f"connections of {node} cut", nothing)


def slow(cluster: ChaosCluster, node: str, rng: random.Random) -> Injection:
    """Each piece of an agent's traffic is late."""
    proxy = cluster.proxies.of(node)
    proxy.slow_s = rng.uniform(0.1, 0.8)

    def repair() -> None:
        proxy.slow_s = 0.0

    return Injection(f"network of {node} slow: up to {proxy.slow_s:.1f} s", repair)


def partition(cluster: ChaosCluster, node: str, rng: random.Random) -> Injection:
    """Nothing passes; what was under way arrives in the end, or is lost."""
    proxy = cluster.proxies.of(node)
    proxy.blocked = True
    breaks = rng.random() < 0.5  # else all that was on its way arrives late

    def repair() -> None:
        if breaks:
            cluster.proxies.cut(node)
        proxy.blocked = False

    return Injection(f"{node} cut off", repair)


def repeat_messages(cluster: ChaosCluster, node: str, _: random.Random) -> Injection:
    """Messages come twice, late and in another order."""
    mark = cluster.folders.control / f"unruly-{node}"
    mark.touch()
    what = f"reports and orders of {node} doubled, late and out of order"
    return Injection(what, lambda: mark.unlink())


def set_clock(cluster: ChaosCluster, _: str, rng: random.Random) -> Injection:
    """The wall clock jumps."""
    offset_s = rng.choice((-1, 1)) * rng.uniform(0.01, 30.0) * DAY_S
    _write(cluster, offset_s)

    def repair() -> None:
        if rng.random() < 0.5:
            _write(cluster, 0.0)

    return Injection(f"wall clock set by {offset_s / DAY_S:+.1f} days", repair)


def _write(cluster: ChaosCluster, offset_s: float) -> None:
    partial = cluster.folders.control / "clock.partial"
    partial.write_text(f"{offset_s}")
    partial.replace(cluster.folders.control / "clock")


def kill_solver(cluster: ChaosCluster, _: str, __: random.Random) -> Injection | None:
    """The process that solves for shares dies."""
    found = cluster.processes.part("server", "solver_child")
    cluster.processes.signal(found, signal.SIGKILL)
    return Injection("kill -9 of the solver", nothing) if found else None


def freeze_solver(cluster: ChaosCluster, _: str, __: random.Random) -> Injection | None:
    """The process that solves for shares stands still."""
    found = cluster.processes.part("server", "solver_child")
    cluster.processes.signal(found, signal.SIGSTOP)
    what = "solver frozen"
    return (
        Injection(what, lambda: cluster.processes.signal(found, signal.SIGCONT)) if found else None
    )


def pause(cluster: ChaosCluster, _: str, rng: random.Random) -> Injection | None:
    """A user pauses a job, and resumes it."""
    with cluster.client() as client:
        running = [job.id for job in client.jobs(state="open") if job.state != "paused"]
        if not running:
            return None
        job = rng.choice(running)
        try:
            client.pause(job)
        except InputError:  # it has ended meanwhile
            return None
    return Injection(f"job {job} paused", lambda: persist(lambda: _resume(cluster, job)))


def _resume(cluster: ChaosCluster, job: int) -> None:
    with cluster.client() as client, suppress(InputError):  # it has ended, or never was paused
        client.resume(job)


def drain(cluster: ChaosCluster, node: str, _: random.Random) -> Injection:
    """An admin drains a node, and undrains it."""
    with cluster.client() as client:
        client.drain(node)

    def undrain() -> None:
        with cluster.client() as client:
            client.undrain(node)

    return Injection(f"{node} drained", lambda: persist(undrain))


def policy(cluster: ChaosCluster, _: str, rng: random.Random) -> Injection:
    """An admin chooses another policy."""
    chosen = rng.choice(POLICIES)
    with cluster.client() as client:
        client.set_policy(chosen)
    return Injection(f"policy {chosen}", nothing)


def persist(do: Repair, limit_s: float = 60.0) -> None:
    """Until the server, which another fault may have hit, has done it."""
    until = time.monotonic() + limit_s
    while True:
        try:
            do()
            return
        except FairleadError:
            if time.monotonic() > until:
                raise
        time.sleep(0.2)


@dataclass(frozen=True)
class RunningAttempt:
    """An attempt whose ranks live on a node."""

    job: int
    alive: list[Process]


def ranks_of(cluster: ChaosCluster, node: str) -> list[RunningAttempt]:
    """By the records of the node's spawner; nothing but its own processes can be in them."""
    found = []
    for path in (cluster.folders.agent_states[node] / "starts").glob("*.json"):
        with suppress(OSError, msgspec.DecodeError):  # it has just ended
            record = msgspec.json.decode(path.read_bytes(), type=AttemptRecord)
            known = [(process(pid), began) for pid, began in record.leaders]
            alive = [one for one, began in known if one is not None and one.start_time == began]
            if alive:
                found.append(RunningAttempt(record.job, alive))
    return sorted(found, key=lambda one: one.job)
