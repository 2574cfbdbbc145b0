"""Records of attempts on disk, and the end of what an earlier agent left behind.

An attempt is written down before its first process exists, so that whoever comes after finds the processes:
by the tag that they inherit, by the token in their environment, by their session, or by pid and start time.
A bare pid proves nothing. Tokens, and so tags, begin with a mark of the agent's run, so that processes are
found by it where records are damaged or gone.
"""

import contextlib
import functools
import logging
import os
import secrets
import signal
import time
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.cluster.agent.proc import (
    Process,
    kill_exactly,
    processes,
    tag_of,
    token_tag,
)
from fairlead.cluster.agent.termination import Terminations
from fairlead.cluster.agent.untrusted_files import read_regular, write_anew
from fairlead.cluster.protocol.validation_messages import UNREADABLE
from fairlead.cluster.shortage import NO_DESCRIPTORS

MARK_SIZE = 4  # bytes of a run's mark
UNKNOWN_GRACE_S = 30.0  # of an attempt whose record is damaged or gone; the default of a job
_MAX_RECORD = 1 << 24  # bytes of a record
_TOKEN_SIZE = 16  # bytes of a token, the mark included
_log = logging.getLogger(__name__)
_POLL_S = 0.02
_KILL_TIMEOUT_S = 10.0  # SIGKILL takes effect at once, but for a process inside the kernel


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt."""

    job: int
    attempt: int
    token: str
    grace_s: Annotated[float, Meta(ge=0, le=86_400)]  # as long as a job may ask for
    leaders: tuple[tuple[int, int], ...] = ()  # (pid, start time) of its ranks
    boot: str = ""  # start times count from here
    locks: tuple[str, ...] = ()  # files of device locks that its ranks hold
    terminated: bool = False  # its ranks have had their SIGTERM


def mark_of(run: str) -> str:
    """Return the beginning of the tokens of all attempts of this run of an agent. run: its incarnation."""
    return blake2b(run.encode(), digest_size=MARK_SIZE).hexdigest()


def make_token(run: str) -> str:
    """Return a token for a new attempt in this run of an agent."""
    return mark_of(run) + secrets.token_hex(_TOKEN_SIZE - MARK_SIZE)


@functools.cache
def boot_id() -> str:
    """Return the boot id of the running kernel. It is read once: later there may be no file descriptor
    left."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def write_record(folder: Path, record: AttemptRecord) -> None:
    """Written whole or not at all. Raises OSError."""
    path = _path(folder, record.job, record.attempt)
    partial = path.with_suffix(".partial")
    try:
        write_anew(partial, msgspec.json.encode(record))
        partial.replace(path)
    except OSError:  # a full disk
        _remove(partial)
        raise


def remove_record(folder: Path, job: int, attempt: int) -> None:
    """Remove a record; no error if it is not there."""
    _remove(_path(folder, job, attempt))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def read_records(folder: Path, *, keep: bool = False) -> list[AttemptRecord]:
    """All that can be read; a file that cannot is removed, with a warning, unless it is to be kept. Raises
    OSError then where there is no file descriptor to read with."""
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(_decoded(read_regular(path, _MAX_RECORD)))
        except (OSError, *UNREADABLE) as problem:
            if keep:
                continue
            if isinstance(problem, OSError) and problem.errno in NO_DESCRIPTORS:
                raise  # that says nothing of the file
            _log.warning(
                "%s: is damaged (%s); what it tells of is found by other marks", path, problem
            )
            _remove(path)
    for partial in () if keep else folder.glob("*.partial"):
        _remove(partial)  # of a writer that was killed
    return records


def _decoded(data: bytes) -> AttemptRecord:
    """A record, also one of an earlier agent, which called the number of the attempt an epoch."""
    fields = msgspec.json.decode(data)
    if isinstance(fields, dict) and "epoch" in fields:
        fields["attempt"] = fields.pop("epoch")
    return msgspec.convert(fields, AttemptRecord)


def end_survivors(folder: Path, records: Iterable[AttemptRecord], run: str = "") -> int:
    """SIGTERM, grace, SIGKILL to all that is left of these attempts; returns how many processes there were.
    Where one does not die, inside the kernel, the records stay.
    run: incarnation of an agent of which nothing shall be left, whether there is a record of it or not."""
    records = list(records)
    found = _confirmed(records, run)
    count = len(found)
    terminations = Terminations()
    # Scripts take a second one for haste.
    terminations.begin(one for one, record in found.items() if not record.terminated)
    begun = time.monotonic()
    hopeless = begun + max((r.grace_s for r in found.values()), default=0.0) + _KILL_TIMEOUT_S
    # Look again each time: a process may have been forked behind our back.
    while (left := found | _confirmed(records, run)) and time.monotonic() < hopeless:
        terminations.go_on()
        for one, record in left.items():
            if time.monotonic() >= begun + record.grace_s:
                kill_exactly(one, signal.SIGKILL)
        time.sleep(_POLL_S)
        found = _alive(found)
    if not left:
        for record in records:
            remove_record(folder, record.job, record.attempt)
    return count


def _confirmed(records: list[AttemptRecord], run: str) -> dict[Process, AttemptRecord]:
    """A process that executes a program at this moment shows no environment: no token, if it has no tag."""
    found = find_survivors(records, run)
    if not found and (records or run):
        time.sleep(_POLL_S)
        found = find_survivors(records, run)
    return found


def find_survivors(records: Iterable[AttemptRecord], run: str = "") -> dict[Process, AttemptRecord]:
    """Processes of these attempts, and of a run of an agent, with the record of their start. Those of the run
    that no record tells of get one with what is known of them."""
    records = list(records)
    if not records and not run:
        return {}
    everyone = [one for one in processes() if one.pid != os.getpid()]
    boot = boot_id()
    by_tag = {token_tag(r.token): r for r in records}
    leaders = {one: r for r in records if r.boot == boot for one in r.leaders}
    sessions = {  # of leaders that live
        one.pid: leaders[one.pid, one.start_time]
        for one in everyone
        if (one.pid, one.start_time) in leaders
    }
    mark = mark_of(run) if run else ""
    found = {}
    for one in everyone:
        tag = tag_of(one.pid)
        known = sessions.get(one.session) or by_tag.get(tag)
        if known is None and mark and tag.startswith(mark):
            known = AttemptRecord(job=0, attempt=0, token=tag, grace_s=UNKNOWN_GRACE_S)
        if known is not None:
            found[one] = known
    return _with_descendants(found, everyone)


def _with_descendants(
    found: dict[Process, AttemptRecord], everyone: list[Process]
) -> dict[Process, AttemptRecord]:
    """A child that has left the session and shows no tag is known by its parent, if that lives."""
    records = {one.pid: record for one, record in found.items()}
    grown = True
    while grown:
        new = {
            one: records[one.parent]
            for one in everyone
            if one.pid not in records and one.parent in records
        }
        found = found | new
        records |= {one.pid: record for one, record in new.items()}
        grown = bool(new)
    return found


def _alive(known: dict[Process, AttemptRecord]) -> dict[Process, AttemptRecord]:
    now = {(one.pid, one.start_time) for one in processes()} if known else set()
    return {one: r for one, r in known.items() if (one.pid, one.start_time) in now}


def _path(folder: Path, job: int, attempt: int) -> Path:
    return folder / f"{job}-{attempt}.json"
