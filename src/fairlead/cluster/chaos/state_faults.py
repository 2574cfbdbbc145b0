"""The files of the server, damaged or replaced by older ones: it must refuse them or halt, and the cluster
goes on from a backup or from the newer ones."""

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fairlead.cluster.agent.position_memory import PositionMemory
from fairlead.cluster.chaos.cluster import NODES, ChaosCluster
from fairlead.cluster.chaos.faults import Injection, persist
from fairlead.cluster.chaos.node_faults import damage
from fairlead.cluster.store.backup import (
    accept_loss,
    back_up,
    receive,
    restore,
)
from fairlead.errors import CheckError, FairleadError

FILES = ("state.db", "state.db-wal", "state.mark")
# For agents to be told of a new run of the server, and to write that down
NEW_RUN_TIMEOUT_S = 120.0
HALT_S = 120.0  # for the first of them to register with a server of an older state
RUN_AFTER_COPY_S = (0.0, 4.0)  # that the cluster goes on after the copy was made, at least


def damage_state(cluster: ChaosCluster, _: str, rng: random.Random) -> Injection:
    """A backup is taken from the running server, and then one of its files is damaged or deleted. What was
    acknowledged in between is no submission: the harness waits with these."""
    state = cluster.folders.server_state
    backup = cluster.folders.root / "backup"
    with cluster.submitting:
        _take_backup(cluster, state, backup, rng)
        cluster.processes.kill("server")
    name = rng.choice(FILES)
    how = _damage(state / name, rng)
    what = f"kill -9 of the server, {name} {how}"
    return Injection(what, lambda: _start_again(cluster, state, backup, name == "state.mark"))


def older_state(cluster: ChaosCluster, _: str, rng: random.Random) -> Injection:
    """The whole state is replaced by a copy of some seconds ago: the server must halt as soon as an agent has
    spoken. Then the newer one is put back. What the older one may accept before it halts is no submission of
    the harness."""
    state = cluster.folders.server_state
    copy, newer = cluster.folders.root / "older", state.with_name("newer")
    cluster.processes.kill("server")
    shutil.copytree(state, copy)
    before = _latest_run(cluster)
    cluster.start_server()
    _until(
        lambda: _latest_run(cluster) > before,
        NEW_RUN_TIMEOUT_S,
        "no agent has written down a new run",
    )
    time.sleep(rng.uniform(*RUN_AFTER_COPY_S))
    with cluster.submitting:
        cluster.processes.kill("server")
        state.rename(newer)
        shutil.copytree(copy, state)
        cluster.start_server()
        _until(lambda: _is_halted(cluster), HALT_S, "an older copy of the state was not noticed")
        cluster.processes.kill("server")
        shutil.rmtree(state)
        newer.rename(state)
    shutil.rmtree(copy)
    what = "kill -9 of the server, its state replaced by an older copy until it halted"
    return Injection(what, lambda: persist(cluster.start_server))


def _latest_run(cluster: ChaosCluster) -> int:
    """The latest run of the server that an agent has written down; 0 = none has."""
    runs = [0]
    for node in NODES:
        memory = PositionMemory(cluster.folders.agent_states[node])
        memory.read()
        if memory.position is not None:
            runs.append(memory.position.run)
    return max(runs)


def _is_halted(cluster: ChaosCluster) -> bool:
    """Return whether the server says so, and accepts nothing."""
    with cluster.client() as client:
        if "is an older copy of the state" not in client.status().halted:
            return False
        try:
            client.set_policy("las")
        except FairleadError as problem:
            return "is an older copy of the state" in str(problem)
        raise CheckError("a halted server has changed its policy")


def _until(holds: Callable[[], bool], limit_s: float, otherwise: str) -> None:
    until = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > until:
            raise CheckError(f"{otherwise} within {limit_s:.0f} s")
        time.sleep(0.1)


def _take_backup(cluster: ChaosCluster, state: Path, backup: Path, rng: random.Random) -> None:
    if rng.random() < 0.5:
        back_up(state, backup)
        return
    with cluster.client() as client:
        receive(client.backup(), backup)


def _damage(path: Path, rng: random.Random) -> str:
    if rng.random() < 0.2:
        path.unlink(missing_ok=True)
        return "deleted"
    return damage(path, rng) or "was not there"


def _start_again(cluster: ChaosCluster, state: Path, backup: Path, whole: bool) -> None:
    """whole: all that is wrong is the marker, so what is there may be accepted."""
    try:
        cluster.start_server()
        return
    except CheckError as problem:
        said, code = str(problem), cluster.processes.named["server"].poll()
    if "fairlead restore" not in said or code != 2:
        raise CheckError(
            f"damaged state was not refused in one sentence (exit code {code}): {said}"
        )
    if whole:
        accept_loss(state)
    else:
        restore(backup, state, replace=True)
        shutil.rmtree(state / "replaced-1", ignore_errors=True)  # the disk is small
    cluster.start_server()
