"""The faults: what is done to which part of the cluster, and how it is put right again."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec

from fairlead.agent.proc import Process, kill_exactly, process
from fairlead.agent.survivors import Record
from fairlead.chaos.cluster import LEASE_S, NODES, SOLVE_S, Cluster
from fairlead.errors import FairleadError, InputError

DAY_S = 86_400.0
POLICIES = ("las_aware", "fifo_aware", "finish_time_aware", "makespan_aware", "srtf")

Repair: TypeAlias = Callable[[], None]


class Hurt(NamedTuple):
    """A fault in force: what was done, and what puts it right."""

    what: str
    repair: Repair


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    name: str
    about: str
    targets: tuple[str, ...]  # one of these is hurt, and by one fault at a time
    hold_s: tuple[float, float]  # from the fault to its repair, least and most
    hurt: Callable[[Cluster, str, random.Random], Hurt | None]  # None: there is nothing to hurt now


def _nothing() -> None:
    return None


def _kill_server(cluster: Cluster, _: str, __: random.Random) -> Hurt:
    cluster.kill("server")
    return Hurt("kill -9 of the server", lambda: persist(cluster.start_server))


def _freeze_server(cluster: Cluster, _: str, __: random.Random) -> Hurt:
    pid = cluster.processes["server"].pid
    cluster.signal([pid], signal.SIGSTOP)
    return Hurt("server frozen", lambda: cluster.signal([pid], signal.SIGCONT))


def _kill_agent(cluster: Cluster, node: str, _: random.Random) -> Hurt:
    cluster.kill(node)
    return Hurt(f"kill -9 of the agent of {node}", lambda: cluster.start_agent(node))


def _freeze_agent(cluster: Cluster, node: str, _: random.Random) -> Hurt:
    pid = cluster.processes[node].pid
    cluster.signal([pid], signal.SIGSTOP)
    return Hurt(f"agent of {node} frozen", lambda: cluster.signal([pid], signal.SIGCONT))


def _freeze_node(cluster: Cluster, node: str, _: random.Random) -> Hurt | None:
    """As a virtual machine that is paused: its jobs wake up long after they were started elsewhere."""
    running = len(ranks_of(cluster, node))
    if not running:
        return None
    frozen = [cluster.processes[node].pid, *cluster.part(node, "")]
    cluster.signal(frozen, signal.SIGSTOP)
    what = f"{node} frozen with {running} jobs"
    return Hurt(what, lambda: cluster.signal(frozen, signal.SIGCONT))


def _kill_spawner(cluster: Cluster, node: str, _: random.Random) -> Hurt | None:
    found = cluster.part(node, "fairlead.agent.spawner")
    cluster.signal(found, signal.SIGKILL)
    return Hurt(f"kill -9 of the spawner of {node}", _nothing) if found else None


def _kill_zygote(cluster: Cluster, node: str, _: random.Random) -> Hurt | None:
    ranks = {one.pid for record in ranks_of(cluster, node) for one in record.alive}
    found = [pid for pid in cluster.part(node, "fairlead.agent.zygote") if pid not in ranks]
    cluster.signal(found, signal.SIGKILL)
    return Hurt(f"kill -9 of the prefork process of {node}", _nothing) if found else None


def _kill_rank(cluster: Cluster, node: str, rng: random.Random) -> Hurt | None:
    running = ranks_of(cluster, node)
    if not running:
        return None
    one = rng.choice(running)
    kill_exactly(rng.choice(one.alive), signal.SIGKILL)
    return Hurt(f"kill -9 of a rank of job {one.job} on {node}", _nothing)


def _kill_job(cluster: Cluster, node: str, rng: random.Random) -> Hurt | None:
    running = ranks_of(cluster, node)
    if not running:
        return None
    job = rng.choice(running).job
    for name in NODES:
        for one in [one for one in ranks_of(cluster, name) if one.job == job]:
            for rank in one.alive:
                kill_exactly(rank, signal.SIGKILL)
    return Hurt(f"kill -9 of all ranks of job {job}", _nothing)


def _freeze_rank(cluster: Cluster, node: str, rng: random.Random) -> Hurt | None:
    running = ranks_of(cluster, node)
    if not running:
        return None
    one = rng.choice(running)
    rank = rng.choice(one.alive)
    kill_exactly(rank, signal.SIGSTOP)
    what = f"a rank of job {one.job} on {node} frozen"
    return Hurt(what, lambda: kill_exactly(rank, signal.SIGCONT))


def _kill_all(cluster: Cluster, _: str, __: random.Random) -> Hurt:
    for name in ("server", *NODES):
        cluster.kill(name)

    def repair() -> None:
        for node in NODES:
            cluster.start_agent(node)
        persist(cluster.start_server)

    return Hurt("kill -9 of the server and all agents", repair)


def _fill_state(cluster: Cluster, _: str, __: random.Random) -> Hurt | None:
    if not cluster.state.mounted:
        return None
    cluster.state.fill()
    return Hurt("no space left for the server's state", cluster.state.empty)


def _fill_checkpoints(cluster: Cluster, _: str, __: random.Random) -> Hurt | None:
    if not cluster.checkpoints.mounted:
        return None
    cluster.checkpoints.fill()
    return Hurt("no space left for checkpoints", cluster.checkpoints.empty)


def _cut(cluster: Cluster, node: str, rng: random.Random) -> Hurt:
    for _ in range(rng.randint(1, 4)):
        cluster.cut(node)
        time.sleep(rng.uniform(0.0, 0.3))
    return Hurt(f"connections of {node} cut", _nothing)


def _slow(cluster: Cluster, node: str, rng: random.Random) -> Hurt:
    proxy = cluster.proxies[node]
    proxy.slow_s = rng.uniform(0.1, 0.8)

    def repair() -> None:
        proxy.slow_s = 0.0

    return Hurt(f"network of {node} slow: up to {proxy.slow_s:.1f} s", repair)


def _partition(cluster: Cluster, node: str, rng: random.Random) -> Hurt:
    proxy = cluster.proxies[node]
    proxy.held = True
    breaks = rng.random() < 0.5  # else all that was on its way arrives late

    def repair() -> None:
        if breaks:
            cluster.cut(node)
        proxy.held = False

    return Hurt(f"{node} cut off", repair)


def _unruly(cluster: Cluster, node: str, _: random.Random) -> Hurt:
    mark = cluster.control / f"unruly-{node}"
    mark.touch()
    what = f"reports and orders of {node} doubled, late and out of order"
    return Hurt(what, lambda: mark.unlink())


def _set_clock(cluster: Cluster, _: str, rng: random.Random) -> Hurt:
    offset_s = rng.choice((-1, 1)) * rng.uniform(0.01, 30.0) * DAY_S
    _write(cluster, offset_s)

    def repair() -> None:
        if rng.random() < 0.5:
            _write(cluster, 0.0)

    return Hurt(f"wall clock set by {offset_s / DAY_S:+.1f} days", repair)


def _write(cluster: Cluster, offset_s: float) -> None:
    partial = cluster.control / "clock.partial"
    partial.write_text(f"{offset_s}")
    partial.replace(cluster.control / "clock")


def _kill_solver(cluster: Cluster, _: str, __: random.Random) -> Hurt | None:
    found = cluster.part("server", "solver_child")
    cluster.signal(found, signal.SIGKILL)
    return Hurt("kill -9 of the solver", _nothing) if found else None


def _freeze_solver(cluster: Cluster, _: str, __: random.Random) -> Hurt | None:
    found = cluster.part("server", "solver_child")
    cluster.signal(found, signal.SIGSTOP)
    what = "solver frozen"
    return Hurt(what, lambda: cluster.signal(found, signal.SIGCONT)) if found else None


def _pause(cluster: Cluster, _: str, rng: random.Random) -> Hurt | None:
    with cluster.client() as client:
        running = [job.id for job in client.jobs(state="open") if job.state != "paused"]
        if not running:
            return None
        job = rng.choice(running)
        try:
            client.pause(job)
        except InputError:  # it has ended meanwhile
            return None
    return Hurt(f"job {job} paused", lambda: persist(lambda: _resume(cluster, job)))


def _resume(cluster: Cluster, job: int) -> None:
    with cluster.client() as client, suppress(InputError):  # it has ended, or never was paused
        client.resume(job)


def _drain(cluster: Cluster, node: str, _: random.Random) -> Hurt:
    with cluster.client() as client:
        client.drain(node)

    def undrain() -> None:
        with cluster.client() as client:
            client.undrain(node)

    return Hurt(f"{node} drained", lambda: persist(undrain))


def _policy(cluster: Cluster, _: str, rng: random.Random) -> Hurt:
    policy = rng.choice(POLICIES)
    with cluster.client() as client:
        client.set_policy(policy)
    return Hurt(f"policy {policy}", _nothing)


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
class RunningStart:
    """A start whose ranks live on a node."""

    job: int
    alive: list[Process]


def ranks_of(cluster: Cluster, node: str) -> list[RunningStart]:
    """By the records of the node's spawner; nothing but its own processes can be in them."""
    found = []
    for path in (cluster.directory / f"agent-{node}" / "starts").glob("*.json"):
        with suppress(OSError, msgspec.DecodeError):  # it has just ended
            record = msgspec.json.decode(path.read_bytes(), type=Record)
            known = [(process(pid), began) for pid, began in record.leaders]
            alive = [one for one, began in known if one is not None and one.start_time == began]
            if alive:
                found.append(RunningStart(record.job, alive))
    return sorted(found, key=lambda one: one.job)


