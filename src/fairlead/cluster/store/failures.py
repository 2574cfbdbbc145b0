"""Who is to blame for starts that fail, and what is done about it. Pure: records in, judgements out.

The same job failing on several nodes is the job's own fault. Several jobs failing on one node, while they,
or others that run the same program, do well elsewhere, are the fault of the node. Whatever a node is to
blame for does not count against a job. See docs/decisions/0025.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

WINDOW_S = 900.0  # a node is judged by the failures of so long
MAX_RECORDS = 4096  # failures and good starts of all jobs
MIN_WEAK_JOBS, MIN_STRONG_JOBS = 3, 2  # jobs that have to fail on a node: see ``NodeJudge``
MIN_PARTIES = 2  # parties whose word takes a node from others: see ``NodeJudge``
# Two starts that fail alike after so much work, at an unknown step, fail at the same one
SAME_STEP_S = 60.0
HOSTILE_WINDOW_S = 86_400.0  # for which progress excuses no death of a process that owned the ranks
TIMES = ("never", "once", "twice")

FailureKind: TypeAlias = Literal["not_started", "exit", "signal", "exception", "stalled"]
Program: TypeAlias = tuple[str, ...]

# Errors that may pass by themselves although they look alike: of memory, of the network, of other ranks.
TRANSIENT_ERRORS = (
    "ConnectionError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "ConnectionAbortedError",
    "BrokenPipeError",
    "TimeoutError",
    "BlockingIOError",
    "InterruptedError",
    "MemoryError",
    "OutOfMemoryError",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "gaierror",
)
# Words of errors that a healthy node does not bring about.
NODE_ERROR_WORDS = (
    "uncorrectable ecc",
    "no cuda-capable device",
    "cuda driver",
    "device-side hardware",
    "unable to determine the device handle",
    "input/output error",
    "read-only file system",
    "stale file handle",
    "no space left on device",
    "gpu is lost",
)


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One start that failed."""

    job: int
    attempt: int
    node: str  # of the rank that failed first
    time_s: float
    kind: FailureKind
    exit_code: int | None = None  # 128 + n for signal n
    reason: str = ""  # one sentence
    place: str = ""  # exception type and place, or the command that was not found; "" = not known
    step: int = -1  # at which it failed, -1 = not known
    ran_s: float = 0.0  # from the order to the end
    progressed: bool = False  # had the job got further since it failed before?
    kept_step: float = -1.0  # steps that the next start could go on from, -1 = not known
    program: Program = ()  # see ``program_of``
    blames_node: bool = False  # the node is to blame: it does not count against the job
    forgeable: bool = True  # could its owner have brought it about on purpose?
    tenant: str = ""
    worked_s: float = 0.0  # for which it had trained, or run if nobody knows when it trains
    hostile: bool = False  # it is to blame for the death of an agent or a spawner

    @property
    def passing(self) -> bool:
        """Whether the same may go well the next time."""
        name = self.place.partition("@")[0].rpartition(".")[2]
        text = self.reason.lower()
        return (
            name in TRANSIENT_ERRORS
            or "nccl" in text
            or "cuda error" in text
            or "out of memory" in text
        )

    @property
    def user(self) -> str:
        """Whose job it is; "" = not known."""
        return self.program[0] if self.program else ""

    @property
    def of_node(self) -> bool:
        """Whether it is an error that a healthy node does not cause."""
        text = self.reason.lower()
        return any(words in text for words in NODE_ERROR_WORDS)


@dataclass(frozen=True, slots=True)
class GoodStart:
    """A start that trains, or has ended as it should."""

    job: int
    node: str
    time_s: float  # when it began to train
    program: Program
    lasted_s: float = 0.0  # for which it had trained when this was noted


def _nobody(node: str) -> Collection[str]:
    del node
    return ()


