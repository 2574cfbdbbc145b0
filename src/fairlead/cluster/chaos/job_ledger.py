"""The ledgers that the jobs wrote, and the rules that must hold of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import NamedTuple

from fairlead.cluster.chaos.job import digest_of, evaluation_path
from fairlead.cluster.protocol.api_models import AttemptView, JobView

RANK_SKEW_S = 1.0  # ranks of one job agree at most so far ahead on when to save


class Step(NamedTuple):
    """A line S."""

    at: float
    step: int
    digest: str
    interval_s: float


@dataclass
class AttemptLog:
    """The ledger of one rank of one attempt."""

    job: int
    attempt: int
    rank: int
    steps: list[Step] = field(default_factory=list)
    loaded: tuple[int, str] | None = None
    saved: set[int] = field(default_factory=set)  # found whole
    tried: set[int] = field(default_factory=set)
    lock_violations: list[str] = field(default_factory=list)
    colocated: list[int] = field(default_factory=list)  # attempts that were alive when it began
    ended: str = ""  # X or E
    evaluated: int = -1  # steps done when it had written its evaluation; -1 = it did not get so far
    first_at: float = 0.0  # when its process was made

    @property
    def last(self) -> int:
        """The last step that it did; the one it went on from if none, -1 if it did not get so far."""
        if self.steps:
            return self.steps[-1].step
        return -1 if self.loaded is None else self.loaded[0]


def read_attempts(folder: Path) -> list[AttemptLog]:
    """The ledgers of all ranks of all attempts of a job, by attempt and rank."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        job, attempt, rank = map(int, path.name.split("."))
        log = AttemptLog(job, attempt, rank)
        for line in path.read_text().splitlines():
            _apply_record(log, line.split(" "))
        found.append(log)
    return sorted(found, key=lambda log: (log.job, log.attempt, log.rank))


def count_prepared(folder: Path) -> int:
    """Attempts of a job that were prepared while an earlier one still trained, and then went on from it."""
    leaders = [log for log in read_attempts(folder) if log.rank == 0 and log.loaded is not None]
    return sum(
        bool(before.steps) and after.first_at < before.steps[-1].at
        for before, after in pairwise(leaders)
    )


def count_resized(folder: Path) -> int:
    """Attempts of a job that trained with another number of ranks than the one before."""
    ranks = Counter(log.attempt for log in read_attempts(folder) if log.loaded is not None)
    return sum(before != after for before, after in pairwise(ranks[one] for one in sorted(ranks)))


def _apply_record(log: AttemptLog, words: list[str]) -> None:
    letter, at, *fields = words
    match letter:
        case "B":
            log.first_at = float(at) - sum(map(float, fields[1:]))
        case "R":
            log.first_at = float(at)
        case "L":
            log.loaded = (int(fields[0]), fields[1])
        case "S":
            log.steps.append(Step(float(at), int(fields[0]), fields[1], float(fields[2])))
        case "V":
            log.tried.add(int(fields[0]))
        case "C":
            log.saved.add(int(fields[0]))
        case "D":
            log.lock_violations.append(fields[0])
        case "A":
            log.colocated.append(int(fields[0]))
        case "F":
            log.evaluated = int(fields[0])
        case "X" | "E":
            log.ended = letter


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
    standby: bool = False  # it is prepared where it moves to
    elastic: bool = False  # it has another number of ranks in each attempt


def check_job(
    expected: Expected,
    folder: Path,
    view: JobView,
    attempts: list[AttemptView],
    disk_was_full: bool,
) -> Iterator[str]:
    """Every way in which a completed job is not as it must be."""
    logs = read_attempts(folder)
    leaders = [log for log in logs if log.rank == 0]
    chain = _digests(expected.total_steps)
    yield from _check_view(expected, view, attempts)
    if len({log.job for log in logs}) != 1:
        yield f"ran as {len({log.job for log in logs})} jobs"
    yield from _check_attempts(logs, chain)
    yield from _check_end(leaders, expected)
    if expected.unmanaged:
        return
    yield from _check_evaluation(leaders, expected, folder, chain)
    yield from _check_chain(leaders, expected, disk_was_full)
    yield from _check_gangs(logs, {one.attempt: len(one.devices) for one in attempts})
    lost = sum(_lost(leaders))
    if view.lost_steps > lost:
        yield f"the server counts {view.lost_steps:g} lost steps, the job itself {lost}"


