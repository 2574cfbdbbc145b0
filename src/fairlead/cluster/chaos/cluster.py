"""The cluster that is hurt: a server and agents with simulated devices, as processes of their own."""

import random
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from fairlead.cluster.chaos.folders import ClusterFolders
from fairlead.cluster.chaos.processes import ClusterProcesses, Process
from fairlead.cluster.chaos.proxy import NodeProxies
from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.api_models import NodeView
from fairlead.cluster.readiness import ReadyPipe
from fairlead.errors import CheckError, FairleadError

NODES = {"node-a": "v100=2", "node-b": "v100=2", "node-c": "k80=2"}
ROUND_S = 1.0
LEASE_S = 3.0  # unless it is chosen
HEALTH_S = 1.0  # between the checks that agents make of themselves
SOLVE_S = 2.0  # limit of a solve
READY_S = 180.0  # for agents to be there on a busy machine
SERVER_S = 1800.0  # for a server, which may compile kernels; one that has ended is not waited for
MTBF_H = 50 / 3600  # of a node: checkpoints are saved often
RESIZES = 0.25  # of clusters: the policy decides how many devices elastic jobs have
TAKES_TURNS = 0.5  # of clusters: their jobs take turns at every round, parked in between
_SERVE = (
    *("--round", f"{ROUND_S:g}", "--heartbeat", "0.3"),
    *("--solve-limit", f"{SOLVE_S:g}", "--mtbf-hours", f"{MTBF_H:g}"),
    *("--restart-cost", "0.05"),  # so that jobs take turns, parked or not
)


class ChaosCluster:
    """``start``, hurt, ``stop``, ``clean_up``. All below one folder, whose name marks the processes."""

    def __init__(
        self,
        directory: Path,
        rng: random.Random,
        lease_s: float = LEASE_S,
        *,
        resizing: bool = False,
    ) -> None:
        """resizing: the policy decides how many devices elastic jobs have; else by chance."""
        self.folders = ClusterFolders(directory, list(NODES))
        self.processes = ClusterProcesses(self.folders)
        self.proxies = NodeProxies()
        self.lease_s = lease_s
        self.submitting = threading.Lock()  # held by whoever submits, or wants nothing submitted
        self.dead: set[str] = set()  # nodes that stay dead
        self._url = ""
        self._agents_port = 0  # where the server listens for agents
        self._twins = 0
        self._rng = rng
        self._resizing = resizing

    def start(self) -> None:
        """Server first, then the agents behind their proxies; waits until all nodes are there."""
        self.folders.make()
        self.proxies.start()
        self.start_server()
        for node in NODES:
            self.proxies.open(node, self._agents_port, random.Random(self._rng.random()))
            self.start_agent(node)
        self.await_nodes(READY_S)
        chosen = 1.0 - RESIZES / 2 if self._resizing else self._rng.random()
        if chosen < TAKES_TURNS:
            self._set_policy("gandiva")
        elif chosen >= 1.0 - RESIZES:
            self._set_policy(self._rng.choice(("sia", "las_aware")))

    def _set_policy(self, policy: str) -> None:
        with self.client() as client:
            client.set_policy(policy)

    # --- processes -------------------------------------------------------------------------------

    def start_server(self) -> None:
        """Start it on the ports that it had, and wait until it listens."""
        log = self.folders.log("server")
        log_size = log.stat().st_size if log.exists() else 0
        port = self._url.rpartition(":")[2] or "0"
        folders = self.folders
        state = ("--state", str(folders.server_state))
        checkpoints = ("--checkpoints", str(folders.checkpoints.folder))  # of trials of searches
        where = ("--port", port, "--agent-port", str(self._agents_port))
        lease = ("--lease", f"{self.lease_s:g}")
        pipe = ReadyPipe()
        call = (
            "serve",
            "--inside-job",
            *state,
            *checkpoints,
            *where,
            *lease,
            *_SERVE,
            *pipe.arguments,
        )
        ready = pipe.wait(self.processes.start("server", *call, fds=pipe.fds), SERVER_S)
        if ready is None:
            text = log.read_bytes()[log_size:].decode(errors="replace")
            raise CheckError(f"the server did not start: {text.strip()[-500:]}")
        self._url = ready.url
        self._agents_port = int(ready.agents.rpartition(":")[2])

    def start_agent(
        self, node: str, *, state: Path | None = None, env: dict[str, str] | None = None
    ) -> Process:
        """Start it; it registers in its own time. state: another directory than the node's; env: variables
        that are not as usual."""
        folder = state or self.folders.agent_states[node]
        return self.processes.start(
            node,
            *(
                "agent",
                "--inside-job",
                "--server",
                f"127.0.0.1:{self.proxies.port(node)}",
                "--node",
                node,
            ),
            *("--devices", NODES[node], "--state", str(folder)),
            *(
                "--token-file",
                str(self.folders.server_state / "agent.token"),
                "--simulated-devices",
            ),
            *("--prefork", "fairlead.client.lease", "--health-interval", f"{HEALTH_S:g}"),
            env=env,
        )

    def start_twin(self, node: str) -> tuple[Process, Path]:
        """A second agent of the node's name, with a state directory of its own."""
        self._twins += 1
        folder = self.folders.root / f"twin-{self._twins}" / f"agent-{node}"
        first = self.processes.named[node]
        twin = self.start_agent(node, state=folder)
        self.processes.named[node] = first
        return twin, folder

    # --- looking ---------------------------------------------------------------------------------

    def client(self) -> Client:
        """The admin's. Close it. Raises CheckError while a fault replaces the state directory."""
        try:
            token = (self.folders.server_state / "admin.token").read_text().strip()
        except OSError as problem:
            raise CheckError(f"the state directory is not there ({problem.strerror})") from None
        return Client(self._url, token, timeout_s=10.0)

    def await_nodes(self, limit_s: float) -> None:
        """Wait until the server answers and no node is lost. Raises CheckError."""
        until = time.monotonic() + limit_s
        while (left := self.missing()) and time.monotonic() < until:
            time.sleep(0.1)
        if left:
            raise CheckError(f"not there again after {limit_s:.0f} s: {left}")

    def missing(self) -> str:
        """Return the nodes that are not there or not up, or the server's error; "" = nothing is missing."""
        try:
            with self.client() as client:
                nodes = {node.name: node for node in client.nodes()}
                self._use_again(client, nodes.values())
        except FairleadError as problem:
            return str(problem)
        names = [name for name in NODES if name not in self.dead]
        bad = [f"{name} is not known" for name in names if name not in nodes]
        bad += [
            f"{name} is {node.state} ({node.reason})"
            for name, node in nodes.items()
            if name in names and node.state not in ("up", "drained")
        ]
        return ", ".join(bad)

    def _use_again(self, client: Client, nodes: Iterable[NodeView]) -> None:
        """Uncordon, as an operator would, nodes that were cordoned because of faults injected here."""
        for node in nodes:
            if node.state == "unhealthy":
                client.undrain(node.name)

    # --- the end ---------------------------------------------------------------------------------

    def stop(self) -> list[str]:
        """SIGTERM to all, agents first; what is wrong with how they ended."""
        agents = [name for name in self.processes.named if name != "server"]
        violation = self.processes.stop(name for name in agents if name not in self.dead)
        return violation + self.processes.stop(["server"])

    def clean_up(self) -> None:
        """End whatever is left, and the proxies."""
        self.processes.end_all()
        self.proxies.close()
