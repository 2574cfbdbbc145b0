"""Recorded rounds: who ran in each round of an earlier run. For comparing simulators and policies."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.arrays import Ints
from fairlead.model.plan import RoundPlan
from fairlead.model.rates import first_slot
from fairlead.model.snapshot import Snapshot
from fairlead.policies.rounds_only import RoundsOnlyPlanner


class _RoundsRun(msgspec.Struct):
    per_round_schedule: list[dict[int, list[int]]]  # job id -> device ids


@dataclass(frozen=True, slots=True)
class RecordedRounds(RoundsOnlyPlanner):
    """The jobs of round r run in round r, in their order, on devices of the recorded type.

    Nothing is solved. Rounds are counted from the first on, empty ones included; after the last, nobody
    runs. Source: a JSON file with ``per_round_schedule``, a list of {job: [device ids]}.
    """

    name: str
    source_path: str
    rounds: tuple[tuple[Ints, Ints], ...]  # (jobs,) ids and (jobs,) a device id of each
    space_sharing: bool = False

    def start(self) -> int:
        """The number of the first round."""
        return 0

    def plan(self, snapshot: Snapshot, state: int) -> tuple[RoundPlan, int]:
        """The next round."""
        none: Ints = np.zeros(0, np.int64)
        jobs, device = self.rounds[state] if state < len(self.rounds) else (none, none)
        group = np.searchsorted(snapshot.jobs, jobs)
        there = group < len(snapshot.jobs)
        there[there] = snapshot.jobs[group[there]] == jobs[there]
        if not there.all():
            gone = jobs[np.flatnonzero(~there)[0]]
            raise ConfigError(
                f"{self.source_path}: per_round_schedule[{state}] has job {gone}, which is not there at "
                f"{snapshot.now_s!r} s"
            )
        types = np.searchsorted(np.cumsum(snapshot.capacity), device, side="right")
        if (types >= len(snapshot.capacity)).any():
            raise ConfigError(
                f"{self.source_path}: per_round_schedule[{state}] has device {device.max()}, the cluster has "
                f"{snapshot.capacity.sum():.0f}"
            )
        return RoundPlan(group, first_slot(snapshot)[types]), state + 1


def load_rounds(path: str) -> RecordedRounds | None:
    """Read a recording, gzip or not; None where the file is another kind of recording."""
    try:
        data = Path(path).read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as problem:
        raise ConfigError(f"{path}: cannot be read ({problem})") from None
    if b'"per_round_schedule"' not in text:
        return None
    try:
        run = msgspec.json.decode(text, type=_RoundsRun)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path}: not a recorded run: {problem}") from None
    rounds = []
    for number, row in enumerate(run.per_round_schedule):
        for job, devices in row.items():
            if not devices:
                raise ConfigError(f"{path}: per_round_schedule[{number}]: job {job} has no devices")
        first = [devices[0] for devices in row.values()]
        rounds.append((np.array(list(row), np.int64), np.array(first, np.int64)))
    return RecordedRounds(f"recorded:{Path(path).name}", path, tuple(rounds))
