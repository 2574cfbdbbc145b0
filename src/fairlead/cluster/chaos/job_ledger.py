"""What the jobs wrote down, and what must hold of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import NamedTuple

from fairlead.cluster.chaos.job import digest_of, evaluation_path
from fairlead.cluster.protocol.api_models import AttemptView, JobView

GANG_S = 1.0  # ranks of one job agree at most so far ahead on when to save


class Step(NamedTuple):
    """A line S."""

    at: float
    step: int
    digest: str
    interval_s: float


@dataclass
class AttemptLog:
    """The ledger of one rank of one start."""

    job: int
    attempt: int
    rank: int
    steps: list[Step] = field(default_factory=list)
    loaded: tuple[int, str] | None = None
    saved: set[int] = field(default_factory=set)  # found whole
    tried: set[int] = field(default_factory=set)
    held_by_others: list[str] = field(default_factory=list)
    beside: list[int] = field(default_factory=list)  # starts that were alive when it began
    ended: str = ""  # X or E
    evaluated: int = -1  # steps done when it had written its evaluation; -1 = it did not get so far
    first_at: float = 0.0  # when its process was made

    @property
    def last(self) -> int:
        """The last step that it did; the one it went on from if none, -1 if it did not get so far."""
        if self.steps:
            return self.steps[-1].step
        return -1 if self.loaded is None else self.loaded[0]


def read_starts(folder: Path) -> list[AttemptLog]:
    """All starts of all ranks of a job, by attempt and rank."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        job, attempt, rank = map(int, path.name.split("."))
        start = AttemptLog(job, attempt, rank)
        for line in path.read_text().splitlines():
            _take(start, line.split(" "))
        found.append(start)
    return sorted(found, key=lambda start: (start.job, start.attempt, start.rank))


def _take(start: AttemptLog, words: list[str]) -> None:
    letter, at, *rest = words
    match letter:
        case "B":
            start.first_at = float(at) - sum(map(float, rest[1:]))
        case "L":
            start.loaded = (int(rest[0]), rest[1])
        case "S":
            start.steps.append(Step(float(at), int(rest[0]), rest[1], float(rest[2])))
        case "V":
            start.tried.add(int(rest[0]))
        case "C":
            start.saved.add(int(rest[0]))
        case "D":
            start.held_by_others.append(rest[0])
        case "A":
            start.beside.append(int(rest[0]))
        case "F":
            start.evaluated = int(rest[0])
        case "X" | "E":
            start.ended = letter


@dataclass(frozen=True)
class Expected:
    """A job as it was submitted."""

    name: str
    total_steps: int
    step_s: float  # the least that a step takes
    ranks: int = 1
    unmanaged: bool = (
        False  # without a lease: steps are counted by time, and saved by the job itself
    )
    evaluation_s: float = 0.0  # after its loop; 0 = it has none


def check_job(
    expected: Expected,
    folder: Path,
    view: JobView,
    attempts: list[AttemptView],
    disk_was_full: bool,
) -> Iterator[str]:
    """Every way in which a completed job is not as it must be."""
    starts = read_starts(folder)
    leaders = [start for start in starts if start.rank == 0]
    chain = _digests(expected.total_steps)
    yield from _check_view(expected, view, attempts)
    if len({start.job for start in starts}) != 1:
        yield f"ran as {len({start.job for start in starts})} jobs"
    for start in starts:
        where = f"start {start.attempt}, rank {start.rank}"
        yield from (f"{where}: {device} was held by another" for device in start.held_by_others)
        yield from (f"{where}: began while start {other} was alive" for other in start.beside)
        yield from (f"{where}: {wrong}" for wrong in _check_steps(start, chain))
    yield from _check_alone(starts)
    yield from _check_end(leaders, expected)
    if expected.unmanaged:
        return
    yield from _check_evaluation(leaders, expected, folder, chain)
    yield from _check_chain(leaders, expected, disk_was_full)
    yield from _check_gangs(starts, expected)
    lost = sum(_lost(leaders))
    if view.lost_steps > lost:
        yield f"the server counts {view.lost_steps:g} lost steps, the job itself {lost}"


def _digests(total: int) -> list[str]:
    """By number of steps done."""
    chain = [""]
    for step in range(1, total + 1):
        chain.append(digest_of(chain[-1], step))
    return chain


def _check_view(expected: Expected, view: JobView, attempts: list[AttemptView]) -> Iterator[str]:
    if view.state != "completed":
        yield f"is {view.state} ({view.reason})"
    if view.steps != expected.total_steps:
        yield f"the server counts {view.steps:g} steps of {expected.total_steps}"
    counted = [attempt for attempt in attempts if attempt.to_step > attempt.from_step]
    if any(b.from_step < a.to_step for a, b in pairwise(counted)):
        shown = ", ".join(f"{s.attempt}: {s.from_step:g}-{s.to_step:g}" for s in counted)
        yield f"steps are counted for two starts ({shown})"


