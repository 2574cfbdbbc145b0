"""Backups of a cluster's state, and how a cluster begins from one.

A backup is one SQLite file: all of ``state.db`` as one commit left it. It holds jobs, attempts, nodes, users
(hashes of their tokens), the keys of submissions and the journal. Not in it: checkpoints, the output of jobs,
the samples of the plots, and tokens in the clear.

A cluster that begins from a backup does not know what was done since. What it needs to be told for that, see
``restore_note``.
"""

import os
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from fairlead.client.durable import make_durable
from fairlead.cluster.store.database import (
    DATABASE_ERRORS,
    ForeignFileError,
    connect,
    printable,
    reader,
)
from fairlead.cluster.store.history import CLAIMED, HALTED, HISTORY, StoreHistory
from fairlead.cluster.store.lease_lengths import (
    LEASE_LENGTHS,
    LeaseLength,
    decode_lengths,
    lengths_of,
)
from fairlead.cluster.store.marker import NAME as MARKER
from fairlead.cluster.store.marker import Mark, Marker, MarkerContent
from fairlead.cluster.store.restore_note import RESTORED, RestoreNote
from fairlead.cluster.store.schema import Commit, newest_commit
from fairlead.cluster.store.store import (
    NAME,
    RESTORING,
    lock,
)
from fairlead.cluster.store.transaction import Transaction
from fairlead.cluster.store.verification import (
    DamageError,
    Verified,
    keep_empty,
    state_layout,
    unreadable,
    verify,
    verify_file,
)
from fairlead.errors import ConfigError, RunError

LAST_BACKUP_FILE = "last-backup.json"  # in the state directory
_SENT = ".backup-"  # beginning of the name of a backup that is about to be sent
_CHUNK_BYTES = 1 << 20  # bytes
_TAILS = ("", "-wal", "-shm")
_SQLITE_MAGIC = b"SQLite format 3\0"  # the first bytes of every database


class LastBackup(msgspec.Struct, frozen=True, kw_only=True):
    """The newest backup of a state directory."""

    time_s: float  # wall clock; when it was made
    commit: int  # that it ends with


def back_up(directory: Path, out: Path) -> Verified:
    """Write a backup to a file, verified and durable, whether a server runs or not. Raises RunError. The
    caller says with ``note`` when it is where it shall be."""
    source = directory / NAME
    if not source.is_file():
        raise RunError(f"{directory}: is not the state directory of a server (it has no {NAME})")
    partial = _partial(out)
    found = read_marker(directory / MARKER)  # first: what comes later may be in it, too
    try:
        with closing(reader(source)) as connection:
            _copy(connection, source, partial)
        verified = verify_file(partial, found)
        _check_newest(partial, source)
        _settle(partial, out)
    except (DamageError, ForeignFileError) as problem:
        raise RunError(f"{source}: {problem.what}; no backup was written") from None
    except OSError as problem:
        raise RunError(f"{out}: cannot be written ({problem.strerror})") from None
    finally:
        partial.unlink(missing_ok=True)
    return verified


def last_backup(directory: Path) -> LastBackup | None:
    """Return the last backup; None if there was none, or it is unknown."""
    try:
        return msgspec.json.decode((directory / LAST_BACKUP_FILE).read_bytes(), type=LastBackup)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def restore(backup: Path, directory: Path, *, replace: bool) -> Verified:
    """Make a backup, or a state directory's ``state.db`` with its log, the state of a cluster. replace: set
    a state that is there aside. Raises RunError."""
    partial = directory / RESTORING
    with _verified_backup(backup) as (source, verified), _owned(directory):
        there = [name for name in (NAME, MARKER) if (directory / name).exists()]
        if there and not replace:
            raise ConfigError(
                f"{directory}: has a state already ({there[0]}); --replace sets it aside"
            )
        unfinished = partial.exists()  # by a restore that was killed
        try:
            _remove(partial)
            _copy(source, backup, partial)
            commit = _begin_anew(partial, granted=lengths_of(directory / NAME))
            make_durable(partial)
            _set_aside(directory)
            partial.replace(directory / NAME)
            make_durable(directory)
            _mark(directory, commit)
        except OSError as problem:
            raise RunError(f"{directory}: cannot be written ({problem.strerror})") from None
        finally:  # where the state has been set aside it stays: without it a server would begin an empty one
            if not (there or unfinished) or (directory / NAME).exists():
                _remove(partial)
        newest = verified.newest  # when the backup was made only the file's name may say
        note(directory, newest, newest.time_s)
    return verified