@dataclass(frozen=True, slots=True)
class Parties:
    """Those who judge a node independently of each other: tenants, where there are several, else users."""

    known: Collection[str] = ()  # who have jobs, and would suffer from the loss of a node
    by_tenant: bool = False
    content: Callable[[str], Collection[str]] = (
        _nobody  # node -> those whose jobs run well there now
    )

    def of(self, record: FailureRecord) -> str:
        """To which a failed job belongs."""
        return record.tenant if self.by_tenant else record.user


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What the owner of a job wants done when it fails."""

    max_retries: int = 5
    retry_on: tuple[int, ...] = ()  # exit codes; () = all
    no_retry_on: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds to wait before the first retry, twice as long before each that follows."""

    first_s: float = 5.0
    longest_s: float = 300.0

    def wait_s(self, failures: int) -> float:
        """After so many failures in a row."""
        if failures < 1:
            return 0.0
        return float(min(self.first_s * 2.0 ** min(failures - 1, 60), self.longest_s))


@dataclass(frozen=True, slots=True)
class FailureDecision:
    """What becomes of a job whose start has failed."""

    drop: bool
    reason: str
    wait_s: float = 0.0  # before it is tried again
    avoid: tuple[str, ...] = ()  # nodes that it is not to be placed on
    failures: int = 0  # in a row that count against it


def program_of(user: str, command: Sequence[str], *where: str) -> Program:
    """What a start runs: the interpreter and the script, whatever the arguments. where: its working
    directory and its environment, if it states any: another one is another program."""
    return (user, *command[:2], *filter(None, where))


def in_a_row(records: Sequence[FailureRecord]) -> list[FailureRecord]:
    """The failures since the job got any further, and those before that no progress excuses. Those are left
    out that a node is to blame for."""
    first = max((i for i, record in enumerate(records) if record.progressed), default=0)
    since_s = records[-1].time_s if records else 0.0
    counted = [*still_counted(records[:first], since_s), *records[first:]]
    return [record for record in counted if not record.blames_node]


def still_counted(records: Iterable[FailureRecord], now_s: float) -> list[FailureRecord]:
    """Of failures those that count although the job has done well since."""
    return [r for r in records if r.hostile and now_s - r.time_s <= HOSTILE_WINDOW_S]


def judge_job(
    records: Sequence[FailureRecord],
    policy: RetryPolicy,
    backoff: Backoff,
    *,
    nodes: int,
    runs_elsewhere: bool,
) -> FailureDecision:
    """The newest record is of the start that has just failed; oldest first.

    nodes: how many nodes the job could be tried on; runs_elsewhere: does its command run on other nodes?
    """
    last, counted = records[-1], in_a_row(records)
    avoid = tuple(sorted({record.node for record in records if record.node}))
    if last.blames_node:
        return FailureDecision(False, last.reason, 0.0, avoid, len(counted))
    hopeless = _not_startable(counted, nodes, runs_elsewhere) or _same_exception(records)
    if hopeless:
        return FailureDecision(True, f"{hopeless}: {last.reason}", failures=len(counted))
    code = last.exit_code
    if last.kind in ("exit", "signal", "exception", "not_started") and code is not None:
        if code in policy.no_retry_on:
            return FailureDecision(True, _by_code(code, "in no_retry_on", last.reason))
        if policy.retry_on and code not in policy.retry_on:
            return FailureDecision(True, _by_code(code, "not in retry_on", last.reason))
    n = len(counted)
    if n > policy.max_retries:
        again = f"failed {times(n)}" + (" in a row" if n > 1 else "")
        other = sum(record.blames_node for record in records)
        besides = f", not counting {times(other)} for which nodes are to blame" if other else ""
        return FailureDecision(
            True, f"{again} (max_retries {policy.max_retries}{besides}): {last.reason}", failures=n
        )
    return FailureDecision(False, last.reason, backoff.wait_s(n), avoid, n)


def _by_code(code: int, where: str, reason: str) -> str:
    """A reason that says nothing but the code is not said twice."""
    text = f"exit code {code} is {where}"
    return text if reason == f"exit code {code}" else f"{text}: {reason}"


