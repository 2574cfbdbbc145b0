"""Compare the rounds of a run with rounds that were recorded (the ``rounds`` of golden/gavel logs)."""

import gzip
import json
from pathlib import Path
from typing import Any

from fairlead.errors import CheckError, InputError
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command, StartRound
from fairlead.model.events import Event


class ExpectRounds:
    """An observer that stops the run, with CheckError, at the first round that differs.

    The recorded form is ``[[time, [[group, type, [device ids]], ...]], ...]`` with a job group written as
    "3" or "(3, 5)". Times may differ by 1e-9 relative; the order within a round does not count.
    """

    def __init__(self, path: Path, cluster: Cluster) -> None:
        self.path = path
        self.cluster = cluster
        self.expected: list[Any] = read_log(path, "rounds")
        self.seen = 0

    def event(self, event: Event) -> None:
        """Ignore events: only commands are compared."""

    def command(self, command: Command) -> None:
        """Compare a round with the recorded one. Raises CheckError with the first difference."""
        if not isinstance(command, StartRound):
            return
        if self.seen >= len(self.expected):
            raise CheckError(
                f"{self.path}: has {len(self.expected)} rounds, the run goes on with one at "
                f"{command.time_s} s"
            )
        time_s, groups = self.expected[self.seen]
        if abs(command.time_s - time_s) > 1e-9 * max(1.0, abs(time_s)):
            raise CheckError(
                f"{self.path}: round {self.seen} begins at {command.time_s} s, expected {time_s} s"
            )
        theirs = {group: (accelerator, devices) for group, accelerator, devices in groups}
        mine = self._groups(command)
        for group in sorted(theirs.keys() | mine.keys()):
            if mine.get(group) != theirs.get(group):
                raise CheckError(
                    f"{self.path}: round {self.seen} at {time_s} s: job group {group} "
                    f"{_place(mine.get(group))}, expected {_place(theirs.get(group))}"
                )
        self.seen += 1

    def finish(self) -> None:
        """Check after the run that all recorded rounds were seen."""
        if self.seen < len(self.expected):
            raise CheckError(
                f"{self.path}: has {len(self.expected)} rounds, the run ended after {self.seen}"
            )

    def _groups(self, start: StartRound) -> dict[str, tuple[str, list[int]]]:
        offsets, devices = start.offsets.tolist(), start.devices.tolist()
        accelerator = self.cluster.device_type[start.devices[start.offsets[:-1]]].tolist()
        names = self.cluster.accelerators
        result = {}
        for i, group in enumerate(start.job_groups.tolist()):
            members = [j for j in group if j >= 0]
            name = str(members[0]) if len(members) == 1 else f"({members[0]}, {members[1]})"
            result[name] = (names[accelerator[i]], devices[offsets[i] : offsets[i + 1]])
        return result


def _place(place: tuple[str, list[int]] | None) -> str:
    return "does not run" if place is None else f"on {place[0]} {place[1]}"


def read_log(path: Path, key: str) -> Any:
    """One list of a recorded run (``rounds`` or ``allocs``), gzipped or not."""
    try:
        content = path.read_bytes()
        log = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except (OSError, EOFError, ValueError) as problem:
        raise InputError(f"{path}: cannot read the recorded run: {problem}") from None
    if not isinstance(log, dict) or not isinstance(log.get(key), list):
        raise InputError(f"{path}: field {key!r} is missing or not a list")
    return log[key]
