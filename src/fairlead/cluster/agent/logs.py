"""Output of ranks: files with a limit, told to the server as they grow; and the metrics that they report."""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlead.cluster.agent.launch import REPORTS, failure_path, log_path, logs_path
from fairlead.cluster.agent.metric_files import MetricFiles
from fairlead.cluster.agent.on_thread import start_thread
from fairlead.cluster.agent.server_client import AgentClient, RefusedError
from fairlead.cluster.agent.untrusted_files import (
    opened,
    read_end,
    read_from,
    read_regular,
    size_of,
    write_anew,
)
from fairlead.cluster.folder_removal import remove_folder
from fairlead.cluster.protocol.messages import Assignment, LogChunk

CHUNK = 1 << 18  # bytes told at once
_ROUND = 8  # chunks of one file before it is another's turn
_MAX_OUTPUT = 1 << 52  # bytes of output of a rank
RETENTION_S = 600.0  # a file stays for so long after the server has booked its attempt
_ORPHAN_RETENTION_S = 86_400.0  # and so long if its agent has died
TAIL = 1 << 17  # bytes in which the reason of an end is looked for
_BEGIN = ".begin"  # suffix of the file that says where a file of output begins that was cut
_JOB = re.compile(r"\d{1,18}")
_FILE = re.compile(r"(\d{1,9})-(\d{1,7})\.log")  # attempt, rank


@dataclass
class _RankLog:
    job: int
    attempt: int
    rank: int
    path: Path
    limit: int  # so many of the newest bytes stay, if there are as many
    begin: int = 0  # offset of the file's first byte among all output of the attempt
    end: int = _MAX_OUTPUT  # offset at which another attempt's output begins in the file
    paused: bool = False  # do its ranks stand still, to go on with the file as another attempt?
    acknowledged: int = 0  # offset that the server wants next
    inherited: bool = False  # from an earlier agent, so that nothing is written to it any more
    asked: bool = True  # is it known what the server has of it?
    refused: bool = False
    forgotten: float | None = None

    def size(self) -> int:
        """Bytes in the file, 0 if it is not there."""
        return size_of(self.path)

    def cut(self) -> bool:
        """Keep the newest ``limit`` bytes of a file that has twice as many, as the server does, and return
        whether it had. Its writers append, so they go on after that; what they write in the instant between
        reading and truncating is lost."""
        size = self.size()
        if size <= 2 * self.limit:
            return False
        with opened(self.path, os.O_RDWR | os.O_APPEND) as descriptor:
            drop = size - self.limit
            text = read_from(descriptor, drop, self.limit)
            # What was written while that was read: to truncate follows at once.
            text += os.pread(descriptor, self.limit, drop + len(text))
            with contextlib.suppress(OSError):  # for the next agent, should this one be killed
                write_anew(self.path.with_suffix(_BEGIN), str(self.begin + drop).encode())
            os.ftruncate(descriptor, 0)
            self.begin += drop
            os.write(descriptor, text)
        return True

    def piece(self) -> tuple[int, bytes]:
        """(offset, data) of what is to be told next; no data: nothing."""
        offset = max(self.acknowledged, self.begin)
        if offset > _MAX_OUTPUT:  # the job has made its file that long: it is none
            return offset, b""
        try:
            with opened(self.path) as descriptor:
                count = min(self._chunk, max(self.end - offset, 0))
                return offset, os.pread(descriptor, count, offset - self.begin)
        except OSError:
            return offset, b""

    @property
    def _chunk(self) -> int:
        """Bytes of the next piece: one is enough to be told what the server has."""
        return CHUNK if self.asked else 1


