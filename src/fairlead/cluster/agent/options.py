"""The options of an agent."""

from dataclasses import dataclass, field
from pathlib import Path

from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.health import HealthOptions
from fairlead.cluster.agent.isolation import Isolation


@dataclass(frozen=True)
class AgentOptions:
    """Options with which a user starts the agent."""

    server: str  # host:port
    node: str
    devices: NodeDevices
    state: Path
    token: str = ""
    ca: Path | None = None
    host: str = "127.0.0.1"  # where ranks of other nodes reach this one's
    prefork: str = ""  # modules, comma-separated
    health: HealthOptions = field(default_factory=HealthOptions)
    isolation: Isolation = field(default_factory=Isolation)
    park_bytes: int | None = None  # of memory for parked jobs, see ``ParkedJobs``
    ends_s: float | None = (
        None  # wall clock; when this node is taken away, None = nobody knows of an end
    )
    parent: int | None = None  # process id of who ends it with others of its host
