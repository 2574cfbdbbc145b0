"""Nodes by commands of the operator: for engines that have no launcher of their own."""

import json
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.cluster.autoscaling.launcher import (
    TOKEN_VARIABLE,
    LaunchedNode,
    LaunchError,
    LauncherSetup,
    LaunchState,
    NodeType,
)
from fairlead.cluster.autoscaling.run_command import run_command
from fairlead.errors import ConfigError

DEFAULT_STATE = "/tmp"


class _StartAnswer(msgspec.Struct):
    """What ``start`` prints."""

    id: str


class _ListLine(msgspec.Struct):
    """A line of what ``list`` prints."""

    id: str
    node: str
    state: LaunchState
    left_s: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class CommandLauncher:
    """``start`` of a node's type prints a line of JSON, ``{"id": ...}``; ``stop`` ends {id}; ``list`` prints
    a line per node that waits or runs: ``{"id": ..., "node": ..., "state": "queued" or "running"}``, and
    ``left_s`` and ``why`` where they are known. Each is for the shell, with its placeholders quoted."""

    setup: LauncherSetup
    list: str
    name: str = "command"

    def check(self, kinds: Sequence[NodeType]) -> None:
        """Raise ConfigError where a command is missing."""
        for kind in kinds:
            for field in ("start", "stop"):
                if not getattr(kind, field):
                    raise ConfigError(
                        f"types.{kind.accelerator}.{field}: is missing; engine command runs it"
                    )
        if not self.list:
            raise ConfigError("list: is missing; engine command runs it")

    def launches(self) -> "list_[LaunchedNode]":
        """Return the nodes that ``list`` prints."""
        found = []
        for line in self._run(self.list, {}).splitlines():
            if not line.strip():
                continue
            one = _read("list", line, _ListLine)
            accelerator = self._accelerator(one.node)
            if accelerator is not None:
                found.append(
                    LaunchedNode(
                        id=one.id,
                        node=one.node,
                        accelerator=accelerator,
                        state=one.state,
                        left_s=one.left_s,
                        why=one.why,
                    )
                )
        return sorted(found, key=lambda one: one.id)

    def start(self, kind: NodeType, walltime_s: float) -> LaunchedNode:
        """Run ``start``."""
        node = f"{kind.accelerator}-{self.setup.cluster}-{secrets.token_hex(3)}"
        state = f"{kind.state_dir or DEFAULT_STATE}/fairlead-{node}"
        ends = ("--ends-in", f"{max(round(walltime_s), 1)}s")
        values = {
            "node": node,
            "type": kind.accelerator,
            "devices": str(kind.devices),
            "walltime_s": str(round(walltime_s)),
            "server": self.setup.agent.server,
        }
        agent = shlex.join([*self.setup.agent.arguments(kind, node, state), *ends])
        told = self._run(kind.start, values, agent=agent)
        started = _read("start", (told.strip().splitlines() or [""])[-1], _StartAnswer)
        return LaunchedNode(id=started.id, node=node, accelerator=kind.accelerator, state="queued")

    def stop(self, launch: LaunchedNode) -> None:
        """Run ``stop``."""
        kind = self.setup.kind(launch.accelerator)
        if kind is not None:
            self._run(kind.stop, {"id": launch.id, "node": launch.node})

    def _accelerator(self, node: str) -> str | None:
        """The type of a node of this cluster; None = it is not one."""
        for kind in self.setup.kinds:
            if node.startswith(f"{kind.accelerator}-{self.setup.cluster}-"):
                return kind.accelerator
        return None

    def _run(self, template: str, values: Mapping[str, str], *, agent: str = "") -> str:
        """agent: the command that runs the node's agent, for the shell."""
        text = template.replace("{agent}", agent)
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", shlex.quote(value))
        return run_command(text, environment={TOKEN_VARIABLE: self.setup.agent.token})


list_ = list


def _read(command: str, line: str, kind: Any) -> Any:
    try:
        return msgspec.convert(json.loads(line), kind)
    except ValueError as problem:  # of msgspec, too
        raise LaunchError(
            f"{command}: expected a line of JSON ({problem}), got {line[:80]!r}"
        ) from None