def check_cancelled_job(expected: Expected, folder: Path) -> Iterator[str]:
    """Every way in which a job that did not get to its end is not as it must be."""
    yield from _check_attempts(read_attempts(folder), _digests(expected.total_steps))


def _check_attempts(logs: list[AttemptLog], chain: list[str]) -> Iterator[str]:
    """Check that each attempt had its devices and its job for itself, and did its steps in order."""
    for log in logs:
        where = f"attempt {log.attempt}, rank {log.rank}"
        yield from (f"{where}: {device} was held by another" for device in log.lock_violations)
        yield from (f"{where}: began while attempt {other} was alive" for other in log.colocated)
        yield from (f"{where}: {violation}" for violation in _check_steps(log, chain))
    yield from _check_exclusive(logs)


def _digests(total: int) -> list[str]:
    """Return the digests by number of steps done."""
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
        yield f"steps are counted for two attempts ({shown})"


def _check_steps(log: AttemptLog, chain: list[str]) -> Iterator[str]:
    """Check that it did one step after the other, from where it had been saved."""
    if log.loaded is None:
        if log.steps:
            yield "trained before it had loaded"
        return
    step, digest = log.loaded
    if step >= len(chain) or chain[step] != digest:
        yield f"went on from step {step} with a state that is not of that step"
    for done in log.steps:
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
    loaded = [log for log in leaders if log.loaded is not None]
    for log in loaded:
        assert log.loaded is not None
        if log.loaded[0] < saved:
            yield f"attempt {log.attempt} went on from step {log.loaded[0]}, {saved} had been saved"
        saved = max(saved, *log.saved, log.loaded[0])
    for (before, after), lost in zip(pairwise(loaded), _lost(leaders), strict=True):
        allowed = _allowed(before, expected)
        if lost > allowed and not disk_was_full:
            yield f"attempt {after.attempt} did {lost} steps again, {allowed} may be"
        if before.ended == "X" and lost:
            yield f"attempt {before.attempt} was told to stop, ended well, and lost {lost} steps"


def _check_end(leaders: list[AttemptLog], expected: Expected) -> Iterator[str]:
    loaded = [log for log in leaders if log.loaded is not None]
    if not loaded or loaded[-1].last != expected.total_steps or loaded[-1].ended != "E":
        yield "its last attempt did not do its last step"


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
    loaded = [log for log in leaders if log.loaded is not None]
    if not loaded or loaded[-1].evaluated != expected.total_steps:
        yield "its last attempt did not evaluate"
    early = [s.attempt for s in leaders if s.evaluated not in (-1, expected.total_steps)]
    yield from (f"attempt {attempt} evaluated before the last step" for attempt in early)


def _lost(leaders: list[AttemptLog]) -> list[int]:
    """Steps that each attempt but the first did again."""
    loaded = [log for log in leaders if log.loaded is not None]
    pairs = [(a.last, b.loaded[0]) for a, b in pairwise(loaded) if b.loaded is not None]
    return [max(last - begin, 0) for last, begin in pairs]


def _allowed(log: AttemptLog, expected: Expected) -> int:
    """Steps of one checkpoint interval and one more; several ranks agree ahead on when to save."""
    interval_s = max((step.interval_s for step in log.steps), default=0.0)
    rank_skew_s = RANK_SKEW_S if expected.ranks > 1 else 0.0
    return ceil((interval_s + rank_skew_s) / expected.step_s) + 1


def _check_exclusive(logs: list[AttemptLog]) -> Iterator[str]:
    """Check that an earlier attempt was over when a later one did its first step."""
    over = {log.attempt: 0.0 for log in logs}
    began: dict[int, float] = {}
    for log in logs:
        if log.steps:
            over[log.attempt] = max(over[log.attempt], log.steps[-1].at)
            first = log.steps[0].at
            began[log.attempt] = min(began.get(log.attempt, first), first)
    for attempt, first in began.items():
        late = [other for other, at in over.items() if other < attempt and at > first]
        yield from (f"attempts {other} and {attempt} trained at the same time" for other in late)


def _check_gangs(logs: list[AttemptLog], devices: dict[int, int]) -> Iterator[str]:
    """Check that all ranks stopped at one step where they ended well. devices: by attempt."""
    for attempt in sorted({log.attempt for log in logs}):
        ranks = [log for log in logs if log.attempt == attempt]
        last = {log.rank: log.last for log in ranks if log.ended}
        if len(last) == devices.get(attempt) and len(set(last.values())) > 1:
            yield f"attempt {attempt}: its ranks stopped on steps {last}"
