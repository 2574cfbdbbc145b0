"""Nodes as processes on the server's own machine: to try demand out, and for one machine that is shared."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from fairlead.cluster.autoscaling.launcher import (
    TOKEN_VARIABLE,
    LaunchedNode,
    LaunchError,
    LauncherSetup,
    NodeType,
)

FOLDER = "engine"  # of the server's directory


class _Agent(msgspec.Struct):
    """A process that was started, as its file tells."""

    pid: int
    created_s: float  # with the pid, which process it is
    accelerator: str
    ends_s: float  # wall clock


@dataclass(frozen=True, slots=True)
class LocalLauncher:
    """Starts agents that outlive the server; of each there is a file, by which the next server knows it."""

    setup: LauncherSetup
    name: str = "local"
    _children: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def check(self, kinds: Sequence[NodeType]) -> None:
        """A machine can start its own Python."""

    def launches(self) -> list[LaunchedNode]:
        """Return the nodes whose agents live."""
        for node, child in list(self._children.items()):
            if child.poll() is not None:  # and is no zombie any more
                del self._children[node]
        found = []
        for path in sorted(self._folder.glob("*.json")):
            one = msgspec.json.decode(path.read_bytes(), type=_Agent)
            if _process(one) is None:
                path.unlink(missing_ok=True)
                continue
            found.append(
                LaunchedNode(
                    id=path.stem,
                    node=path.stem,
                    accelerator=one.accelerator,
                    state="running",
                    left_s=max(one.ends_s - time.time(), 0.0),
                )
            )
        return found

    def start(self, kind: NodeType, walltime_s: float) -> LaunchedNode:
        """Start an agent."""
        node = f"{kind.accelerator}-local-{secrets.token_hex(3)}"
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        state = Path(kind.state_dir) if kind.state_dir else folder
        command = self.setup.agent.arguments(kind, node, str(state / node))
        command += ["--ends-in", f"{max(round(walltime_s), 1)}s"]
        environment = {**os.environ, TOKEN_VARIABLE: self.setup.agent.token}
        try:
            with (folder / f"{node}.log").open("wb") as log:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
            created_s = psutil.Process(child.pid).create_time()
        except (OSError, psutil.Error) as problem:
            raise LaunchError(f"{command[0]}: cannot be started: {problem}") from None
        self._children[node] = child
        told = _Agent(child.pid, created_s, kind.accelerator, time.time() + walltime_s)
        path = folder / f"{node}.json"
        path.with_suffix(".new").write_bytes(msgspec.json.encode(told))
        path.with_suffix(".new").rename(path)
        return LaunchedNode(id=node, node=node, accelerator=kind.accelerator, state="running")

    def stop(self, launch: LaunchedNode) -> None:
        """Tell its agent to end."""
        path = self._folder / f"{launch.id}.json"
        with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
            found = _process(msgspec.json.decode(path.read_bytes(), type=_Agent))
            if found is not None:
                found.send_signal(signal.SIGTERM)

    @property
    def _folder(self) -> Path:
        return self.setup.directory / FOLDER


def _process(agent: _Agent) -> psutil.Process | None:
    """The process that was started, if it lives."""
    try:
        found = psutil.Process(agent.pid)
        same = abs(found.create_time() - agent.created_s) < 0.05
        return found if same and found.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


PROGRAM = (sys.executable, "-m", "fairlead")  # that runs ``fairlead`` here