class Logs:
    """All files of output below ``<state>/logs``."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._logs: dict[tuple[int, int, int], _RankLog] = {}
        self._metrics = MetricFiles(state)
        self._sending = asyncio.Lock()  # piece after piece

    def remove_old(self) -> None:
        """Files of agents that died long ago."""
        folder = logs_path(self._state)
        with contextlib.suppress(OSError):
            for job in folder.iterdir():
                if (
                    time.time() - max(f.stat().st_mtime for f in (job, *job.iterdir()))
                    > _ORPHAN_RETENTION_S
                ):
                    _discard(job)
                    _discard(self._state / REPORTS / job.name)

    def inherit(self) -> None:
        """Tell also what earlier agents left untold. To be called when none of their ranks lives."""
        for path in self._left_behind():
            attempt, rank = map(int, path.stem.split("-"))
            key = int(path.parent.name), attempt, rank
            log = _RankLog(
                *key, path, _MAX_OUTPUT, begin=_begin_of(path), inherited=True, asked=False
            )
            self._logs[key] = log
        self._metrics.inherit()

    def _left_behind(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            for folder in sorted(logs_path(self._state).iterdir()):
                if _JOB.fullmatch(folder.name):
                    with contextlib.suppress(OSError):
                        yield from (f for f in sorted(folder.iterdir()) if _FILE.fullmatch(f.name))

    def follow(self, assignment: Assignment) -> None:
        """From now on the files of this attempt are told and cut."""
        job, attempt = assignment.job, assignment.attempt
        for rank in assignment.ranks:
            path = log_path(self._state, job, attempt, rank.rank)
            log = _RankLog(job, attempt, rank.rank, path, assignment.log_bytes)
            self._logs[job, attempt, rank.rank] = log
        if assignment.has_rank_0:
            self._metrics.follow(job, attempt)

    def pause(self, job: int, attempt: int) -> None:
        """The ranks of an attempt stand still: what its files have is all of its output."""
        for log in self._of(job, attempt):
            log.end, log.paused = log.begin + log.size(), True

    def release(self, job: int, attempt: int) -> None:
        """The ranks of an attempt that stood still have ended."""
        for log in self._of(job, attempt):
            log.paused = False

    def resume(self, assignment: Assignment, before: int) -> None:
        """The ranks of an attempt that stood still go on as this one, with the same files."""
        for log in self._of(assignment.job, before):
            new = self._logs[log.job, assignment.attempt, log.rank]
            new.path, new.begin = log.path, log.begin - log.end
            log.paused, log.limit = False, _MAX_OUTPUT  # from now on the other one cuts the file

    def _of(self, job: int, attempt: int) -> list[_RankLog]:
        return [log for key, log in self._logs.items() if key[:2] == (job, attempt)]

    def forget(self, job: int, attempt: int, now: float) -> None:
        """The server has booked the attempt: its files go some time after."""
        for log in self._logs.values():
            if (log.job, log.attempt) == (job, attempt) and log.forgotten is None:
                log.forgotten = now

    def tidy(self, now: float) -> None:
        """Cut one that is too long, which holds up the agent for a moment, and remove what is forgotten.
        Trouble with the disk ends nothing."""
        was_cut = False
        for key, log in list(self._logs.items()):
            with contextlib.suppress(OSError):
                was_cut = was_cut or log.cut()
            if log.paused:
                continue
            if log.forgotten is not None and now - log.forgotten > RETENTION_S:
                del self._logs[key]
                with contextlib.suppress(OSError):
                    self._remove(log)

    def _remove(self, log: _RankLog) -> None:
        """Remove the files of a rank, and the folders of its job once they are empty. Raises OSError."""
        if any(other.path == log.path for other in self._logs.values()):
            return  # its program goes on as another attempt
        attempt = int(log.path.stem.partition("-")[0])
        if log.rank == 0:
            self._metrics.forget((log.job, attempt))
        log.path.unlink(missing_ok=True)
        log.path.with_suffix(_BEGIN).unlink(missing_ok=True)
        failure = failure_path(self._state, log.job, attempt, log.rank)
        with contextlib.suppress(OSError):  # the folder is the job's
            for suffix in (".failure", ".stacks", ".progress", ".metrics"):
                failure.with_suffix(suffix).unlink(missing_ok=True)
        log.path.parent.rmdir()
        _discard(failure.parent)

    def tail(self, job: int, attempt: int, rank: int) -> tuple[str, str]:
        """(the end of the output, why it cannot be read): one of them is ""."""
        known = self._logs.get((job, attempt, rank))
        path = log_path(self._state, job, attempt, rank) if known is None else known.path
        try:
            return read_end(path, TAIL).decode(errors="replace"), ""
        except OSError as problem:
            return "", problem.strerror or str(problem)

    async def send(self, client: AgentClient, node: str, incarnation: str) -> bool:
        """Tell what is new. Returns whether all is told. Raises UnreachableError, RegisterAgainError."""
        async with self._sending:
            metrics_told = await self._metrics.send(client, node, incarnation)
            return await self._send(client, node, incarnation) and metrics_told

    def program_ended(self, job: int, attempt: int) -> None:
        """The program that was given files as this attempt has ended."""
        self._metrics.end((job, attempt))

    def has_untold_metrics(self, job: int) -> bool:
        """Return whether something that a job has reported is still to be told."""
        return self._metrics.has_untold(job)

    async def send_metrics(self, client: AgentClient, node: str, incarnation: str) -> bool:
        """Tell what is new of what jobs have reported. Returns and raises as ``send``."""
        async with self._sending:
            return await self._metrics.send(client, node, incarnation)

    async def _send(self, client: AgentClient, node: str, incarnation: str) -> bool:
        left = False
        # What earlier agents have left may be much, and nobody waits for it.
        for log in sorted(self._logs.values(), key=lambda log: log.inherited):
            for _ in range(_ROUND):
                offset, data = (0, b"") if log.refused else log.piece()
                if not data:
                    if log.inherited and log.forgotten is None:
                        log.forgotten = time.monotonic()
                    break
                chunk = LogChunk(
                    node=node,
                    incarnation=incarnation,
                    job=log.job,
                    attempt=log.attempt,
                    rank=log.rank,
                    offset=offset,
                    data=data,
                )
                try:
                    next_offset = (await client.log(chunk)).offset
                except RefusedError:
                    log.refused = True
                    break
                log.asked = True
                if next_offset <= offset:  # it has less than we thought, or none of it can be kept
                    log.acknowledged = max(0, next_offset)
                    break
                log.acknowledged = next_offset
            else:
                left = True
        return not left


def _begin_of(path: Path) -> int:
    """Offset of the first byte of an earlier agent's file among all output of the attempt."""
    try:
        begin = int(read_regular(path.with_suffix(_BEGIN), 32))
    except (OSError, ValueError):  # it was not cut
        return 0
    return begin if 0 <= begin <= _MAX_OUTPUT else 0


def _discard(folder: Path) -> None:
    """Remove a folder that may be a job's, on a thread: there may be very much in it."""

    def remove() -> None:
        with contextlib.suppress(OSError):
            remove_folder(folder.parent, folder.name)

    with contextlib.suppress(OSError):  # no thread: it stays until the agent is started anew
        start_thread(remove)
