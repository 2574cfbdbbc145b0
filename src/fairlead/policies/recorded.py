"""Recorded: the allocations of an earlier run, by the time of the solve. For comparing mechanisms."""

import gzip
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec
import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.plan import BasePolicy
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import group_ids

Shares: TypeAlias = dict[
    str, dict[str, float]
]  # job group -> accelerator type -> share, zeros left out

_LOG_SUFFIXES = (".log.json.gz", ".log.json")
_CLASS_NAMES = {"allox": "allox_perf", "gandiva": "gandiva_packing"}  # as policy_name has them
_GROUP = re.compile(r"^\(?(\d+)(?:, (\d+)\))?$")  # "7", or "(3, 7)" for a pair


@dataclass(frozen=True, slots=True)
class RecordedTraits:
    """Traits, needed by the mechanism, of the policy that made the recording."""

    heterogeneity_aware: bool
    space_sharing: bool
    work_conserving: bool
    global_queue: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedSolve:
    """One recorded answer."""

    time_s: float
    job_groups: Ints  # (entries, 2) job ids, -1 = none
    accelerator: tuple[str, ...]  # (entries,)
    share: Floats  # (entries,)
    jobs: frozenset[int]  # all jobs of the solve, those without a share included


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded(BasePolicy):
    """x_ij = what a recorded run had at this time.

    Nothing is solved and nothing is checked: recordings of Gavel's FIFO promise more than there is. The
    time of the solve must be a recorded one, to the bit; where a time repeats, the set of jobs decides.
    Source: a log whose ``allocs`` are [time, {job group: {type: share}}, [jobs]], as a JSON file.
    """

    name: str
    heterogeneity_aware: bool
    space_sharing: bool
    work_conserving: bool
    global_queue: bool  # one queue over all types, Gavel's option --enable_global_queue
    source_path: str
    solves: dict[float, tuple[RecordedSolve, ...]]

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The recorded shares; what the recording does not name is 0."""
        solve = self._find(snapshot)
        groups = group_ids(snapshot)
        share = np.zeros((len(groups), len(snapshot.slots)))
        row, known = _rows(groups, solve.job_groups)
        column = self._columns(snapshot, solve)
        share[row[known], column[known]] = solve.share[known]
        return Allocation(groups, share, SolveReport("recorded"))

    def _find(self, snapshot: Snapshot) -> RecordedSolve:
        found = self.solves.get(snapshot.now_s, ())
        if len(found) > 1:
            jobs = frozenset(snapshot.jobs.tolist())
            found = tuple(solve for solve in found if solve.jobs == jobs)
        if len(found) != 1:
            nearest = min(self.solves, key=lambda time_s: abs(time_s - snapshot.now_s))
            raise ConfigError(
                f"{self.source_path}: no allocation was recorded at {snapshot.now_s!r} s for these "
                f"{len(snapshot.jobs)} jobs; the nearest solve is at {nearest!r} s"
            )
        return found[0]

    def _columns(self, snapshot: Snapshot, solve: RecordedSolve) -> Ints:
        """(entries,) column of each entry's accelerator type."""
        column = {slot.accelerator: i for i, slot in reversed(list(enumerate(snapshot.slots)))}
        for name in solve.accelerator:
            if name not in column:
                raise ConfigError(
                    f"{self.source_path}: the allocation at {solve.time_s!r} s has accelerator type "
                    f"{name!r}, the cluster has {', '.join(column)}"
                )
        return np.array([column[name] for name in solve.accelerator], np.int64)


