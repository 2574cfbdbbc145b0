"""Damage to the files of the server: it must be refused, and the cluster goes on from a backup."""

import random
import shutil
from pathlib import Path

from fairlead.cluster.chaos.cluster import ChaosCluster
from fairlead.cluster.chaos.faults import Hurt
from fairlead.cluster.chaos.node_faults import damage
from fairlead.cluster.store.backup import (
    accept_loss,
    back_up,
    receive,
    restore,
)
from fairlead.errors import CheckError

FILES = ("state.db", "state.db-wal", "state.mark")


def damage_state(cluster: ChaosCluster, _: str, rng: random.Random) -> Hurt:
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
    return Hurt(what, lambda: _start_again(cluster, state, backup, name == "state.mark"))


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
