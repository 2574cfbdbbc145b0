"""The processes of a cluster that is hurt: they are started, signalled, looked up and ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable

from fairlead.cluster.agent.machine import OVERRIDE
from fairlead.cluster.chaos.disk import children, command_of, who_mentions
from fairlead.cluster.chaos.folders import ClusterFolders

END_S = 60.0  # to end after SIGTERM
Process = subprocess.Popen[bytes]


class ClusterProcesses:
    """``named``: the newest process of the server ("server") and of the agent of each node."""

    def __init__(self, folders: ClusterFolders) -> None:
        self._folders = folders
        self.named: dict[str, Process] = {}

    def start(
        self,
        name: str,
        *arguments: str,
        env: dict[str, str] | None = None,
        fds: tuple[int, ...] = (),
    ) -> Process:
        """A subcommand of ``fairlead``. env: variables that are not as usual; fds: descriptors that it
        inherits."""
        control = str(self._folders.control)
        call = (sys.executable, "-m", "fairlead.cluster.chaos.entry", control, *arguments)
        with self._folders.log(name).open("ab") as log:
            process = subprocess.Popen(
                call,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environment() | (env or {}),
                pass_fds=fds,
            )
        self.named[name] = process
        return process

    def _environment(self) -> dict[str, str]:
        path = f"{self._folders.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return os.environ | {"PATH": path, OVERRIDE: str(self._folders.run)}

    def kill(self, name: str) -> None:
        """SIGKILL to the server or an agent."""
        process = self.named[name]
        process.kill()
        process.wait()

    def signal(self, pids: list[int], number: signal.Signals) -> None:
        """To processes of this cluster; those that have ended meanwhile do not matter."""
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def part(self, name: str, word: str) -> list[int]:
        """Children of the server or an agent, and theirs, with this word in their command."""
        todo, found = children(self.named[name].pid), []
        while todo:
            pid = todo.pop()
            todo.extend(children(pid))
            if word in command_of(pid):
                found.append(pid)
        return found

    def orphans(self) -> list[int]:
        """All processes of this cluster that live."""
        return who_mentions(f"{self._folders.root}/")

    def stop(self, names: Iterable[str]) -> list[str]:
        """SIGTERM to these at once; what is wrong with how they ended."""
        violations, names = [], list(names)
        for name in names:
            self.named[name].terminate()
        for name in names:
            try:
                code = self.named[name].wait(END_S)
            except subprocess.TimeoutExpired:
                violations.append(f"{name} did not end on SIGTERM within {END_S:.0f} s")
                continue
            if code:
                violations.append(f"{name} ended with exit code {code}")
        return violations

    def end_all(self) -> None:
        """SIGKILL to whatever is left."""
        for name in self.named:
            if self.named[name].poll() is None:
                self.kill(name)
        self.signal(self.orphans(), signal.SIGKILL)
