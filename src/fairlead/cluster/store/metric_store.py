"""The metrics that jobs report, as the server keeps them: curves of a bounded number of points.

A node sends the lines of an attempt's reports in pieces, with their offsets. A piece and the offset behind it
are written in one transaction, so what is sent again is known and counts once. A point is named by job,
metric and step: a step that is reported again replaces what was reported of it, and where an attempt first
reports a step, what earlier attempts reported of that step and later ones goes, for it is done again.

Of a metric at most ``MAX_POINTS`` points are kept, and the newest one. Where there are more, only the first
of every two steps is kept, then of every four, and so on.
"""

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from math import isfinite
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from fairlead.client.report import MAX_NAMES, MAX_STEP, NAME
from fairlead.cluster.protocol.messages import AttemptKey
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.validation_messages import UNREADABLE
from fairlead.cluster.store.database import (
    DatabaseLayout,
    connect,
    is_database,
    readable,
    reader,
    set_aside,
    written_whole,
)

_log = logging.getLogger(__name__)
FILE = "metrics.db"  # below the state directory
MAX_POINTS = 1_000  # of one metric of one job
_APPLICATION = 0x464C444D  # "FLDM"
_VERSION = 1
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (job INTEGER NOT NULL, attempt INTEGER NOT NULL, taken INTEGER NOT NULL,
                      PRIMARY KEY (job, attempt)) WITHOUT ROWID;
CREATE TABLE curves (job INTEGER NOT NULL, name TEXT NOT NULL, attempt INTEGER NOT NULL,
                     stride INTEGER NOT NULL, points INTEGER NOT NULL, step INTEGER NOT NULL,
                     time_s REAL NOT NULL, value REAL NOT NULL, PRIMARY KEY (job, name)) WITHOUT ROWID;
CREATE TABLE points (job INTEGER NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL,
                     time_s REAL NOT NULL, value REAL NOT NULL, PRIMARY KEY (job, name, step)) WITHOUT ROWID