_SHORT = (0.0, 1.0)
_LEASE = (LEASE_S * 0.3, LEASE_S * 2.5)  # some outlast the lease, some the node
_ALL = tuple(NODES)

KINDS = {
    kind.name: kind
    for kind in (
        Kind("kill-server", "and start it again", ("server",), (0.0, LEASE_S), _kill_server),
        Kind("kill-agent", "and start it again", _ALL, _LEASE, _kill_agent),
        Kind("kill-all", "server and agents at once", ("server", *_ALL), _SHORT, _kill_all),
        Kind("kill-spawner", "the process that owns the ranks", _ALL, _SHORT, _kill_spawner),
        Kind("kill-prefork", "the process that ranks are forked from", _ALL, _SHORT, _kill_zygote),
        Kind("kill-rank", "one process of a job", _ALL, _SHORT, _kill_rank),
        Kind("kill-job", "all processes of a job", _ALL, _SHORT, _kill_job),
        Kind("kill-solver", "", ("solver",), _SHORT, _kill_solver),
        Kind("freeze-server", "SIGSTOP, longer than a lease", ("server",), _LEASE, _freeze_server),
        Kind("freeze-agent", "SIGSTOP, longer than a lease", _ALL, _LEASE, _freeze_agent),
        Kind("freeze-node", "agent and jobs: zombies", _ALL, _LEASE, _freeze_node),
        Kind("freeze-rank", "SIGSTOP, longer than a lease", _ALL, _LEASE, _freeze_rank),
        Kind("freeze-solver", "", ("solver",), (0.0, SOLVE_S * 2), _freeze_solver),
        Kind("fill-state", "disk of the server", ("state",), (0.5, LEASE_S * 2), _fill_state),
        Kind("fill-checkpoints", "disk", ("checkpoints",), (0.5, LEASE_S * 2), _fill_checkpoints),
        Kind("cut", "connections of an agent", _ALL, _SHORT, _cut),
        Kind("slow", "network of an agent", _ALL, _LEASE, _slow),
        Kind("partition", "agent and server, longer than a lease", _ALL, _LEASE, _partition),
        Kind("unruly", "messages doubled, late, in another order", _ALL, _LEASE, _unruly),
        Kind("set-clock", "wall clock of all processes", ("clock",), (0.5, LEASE_S), _set_clock),
        Kind("pause", "a job, and resume it", ("jobs",), (0.0, LEASE_S), _pause),
        Kind("drain", "a node, and undrain it", _ALL, (0.0, LEASE_S), _drain),
        Kind("policy", "set another one", ("policy",), _SHORT, _policy),
    )
}
