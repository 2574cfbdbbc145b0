"""Nodes by Ray: each is a detached actor that holds a node's resources and runs one agent."""

import json
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from fairlead.cluster.autoscaling.launcher import (
    TOKEN_VARIABLE,
    LaunchedNode,
    LaunchError,
    LauncherSetup,
    NodeType,
)
from fairlead.cluster.autoscaling.run_command import run_command
from fairlead.errors import ConfigError

DEFAULT_STATE = "/tmp"
PROGRAM = (sys.executable, "-m", "fairlead.cluster.autoscaling.ray_nodes")
# Fewer words in what is said of a failure
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


@dataclass(frozen=True, slots=True)
class RayLauncher:
    """Each call asks Ray in a process of its own, so that the end of Ray does not touch the server. A node
    that Ray cannot place yet is a pending actor: what Ray's own autoscaler sees as demand."""

    setup: LauncherSetup
    address: str
    name: str = "ray"

    def check(self, kinds: Sequence[NodeType]) -> None:  # noqa: ARG002 - nodes may come later
        """Raise ConfigError where Ray is not installed or not there."""
        if find_spec("ray") is None:
            raise ConfigError("engine ray: Ray is not installed (pip install 'fairlead[ray]')")
        try:
            self.launches()
        except LaunchError as problem:
            raise ConfigError(f"address: {problem}") from None

    def launches(self) -> list[LaunchedNode]:
        """Return the actors of this cluster."""
        found = []
        for one in self._ask("list"):
            accelerator = one["node"].partition("-ray-")[0]
            found.append(
                LaunchedNode(
                    id=one["node"],
                    node=one["node"],
                    accelerator=accelerator,
                    state="running" if one["running"] else "queued",
                    left_s=one["left_s"],
                    why="" if one["running"] else "Ray has no room for it yet",
                )
            )
        return sorted(found, key=lambda one: one.id)

    def start(self, kind: NodeType, walltime_s: float) -> LaunchedNode:
        """Have an actor created, now or when Ray has room for it."""
        node = f"{kind.accelerator}-ray-{secrets.token_hex(3)}"
        state = f"{kind.state_dir or DEFAULT_STATE}/fairlead-{self.setup.cluster}/{node}"
        self._ask(
            "start",
            node=node,
            command=self.setup.agent.arguments(kind, node, state),
            environment={TOKEN_VARIABLE: self.setup.agent.token},
            state=state,
            walltime_s=walltime_s,
            num_cpus=kind.num_cpus,
            num_gpus=kind.num_gpus,
            resources=kind.resources,
        )
        return LaunchedNode(id=node, node=node, accelerator=kind.accelerator, state="queued")

    def stop(self, launch: LaunchedNode) -> None:
        """Tell its agent to end."""
        self._ask("stop", node=launch.node)

    def _ask(self, do: str, **more: Any) -> list[dict[str, Any]]:
        request = {
            "do": do,
            "address": self.address,
            "namespace": f"fairlead-{self.setup.cluster}",
            **more,
        }
        told = run_command(list(PROGRAM), text=json.dumps(request), environment=_QUIET, name="ray")
        return [json.loads(line) for line in told.splitlines() if line.startswith("{")]
