"""The judgement of whether a job is to blame for its starts that fail, and what is done about it. Pure:
records in, judgements out.

The same job failing on several nodes is the job's own fault. Whatever a node, or the storage that all nodes
share, is to blame for does not count against a job. See docs/decisions/0025; nodes: ``node_judge``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from fairlead.cluster.protocol.messages import DirectoryTrouble

# Two starts that fail alike after so much work, at an unknown step, fail at the same one
SAME_STEP_S = 60.0
HOSTILE_WINDOW_S = 86_400.0  # for which progress excuses no death of a process that owned the ranks
MAX_RECORDS = 50  # of a job
MAX_STORAGE_RECORDS = 8  # of these, for a long outage shall not push out what counts
STORAGE_FACTOR = 12  # the longest wait for storage over the first one
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
    "gpu is lost",
)
# Words of errors of storage, which nodes may share: they pass, and speak against a node only with others.
STORAGE_ERROR_WORDS = (
    "input/output error",
    "read-only file system",
    "stale file handle",
    "no space left on device",
    "disk quota exceeded",
    "transport endpoint is not connected",
)


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt that failed."""

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
    kept_step: float = -1.0  # steps that the next attempt could go on from, -1 = not known
    program: Program = ()  # see ``program_of``
    blames_node: bool = False  # the node is to blame: it does not count against the job
    forgeable: bool = True  # could its owner have brought it about on purpose?
    tenant: str = ""
    worked_s: float = 0.0  # for which it had trained, or run if nobody knows when it trains
    hostile: bool = False  # it is to blame for the death of an agent or a spawner
    directory: DirectoryTrouble = ""
    reached: float = -1.0  # the last step that it told of, -1 = none
    of_checkpoints: bool = False  # they are away or damaged: its owner can accept the loss

    @property
    def passing(self) -> bool:
        """Return whether the same may go well the next time."""
        name = self.place.partition("@")[0].rpartition(".")[2]
        text = self.reason.lower()
        return (
            name in TRANSIENT_ERRORS
            or "nccl" in text
            or "cuda error" in text
            or "out of memory" in text
        )

    @property
    def of_storage(self) -> bool:
        """Return whether nothing but the storage of its checkpoints kept it from running, which all nodes
        share: it counts against nobody's ``max_retries``."""
        return self.directory == "out_of_order"

    @property
    def counts(self) -> bool:
        """Return whether it counts against its job."""
        return not (self.blames_node or self.of_storage)

    @property
    def names_storage(self) -> bool:
        """Return whether storage may be to blame, which other nodes may share."""
        return self.of_storage or tells_of_storage(self.reason)

    @property
    def user(self) -> str:
        """User of the job; "" = not known."""
        return self.program[0] if self.program else ""

    @property
    def of_node(self) -> bool:
        """Return whether it is an error that a healthy node does not cause."""
        text = self.reason.lower()
        return any(words in text for words in NODE_ERROR_WORDS)


def tells_of_storage(text: str) -> bool:
    """Return whether a sentence about an error says that storage may be to blame."""
    return bool(storage_error(text))


