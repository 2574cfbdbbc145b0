"""A job's checkpoints: folders that appear whole or not at all, and prove it.

    DIR/lock                          held (flock) by rank 0 as long as it runs
    DIR/steps                         how many were done in all (``step_count``)
    DIR/step-000000001200/            the newest two of these are kept
        manifest.json                 written last: sizes and CRC-32 of all other files
        rank-0  [rank-1 ...]          what ``save`` wrote, a file or a folder
    DIR/damaged-step-000000001200/  one that was not whole, and whose loss its owner has accepted
    DIR/.step-000000001300.partial/   being written; a crash leaves one, the next start removes it
    DIR/.step-000000001200.replaced/  the one before, while one of the same step takes its place

A checkpoint is written under the partial name, its files and folders are synced to the disk, and only then
does it get its own name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fairlead.client.codec import DecodeError, decode_record, encode_record
from fairlead.client.durable import make_durable
from fairlead.client.rank_environment import print_to_log
from fairlead.client.storage import PERMISSION_ERRORS, STORAGE_ERRORS
from fairlead.errors import DamagedError

FORMAT = 1
CHECKPOINTS_KEPT = 2
MANIFEST = "manifest.json"
CHUNK = 1 << 20  # bytes read at a time
LOCK = "lock"
STEP = "step-"  # begins the name of a checkpoint
_CHECKPOINT = re.compile(f"{STEP}[0-9]{{12}}")


@dataclass(frozen=True)
class Part:
    """One file of a checkpoint."""

    bytes: int
    crc32: int


@dataclass(frozen=True)
class Manifest:
    """The content of a checkpoint."""

    step: int  # steps done, of the whole job
    format: int = FORMAT
    loader_epoch: int = 0  # passes over the data that are done
    position: int = 0  # batches of the present pass that are done
    loader_state: bytes = b""  # of a loader that has one
    batch_size: int = 0  # samples per step from here on, 0 = the script knows
    total_steps: int = 0  # of the whole job, 0 = until the data end
    adapted: bool = False  # the job has changed the two above
    world_size: int = 1  # ranks that saved
    attempt: int = 0  # of the job, that saved it
    job: int = -1  # under a scheduler; -1 = without one, or by an earlier version
    finished: bool = False  # no more steps of this total were needed
    parts: dict[str, Part] = field(default_factory=dict)  # by path inside the checkpoint


# What cannot be read now may be whole.
_READABLE_LATER = STORAGE_ERRORS | PERMISSION_ERRORS


class Checkpoint(NamedTuple):
    """A whole one."""

    path: Path
    manifest: Manifest


class Checkpoints:
    """The folder of a job's checkpoints. ``lock`` first."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._lock = -1
        self._device = -1  # of the file system on which it was locked
        self._was_away = False  # what is there now may be newer than what this process began with

    def lock(self) -> bool:
        """Take the folder for this process. False: another one has it. Raises OSError."""
        if self._device < 0:
            self.directory.mkdir(parents=True, exist_ok=True)
        elif self.directory.stat().st_dev != self._device:  # as it was when it was locked before
            self._check_there()
        lock = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            os.close(lock)
            if isinstance(problem, BlockingIOError):
                return False
            raise
        self._lock = lock
        self._device = self.directory.stat().st_dev
        self._sweep()
        return True

    def unlock(self) -> None:
        """Let another process have the folder."""
        lock, self._lock = self._lock, -1
        if lock < 0:
            return
        with suppress(OSError):  # of storage that has gone: so has the lock
            fcntl.flock(lock, fcntl.LOCK_UN)  # forked processes, such as data workers, hold it too
        with suppress(OSError):
            os.close(lock)

    def newest(self, *, set_aside: bool = False) -> Checkpoint | None:
        """The newest whole checkpoint, None where there is none of any kind; those that are passed over for
        it are named on stderr. set_aside: they get another name, and are kept. Raises OSError where the
        storage does not give any: that none can be read is not that there is none; DamagedError where none
        is whole, and they are not set aside."""
        unreadable, found = None, None
        damaged: dict[Path, Exception] = {}
        for path in self._list():
            try:
                found = Checkpoint(path, _checked(path))
                break
            except (OSError, ValueError) as problem:
                if isinstance(problem, OSError) and problem.errno in _READABLE_LATER:
                    if problem.errno != errno.EIO:  # which may be of one file, on a bad disk
                        raise
                    unreadable = unreadable or problem
                damaged[path] = problem
                print_to_log(f"{path}: not used: {problem}")
        if found is None and unreadable is not None:
            raise unreadable
        if set_aside:
            for path in damaged:
                self._set_aside(path)
        elif damaged and found is None:
            path, harm = next(iter(damaged.items()))
            which = f"none of its {len(damaged)} checkpoints is whole"
            which = which if len(damaged) > 1 else "its only checkpoint is not whole"
            raise DamagedError(f"{which} ({path.name}: {_told(harm)})")
        return found

    def newest_manifest(self) -> Manifest | None:
        """The manifest of the newest checkpoint, whose parts are not looked at; None: there is none, or it
        cannot be understood. Raises OSError."""
        try:
            return next(iter(map(read_manifest, self._list())), None)
        except ValueError:
            return None

    def _set_aside(self, path: Path) -> None:
        """Keep one that is damaged under a name that no checkpoint has. Raises OSError."""
        aside = path.with_name(f"damaged-{path.name}")
        number = 1
        while aside.exists():
            number += 1
            aside = path.with_name(f"damaged-{path.name}-{number}")
        path.rename(aside)
        print_to_log(f"{path}: is {aside.name} now: its loss is accepted")

    def steps(self) -> list[int]:
        """Return the steps of the existing checkpoints, newest first, whole or not. Raises OSError."""
        self._check_mounted()
        return [int(path.name.rpartition("-")[2]) for path in self._list()]

    def begin(self, step: int) -> Path:
        """A folder for the parts of a new checkpoint. Raises OSError."""
        self._check_mounted()
        newest = max(self._list(), default=None) if self._was_away else None
        if newest is not None and newest.name > _name(step):
            problem = f"is mounted again, with a newer checkpoint ({newest.name})"
            raise OSError(errno.ESTALE, problem, str(self.directory))
        partial = self.directory / f".{_name(step)}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        return partial

    def commit(self, partial: Path, manifest: Manifest) -> None:
        """The checkpoint is whole when this returns; ``manifest`` names all parts. Raises OSError."""
        with (partial / MANIFEST).open("wb") as file:
            file.write(encode_record(manifest).encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        make_durable(partial)
        final = self.directory / _name(manifest.step)
        aside = self._aside(final)
        if final.exists():  # of the same step: saved again, or one that did not hold
            shutil.rmtree(aside, ignore_errors=True)
            final.rename(aside)
        partial.rename(final)
        make_durable(self.directory)
        shutil.rmtree(aside, ignore_errors=True)
        self._prune(manifest.step)

    def discard(self, partial: Path) -> None:
        """Forget a checkpoint that cannot be finished."""
        shutil.rmtree(partial, ignore_errors=True)

    def _check_mounted(self) -> None:
        """Raise OSError unless the storage is mounted; lock it again where it was away.
        Else a checkpoint below its mount point would be out of sight as soon as it is mounted again."""
        if self._lock < 0 or self.directory.stat().st_dev == self._device:
            return
        self._check_there()
        self.unlock()  # mounted again: the lock is on what was there before
        if not self.lock():
            raise OSError(errno.EBUSY, "another process of this job has it", str(self.directory))

    def _check_there(self) -> None:
        """On another file system than before: it is mounted again, or not any more. Raises OSError."""
        if not (self.directory / LOCK).exists():
            raise OSError(errno.ENODEV, "is not mounted any more", str(self.directory))
        self._was_away = True

    def _prune(self, step: int) -> None:
        """Keep the newest two. What is of later steps than the newest did not hold when it was loaded."""
        with suppress(OSError):  # it is saved, and the next one prunes as well
            self._remove_others(step, self._list())

    @staticmethod
    def _remove_others(step: int, found: list[Path]) -> None:
        later = [path for path in found if path.name > _name(step)]
        for path in [*later, *[path for path in found if path not in later][CHECKPOINTS_KEPT:]]:
            shutil.rmtree(path, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what a crash has left; put back a checkpoint whose replacement was not finished."""
        for aside in self.directory.glob(".step-*.replaced"):
            final = self.directory / aside.name[1:].removesuffix(".replaced")
            if final.exists():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                aside.rename(final)
        for stray in self.directory.glob(".step-*.partial"):
            shutil.rmtree(stray, ignore_errors=True)

    def _aside(self, final: Path) -> Path:
        return self.directory / f".{final.name}.replaced"

    def _list(self) -> list[Path]:
        """Raises OSError, which ``Path.glob`` may not."""
        names = [name for name in os.listdir(self.directory) if _CHECKPOINT.fullmatch(name)]
        return [self.directory / name for name in sorted(names, reverse=True)]


def sync_parts(partial: Path, part: Path) -> dict[str, Part]:
    """Bring what a rank saved (a file or a folder) to the disk, with its checksums. Raises OSError."""
    if part.is_dir():
        for folder, _, _ in os.walk(part):
            make_durable(Path(folder))
    return {str(file.relative_to(partial)): _part(file, sync=True) for file in _files(part)}


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint. Raises OSError or ValueError."""
    try:
        manifest = decode_record((path / MANIFEST).read_bytes(), Manifest)
    except DecodeError as problem:
        raise ValueError(f"{MANIFEST} cannot be read ({problem})") from None
    if manifest.format != FORMAT:
        raise ValueError(f"its format is {manifest.format}, this version reads {FORMAT}")
    return manifest


def _checked(path: Path) -> Manifest:
    """The manifest, when all that it names is there unharmed. Raises OSError or ValueError."""
    manifest = read_manifest(path)
    for name, part in manifest.parts.items():
        if _part(path / name, sync=False) != part:
            raise ValueError(f"{name} is not as it was saved")
    return manifest


def _told(problem: Exception) -> str:
    """Return what is wrong with a checkpoint, without the path of its directory."""
    if isinstance(problem, OSError) and problem.filename is not None:
        return f"{os.path.basename(os.fsdecode(problem.filename))}: {problem.strerror}"
    return str(problem)


def _part(file: Path, *, sync: bool) -> Part:
    size = crc = 0
    with file.open("rb") as opened:
        if sync:
            os.fsync(opened.fileno())
        while chunk := opened.read(CHUNK):
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
    return Part(size, crc)


def _files(part: Path) -> Iterator[Path]:
    if not part.is_dir():
        yield part
        return
    for folder, _, names in os.walk(part):
        yield from (Path(folder) / name for name in names)


def _name(step: int) -> str:
    return f"{STEP}{step:012}"