def accept_loss(directory: Path) -> Verified:
    """Go on with a state that lacks commits, or whose marker is damaged, but is whole by itself. Raises
    RunError, or CheckError for a journal that a server could not start from."""
    # With it comes the whole scheduler; the front, which only makes backups, starts without.
    from fairlead.cluster.store.replay import replay_newest

    path = directory / NAME
    if not path.is_file():
        raise RunError(f"{path}: is missing; there is nothing to go on with")
    with _owned(directory):
        verified = _verify_backup(path)
        with closing(reader(path)) as connection:
            replay_newest(connection, path)
        try:
            commit = _begin_anew(path, loss_accepted=True)
            (directory / MARKER).unlink(missing_ok=True)
            _mark(directory, commit)
        except OSError as problem:
            raise RunError(f"{directory}: cannot be written ({problem.strerror})") from None
    return verified


def backup_age_s(directory: Path) -> float | None:
    """Seconds since the newest backup; None where there was none, or nobody knows."""
    last = last_backup(directory)
    return None if last is None else max(time.time() - last.time_s, 0.0)


def stream(directory: Path) -> Iterator[bytes]:
    """Make a backup, and yield it piece by piece; nothing of it stays. It counts as one when all has been
    taken. Raises RunError before the first piece."""
    path = directory / f"{_SENT}{uuid.uuid4().hex}"
    verified = back_up(directory, path)
    file = path.open("rb")
    path.unlink()  # what is open can be read to its end
    return _pieces(file, directory, verified.newest)


def _pieces(file: BinaryIO, directory: Path, newest: Commit) -> Iterator[bytes]:
    with file:
        while piece := file.read(_CHUNK_BYTES):
            yield piece
    note(directory, newest, time.time())


def receive(pieces: Iterable[bytes], out: Path) -> Verified:
    """Write what ``stream`` yields elsewhere to a file, verified and durable. Raises RunError."""
    partial = _partial(out)
    try:
        with partial.open("xb") as file:
            partial.chmod(0o600)
            for piece in pieces:
                file.write(piece)
        verified = verify_file(partial, None)
        _settle(partial, out)
    except (DamageError, ForeignFileError) as problem:
        raise RunError(f"{out}: what arrived {problem.what}; no backup was written") from None
    except OSError as problem:
        raise RunError(f"{out}: cannot be written ({problem.strerror})") from None
    finally:
        partial.unlink(missing_ok=True)
    return verified


def _partial(out: Path) -> Path:
    """The file that becomes ``out`` when it is whole. Raises ConfigError where ``out`` is nothing that a
    backup may replace: only an older backup may be."""
    if os.path.lexists(out):
        if not out.is_file():
            raise ConfigError(f"{out}: is not a regular file, so no backup replaces it")
        if out.name == NAME and out.with_name(MARKER).exists():
            raise ConfigError(f"{out}: is the state of a server, so no backup replaces it")
        with out.open("rb") as file:
            first = file.read(len(_SQLITE_MAGIC))
        if first and first != _SQLITE_MAGIC:
            raise ConfigError(f"{out}: holds something else than a backup, so none replaces it")
    return out.with_name(f".{out.name}.{os.getpid()}.partial")


def _copy(old: sqlite3.Connection, source: Path, target: Path) -> None:
    """One committed state of a database, with what is in its log, as a file without one. source: the file
    that ``old`` reads."""
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(target)) as new:
            new.execute("PRAGMA synchronous = OFF")  # the file is synced when it is whole
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")
    except DATABASE_ERRORS as problem:
        raise RunError(f"{source}: cannot be backed up ({printable(problem)})") from None


def _check_newest(partial: Path, source: Path) -> None:
    """Raises RunError for an older copy of a state, on which a server has halted."""
    with closing(reader(partial)) as connection:
        halted = _meta(connection, HALTED)
    if halted is not None:
        raise RunError(f"{source}: cannot be backed up: {halted}")


def _settle(partial: Path, path: Path) -> None:
    """A whole file takes its name, durably."""
    make_durable(partial)
    partial.replace(path)
    make_durable(path.parent)


def check_file(path: Path) -> None:
    """Raises RunError where there is no file of which a state could be read."""
    if not path.exists():
        raise RunError(f"{path}: there is no such file")
    if not path.is_file():
        raise RunError(f"{path}: is not a regular file")


def _verify_backup(path: Path) -> Verified:
    check_file(path)
    with judged_as_backup(path):
        return verify_file(path, None)


