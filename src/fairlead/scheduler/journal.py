"""The journal: every event and every command of a run, in order, in one append-only file.

Layout: the magic line, then records. A record is its length and its CRC-32 (two little-endian u32),
one byte for its kind, and a msgpack payload. The first record is the ``Setup`` that a fresh scheduler
is made of; where that took over from another, the second is the ``SchedulerCheckpoint``. Nothing in it
depends on the wall clock, so equal runs give equal bytes. A file that was cut off anywhere can be read up
to its last whole record.

Arrays are msgpack extensions (``fairlead.scheduler.array_encoding``).
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.errors import CheckError, ProtocolError, RunError
from fairlead.model import commands as c
from fairlead.model import events as e
from fairlead.model.job_type import JobType
from fairlead.model.plan import Planner, Policy
from fairlead.model.snapshot import Snapshot
from fairlead.policies import registry
from fairlead.scheduler.array_encoding import pack, pack_ends, pack_report, pack_start, unpack
from fairlead.scheduler.core.checkpoint import SchedulerCheckpoint
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.journal_names import with_present_names
from fairlead.scheduler.mechanism.gavel_reference.switches import GavelSwitches
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.scheduler.mechanism.shockwave_reference.switches import ShockwaveSwitches
from fairlead.scheduler.setup import Setup, build, restore

# The number is raised whenever what was written before would be read as something else.
MAGIC = b"fairlead journal 3\n"
_HEAD = struct.Struct("<II")
_BUFFER = 1 << 20  # bytes that are written at once


class SolveDigest(msgspec.Struct, frozen=True):
    """The journal's record of a ``Solve``: when, for how many jobs, and a digest of the snapshot."""

    time_s: float
    jobs: int
    digest: bytes


Record: TypeAlias = Setup | SchedulerCheckpoint | e.Event | c.Command | SolveDigest

_KINDS: dict[bytes, Any] = {
    b"H": Setup,
    b"j": e.JobsSubmitted,
    b"x": e.JobsCancelled,
    b"l": e.NodeLost,
    b"r": e.NodeRecovered,
    b"e": e.RoundEnded,
    b"s": e.Solved,
    b"w": e.Stalled,
    b"q": e.RequirementsChanged,
    b"p": e.ProgressCorrected,
    b"c": e.RestartCostsLearned,
    b"g": e.JobsReweighted,
    b"h": e.JobsPaused,
    b"k": e.JobTypesLearned,
    b"b": e.RatesLearned,
    b"d": e.JobsDropped,
    b"a": e.NodesAvoided,
    b"v": e.DevicesBound,
    b"o": e.DevicesKept,
    b"y": e.DevicesOccupied,
    b"T": SchedulerCheckpoint,
    b"S": SolveDigest,
    b"R": c.StartRound,
    b"C": c.EndRound,
    b"J": c.EndJobs,
    b"W": c.WakeAt,
}
_CODE = {record_type: code for code, record_type in _KINDS.items()}
_SETUP, _STATE = _CODE[Setup], _CODE[SchedulerCheckpoint]
_EVENTS = frozenset(b"jxlreswqpcghkbdavoy")


def _encode_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return msgspec.msgpack.Ext(1, pack(value))
    if isinstance(value, JobType):
        return value.name, value.scale_factor
    raise TypeError(f"cannot journal a {type(value).__name__}")


def _ext(_: int, data: memoryview) -> NDArray[Any]:
    return unpack(bytes(data))


