"""The reason why a rank has ended badly: by what it has left behind, what it has printed, and how it
ended."""

import logging
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.client.rank_environment import (
    EXIT_IO,
    EXIT_MAY_NOT_RUN,
    EXIT_RANK_SYNC,
    EXIT_STORAGE,
)
from fairlead.client.storage import STORAGE_ERRORS, directory_sentence
from fairlead.cluster.agent.proc import signal_name
from fairlead.cluster.agent.tracebacks import last_traceback
from fairlead.cluster.agent.untrusted_files import read_regular
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.protocol.validation_messages import UNREADABLE

_log = logging.getLogger(__name__)

_MAX_ERRNO = 4095  # of the kernel
LARGEST_REPORT = 1 << 18  # bytes
MAX_TEXT = 500  # characters
MAX_TRACEBACK = 32_000  # bytes in UTF-8: a report may tell of many
LINE = 200  # characters of a line of output that are told
MAX_SEARCHED = 2000  # and of one in which words are looked for: that takes the square of its length

# Words of errors that have no traceback, or that say more than it.
ERROR_WORDS = re.compile(
    r"CUDA out of memory|CUDA error|out of memory|OutOfMemory|Segmentation fault|Bus error|"
    r"command not found|No such file or directory|Permission denied|No space left on device|"
    r"Watchdog caught collective operation timeout|NCCL error|Fatal Python error|"
    r"terminate called after throwing|what\(\):|Illegal instruction|cannot open shared object file|"
    r"[A-Za-z]+Error: ",
)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CLIENT_CODES = frozenset({EXIT_IO, EXIT_MAY_NOT_RUN, EXIT_RANK_SYNC, EXIT_STORAGE})
CLIENT_PREFIX = "fairlead: "  # how lines of the training side begin
WARNING = "warning: "  # how a line of it begins after which it goes on
NO_SCRIPT = 2  # exit code of a Python that cannot open its script
MISSING_SCRIPT = re.compile(r"(?m)^(?:\S*python\S*: )(can't open file '.*': \[Errno 2\] .*)\s*\Z")
# Words of lines that tell of an error in other ways. A line with none of them explains nothing.
COMPLAINT_WORDS = re.compile(
    r"\b(error|fatal|panic|panicked|exception|assertion|abort|aborted|failed|failure|cannot|can't|could not|"
    r"unable to|invalid|not found|no such|denied|refused|killed|usage)\b|[A-Za-z]+(Error|Exception)\b",
    re.IGNORECASE,
)
# What a rank dies of when another has gone.
LOST_PEER_WORDS = re.compile(
    r"connection closed by peer|connection reset by peer|connection refused|broken pipe|"
    r"remote process exited|communicator was aborted|watchdog caught collective|socket timeout|"
    r"wait timeout|timed out waiting|peer closed|another rank is gone",
    re.IGNORECASE,
)
LOST_PEER_TYPES = frozenset(
    {
        "ConnectionResetError",
        "ConnectionRefusedError",
        "ConnectionAbortedError",
        "ConnectionError",
        "BrokenPipeError",
        "EOFError",
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
    }
)

_Whole = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]


class FailureReport(msgspec.Struct, frozen=True):
    """A report that ``fairlead.client.crash`` leaves. It is the job's: nothing but its bounds is certain."""

    type: str = ""
    message: str = ""
    file: str = ""
    line: _Whole = 0
    function: str = ""
    step: _Whole = -1
    time_s: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    traceback: str = ""
    storage: _Whole = 0  # errno of the storage of its checkpoints, for which the process has left
    place: str = ""  # then: the directory that is out of order
    damaged: bool = False  # it has left because its checkpoints are damaged, as the message says
    left: _Whole = -1  # the step after which its script left its loop; then it tells of no failure


def read_report(path: Path) -> FailureReport | None:
    """Return the failure report of the process; None if it left none, or none that can be used."""
    try:
        return msgspec.json.decode(
            read_regular(path, LARGEST_REPORT, of_folder=True), type=FailureReport
        )
    except FileNotFoundError:
        return None
    except OSError as problem:
        why = problem.strerror
    except UNREADABLE as problem:
        why = str(problem)
    _log.warning("%s: is not used: %s", path, why)
    return None