@contextmanager
def _verified_backup(path: Path) -> Iterator[tuple[sqlite3.Connection, Verified]]:
    """A connection that goes on reading what was verified, whatever is written to the file meanwhile."""
    check_file(path)
    with ExitStack() as stack:
        with judged_as_backup(path):
            try:
                connection = stack.enter_context(closing(reader(path)))
                connection.execute("BEGIN")
                verified = verify(connection, path, marker_beside(path))
            except DATABASE_ERRORS as problem:
                raise unreadable(path, problem) from None
        yield connection, verified


def marker_beside(path: Path) -> MarkerContent | None:
    """The marker of a database within a state directory, None for a backup, which has none. Raises RunError
    where it cannot be read."""
    marker = path.with_name(MARKER)
    return None if path.name != NAME or not marker.exists() else read_marker(marker)


def read_marker(marker: Path) -> MarkerContent:
    """The marker of a state directory. Raises RunError where it cannot be read."""
    try:
        return Marker(marker).read()
    except OSError as problem:
        raise RunError(f"{marker}: cannot be read ({problem.strerror})") from None


@contextmanager
def judged_as_backup(path: Path) -> Iterator[None]:
    """Turn a DamageError into a RunError about the file alone, without how to mend a state directory."""
    try:
        yield
    except DamageError as problem:
        raise RunError(f"{path}: {problem.what}; it cannot be restored from") from None


def _begin_anew(
    path: Path, *, loss_accepted: bool = False, granted: Iterable[LeaseLength] = ()
) -> Commit:
    """Write down that what follows is not what followed before. Leaves the database without a log. granted:
    leases that may be in force besides those of which the database knows."""
    with closing(connect(path, state_layout(keep_empty), durable=True)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        transaction = Transaction(connection, keep_segments=2)
        newest = newest_commit(connection)
        restored = RestoreNote(
            time_s=time.time(),
            commit=0 if newest is None else newest.number,
            backup_s=0.0 if newest is None else newest.time_s,
            loss_accepted=loss_accepted,
        )
        transaction.set_meta(RESTORED, msgspec.json.encode(restored).decode())
        history = StoreHistory.decode(_meta(connection, HISTORY))
        claimed = int(_meta(connection, CLAIMED) or 0)
        transaction.delete_meta(HALTED)
        transaction.set_meta(HISTORY, history.branch(restored.commit, claimed).encode())
        lengths = [*decode_lengths(_meta(connection, LEASE_LENGTHS)), *granted]
        transaction.set_meta(LEASE_LENGTHS, msgspec.json.encode(lengths).decode())
        commit = transaction.seal()
        connection.execute("COMMIT")
    return commit


def _meta(connection: sqlite3.Connection, key: str) -> str | None:
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if found is None else str(found[0])


def _mark(directory: Path, commit: Commit) -> None:
    marker = Marker(directory / MARKER)
    marker.open()
    try:
        marker.reset(Mark(commit.number, commit.head))
    finally:
        marker.close()


def _set_aside(directory: Path) -> None:
    """Keep the files that are replaced, in a folder of their own."""
    names = [f"{NAME}{tail}" for tail in _TAILS] + [MARKER]
    there = [name for name in names if (directory / name).exists()]
    if not there:
        return
    number = 1
    while (folder := directory / f"replaced-{number}").exists():
        number += 1
    folder.mkdir(mode=0o700)
    for name in there:  # the marker last: without its database it is still refused
        (directory / name).rename(folder / name)
    make_durable(directory)


def _remove(path: Path) -> None:
    for tail in _TAILS:
        path.with_name(path.name + tail).unlink(missing_ok=True)


@contextmanager
def _owned(directory: Path) -> Iterator[None]:
    """Keep servers from using the directory meanwhile."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise RunError(f"{directory}: cannot be made ({problem.strerror})") from None
    locked = lock(directory)
    try:
        yield
    finally:
        os.close(locked)


def note(directory: Path, commit: Commit, time_s: float) -> None:
    """Record a backup, for questions about the age of the last one. time_s: wall clock, when it was made."""
    known = LastBackup(time_s=time_s, commit=commit.number)
    partial = directory / f"{LAST_BACKUP_FILE}.{os.getpid()}"
    try:
        partial.write_bytes(msgspec.json.encode(known))
        partial.replace(directory / LAST_BACKUP_FILE)
    except OSError:  # a directory that may only be read; the backup is none the worse
        partial.unlink(missing_ok=True)
