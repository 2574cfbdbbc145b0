"""Faults of nodes beyond death and silence: two agents of a name, files lost or damaged, broken but alive."""

import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from fairlead.cluster.chaos.cluster import ChaosCluster
from fairlead.cluster.chaos.faults import Injection, nothing
from fairlead.cluster.chaos.processes import Process
from fairlead.errors import CheckError

TWIN_TIMEOUT_S = 60.0  # until one of two agents of a name has gone
MISSING_PATH = "/nonexistent"
REFUSED = 2  # exit code of an agent that cannot begin


def twin_agent(cluster: ChaosCluster, node: str, _: random.Random) -> Injection:
    """The second one is refused while the first one is alive."""
    twin, folder = cluster.start_twin(node)
    what = f"a second agent of {node} beside the first"
    return Injection(what, lambda: _leave_one(cluster, node, twin, folder))


def twin_takeover(cluster: ChaosCluster, node: str, _: random.Random) -> Injection:
    """The second one may take the name over; the first one then wakes up beside it."""
    first = cluster.processes.named[node]
    cluster.processes.signal([first.pid], signal.SIGSTOP)
    twin, folder = cluster.start_twin(node)

    def repair() -> None:
        cluster.processes.signal([first.pid], signal.SIGCONT)
        _leave_one(cluster, node, twin, folder)

    return Injection(f"agent of {node} frozen, a second one started", repair)


def _leave_one(cluster: ChaosCluster, node: str, twin: Process, folder: Path) -> None:
    """Wait until the server has refused one of the two; the other one is the node's from here on."""
    first = cluster.processes.named[node]
    until = time.monotonic() + TWIN_TIMEOUT_S
    while first.poll() is None and twin.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    if first.poll() is None:
        if twin.poll() is None:  # nobody could tell them: the server was away
            twin.terminate()
        twin.wait()
    elif twin.poll() is None:
        cluster.processes.named[node], cluster.folders.agent_states[node] = twin, folder
    else:
        codes = first.returncode, twin.returncode
        raise CheckError(f"{node}: both agents of the name have ended (exit codes {codes})")


def lose_agent_state(cluster: ChaosCluster, node: str, rng: random.Random) -> Injection:
    """All that the agent wrote below its state directory is gone."""
    _kill(cluster, node, rng)
    shutil.rmtree(cluster.folders.agent_states[node], ignore_errors=True)
    what = f"kill -9 of the agent of {node}, its state deleted"
    return Injection(what, lambda: _restart(cluster, node))


def damage_agent_state(cluster: ChaosCluster, node: str, rng: random.Random) -> Injection:
    """Its identity and the records of its starts, in its state directory and in that of the machine."""
    _kill(cluster, node, rng)
    state = cluster.folders.agent_states[node]
    files = [state / "identity", *(state / "starts").glob("*.json")]
    files += list((cluster.folders.run / "nodes").glob(f"{node}-*/*/starts/*.json"))
    hit = [path for path in sorted(files) if rng.random() < 0.7 and damage(path, rng)]
    what = f"kill -9 of the agent of {node}, {len(hit)} of its {len(files)} files damaged"
    return Injection(what, lambda: _restart(cluster, node))


def damage(path: Path, rng: random.Random) -> str:
    """Change a file as disks and people do; returns how, "" if it is not there."""
    try:
        data = bytearray(path.read_bytes())
    except OSError:
        return ""
    how = rng.choice(("cut", "zeroed", "garbage", "flipped"))
    if how == "cut":
        del data[rng.randrange(len(data) + 1) :]
    elif how == "zeroed":
        data = bytearray(len(data))
    elif how == "garbage":
        data = bytearray(rng.randbytes(len(data)))
    else:
        for _ in range(20 if data else 0):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    with suppress(OSError):
        path.write_bytes(data)
    return how


def fill_agent(cluster: ChaosCluster, node: str, _: random.Random) -> Injection | None:
    """Fill the disk of an agent's state."""
    disk = cluster.folders.disks[node]
    if not disk.mounted:
        return None
    disk.fill()

    def repair() -> None:
        disk.empty()
        if cluster.processes.named[node].poll() == REFUSED:  # it had just been started anew
            cluster.start_agent(node)

    return Injection(f"no space left for the agent of {node}", repair)


def kill_node(cluster: ChaosCluster, node: str, _: random.Random) -> Injection | None:
    """Agent and spawner die, and nobody starts an agent before its jobs have been started elsewhere."""
    spawners = cluster.processes.part(node, "fairlead.cluster.agent.spawner")
    if not spawners:
        return None
    cluster.processes.signal(spawners, signal.SIGSTOP)  # so that it does not see its agent die
    cluster.processes.kill(node)
    cluster.processes.signal(spawners, signal.SIGKILL)
    what = f"kill -9 of agent and spawner of {node}"
    return Injection(what, lambda: _restart(cluster, node))


def break_starts(cluster: ChaosCluster, node: str, _: random.Random) -> Injection:
    """Every start with a lease ends at once, as where a library is missing."""
    mark = cluster.folders.control / f"broken-{node}"
    mark.touch()
    return Injection(f"starts on {node} fail", mark.unlink)


def break_path(cluster: ChaosCluster, node: str, rng: random.Random) -> Injection:
    """Some of the jobs name a command that is found on the PATH."""
    _kill(cluster, node, rng)
    cluster.start_agent(node, env={"PATH": MISSING_PATH})
    what = f"agent of {node} with a PATH that leads nowhere"
    return Injection(what, lambda: _restart(cluster, node))


def lose_node(cluster: ChaosCluster, node: str, _: random.Random) -> Injection | None:
    """The machine dies with all that runs on it, and stays dead. One at a time."""
    if cluster.dead:
        return None
    cluster.dead.add(node)
    everything = [cluster.processes.named[node].pid, *cluster.processes.part(node, "")]
    cluster.processes.signal(everything, signal.SIGKILL)
    cluster.processes.named[node].wait()
    return Injection(f"{node} dead for good", nothing)


def _kill(cluster: ChaosCluster, node: str, rng: random.Random) -> None:
    """The agent, and at times its spawner: then its warden ends the ranks, or the next agent."""
    spawners = (
        cluster.processes.part(node, "fairlead.cluster.agent.spawner") if rng.random() < 0.5 else []
    )
    cluster.processes.kill(node)
    cluster.processes.signal(spawners, signal.SIGKILL)


def _restart(cluster: ChaosCluster, node: str) -> None:
    if cluster.processes.named[node].poll() is None:
        cluster.processes.kill(node)
    cluster.start_agent(node)