FOREIGN_SIGTERM = "that signal did not come from Fairlead"


def exit_failure(
    rank: int,
    code: int,
    report: FailureReport | None,
    output: str,
    *,
    world_size: int,
    checkpoints: str = "",
    memory_ran_out: bool = False,
    output_lost: str = "",
    exceeded: str = "",
    terminated: bool = True,
) -> Failure:
    """Return the failure of a rank that should not have ended.

    output: the end of what it printed. checkpoints: their directory. memory_ran_out: the kernel has ended
    processes of this node for want of memory since the start. output_lost: why what it printed cannot be
    read. exceeded: the limit that the kernel has ended processes of the attempt for. terminated: the agent
    has sent it a SIGTERM, or nobody knows.
    """
    if report is None and code > 0:
        report = _printed_report(output)
    if report is None and code == NO_SCRIPT:
        missing = MISSING_SCRIPT.search(output[-MAX_SEARCHED:])
        if missing is not None:
            text = one_line(missing[1])[:LINE]
            return Failure(kind="not_started", rank=rank, exit_code=code, message=text)
    if report is not None and report.storage > 0 and _left(code):
        return _of_storage(rank, code, report, checkpoints)
    if report is not None and report.damaged and _left(code):
        return _of_damage(rank, code, report, checkpoints)
    if report is not None and code >= 0:
        return _exception(rank, code, report, world_size)
    # None was raised, or a signal came after what was printed.
    line = _client_line(output) if code == EXIT_IO else ""  # that alone says what is lost
    line = line or error_line(output).removeprefix(CLIENT_PREFIX)
    line = line or (_client_line(output) if code in CLIENT_CODES else "")
    if output_lost:
        line = f"its output cannot be read: {output_lost}"
    if code == -signal.SIGKILL and exceeded:
        line = exceeded
    elif code == -signal.SIGKILL and memory_ran_out:
        line = f"out of memory? {line}".strip()
    if code == -signal.SIGTERM and not terminated:
        line = f"{FOREIGN_SIGTERM}; {line}" if line else FOREIGN_SIGTERM
    return Failure(
        kind="signal" if code < 0 else "exit",
        rank=rank,
        exit_code=code,
        message=line,
        traceback="" if report is None else clean(report.traceback, MAX_TRACEBACK),
        secondary=world_size > 1 and (code == EXIT_RANK_SYNC or bool(LOST_PEER_WORDS.search(line))),
    )


def _left(code: int) -> bool:
    """Return whether a rank that told why it leaves has left. Its connections close before its process has
    ended: ranks that miss it may be heard of first, and it is killed for them."""
    return code > 0 or code in (-signal.SIGTERM, -signal.SIGKILL)


def _printed_report(output: str) -> FailureReport | None:
    """Return a report of the last traceback that a process has printed; None: there is none."""
    found = last_traceback(output)
    if found is None:
        return None
    return FailureReport(
        found.type,
        found.message,
        found.file,
        found.line,
        found.function,
        traceback=found.traceback,
    )


def _of_storage(rank: int, code: int, report: FailureReport, checkpoints: str) -> Failure:
    """The end of a rank that could not get at its checkpoints."""
    return Failure(
        kind="exit",
        rank=rank,
        exit_code=code,
        message=directory_sentence(checkpoints, os.strerror(min(report.storage, _MAX_ERRNO))),
        step=max(report.step, -1),
        traceback=clean(report.traceback, MAX_TRACEBACK),
        time_s=report.time_s,
        directory="out_of_order" if report.storage in STORAGE_ERRORS else "wrong_path",
        path=report.place if Path(checkpoints).is_relative_to(report.place or "?") else "",
    )


