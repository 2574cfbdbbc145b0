"""The seam to an engine: what starts and ends nodes for the cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from fairlead.errors import FairleadError

LaunchState = Literal["queued", "running"]


class LaunchError(FairleadError):
    """An engine does not answer, or refuses. It may be asked again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeType:
    """The nodes of one accelerator type, as the operator describes them."""

    accelerator: str
    devices: int  # of a node
    minimum: int = 0  # nodes
    maximum: int
    walltime_s: float  # after which the engine takes a node away
    agent_options: tuple[str, ...] = ()  # further options of ``fairlead agent``
    setup: str = ""  # lines of shell that run on the node before the agent
    state_dir: str = ""  # of the agent, on the node; a folder below it is the node's
    submit_options: tuple[str, ...] = ()  # Slurm: options of sbatch
    num_cpus: float = 1.0  # Ray: what its actor holds
    num_gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    start: str = ""  # command: starts a node
    stop: str = ""  # command: ends a node


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentCommand:
    """How an agent is started, whatever the engine."""

    server: str  # host:port for agents, as nodes reach it
    token: str  # with which nodes enrol; given by the environment, never by a command line
    ca: str = ""  # certificate to trust, a path on the nodes; "" = no TLS
    program: tuple[str, ...] = ()  # that runs ``fairlead``, as on the nodes

    def arguments(self, kind: NodeType, node: str, state: str) -> list[str]:
        """Return the command that runs the agent of a node with its state in this directory."""
        ca = ["--ca", self.ca] if self.ca else []
        return [
            *self.program,
            *("agent", "--server", self.server, *ca),
            *("--node", node, "--devices", f"{kind.accelerator}={kind.devices}"),
            *("--state", state, *kind.agent_options),
        ]


TOKEN_VARIABLE = "FAIRLEAD_AGENT_TOKEN"


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchedNode:
    """A node that was asked for, as its engine knows it."""

    id: str  # the engine's
    node: str  # name under which its agent registers
    accelerator: str
    state: LaunchState
    left_s: float | None = None  # until the engine takes it away, if it runs; None = not known
    waited_s: float | None = None  # since it was asked for, until it began
    why: str = field(default="", compare=False)  # why it still waits, in the engine's words


class Launcher(Protocol):
    """Starts and ends nodes. Calls may take seconds and come from one thread; each raises LaunchError where
    the engine does not answer or refuses.

    Nothing is remembered between calls but what the engine itself knows: a server that was killed finds its
    nodes again by ``launches``.
    """

    @property
    def name(self) -> str:
        """Name of the engine."""

    def check(self, kinds: Sequence[NodeType]) -> None:
        """Raise ConfigError where nodes of these types can never be started."""

    def launches(self) -> list[LaunchedNode]:
        """Return the nodes of this cluster that wait or run, in order of id."""

    def start(self, kind: NodeType, walltime_s: float) -> LaunchedNode:
        """Ask for a node."""

    def stop(self, launch: LaunchedNode) -> None:
        """Give a node back, or ask for it no longer. Its agent gets SIGTERM; one that is gone is no error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LauncherSetup:
    """What every launcher is made of."""

    cluster: str  # name by which an engine tells this cluster's nodes from another's
    directory: Path  # of the server, for output of nodes
    agent: AgentCommand
    kinds: tuple[NodeType, ...]

    def kind(self, accelerator: str) -> NodeType | None:
        """Return the nodes of a type; None = the operator describes none."""
        return next((one for one in self.kinds if one.accelerator == accelerator), None)
