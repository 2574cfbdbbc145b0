"""Folders of a cluster under test: small disks for the server and each node, and the rest."""

import sys
from pathlib import Path

from fairlead.cluster.chaos.disk import SmallDisk

PYTHON = "chaos-python"  # a command that is found on the PATH of agents
AGENT_DISK = 128  # megabytes; agents with less than 64 free call their node unhealthy


class ClusterFolders:
    """All below one folder, whose name marks the processes. ``make`` them first."""

    def __init__(self, root: Path, nodes: list[str]) -> None:
        self.root = root
        self.disks = {node: SmallDisk(root / f"disk-{node}", AGENT_DISK) for node in nodes}
        self.agent_states = {node: self.disks[node].folder / f"agent-{node}" for node in nodes}
        self.server = SmallDisk(root / "server", 64)
        self.checkpoints = SmallDisk(root / "checkpoints", 192)
        self.control = root / "control"
        self.ledger = root / "ledger"
        self.run = root / "run"  # of the agents' records on this machine

    @property
    def bin(self) -> Path:
        """Folder on the PATH of agents."""
        return self.root / "bin"

    @property
    def server_state(self) -> Path:
        """The state directory of the server."""
        return self.server.folder / "state"

    def log(self, name: str) -> Path:
        """Return the path of the output of the server, or of the agent of a node."""
        return self.root / f"{name}.log"

    def make(self) -> None:
        """Make the folders, with the disks mounted, and the command of agents."""
        for folder in (self.control, self.ledger, self.bin):
            folder.mkdir(parents=True)
        python = self.bin / PYTHON
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o700)
        for disk in self.all_disks():
            disk.mount()

    def all_disks(self) -> list[SmallDisk]:
        """Return the disks of the server's state, the checkpoints and the agents."""
        return [self.server, self.checkpoints, *self.disks.values()]
