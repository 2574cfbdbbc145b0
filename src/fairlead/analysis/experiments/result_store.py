"""A store of results, with the run and the code version as the key.

For each point there are ``KEY.json`` (point, status, metrics), ``KEY.parquet`` (the measured jobs) and
``KEY.timing.json`` (what differs from run to run). The first is written last, so a point is there or it is
not. It and the table are equal, byte for byte, whoever runs the point; no two processes disturb each other.
"""

import functools
import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fairlead.analysis.experiments.point import (
    Point,
    PointResult,
    Status,
)
from fairlead.client.version import __version__
from fairlead.errors import RunError
from fairlead.simulator.traces.atomic_write import write_atomically

SOURCES = (  # below the package: all that decides what comes out of a run
    *("estimation", "model", "policies", "scheduler", "simulator"),
    *("analysis/experiments/divergence.py", "analysis/experiments/point.py"),
    *("analysis/experiments/worker.py",),
)
T = TypeVar("T")
ENDED = (Status.COMPLETE, Status.DIVERGED)  # will not end otherwise when it is run again


@functools.cache
def code_version() -> str:
    """Version of Fairlead and a digest of the sources that decide results, as "0.1.0+1a2b3c4d5e6f"."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(file for name in SOURCES for file in _files(root / name)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\n{len(content)}\n".encode())
        digest.update(content)
    return f"{__version__}+{digest.hexdigest()[:12]}"


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [file for kind in ("*.py", "*.csv") for file in path.rglob(kind)]


@dataclass(frozen=True)
class StoredResult:
    """Content of ``KEY.json``: a point and its result."""

    version: str
    files: dict[str, str]  # digests of the files that the point names
    point: Point
    status: Status
    metrics: dict[str, Any]
    reason: str
    jobs: bool  # is there a table of jobs?


@dataclass(frozen=True)
class PointTiming:
    """Content of ``KEY.timing.json``: how long a point ran, and when."""

    seconds: float  # of processor time
    ended: str  # date and time, UTC
    timeout_s: float | None = None  # that it had


@dataclass(frozen=True)
class PointAnswer:
    """A worker's answer for a point: metrics, and the table of jobs as the bytes of a Parquet file."""

    status: Status
    metrics: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0
    jobs: bytes = b""
    trace: str = ""  # where in the code an unexpected error was raised


class ResultStore:
    """Results in a directory; it is made when the first one is written."""

    def __init__(self, folder: Path, *, any_version: bool = False) -> None:
        """any_version: take results that other versions of the code have written, too."""
        self.folder = folder
        self.any_version = any_version
        self.foreign: dict[str, int] = {}  # results taken, by the other version that wrote them
        self._others: dict[str, str] | None = None  # by what they are of: their keys

    def key(self, point: Point) -> str:
        """Names the files of a point."""
        return _key(point, code_version(), digests(point))

    def find(self, point: Point) -> PointResult | None:
        """The outcome of a point that has ended, if it is here with its table of jobs."""
        outcome = self.last(point)
        if outcome is None or outcome.status not in ENDED:
            return None
        return outcome if not outcome.jobs or Path(outcome.jobs).is_file() else None

    def last(self, point: Point) -> PointResult | None:
        """Return the result of the point when it was last run; None = there is none."""
        key = self.key(point)
        stored = self._read(key)
        if stored is None and self.any_version:
            found = self._of_other_version(point)
            if found is not None:
                key, stored = found
                self.foreign[stored.version] = self.foreign.get(stored.version, 0) + 1
        return None if stored is None else self._outcome(key, point, stored)

    def timing(self, point: Point) -> PointTiming | None:
        """Return how long it took."""
        return _decoded(self._path(self.key(point), "timing.json"), PointTiming)

    def keep(self, point: Point, answer: PointAnswer, timing: PointTiming) -> PointResult:
        """Write what has come of a point."""
        self._folder.mkdir(parents=True, exist_ok=True)
        key = self.key(point)
        for name, content in (("parquet", answer.jobs), ("error.txt", answer.trace.encode())):
            if content:
                self._write(key, name, content)
            else:
                self._path(key, name).unlink(missing_ok=True)
        self._write(key, "timing.json", _text(timing))
        stored = StoredResult(
            version=code_version(),
            files=digests(point),
            point=point,
            status=answer.status,
            metrics=answer.metrics,
            reason=answer.reason,
            jobs=bool(answer.jobs),
        )
        self._write(key, "json", _text(stored))
        return replace(self._outcome(key, point, stored), seconds=timing.seconds)

    @property
    def _folder(self) -> Path:
        return self.folder / "points"

    def _path(self, key: str, name: str) -> Path:
        return self._folder / f"{key}.{name}"

    def _write(self, key: str, name: str, content: bytes) -> None:
        with write_atomically(self._path(key, name)) as partial:
            partial.write_bytes(content)

    def _read(self, key: str) -> StoredResult | None:
        return _decoded(self._path(key, "json"), StoredResult)

    def _outcome(self, key: str, point: Point, stored: StoredResult) -> PointResult:
        timing = _decoded(self._path(key, "timing.json"), PointTiming)
        return PointResult(
            point,
            stored.status,
            stored.metrics,
            stored.reason,
            0.0 if timing is None else timing.seconds,
            str(self._path(key, "parquet")) if stored.jobs else "",
        )

    def _of_other_version(self, point: Point) -> tuple[str, StoredResult] | None:
        """A result of the same point by other code, the same files given; the one written last."""
        if self._others is None:
            self._others = {}
            paths = sorted(self._folder.glob("*.json"), key=lambda p: p.stat().st_mtime)
            for path in paths:
                stored = (
                    None if path.name.endswith(".timing.json") else _decoded(path, StoredResult)
                )
                if stored is not None and stored.status in ENDED:
                    self._others[_key(stored.point, "", stored.files)] = path.stem
        key = self._others.get(_key(point, "", digests(point)))
        stored = None if key is None else self._read(key)
        return None if key is None or stored is None else (key, stored)


def _key(point: Point, version: str, files: dict[str, str]) -> str:
    return point.key(" ".join([version, *(files[name] for name in sorted(files))]))


def digests(point: Point) -> dict[str, str]:
    """SHA-256 of each file that a point names, and of those that a policy of the user's is made of: a trace
    that was changed is another trace."""
    given = point.input
    texts = [value for value in vars(given).values() if isinstance(value, str)]
    texts.append(point.policy.partition(":")[2])
    texts += _code_files(point.policy)
    return {text: _digest(text) for text in texts if text and Path(text).is_file()}


@functools.cache
def _code_files(policy: str) -> list[str]:
    from fairlead.policies.registry import code_files  # with all policies: half a second

    return [str(path) for path in code_files(policy)]


def _digest(name: str) -> str:
    known = os.stat(name)
    return _digest_of(name, known.st_mtime_ns, known.st_size)


@functools.cache
def _digest_of(name: str, _changed_ns: int, _size: int) -> str:
    return hashlib.sha256(Path(name).read_bytes()).hexdigest()


def _text(content: object) -> bytes:
    """Readable, and the same for equal contents."""
    return msgspec.json.format(msgspec.json.encode(content, order="sorted"), indent=1) + b"\n"


def _decoded(path: Path, kind: type[T]) -> T | None:
    """Return the content of a file; None if there is none, or this version cannot read it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise RunError(f"{path}: cannot be read ({problem.strerror})") from None
    except msgspec.MsgspecError:
        return None