def _not_startable(counted: Sequence[FailureRecord], nodes: int, runs_elsewhere: bool) -> str:
    """Why its command cannot be started however often it is tried, "" = it may be."""
    last = counted[-1]
    if last.kind != "not_started" or runs_elsewhere:
        return ""
    similar = [r for r in counted if r.kind == "not_started" and r.place == last.place]
    where = {record.node for record in similar}
    if len(similar) < 2 or len(where) < min(2, nodes):
        return ""
    on = f"on {len(where)} nodes" if len(where) > 1 else f"{times(len(similar))}"
    return f"it cannot be started, tried {on}"


def _same_exception(records: Sequence[FailureRecord]) -> str:
    """Why its program will fail however often it is tried, "" = it may not. Two that failed at the same step
    have got no further in between, however long they ran."""
    last = records[-1]
    before = next((r for r in reversed(records[:-1]) if not r.blames_node), None)
    if last.kind != "exception" or not last.place or last.passing or last.of_node:
        return ""
    if before is None or (before.kind, before.place) != (last.kind, last.place):
        return ""
    known = before.step >= 0 and last.step >= 0
    if known and before.step != last.step:
        return ""
    # Whatever it waited, or took to start
    short = max(last.worked_s, before.worked_s) <= SAME_STEP_S
    if not known and not (short and not last.progressed):
        return ""
    step = max(last.step, before.step)
    at = f" at step {step}" if step >= 0 else ""
    return f"the same exception{at} twice in a row"


def times(n: int) -> str:
    """How often, in words where there are words."""
    return TIMES[n] if n < len(TIMES) else f"{n} times"


def waiting(failures: int, left_s: float, reason: str) -> str:
    """Why a job that is to be tried again waits. left_s: until then; 0 = only for devices."""
    how_often = f"failed {times(failures)}" if failures else "its node failed"
    when = f"in {left_s:.0f} s" if left_s > 0 else "when it gets devices"
    return f"{how_often}, tried again {when}: {reason}"