def load(path: str) -> Recorded:
    """Read a recording and, from the file of its run beside it or from its name, the traits of the policy
    that made it. Raises ConfigError."""
    log = Path(path)
    document = _read(log, _RecordedLog)
    if not document.allocs:
        raise ConfigError(f"{path}: allocs: expected recorded allocations, got none")
    solves: dict[float, list[RecordedSolve]] = {}
    for position, (time_s, shares, jobs) in enumerate(document.allocs):
        solve = _solve(f"{path}: allocs[{position}]", time_s, shares, jobs)
        solves.setdefault(time_s, []).append(solve)
    traits = _traits(log)
    return Recorded(
        name=f"recorded:{log.name}",
        heterogeneity_aware=traits.heterogeneity_aware,
        space_sharing=traits.space_sharing,
        work_conserving=traits.work_conserving,
        global_queue=traits.global_queue,
        source_path=path,
        solves={time_s: tuple(several) for time_s, several in solves.items()},
    )


class _RecordedLog(msgspec.Struct):
    allocs: list[tuple[float, Shares, list[int | str]]]


class _Config(msgspec.Struct):
    enable_global_queue: bool = False


class _RecordedRun(msgspec.Struct):
    policy_name: str
    config: _Config


_Document = TypeVar("_Document", _RecordedLog, _RecordedRun)


def _read(path: Path, document: type[_Document]) -> _Document:
    try:
        data = path.read_bytes()
        return msgspec.json.decode(
            gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, type=document
        )
    except (OSError, EOFError, zlib.error) as problem:
        raise ConfigError(f"{path}: cannot be read ({problem})") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path}: not a recorded run: {problem}") from None


def _traits(log: Path) -> RecordedTraits:
    """The traits of the policy named in X.json beside X.log.json.gz; else in TRACE__POLICY__..., the log's
    name."""
    stem = log.name
    for suffix in _LOG_SUFFIXES:
        stem = stem.removesuffix(suffix)
    run_file = log.with_name(f"{stem}.json")
    if run_file.is_file() and run_file != log:
        run = _read(run_file, _RecordedRun)
        return _traits_of(run.policy_name, run.config.enable_global_queue)
    parts = stem.split("__")
    if len(parts) < 2:
        raise ConfigError(
            f"{log}: cannot tell which policy made it: there is no {run_file.name} beside it, and its "
            "name is not TRACE__POLICY__..."
        )
    return _traits_of(_CLASS_NAMES.get(parts[1], parts[1].replace("packed", "packing")), False)


def _traits_of(policy: str, global_queue: bool) -> RecordedTraits:
    """The traits of a policy of Gavel, from parts of its name, as Gavel's mechanism has them."""
    name = policy.lower()
    with_pairs = "packing" in name
    return RecordedTraits(
        "perf" in name or with_pairs, with_pairs, not name.startswith("fifo"), global_queue
    )


def _rows(groups: Ints, targets: Ints) -> tuple[Ints, Bools]:
    """(entries,) row in ``groups`` of each of the ``targets``, and whether it is there."""
    if groups.shape[1] == 1:
        groups = np.column_stack([groups[:, 0], np.full(len(groups), -1)])
    base = 2 + max(groups.max(initial=0), targets.max(initial=0))
    key, target_key = (u[:, 0] * base + u[:, 1] + 1 for u in (groups, targets))
    order = np.argsort(key)
    at = np.minimum(np.searchsorted(key, target_key, sorter=order), len(key) - 1)
    row = order[at]
    return row, key[row] == target_key


def _solve(where: str, time_s: float, shares: Shares, jobs: Iterable[int | str]) -> RecordedSolve:
    groups: list[tuple[int, int]] = []
    accelerator: list[str] = []
    share: list[float] = []
    for name, by_type in shares.items():
        group = _group(where, name)
        for accelerator_type, value in by_type.items():
            groups.append(group)
            accelerator.append(accelerator_type)
            share.append(value)
    return RecordedSolve(
        time_s=time_s,
        job_groups=np.array(groups, np.int64).reshape(-1, 2),
        accelerator=tuple(accelerator),
        share=np.array(share, np.float64),
        jobs=frozenset(int(job) for job in jobs),
    )


def _group(where: str, name: str) -> tuple[int, int]:
    match = _GROUP.match(name)
    if match is None:
        raise ConfigError(f"{where}: a job group is a job id or a pair like '(3, 7)', got {name!r}")
    return int(match[1]), int(match[2] or -1)
