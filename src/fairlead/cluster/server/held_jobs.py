"""Jobs that wait for other jobs: for those that they depend on, or for a turn among the tasks of their array.

A held job has a row, and no other part of the server acts on it; the core hears of it once it is released.
Nothing is written down of that. Whether a job is held follows from what is: from the rows of the jobs that it
waits for, which stay for as long (``needed``), and from what the core knows. So a server that is killed
anywhere between the end of a job and the release of another finds the same when it starts again.
"""

import itertools
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.protocol.arrays import parse_array
from fairlead.cluster.protocol.dependencies import (
    CONDITION_WORDS,
    Condition,
    Dependency,
    parse_dependency,
)
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.store.rows import JobRow

NAMED = 5  # jobs that a reason names
MAX_REASON = 300  # characters of another job's reason


@dataclass(slots=True)
class HeldGroup:
    """A job that depends on others, or the tasks of an array, which wait for the same."""

    limit: int  # tasks that may take part at once; 0 = all
    waiting: dict[int, JobRow] = field(default_factory=dict)  # held jobs, in order of id
    taking_part: set[int] = field(default_factory=set)  # tasks of a limited array
    parents: dict[int, Dependency] = field(default_factory=dict)  # jobs that have not ended
    failure: str = ""  # why its jobs will never run

    @property
    def room(self) -> int:
        """Return how many of the waiting jobs may take part now."""
        if self.parents or self.failure:
            return 0
        if not self.limit:
            return len(self.waiting)
        return max(self.limit - len(self.taking_part), 0)


class HoldDecision(NamedTuple):
    """A decision on held jobs."""

    released: list[JobRow]
    failed: list[tuple[JobRow, str]]  # jobs that will never run, and why


class Outcome(NamedTuple):
    """The way in which a job has ended."""

    state: JobState
    reason: str = ""


UNKNOWN = Outcome("dropped", "nothing is known of it")