def _of_damage(rank: int, code: int, report: FailureReport, checkpoints: str) -> Failure:
    """The end of a rank none of whose checkpoints is whole."""
    return Failure(
        kind="exit",
        rank=rank,
        exit_code=code,
        message=one_line(report.message),
        time_s=report.time_s,
        directory="out_of_order",
        path=checkpoints,
        of_checkpoints=True,
    )


def _exception(rank: int, code: int, report: FailureReport, world_size: int) -> Failure:
    """The end of a rank that an exception tells of."""
    name = report.type.rpartition(".")[2]
    broken = (
        name in LOST_PEER_TYPES
        or bool(LOST_PEER_WORDS.search(report.message))
        or code == EXIT_RANK_SYNC
    )
    return Failure(
        kind="exception",
        rank=rank,
        exit_code=code,
        type=one_line(report.type),
        message=one_line(report.message),
        file=one_line(report.file),
        line=max(report.line, 0),
        function=one_line(report.function),
        step=max(report.step, -1),
        traceback=clean(report.traceback, MAX_TRACEBACK),
        secondary=world_size > 1 and broken,
        time_s=report.time_s,
    )


def sentence(failure: Failure, world_size: int) -> str:
    """A failure in words."""
    who = f"rank {failure.rank}: " if world_size > 1 else ""
    if failure.directory:
        return f"{who}{failure.message}"
    if failure.kind == "exception":
        place = f"{Path(failure.file).name}:{failure.line}" if failure.file else ""
        where = f" ({place})" if place else ""
        text = f": {failure.message}" if failure.message else ""
        return f"{who}{failure.type}{text}{where}"
    if failure.kind == "stalled":
        return failure.message
    code = failure.exit_code or 0
    if failure.kind == "exit" and failure.exit_code == 0:
        return f"rank {failure.rank} {failure.message}"  # it left before the others
    how = f"exit code {code}"
    if code < 0:
        how = f"killed by signal {-code} ({signal_name(-code)})"
    return f"{who}{how}" + (f": {failure.message}" if failure.message else "")


def was_killed(failure: Failure) -> bool:
    """Return whether a rank ended for SIGKILL alone: it had not left for its checkpoints by then."""
    return failure.exit_code == -signal.SIGKILL and not failure.directory


def first_to_fail(failures: Sequence[Failure]) -> Failure | None:
    """The one to blame, of those of one attempt in the order in which they were heard of: not a rank that
    died because another had, and of exceptions the earliest."""
    return min(
        failures,
        key=lambda f: (f.secondary, f.time_s if f.kind == "exception" and f.time_s else 0.0),
        default=None,
    )


def error_line(output: str) -> str:
    """The last line that names an error, else the last one that complains of something, else ""."""
    found = [line.strip() for line in COLOUR.sub("", output).splitlines() if line.strip()]
    lines = [line[:MAX_SEARCHED] for line in found[-100:]]
    for words in (ERROR_WORDS, COMPLAINT_WORDS, LOST_PEER_WORDS):
        known = [line for line in lines if words.search(line)]
        if known:
            return one_line(known[-1])[:LINE]
    return ""


def _client_line(output: str) -> str:
    """Return the last line that the training side of Fairlead has printed, without its prefix; "" = none. A
    warning is no reason to leave."""
    found = [line for line in output.splitlines() if line.startswith(CLIENT_PREFIX)]
    lines = [line.removeprefix(CLIENT_PREFIX) for line in found]
    reasons = [line for line in lines if not line.startswith(WARNING)]
    return one_line(reasons[-1]) if reasons else ""


def one_line(text: str) -> str:
    """Return a text without control characters, cut to one short line."""
    return "".join(c if c.isprintable() else " " for c in text).strip()[:MAX_TEXT]


def clean(text: str, most: int) -> str:
    """Without control characters but the ends of lines; of a text longer than ``most`` bytes in UTF-8,
    beginning and end."""
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    data = text.encode()
    if len(data) <= most:
        return text
    first, last = data[: most // 3], data[-(most - most // 3 - 5) :]
    return f"{first.decode(errors='ignore')}\n...\n{last.decode(errors='ignore')}"
