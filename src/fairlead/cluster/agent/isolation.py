"""The means that keep the jobs of a node apart from its agent, and from each other."""

from dataclasses import dataclass, field

from fairlead.cluster.agent.cgroups import DeviceLimits, NodeGroups
from fairlead.cluster.agent.os_users import RunAs, own_name


@dataclass(frozen=True)
class Isolation:
    """As the operator of the node wants it."""

    run_as: RunAs = field(default_factory=RunAs)
    launch_with: tuple[str, ...] = ()  # words before the command of each rank, with placeholders
    groups: NodeGroups = field(default_factory=lambda: NodeGroups(DeviceLimits(), ""))

    @property
    def runs_as(self) -> str:
        """Return whom jobs run as, in words that people are shown."""
        return "isolated" if self.run_as else f"jobs run as {own_name()}"
