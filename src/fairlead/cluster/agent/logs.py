"""Output of ranks: files with a limit, told to the server as they grow."""

import asyncio
import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from fairlead.cluster.agent.launch import log_path, logs_path
from fairlead.cluster.agent.server_client import AgentClient, RefusedError
from fairlead.cluster.agent.untrusted_files import (
    opened,
    read_end,
    read_from,
    size_of,
)
from fairlead.cluster.protocol.messages import Assignment, LogChunk

CHUNK = 1 << 18  # bytes told at once
_ROUND = 8  # chunks of one file before it is another's turn
_MAX_OUTPUT = 1 << 52  # bytes of output of a rank
RETENTION_S = 600.0  # a file stays for so long after the server has booked its attempt
_ORPHAN_RETENTION_S = 86_400.0  # and so long if its agent has died
TAIL = 1 << 17  # bytes in which the reason of an end is looked for


@dataclass
class _RankLog:
    job: int
    attempt: int
    rank: int
    path: Path
    limit: int
    begin: int = 0  # offset of the file's first byte among all output of the attempt
    acknowledged: int = 0  # offset that the server wants next
    refused: bool = False
    forgotten: float | None = None

    def size(self) -> int:
        """Bytes in the file, 0 if it is not there."""
        return size_of(self.path)

    def cut(self) -> bool:
        """Keep the newer half of a file above the limit, and return whether it was. Its writers append, so
        they go on after that; what they write in the instant between reading and truncating is lost."""
        size = self.size()
        if size <= self.limit:
            return False
        with opened(self.path, os.O_RDWR | os.O_APPEND) as descriptor:
            drop = size - self.limit // 2
            text = read_from(descriptor, drop, self.limit)
            # What was written while that was read: to truncate follows at once.
            text += os.pread(descriptor, self.limit, drop + len(text))
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
                return offset, os.pread(descriptor, CHUNK, offset - self.begin)
        except OSError:
            return offset, b""


class Logs:
    """All files of output below ``<state>/logs``."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._logs: dict[tuple[int, int, int], _RankLog] = {}
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
                    shutil.rmtree(job, ignore_errors=True)

    def follow(self, assignment: Assignment) -> None:
        """From now on the files of this attempt are told and cut."""
        job, attempt = assignment.job, assignment.attempt
        for rank in assignment.ranks:
            path = log_path(self._state, job, attempt, rank.rank)
            log = _RankLog(job, attempt, rank.rank, path, assignment.log_bytes)
            self._logs[job, attempt, rank.rank] = log

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
            if log.forgotten is not None and now - log.forgotten > RETENTION_S:
                del self._logs[key]
                with contextlib.suppress(OSError):
                    log.path.unlink(missing_ok=True)
                    for suffix in (".failure", ".stacks", ".progress"):
                        log.path.with_suffix(suffix).unlink(missing_ok=True)
                    log.path.parent.rmdir()

    def tail(self, job: int, attempt: int, rank: int) -> tuple[str, str]:
        """(the end of the output, why it cannot be read): one of them is ""."""
        path = log_path(self._state, job, attempt, rank)
        try:
            return read_end(path, TAIL).decode(errors="replace"), ""
        except OSError as problem:
            return "", problem.strerror or str(problem)

    async def send(self, client: AgentClient, node: str, incarnation: str) -> bool:
        """Tell what is new. Returns whether all is told. Raises UnreachableError, RegisterAgainError."""
        async with self._sending:
            return await self._send(client, node, incarnation)

    async def _send(self, client: AgentClient, node: str, incarnation: str) -> bool:
        left = False
        for log in list(self._logs.values()):
            for _ in range(_ROUND):
                offset, data = (0, b"") if log.refused else log.piece()
                if not data:
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
                if next_offset <= offset:  # it has less than we thought, or none of it can be kept
                    log.acknowledged = max(0, next_offset)
                    break
                log.acknowledged = next_offset
            else:
                left = True
        return not left