def _decode_value(record_type: type, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    if record_type is JobType:
        name, scale_factor = msgspec.convert(value, tuple[str, int])
        return JobType.parse(name, scale_factor)
    raise TypeError(f"expected {record_type}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_value)
_decoders: dict[bytes, Any] = {
    code: msgspec.msgpack.Decoder(record_type, ext_hook=_ext, dec_hook=_decode_value)
    for code, record_type in _KINDS.items()
}


def _keys(*names: str) -> bytes:
    """Names of fields in msgpack, one after the other."""
    return b"".join(map(_encoder.encode, names))


_TIME, _ROUND, _LENGTH, _ACTIVE = map(_keys, ("time_s", "round", "length_s", "active"))
_REPORT_HEAD = _CODE[e.RoundEnded] + b"\x86" + _TIME  # \x80 + number of fields
_REPORT_KEYS = np.array(list(_keys("steps", "finish_s", "outcome", "restart_s")), np.uint8)
_START_HEAD = _CODE[c.StartRound] + b"\x89" + _TIME
_START_KEYS = np.array(list(_keys("job_groups", "slot", "devices", "first", "kept")), np.uint8)
_ENDS_HEAD = _CODE[c.EndJobs] + b"\x84" + _TIME
_ENDS_KEYS = np.array(list(_keys("jobs", "end", "end_s")), np.uint8)


def encode(record: Record) -> bytes:
    """Kind and payload of a record."""
    found: bytes | None = None
    if type(record) is e.RoundEnded:
        found = _encode_report(record)
    elif type(record) is c.StartRound:
        found = _encode_start(record)
    elif type(record) is c.EndJobs:
        found = _encode_ends(record)
    return found or encode_any(record)


def encode_any(record: Record) -> bytes:
    """Encode a record field by field; ``encode`` has a shorter way for those of every round."""
    thing = _digest_of_solve(record) if isinstance(record, c.Solve) else record
    return _CODE[type(thing)] + _encoder.encode(thing)


def _encode_report(event: e.RoundEnded) -> bytes | None:
    arrays = pack_report(event, _REPORT_KEYS)
    if arrays is None:
        return None
    number = _encoder.encode
    return b"".join((_REPORT_HEAD, number(event.time_s), _ROUND, number(event.round), arrays))


def _encode_start(command: c.StartRound) -> bytes | None:
    arrays = pack_start(command, _START_KEYS)
    if arrays is None:
        return None
    number = _encoder.encode
    time_s, length_s = number(command.time_s), number(command.length_s)
    counts = number(command.round), number(command.active)
    return b"".join(
        (_START_HEAD, time_s, _ROUND, counts[0], _LENGTH, length_s, arrays, _ACTIVE, counts[1])
    )


def _encode_ends(command: c.EndJobs) -> bytes | None:
    arrays = pack_ends(command, _ENDS_KEYS)
    if arrays is None:
        return None
    return b"".join((_ENDS_HEAD, _encoder.encode(command.time_s), arrays))


def decode(record: bytes) -> Record:
    """The record behind the bytes; a Solve comes back as ``SolveDigest``. RunError for what is no record."""
    try:
        body = with_present_names(record[1:]) if record[:1] == _SETUP else record[1:]
        return _decoders[record[:1]].decode(body)  # type: ignore[no-any-return]
    except (KeyError, ValueError, TypeError, struct.error) as problem:  # msgspec's are ValueErrors
        why = "is damaged, or of another version of Fairlead"
        raise RunError(f"a record of the journal {why} ({problem})") from None


def _digest_of_solve(solve: c.Solve) -> SolveDigest:
    shot: Snapshot = solve.snapshot
    digest = hashlib.blake2b(digest_size=8)
    for array in (
        shot.jobs,
        shot.weight,
        shot.steps_left,
        shot.age_s,
        shot.capacity,
        shot.group_members,
        shot.rate,
        shot.received_s,
        shot.deficit_s,
    ):
        digest.update(array.tobytes())
    return SolveDigest(solve.time_s, len(shot.jobs), digest.digest())


class Journal:
    """Writes a run as it happens: an observer of the driver. Also a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = 0
        self._file: IO[bytes] | None = None
        self._hash = hashlib.sha256()
        self._waiting: list[bytes] = []  # to be written
        self._size = 0  # of these in bytes
        self._appended: Callable[[bytes], None] | None = None  # is told of every record

    def open(self, setup: Setup) -> "Journal":
        """Start the file."""
        self._file = self.path.open("wb", buffering=0)
        self._waiting.append(MAGIC)
        self._append(encode(setup))
        return self

    def event(self, event: e.Event) -> None:
        """Append an event."""
        self._append(encode(event))

    def command(self, command: c.Command) -> None:
        """Append a command."""
        self._append(encode(command))

    def _append(self, record: bytes) -> None:
        self._waiting += _HEAD.pack(len(record), zlib.crc32(record)), record
        self._size += len(record)
        self.records += 1
        if self._size > _BUFFER:
            self._write_out()
        if self._appended is not None:
            self._appended(record)

    def _write_out(self) -> None:
        data = memoryview(b"".join(self._waiting))
        self._waiting, self._size = [], 0
        self._hash.update(data)
        while data and self._file is not None:
            data = data[self._file.write(data) :]

    def close(self) -> None:
        """Write out what is buffered and close the file; a second call does nothing."""
        if self._file is not None:
            self._write_out()
            self._file.close()
            self._file = None

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def sha256(self) -> str:
        """Hash of all bytes so far."""
        self._write_out()
        return self._hash.hexdigest()


def records(path: Path) -> Iterator[bytes]:
    """Whole records of a journal, in order; stops without a word where the file was cut off."""
    try:
        file = path.open("rb")
    except OSError as problem:
        raise RunError(f"{path}: cannot read the journal: {problem.strerror}") from None
    with file:
        if (start := file.read(len(MAGIC))) != MAGIC:
            raise RunError(f"{path}: {_no_journal(start)}")
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, crc = _HEAD.unpack(head)
            record = file.read(length)
            if not length or len(record) < length or zlib.crc32(record) != crc:
                return
            yield record


def _no_journal(start: bytes) -> str:
    """Describe a file that does not begin like a journal."""
    name, _, number = MAGIC.rpartition(b" ")
    if start.startswith(name + b" ") and start.endswith(b"\n"):
        version = start.removeprefix(name).strip().decode(errors="replace")
        return (
            f"a journal of format {version}, which another version of Fairlead has written; "
            f"this one reads format {number.decode().strip()}"
        )
    return f"not a journal of this version (it must start with {MAGIC!r})"


def setup_of(path: Path) -> Setup:
    """The first record of a journal."""
    return _as_setup(next(records(path), None), str(path))


def _as_setup(first: bytes | None, name: str) -> Setup:
    if first is None or first[:1] != _SETUP:
        raise RunError(f"{name}: the first record, which says what was run, is cut off or damaged")
    setup = decode(first)
    assert isinstance(setup, Setup)
    _check_fields(first, name)
    return setup


def _check_fields(first: bytes, name: str) -> None:
    """RunError where a setup has fields that this version does not know, and would do without."""
    given = msgspec.msgpack.decode(with_present_names(first[1:]), ext_hook=_ext)
    for path, part, record_type in (
        ("", given, Setup),
        ("settings.", given["settings"], MechanismSettings),
        ("settings.gavel.", given["settings"].get("gavel", {}), GavelSwitches),
        ("settings.shockwave.", given["settings"].get("shockwave", {}), ShockwaveSwitches),
    ):
        unknown = sorted(part.keys() - {field.name for field in fields(record_type)})
        if unknown:
            raise RunError(
                f"{name}: {path}{unknown[0]} is not known here: another version of Fairlead has written it"
            )


def decode_state(record: bytes) -> SchedulerCheckpoint:
    """The state behind the bytes."""
    state = decode(record)
    assert isinstance(state, SchedulerCheckpoint)
    return state


def recorded_solves(path: Path) -> Iterator[e.Solved]:
    """The allocations of a journal in order: what a run that goes on need not solve again."""
    for record in records(path):
        if record[:1] == b"s":
            solved = decode(record)
            assert isinstance(solved, e.Solved)
            yield solved


def replay(path: Path) -> tuple[int, int]:
    """Drive the events of a journal through a fresh core; how many records were compared, and how many
    bytes behind the last whole record were left: of a record that was cut off, if any.

    Raises CheckError with the first command that differs, RunError if a record is damaged. No solver is
    called: the allocations are events.
    """
    used = len(MAGIC)

    def measured() -> Iterator[bytes]:
        nonlocal used
        for record in records(path):
            used += _HEAD.size + len(record)
            yield record

    count = replay_records(measured(), str(path))
    return count, _torn_bytes(path, used, count)


def replay_records(segment: Iterable[bytes], name: str) -> int:
    """Drive a segment of a journal through a core, and compare the commands; how many records there were.

    A segment begins with a ``Setup`` and, where the scheduler took over from another, a
    ``SchedulerCheckpoint``. It may end anywhere. name: what messages call it. Raises CheckError with the
    first
    command that differs, RunError where the beginning is none.
    """
    setup, state, remaining = read_beginning(segment, name)
    scheduler = build(setup) if state is None else restore(setup, state)
    return _compare(scheduler, remaining, name, 1 if state is None else 2).number


def read_beginning(
    segment: Iterable[bytes], name: str
) -> tuple[Setup, SchedulerCheckpoint | None, Iterator[bytes]]:
    """Return a segment's setup, checkpoint or None, and later records. Raises RunError without a setup."""
    remaining = iter(segment)
    setup = _as_setup(next(remaining, None), name)
    second = next(remaining, None)
    if second is None:
        return setup, None, remaining
    if second[:1] == _STATE:
        return setup, decode_state(second), remaining
    return setup, None, chain([second], remaining)


@dataclass(slots=True)
class Recovered:
    """State of a scheduler that was driven through the records of a segment."""

    scheduler: Scheduler
    number: int  # of the next record
    commands: list[
        c.Command
    ]  # of the last event, which the records lack: to be journalled and performed
    solve: c.Solve | None = None  # asked for in the records, and not answered: to be performed


def recover(
    setup: Setup,
    state: SchedulerCheckpoint | None,
    tail: Iterable[bytes],
    policy: Policy | Planner | None = None,
    name: str = "journal",
) -> Recovered:
    """A scheduler as it was when the journal ended, without a solver being called.

    tail: the records of the segment behind its beginning; their commands are compared as in a replay
    (CheckError). policy: what is to solve from now on; None = made by the name in the setup.
    """
    if policy is None:
        policy = registry.make(setup.policy, seed=setup.seed, profile=setup.settings.name)
    if state is None:
        return _compare(build(setup, policy), tail, name, 1)
    return _compare(restore(setup, state, policy), tail, name, 2)


class SequenceError(RunError):
    """A record cannot follow those before it: some are missing, or are those of another run."""

    def __init__(self, name: str, number: int, problem: ProtocolError) -> None:
        """name: of the journal; number: of the record; problem: why the core refuses it."""
        self.what = f"record {number} cannot follow those before it: {problem}"
        super().__init__(f"{name}: {self.what}")


def _compare(scheduler: Scheduler, remaining: Iterable[bytes], name: str, first: int) -> Recovered:
    """Drive records through a core. first: the number of the first of them."""
    found = Recovered(scheduler, first, [])
    for record in remaining:
        if record[0] in _EVENTS:
            if found.commands:
                raise CheckError(
                    f"{name}: record {found.number}: the core also commands "
                    f"{describe(found.commands[0])}, the journal does not have it"
                )
            event: Any = decode(record)
            if isinstance(event, e.Solved):
                found.solve = None
            try:
                found.commands = scheduler.handle(event)
            except ProtocolError as problem:
                raise SequenceError(name, found.number, problem) from None
        else:
            _compare_command(found, record, name)
        found.number += 1
    return found


def _compare_command(found: Recovered, record: bytes, name: str) -> None:
    if not found.commands:
        raise CheckError(
            f"{name}: record {found.number}: the journal has {describe(decode(record))}, "
            "the core commands nothing"
        )
    command = found.commands.pop(0)
    if encode(command) != record:
        difference = _difference(command, decode(record))
        raise CheckError(f"{name}: record {found.number}: {difference}")
    if isinstance(command, c.Solve):
        found.solve = command


def _torn_bytes(path: Path, used: int, count: int) -> int:
    """Bytes behind the last whole record; RunError if they hold a whole one that is damaged. Zeros to the
    end are no record: a file system may leave them where the machine went down."""
    left = path.stat().st_size - used
    if left >= _HEAD.size:
        with path.open("rb") as file:
            file.seek(used)
            length, _ = _HEAD.unpack(file.read(_HEAD.size))
            zeros = not length and not any(map(any, iter(lambda: file.read(1 << 16), b"")))
        if length <= left - _HEAD.size and not zeros:
            raise RunError(f"{path}: record {count} at byte {used} is damaged")
    return left


def describe(record: Any) -> str:
    """A record in a few words."""
    number = f" {record.round}" if hasattr(record, "round") else ""
    return f"{type(record).__name__}{number} at {record.time_s:.3f} s"


def _difference(command: c.Command, record: Any) -> str:
    mine: Any = _digest_of_solve(command) if isinstance(command, c.Solve) else command
    if type(mine) is not type(record):
        return f"the core commands {describe(mine)}, the journal has {describe(record)}"
    fields = getattr(mine, "__struct_fields__", None) or list(type(mine).__dataclass_fields__)
    for field in fields:
        a, b = getattr(mine, field), getattr(record, field)
        if not np.array_equal(a, b):
            return f"{describe(record)}: {field} is {_brief(b)} in the journal, {_brief(a)} now"
    return f"{describe(record)} differs"


def _brief(value: Any) -> str:
    text = str(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 80 else text[:77] + "..."