class HeldJobs:
    """Decides which jobs are held. On the driver's thread, but for ``has`` and ``reason``."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._groups: dict[int, HeldGroup] = {}  # by array, or by job
        self._children: dict[int, list[int]] = {}  # job that has not ended -> groups that wait
        self._changed: dict[int, None] = {}  # groups to be decided on, in this order

    def has(self, row: JobRow) -> bool:
        """Return whether a job is held."""
        group = self._groups.get(_key(row))
        return group is not None and row.id in group.waiting

    def reason(self, row: JobRow) -> str:
        """Return the reason why a job is held; "" = it is not."""
        group = self._groups.get(_key(row))
        if group is None or row.id not in group.waiting:
            return ""
        parents = list(group.parents.values())
        conditions: tuple[Condition, ...] = ("ok", "any")
        parts = [_awaited(condition, parents) for condition in conditions]
        if words := " and ".join(filter(None, parts)):
            return f"waits for {words}"
        if group.limit:
            return f"waits for its turn: {group.limit:,} of array {row.array} may run at once"
        return "is about to take part"

    def hold(self, row: JobRow) -> bool:
        """Hold a job that the core does not know, if it waits for others. Returns whether it does."""
        if not is_held_at_first(row):
            return False
        self._group(row).waiting[row.id] = row
        self._changed[_key(row)] = None
        return True

    def recover(self, rows: Iterable[JobRow], unknown: set[int]) -> None:
        """After a restart of the server. rows: open jobs in order of id; unknown: those that the core does
        not know."""
        for row in rows:
            if row.open and row.id in unknown:
                self.hold(row)
            elif row.open and limit_of(row):
                self._group(row).taking_part.add(row.id)

    def needed(self, rows: Sequence[JobRow]) -> set[int]:
        """Return the jobs whose rows have to stay: those that open jobs depend on, and tasks of their arrays.
        rows: open jobs."""
        found: set[int] = set()
        arrays = {row.array: row.array_ids for row in rows if row.array >= 0}
        for ids in arrays.values():
            found.update(ids)
        for text in {text for row in rows for text in row.spec.after}:
            found.update(self._jobs_of(parse_dependency(text)))
        return found

    def look_again(self, row: JobRow) -> None:
        """A job that was held and paused is no longer paused."""
        if self.has(row):
            self._changed[_key(row)] = None

    def decide(self) -> HoldDecision:
        """Release those that wait no longer, and name those that will never run. They are held no more."""
        decided = HoldDecision([], [])
        if self._state.halted:
            return decided
        self._note_ends()
        changed, self._changed = self._changed, {}
        for key in changed:
            group = self._groups.get(key)
            if group is None:
                continue
            if group.failure:
                decided.failed.extend((row, group.failure) for row in group.waiting.values())
                group.waiting.clear()
            else:
                decided.released.extend(_release(group))
            if not group.waiting and not group.taking_part:
                del self._groups[key]
        return decided

    def _note_ends(self) -> None:
        registry = self._state.registry
        ended, registry.ended = registry.ended, []
        for job in ended:
            outcome = self._outcome(job)
            if outcome is None:  # its attempt has ended, and it goes on
                continue
            for key in self._children.pop(job, ()):
                if (group := self._groups.get(key)) is not None:
                    dependency = group.parents.pop(job)
                    group.failure = group.failure or _failure(dependency, job, outcome)
                    self._changed[key] = None
            row = self._row(job)
            if row is not None and (group := self._groups.get(_key(row))) is not None:
                group.waiting.pop(job, None)
                group.taking_part.discard(job)
                self._changed[_key(row)] = None

    def _group(self, row: JobRow) -> HeldGroup:
        """The group of a job, made with what it waits for where it is the first of it."""
        key = _key(row)
        if (group := self._groups.get(key)) is not None:
            return group
        group = self._groups[key] = HeldGroup(limit_of(row))
        for dependency in map(parse_dependency, row.spec.after):
            for job in self._jobs_of(dependency):
                outcome = self._outcome(job)
                if outcome is not None:
                    group.failure = group.failure or _failure(dependency, job, outcome)
                    continue
                if job not in group.parents:
                    self._children.setdefault(job, []).append(key)
                    group.parents[job] = dependency
                elif dependency.condition == "ok":  # which says more than "any"
                    group.parents[job] = dependency
        return group

    def _jobs_of(self, dependency: Dependency) -> Iterable[int]:
        if not dependency.is_array:
            return (dependency.job,)
        first = self._row(dependency.job)
        return range(dependency.job, dependency.job + (0 if first is None else first.array_count))

    def _outcome(self, job: int) -> Outcome | None:
        """Return how a job has ended, as people are told; None = it has not."""
        row = self._row(job)
        if row is not None and row.open:  # one that is written, and not admitted yet, has not ended
            current = self._state.round
            over = None if current is None else current.ended.get(job)
            completed = over is not None and over.completed
            return Outcome("completed") if completed else None
        return UNKNOWN if row is None else Outcome(row.state, row.reason)

    def _row(self, job: int) -> JobRow | None:
        return self._state.registry.jobs.get(job) or self._state.store.job(job)


def is_held_at_first(row: JobRow) -> bool:
    """Return whether a job is held when it is submitted: it depends on others, or its array has a limit."""
    return bool(row.spec.after) or limit_of(row) > 0


def limit_of(row: JobRow) -> int:
    """Return how many tasks of its array may take part at once; 0 = it is in none, or all of them may."""
    return parse_array(row.spec.array).limit if row.spec.array else 0


def _key(row: JobRow) -> int:
    return row.id if row.array < 0 else row.array


def _release(group: HeldGroup) -> Iterator[JobRow]:
    """The jobs of a group that may take part now. Paused tasks of a limited array take no place in it."""
    able = (row for row in list(group.waiting.values()) if not (group.limit and _is_paused(row)))
    for row in itertools.islice(able, group.room):
        del group.waiting[row.id]
        if group.limit:
            group.taking_part.add(row.id)
        yield row


def _is_paused(row: JobRow) -> bool:
    return row.state == "paused"


def _failure(dependency: Dependency, job: int, outcome: Outcome) -> str:
    """Return why a job will never run that depends on one that has ended so; "" = it may."""
    if dependency.condition == "any" or outcome.state == "completed":
        return ""
    task = f"job {job} of {dependency.name}" if dependency.is_array else dependency.name
    reason = textwrap.shorten(
        outcome.reason.removeprefix("failed: "), MAX_REASON, placeholder="..."
    )
    ended = f"was {outcome.state}" + (f": {reason}" if reason else "")
    return f"{task}, on which it depends ({dependency.condition}), {ended}"


def _awaited(condition: Condition, parents: Iterable[Dependency]) -> str:
    """The jobs that have to end so first, in words; "" = none."""
    jobs = Counter(parent for parent in parents if parent.condition == condition)
    if not jobs:
        return ""
    single = [str(parent.job) for parent in sorted(jobs) if not parent.is_array]
    listed = [f"job{'s' * (len(single) > 1)} {_few(single)}"] if single else []
    arrays = [
        f"{tasks:,} job{'s' * (tasks > 1)} of array {parent.job}"
        for parent, tasks in sorted(jobs.items())
        if parent.is_array
    ]
    return f"{' and '.join([*listed, *([_few(arrays)] if arrays else [])])} to {CONDITION_WORDS[condition]}"


def _few(names: Sequence[str]) -> str:
    """The first of them, and how many there are beside."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
