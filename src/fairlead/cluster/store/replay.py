"""The journal of a cluster's state, driven through a fresh scheduler: its segments, each on its own."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlead.cluster.store.verification import DamageError
from fairlead.errors import CheckError, RunError
from fairlead.scheduler import journal


def replay_segments(store: sqlite3.Connection, path: Path) -> tuple[int, int]:
    """Return how many records in how many segments were replayed. Raises CheckError at the first command
    that differs, DamageError where an event cannot follow the one before."""
    rows = store.execute("SELECT DISTINCT segment FROM journal ORDER BY segment")
    segments = [segment for (segment,) in rows.fetchall()]
    return sum(_replay(store, path, segment) for segment in segments), len(segments)


def replay_newest(store: sqlite3.Connection, path: Path) -> None:
    """Replay the segment that a server starts from, if there is one. Raises as ``replay_segments``."""
    (newest,) = store.execute("SELECT max(segment) FROM journal").fetchone()
    if newest is not None:
        _replay(store, path, newest)


@contextmanager
def judged_as_state(path: Path, segment: int) -> Iterator[None]:
    """Raises DamageError where the block finds that records of this segment are missing: the checksums of
    a state say that each is as it was written, not that all of them were written to the same state."""
    try:
        yield
    except journal.SequenceError as problem:
        raise DamageError(
            path,
            f"is put together from two states, or records are missing (segment {segment}, {problem.what})",
        ) from None


@contextmanager
def repeated_as_start() -> Iterator[None]:
    """Raises RunError where the block, with which a server starts, finds that this version decides otherwise
    than the one that wrote the journal: nobody has asked for a comparison."""
    try:
        yield
    except CheckError as problem:
        raise RunError(
            f"{problem}; start the version that wrote it on this state, and stop it (SIGTERM): its "
            "whole state is written down then, and this version can go on from there"
        ) from None


def _replay(store: sqlite3.Connection, path: Path, segment: int) -> int:
    with judged_as_state(path, segment):
        return journal.replay_records(_records(store, segment), f"{path}: segment {segment}")


def _records(store: sqlite3.Connection, segment: int) -> Iterator[bytes]:
    query = "SELECT record FROM journal WHERE segment = ? ORDER BY seq"
    return (record for (record,) in store.execute(query, (segment,)))