class NodeJudge:
    """Which nodes are to blame for what fails on them.

    A failure speaks against a node if nothing has been started well there since, and if the job did not
    fail in the same way on another node. It is strong if the job itself has done well on another node, or
    if its error is one that a healthy node does not bring about; it is weak if the same program does well
    on another node. ``MIN_STRONG_JOBS`` jobs of the first kind are enough, or ``MIN_WEAK_JOBS`` of both kinds
    together if one of them is strong, or could not even be started.

    What jobs say of themselves (exceptions, exit codes, files that are missing) their owners can forge, and
    so take a node from others. So where there are several parties, ``MIN_PARTIES`` ones must speak against
    the node, and one more for each whose jobs run well there meanwhile. The word of a party counts if one of
    its jobs says what a healthy node does not bring about, or has since got as far on another node as here:
    that a job fails which fails everywhere is seen only then.
    """

    def __init__(self) -> None:
        self.failures: deque[FailureRecord] = deque(maxlen=MAX_RECORDS)
        self.good: deque[GoodStart] = deque(maxlen=MAX_RECORDS)

    @classmethod
    def of(cls, failures: Iterable[FailureRecord], good: Iterable[GoodStart]) -> "NodeJudge":
        """As it was before the server was started anew. Failures that a node was blamed for have been dealt
        with, and do not count a second time."""
        judge = cls()
        counted = [record for record in failures if not record.blames_node]
        judge.failures.extend(sorted(counted, key=lambda record: record.time_s))
        judge.good.extend(sorted(good, key=lambda start: start.time_s))
        return judge

    def failed(self, record: FailureRecord) -> None:
        """A start has failed."""
        self.failures.append(record)

    def went_well(self, start: GoodStart) -> None:
        """A start trains, or has ended as it should."""
        self.good.append(start)

    def forgive(self, node: str) -> None:
        """What was before does not speak against a node any more: it has been mended, or dealt with."""
        records = [record for record in self.failures if record.node != node]
        self.failures = deque(records, MAX_RECORDS)

    def runs_elsewhere(self, record: FailureRecord) -> bool:
        """Whether its command has been seen to run on another node."""
        return any(
            start.node != record.node and _same_command(start.program, record)
            for start in self.good
        )

    def suspects(
        self, now_s: float, nodes: Collection[str], parties: Parties | None = None
    ) -> dict[str, list[FailureRecord]]:
        """Nodes that are to blame -> the newest failure there of each job that speaks against them, oldest
        first; of the nodes given, but never all of these."""
        parties = parties or Parties()
        recent = [r for r in self.failures if now_s - r.time_s <= WINDOW_S]
        found = {}
        for node in sorted({r.node for r in recent} & set(nodes)):
            records = self._against(node, recent)
            if self._weighty(records) and self._independent(node, records, parties):
                found[node] = records
        return found if len(found) < len(nodes) else {}

    def _against(self, node: str, recent: Sequence[FailureRecord]) -> list[FailureRecord]:
        since = max((g.time_s for g in self.good if g.node == node), default=-1.0)
        mine = [r for r in recent if r.node == node and r.time_s > since]
        strong: dict[int, FailureRecord] = {}
        weak: dict[int, FailureRecord] = {}
        for record in mine:
            if self._fails_elsewhere(record, recent):
                continue
            if self._is_strong(record):
                strong[record.job] = record
            elif self.runs_elsewhere(record):
                weak[record.job] = record
        return sorted((weak | strong).values(), key=lambda r: r.time_s)

    def _is_strong(self, record: FailureRecord) -> bool:
        return record.of_node or self._did_well_elsewhere(record)

    def _weighty(self, records: Collection[FailureRecord]) -> bool:
        """Are these, of one job each, enough to blame a node? Not before one of them is more than weak: that
        jobs fail says nothing of a node as long as none of them has been seen to do well elsewhere."""
        strong = sum(map(self._is_strong, records))
        telling = strong or any(record.kind == "not_started" for record in records)
        return strong >= MIN_STRONG_JOBS or (len(records) >= MIN_WEAK_JOBS and bool(telling))

    def _independent(self, node: str, records: Collection[FailureRecord], parties: Parties) -> bool:
        """Whether several owners' jobs speak against the node: none may take it from others."""
        if len({*parties.known, *map(parties.of, records)}) == 1:
            return True  # nobody else suffers from it
        if self._weighty([r for r in records if not r.forgeable]):
            return True
        content = set(parties.content(node))
        against = {parties.of(r) for r in records if self._is_confirmed(r)} - content
        return len(against) >= MIN_PARTIES + len(content)

    def _is_confirmed(self, record: FailureRecord) -> bool:
        """Whether more speaks for it than that the program runs elsewhere."""
        return (
            record.of_node
            or not record.forgeable
            or any(
                good.job == record.job
                and good.node != record.node
                and good.time_s > record.time_s
                and good.lasted_s >= record.worked_s
                for good in self.good
            )
        )

    def _fails_elsewhere(self, record: FailureRecord, recent: Iterable[FailureRecord]) -> bool:
        """Has this job, or one that runs the same program in the same place, failed on another node, and
        not done well on a third since?"""
        for other in recent:
            if other.node == record.node:
                continue
            similar = (other.program, other.place) == (record.program, record.place)
            if other.job != record.job and not (record.place and similar):
                continue
            if not any(
                good.node not in (record.node, other.node) and good.time_s > other.time_s
                for good in self.good
                if good.job == other.job
            ):
                return True
        return False

    def _did_well_elsewhere(self, record: FailureRecord) -> bool:
        return any(good.job == record.job and good.node != record.node for good in self.good)


def _same_command(program: Program, record: FailureRecord) -> bool:
    """Of a command of the node's own that could not be started, the name alone counts: another script is
    found by the same interpreter. That one finds its own script says nothing of a script, a directory or an
    environment that another job has named."""
    nodes_own = record.kind == "not_started" and not record.forgeable
    words = 2 if nodes_own else max(len(program), len(record.program))
    return bool(program) and program[:words] == record.program[:words]