def _check_steps(start: AttemptLog, chain: list[str]) -> Iterator[str]:
    """Check that it did one step after the other, from where it had been saved."""
    if start.loaded is None:
        if start.steps:
            yield "trained before it had loaded"
        return
    step, digest = start.loaded
    if step >= len(chain) or chain[step] != digest:
        yield f"went on from step {step} with a state that is not of that step"
    for done in start.steps:
        if done.step != step + 1:
            yield f"did step {done.step} after step {step}"
        if done.step >= len(chain) or chain[done.step] != done.digest:
            yield f"has a wrong state after step {done.step}"
        step = done.step


def _check_chain(
    leaders: list[AttemptLog], expected: Expected, disk_was_full: bool
) -> Iterator[str]:
    """Check that every attempt went on from the newest checkpoint and lost no more than allowed."""
    saved = 0
    loaded = [start for start in leaders if start.loaded is not None]
    for start in loaded:
        assert start.loaded is not None
        if start.loaded[0] < saved:
            yield f"start {start.attempt} went on from step {start.loaded[0]}, {saved} had been saved"
        saved = max(saved, *start.saved, start.loaded[0])
    for (before, after), lost in zip(pairwise(loaded), _lost(leaders), strict=True):
        allowed = _allowed(before, expected)
        if lost > allowed and not disk_was_full:
            yield f"start {after.attempt} did {lost} steps again, {allowed} may be"
        if before.ended == "X" and lost:
            yield f"start {before.attempt} was told to stop, ended well, and lost {lost} steps"


def _check_end(leaders: list[AttemptLog], expected: Expected) -> Iterator[str]:
    loaded = [start for start in leaders if start.loaded is not None]
    if not loaded or loaded[-1].last != expected.total_steps or loaded[-1].ended != "E":
        yield "its last start did not do its last step"


def _check_evaluation(
    leaders: list[AttemptLog], expected: Expected, folder: Path, chain: list[str]
) -> Iterator[str]:
    """Check that what comes after the loop ran to its end, after the last step."""
    if not expected.evaluation_s:
        return
    path = evaluation_path(folder)
    found = path.read_text() if path.exists() else ""
    if found != f"{expected.total_steps} {chain[-1]}":
        yield f"its evaluation is {found!r}"
    if not leaders or leaders[-1].evaluated != expected.total_steps:
        yield "its last start did not evaluate"
    early = [s.attempt for s in leaders if s.evaluated not in (-1, expected.total_steps)]
    yield from (f"start {attempt} evaluated before the last step" for attempt in early)


def _lost(leaders: list[AttemptLog]) -> list[int]:
    """Steps that each start but the first did again."""
    loaded = [start for start in leaders if start.loaded is not None]
    pairs = [(a.last, b.loaded[0]) for a, b in pairwise(loaded) if b.loaded is not None]
    return [max(last - begin, 0) for last, begin in pairs]


def _allowed(start: AttemptLog, expected: Expected) -> int:
    """Steps of one checkpoint interval and one more; several ranks agree ahead on when to save."""
    interval_s = max((step.interval_s for step in start.steps), default=0.0)
    gang_s = GANG_S if expected.ranks > 1 else 0.0
    return ceil((interval_s + gang_s) / expected.step_s) + 1


def _check_alone(starts: list[AttemptLog]) -> Iterator[str]:
    """Check that an earlier attempt was over when a later one did its first step."""
    over = {start.attempt: 0.0 for start in starts}
    began: dict[int, float] = {}
    for start in starts:
        if start.steps:
            over[start.attempt] = max(over[start.attempt], start.steps[-1].at)
            first = start.steps[0].at
            began[start.attempt] = min(began.get(start.attempt, first), first)
    for attempt, first in began.items():
        late = [other for other, at in over.items() if other < attempt and at > first]
        yield from (f"starts {other} and {attempt} trained at the same time" for other in late)


def _check_gangs(starts: list[AttemptLog], expected: Expected) -> Iterator[str]:
    """Check that all ranks stopped at one step where they ended well."""
    for attempt in sorted({start.attempt for start in starts}):
        ranks = [start for start in starts if start.attempt == attempt]
        last = {start.rank: start.last for start in ranks if start.ended}
        if len(last) == expected.ranks and len(set(last.values())) > 1:
            yield f"start {attempt}: its ranks stopped on steps {last}"