"""


def _created(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO meta VALUES ('schema', ?)", (str(_VERSION),))


_LAYOUT = DatabaseLayout(
    application=_APPLICATION, version=_VERSION, schema=_SCHEMA, created=_created
)


class _ReportLine(msgspec.Struct, frozen=True, gc=False):
    """A report, as ``fairlead.client.report`` writes it."""

    step: Annotated[int, Meta(ge=0, le=MAX_STEP)]
    metrics: dict[Annotated[str, Meta(pattern=rf"^{NAME}\Z")], float]
    time: Annotated[float, Meta(ge=0.0, le=1e11)] | None = None  # None = when it is read


_LINE = msgspec.json.Decoder(_ReportLine)


class _CurvePoint(NamedTuple):
    name: str
    step: int
    time_s: float
    value: float


class LastValue(NamedTuple):
    """The value of a metric that a job has reported last."""

    attempt: int
    step: int
    time_s: float
    value: float


class MetricStore:
    """See the module. Any thread may call; ``put`` and ``remove`` from any process. Raises StoreError where
    the disk is full or fails."""

    def __init__(self, directory: Path, max_points: int = MAX_POINTS) -> None:
        """directory: of the cluster's state."""
        self.path = directory / FILE
        self._max_points = max_points
        self._lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None

    def open(self) -> None:
        """Set a file aside that is no database any more: what jobs report from now on begins another. For one
        process, as it starts."""
        with self._lock:
            if os.path.lexists(self.path) and not is_database(self.path):
                aside = set_aside(self.path)
                _log.warning(
                    "%s: is damaged; it is now %s, and metrics begin anew", self.path, aside
                )

    def close(self) -> None:
        """Let go of the file; the next call opens it again."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def put(self, key: AttemptKey, offset: int, data: bytes) -> int:
        """Take in a piece of the reports of an attempt; returns the offset wanted next, which is durable.
        Lines that are no reports are passed over."""
        with self._lock:
            connection = self._opened()
            with written_whole(connection, self.path):
                found = connection.execute(
                    "SELECT taken FROM streams WHERE job = ? AND attempt = ?", key
                ).fetchone()
                taken = 0 if found is None else int(found[0])
                end = offset + len(data)
                if offset > taken or end <= taken:
                    return taken
                self._add(connection, key, data[taken - offset :])
                connection.execute(
                    "INSERT INTO streams VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET taken = excluded.taken",
                    (*key, end),
                )
            return end

    def _add(self, connection: sqlite3.Connection, key: AttemptKey, data: bytes) -> None:
        curves: dict[str, list[_CurvePoint]] = {}
        for point in _points(data):
            curves.setdefault(point.name, []).append(point)
        known = {
            name for (name,) in connection.execute("SELECT name FROM curves WHERE job = ?", key[:1])
        }
        for name, points in curves.items():
            if name in known or len(known) < MAX_NAMES:
                known.add(name)
                self._extend(connection, key, name, points)

    def _extend(
        self, connection: sqlite3.Connection, key: AttemptKey, name: str, points: list[_CurvePoint]
    ) -> None:
        """Add points of an attempt to a curve."""
        job, attempt = key
        found = connection.execute(
            "SELECT attempt, stride, points FROM curves WHERE job = ? AND name = ?", (job, name)
        ).fetchone()
        newest, stride, _ = (attempt, 1, 0) if found is None else found
        if attempt < newest:  # it is over, and a later one has done these steps again
            return
        if attempt > newest:
            _delete(connection, job, name, "step >= ?", points[0].step)
        for point in points:
            if _first_of(connection, job, name, point.step, stride):
                connection.execute(
                    "INSERT INTO points VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                    "time_s = excluded.time_s, value = excluded.value",
                    (job, *point),
                )
        count = _count(connection, job, name)
        while count > self._max_points:
            stride *= 2
            firsts = "SELECT min(step) FROM points WHERE job = ? AND name = ? GROUP BY step / ?"
            _delete(connection, job, name, f"step NOT IN ({firsts})", job, name, stride)
            count = _count(connection, job, name)
        _, step, time_s, value = points[-1]
        connection.execute(
            "INSERT INTO curves VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "attempt = excluded.attempt, stride = excluded.stride, points = excluded.points, "
            "step = excluded.step, time_s = excluded.time_s, value = excluded.value",
            (job, name, attempt, stride, count, step, time_s, value),
        )

    def remove(self, jobs: Iterable[int]) -> None:
        """Forget all that these jobs reported."""
        with self._lock:
            if not self.path.exists():
                return
            connection = self._opened()
            with written_whole(connection, self.path):
                for job in jobs:
                    for table in ("streams", "curves", "points"):
                        connection.execute(f"DELETE FROM {table} WHERE job = ?", (job,))

    def _opened(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = connect(self.path, _LAYOUT, durable=True)
        return self._writer


def read_curves(directory: Path, job: int, name: str = "") -> list[MetricCurve]:
    """The curves of a job in order of name. name: only this one, "" = all. Raises StoreError."""
    return [curve for _, curve in _read(directory, [job], name)]


def read_curves_of(directory: Path, jobs: Iterable[int], name: str) -> dict[int, MetricCurve]:
    """Job -> its curve of a metric, of those of these jobs that have one. Raises StoreError."""
    return dict(_read(directory, jobs, name))


def _read(directory: Path, jobs: Iterable[int], name: str) -> list[tuple[int, MetricCurve]]:
    """(job, curve) in order of job and name. name: "" = all."""
    path = directory / FILE
    if not path.exists():
        return []
    where = "job IN (SELECT value FROM json_each(?)) AND ? IN ('', name)"
    given = (json.dumps(list(jobs)), name)
    with readable(path), closing(reader(path)) as connection:
        connection.execute("BEGIN")  # one state of the file
        if not _is_made(connection):
            return []
        lasts = connection.execute(
            f"SELECT job, name, step, time_s, value FROM curves WHERE {where} ORDER BY job, name",
            given,
        ).fetchall()
        points: dict[tuple[int, str], list[tuple[int, float, float]]] = {
            (job, one): [] for job, one, *_ in lasts
        }
        for job, one, step, time_s, value in connection.execute(
            f"SELECT job, name, step, time_s, value FROM points WHERE {where} "
            "ORDER BY job, name, step",
            given,
        ):
            points[job, one].append((step, time_s, value))
    return [(job, _curve(one, points[job, one], (s, t, v))) for job, one, s, t, v in lasts]


def read_lasts(directory: Path, jobs: Iterable[int], name: str) -> dict[int, LastValue]:
    """Job -> its newest value of a metric, of those of these jobs that have one. Raises StoreError."""
    path = directory / FILE
    if not path.exists():
        return {}
    with readable(path), closing(reader(path)) as connection:
        if not _is_made(connection):
            return {}
        rows = connection.execute(
            "SELECT job, attempt, step, time_s, value FROM curves WHERE name = ? AND "
            "job IN (SELECT value FROM json_each(?))",
            (name, json.dumps(list(jobs))),
        ).fetchall()
    return {job: LastValue(*last) for job, *last in rows}


def _is_made(connection: sqlite3.Connection) -> bool:
    """Return whether the file has its tables; else it is about to have them."""
    query = "SELECT count(*) FROM sqlite_master WHERE name = 'curves'"
    return bool(connection.execute(query).fetchone()[0])


def _curve(
    name: str, points: list[tuple[int, float, float]], last: tuple[int, float, float]
) -> MetricCurve:
    if not points or points[-1][0] < last[0]:
        points = [*points, last]
    return MetricCurve(
        name=name,
        steps=[step for step, _, _ in points],
        times_s=[at for _, at, _ in points],
        values=[value for _, _, value in points],
        last=last[2],
        last_step=last[0],
    )


def _points(data: bytes) -> Iterator[_CurvePoint]:
    now_s = time.time()
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            report = _LINE.decode(line)
        except UNREADABLE:  # whatever a job may have written there
            continue
        time_s = now_s if report.time is None else report.time
        for name, value in report.metrics.items():
            if isfinite(value):
                yield _CurvePoint(name, report.step, time_s, value)


def _first_of(connection: sqlite3.Connection, job: int, name: str, step: int, stride: int) -> bool:
    """Return whether a step is to be kept: it is the first that is known of its stride. A later one goes for
    it."""
    begin = step - step % stride
    found = connection.execute(
        "SELECT step FROM points WHERE job = ? AND name = ? AND step >= ? AND step < ?",
        (job, name, begin, begin + stride),
    ).fetchone()
    if found is None or found[0] == step:
        return True
    if found[0] < step:
        return False
    _delete(connection, job, name, "step = ?", found[0])
    return True


def _count(connection: sqlite3.Connection, job: int, name: str) -> int:
    query = "SELECT count(*) FROM points WHERE job = ? AND name = ?"
    count: int = connection.execute(query, (job, name)).fetchone()[0]
    return count


def _delete(
    connection: sqlite3.Connection, job: int, name: str, where: str, *given: object
) -> None:
    query = f"DELETE FROM points WHERE job = ? AND name = ? AND {where}"
    connection.execute(query, (job, name, *given))