def storage_error(text: str) -> str:
    """The error of storage that a sentence tells of, without what else it says; "" = none."""
    found = (words for words in STORAGE_ERROR_WORDS if words in text.lower())
    return next(found, "").capitalize()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retries that the owner of a job wants when it fails."""

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
    """A decision on a job whose start has failed."""

    drop: bool
    reason: str
    wait_s: float = 0.0  # before it is tried again
    avoid: tuple[str, ...] = ()  # nodes that it is not to be placed on
    failures: int = 0  # in a row that count against it


def program_of(user: str, command: Sequence[str], *where: str) -> Program:
    """Return the program of an attempt: user, interpreter and script, whatever the arguments. where: its
    working directory and its environment, if it states any: another one is another program."""
    return (user, *command[:2], *filter(None, where))


def in_a_row(records: Sequence[FailureRecord]) -> list[FailureRecord]:
    """The failures since the job got any further, and those before that no progress excuses. Those are left
    out that a node or storage is to blame for."""
    first = max((i for i, record in enumerate(records) if record.progressed), default=0)
    since_s = records[-1].time_s if records else 0.0
    counted = [*still_counted(records[:first], since_s), *records[first:]]
    return [record for record in counted if record.counts]


def added(records: Sequence[FailureRecord], newest: FailureRecord) -> tuple[FailureRecord, ...]:
    """The failures of a job with the newest one."""
    kept = [*records, newest]
    outages = [i for i, r in enumerate(kept) if r.of_storage and not r.progressed]
    for i in reversed(outages[:-MAX_STORAGE_RECORDS]):
        del kept[i]
    return tuple(kept[-MAX_RECORDS:])


def still_counted(records: Iterable[FailureRecord], now_s: float) -> list[FailureRecord]:
    """Return those of the failures that count although the job has done well since."""
    return [r for r in records if r.hostile and now_s - r.time_s <= HOSTILE_WINDOW_S]


def judge_job(
    records: Sequence[FailureRecord],
    policy: RetryPolicy,
    backoff: Backoff,
    *,
    nodes: int,
    runs_elsewhere: bool,
) -> FailureDecision:
    """The newest record is of the attempt that has just failed; oldest first.

    nodes: how many nodes the job could be tried on; runs_elsewhere: does its command run on other nodes?
    """
    last, counted = records[-1], in_a_row(records)
    avoid = tuple(sorted({record.node for record in records if record.node}))
    if last.blames_node:
        return FailureDecision(False, last.reason, 0.0, avoid, len(counted))
    if last.of_storage:
        return FailureDecision(
            False, last.reason, _storage_wait_s(records, backoff), avoid, len(counted)
        )
    hopeless = _not_startable(records, nodes, runs_elsewhere) or _same_exception(records)
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


def _storage_wait_s(records: Sequence[FailureRecord], backoff: Backoff) -> float:
    """Return how long a job waits whose newest tries have failed for storage. It is over for all at once, so
    the longest wait is shorter than after other failures."""
    others = (i for i, r in enumerate(reversed(records)) if not r.of_storage)
    in_vain = next(others, len(records))
    longest_s = min(STORAGE_FACTOR * backoff.first_s, backoff.longest_s)
    return Backoff(backoff.first_s, longest_s).wait_s(in_vain)


def _by_code(code: int, where: str, reason: str) -> str:
    """A reason that says nothing but the code is not said twice."""
    text = f"exit code {code} is {where}"
    return text if reason == f"exit code {code}" else f"{text}: {reason}"


def _not_startable(records: Sequence[FailureRecord], nodes: int, runs_elsewhere: bool) -> str:
    """Return why its command cannot be started however often it is tried, "" = it may be. How often it was
    tried in all is told, also where a node was thought to be to blame."""
    counted, last = in_a_row(records), records[-1]
    if last.kind != "not_started" or runs_elsewhere:
        return ""
    similar = [r for r in counted if r.kind == "not_started" and r.place == last.place]
    where = {record.node for record in similar}
    if len(similar) < 2 or len(where) < min(2, nodes):
        return ""
    tries = [r for r in records if (r.kind, r.place) == (last.kind, last.place)]
    on = f"on {len(where)} nodes" if len(where) > 1 else f"{times(len(tries))}"
    return f"it cannot be started, tried {on}"


def _same_exception(records: Sequence[FailureRecord]) -> str:
    """Return why its program will fail however often it is tried, "" = it may not. Two that failed at the
    same step have got no further in between, however long they ran."""
    last = records[-1]
    before = next((r for r in reversed(records[:-1]) if r.counts), None)
    if (
        last.kind != "exception"
        or not last.place
        or last.passing
        or last.of_node
        or last.names_storage
    ):
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
    """Return how often, in words where there are words."""
    return TIMES[n] if n < len(TIMES) else f"{n} times"


def waiting(failures: int, left_s: float, reason: str, *, in_all: int = 0) -> str:
    """Return why a job that is to be tried again waits. failures: in a row that count against it; left_s:
    until then, 0 = only for devices; in_all: failures of the job so far, with those that do not count."""
    how_often = f"failed {times(failures)}" if failures else "its node failed"
    if failures and in_all > failures:
        how_often += f"{' in a row' if failures > 1 else ''} ({in_all} failures in all)"
    return f"{how_often}, {_tried_again(left_s)}: {reason}"


def waiting_for_storage(left_s: float, reason: str, *, own: bool = False) -> str:
    """Return the reason of a job that waits as there is no directory for its checkpoints. own: the job's own
    checkpoints are away or damaged."""
    if own:
        return f"waits for its checkpoints, {_tried_again(left_s)}: {reason}"
    return f"waits for the storage of its checkpoints, {_tried_again(left_s)}: {reason}"


def _tried_again(left_s: float) -> str:
    return f"tried again {f'in {left_s:.0f} s' if left_s > 0 else 'when it gets devices'}"
