"""The progress of a job without the iterator, as it says itself: in a file, or at a URL that it serves.

What a job says is checked: a file that is none, an endpoint that does not answer, or a number that is no
count of steps holds up nothing and counts for nothing. The job is told so once, in its output.
"""

import asyncio
import contextlib
import http.client
import io
import logging
import math
import os
import re
import time
from pathlib import Path

import msgspec

from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.launch import log_path, progress_path
from fairlead.cluster.agent.rank_server import Key
from fairlead.cluster.agent.untrusted_files import (
    NotRegularError,
    opened,
    read_end,
)
from fairlead.cluster.protocol.progress_url import ProgressAddress, parse_progress_url
from fairlead.cluster.protocol.validation_messages import UNREADABLE

MAX_BYTES = 1 << 12  # bytes of an answer, or of the end of a file, that are looked at
REPLY_TIMEOUT_S = 1.0  # for an endpoint, from connecting to the last byte
SERVE_TIMEOUT_S = 60.0  # for a job to begin to serve it
_NUMBER = re.compile(r"([0-9]{1,16})(?:\.[0-9]*)?(%?)")
_MAX_STEPS = 1 << 53  # steps

_log = logging.getLogger(__name__)


class ProgressError(Exception):
    """Raised where a job's progress cannot be used: why, in words that follow where it was told."""


class UnansweredError(ProgressError):
    """There was no answer, or not in time."""


class _Reported(msgspec.Struct, frozen=True):
    step: int | float | str
    saved_step: int | float | str | None = None


def parse_progress(text: str, total_steps: int) -> tuple[int, int] | None:
    """(steps done, steps that the job's own checkpoints keep), -1 = it says nothing of those; None where the
    text is empty. Raises ProgressError.

    text: its last line counts, ``1234``, ``37.5%`` of ``total_steps``, either followed by the same for steps
    that are saved; or ``{"step": 1234, "saved_step": 1000}``. More steps than the job has are all of them.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    words = _json_words(text) if text.lstrip().startswith("{") else lines[-1].split()
    if len(words) > 2:
        raise ProgressError(f"expected one or two numbers, got {_shown(lines[-1])}")
    step, *saved = (_steps(word, total_steps) for word in words)
    return step, min(saved[0], step) if saved else -1


def _json_words(text: str) -> list[str]:
    try:
        reported = msgspec.json.decode(text, type=_Reported)
    except UNREADABLE as problem:
        raise ProgressError(f"expected {{'step': N, 'saved_step': N}}: {problem}") from None
    return [str(word) for word in (reported.step, reported.saved_step) if word is not None]


def _steps(word: str, total_steps: int) -> int:
    found = _NUMBER.fullmatch(word)
    if found is None:
        raise ProgressError(f"expected a number of steps, or of per cent, got {_shown(word)}")
    if found[2]:
        percent = float(word[:-1])
        if percent > 100:
            raise ProgressError(f"expected at most 100%, got {_shown(word)}")
        return int(total_steps * percent / 100)
    if int(found[1]) > _MAX_STEPS:
        raise ProgressError(f"expected at most {_MAX_STEPS} steps, got {_shown(word)}")
    return min(int(found[1]), total_steps)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


class ProgressFile:
    """A file that may be anything at any time: it is the job's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] = ()  # by what a change is noticed

    def news(self) -> str:
        """The end of the file if it has changed, else "". Raises ProgressError for what is no file."""
        try:
            found = os.lstat(self._path)
            seen = (found.st_ino, found.st_size, found.st_mtime_ns)
            if seen == self._seen:
                return ""
            self._seen = seen
            return read_end(self._path, MAX_BYTES, of_folder=True).decode(errors="replace")
        except FileNotFoundError:
            return ""
        except NotRegularError as problem:
            raise ProgressError(problem.strerror) from None
        except OSError as problem:
            raise ProgressError(f"cannot be read: {problem.strerror}") from None


async def ask_progress(address: ProgressAddress) -> str:
    """Return the body that the endpoint answers. Raises ProgressError; no redirect is followed."""
    try:
        async with asyncio.timeout(REPLY_TIMEOUT_S):
            reply = await _get(address)
    except TimeoutError:
        raise UnansweredError(f"did not answer within {REPLY_TIMEOUT_S:g} s") from None
    except OSError as problem:
        raise UnansweredError(f"cannot be reached: {problem.strerror or problem}") from None
    response = http.client.HTTPResponse(_Reply(reply))  # type: ignore[arg-type]
    try:
        response.begin()
        if response.status != http.HTTPStatus.OK:
            raise ProgressError(f"answered with status {response.status}, expected 200")
        return response.read().decode(errors="replace")
    except (http.client.HTTPException, ValueError):
        raise ProgressError(f"expected HTTP and at most {MAX_BYTES} bytes") from None


async def _get(address: ProgressAddress) -> bytes:
    """All that comes until the end, at most ``MAX_BYTES`` bytes: servers close after HTTP/1.0."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        host = f"[{address.host}]" if ":" in address.host else address.host
        head = f"GET {address.target} HTTP/1.0\r\nHost: {host}:{address.port}\r\n"
        writer.write(f"{head}Accept: application/json\r\nConnection: close\r\n\r\n".encode())
        reply = b""
        while len(reply) < MAX_BYTES and (part := await reader.read(MAX_BYTES - len(reply))):
            reply += part
        return reply
    finally:
        writer.transport.abort()  # all that is wanted has been read


class _Reply:
    """A socket from which all has been read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._data)


class ProgressReader:
    """Asks all attempts that may tell of their progress, each where its job said."""

    def __init__(self, state: Path) -> None:
        """state: of the agent."""
        self._state = state
        self._files: dict[Key, ProgressFile] = {}
        self._questions: dict[Key, asyncio.Task[None]] = {}
        self._first_polled: dict[Key, float] = {}  # when its endpoint was asked first
        self._warned: set[Key] = set()

    def poll(self, attempt: NodeAttempt, now: float) -> None:
        """Take over what the attempt's file says, or ask its endpoint if it has one, without waiting."""
        url = attempt.assignment.progress_url
        if not url:
            self._read(attempt, now)
        elif attempt.key not in self._questions:
            self._first_polled.setdefault(attempt.key, now)
            self._questions[attempt.key] = asyncio.create_task(self._ask(attempt, url))

    def poll_last(self, attempt: NodeAttempt, now: float) -> None:
        """Read the progress file of an ended attempt, if it has no endpoint."""
        if not attempt.assignment.progress_url:
            self._read(attempt, now)

    def _read(self, attempt: NodeAttempt, now: float) -> None:
        path = progress_path(self._state, *attempt.files_key)
        file = self._files.setdefault(attempt.key, ProgressFile(path))
        try:
            self._apply(attempt, file.news(), now)
        except ProgressError as problem:
            self._warn(attempt, f"FAIRLEAD_PROGRESS_FILE: {problem}")

    def forget(self, key: Key) -> None:
        """This attempt is over."""
        self._files.pop(key, None)
        self._first_polled.pop(key, None)
        self._warned.discard(key)
        if (question := self._questions.pop(key, None)) is not None:
            question.cancel()

    async def _ask(self, attempt: NodeAttempt, url: str) -> None:
        try:
            reply = await ask_progress(
                parse_progress_url(url, attempt.addresses.progress_port or 1)
            )
            self._apply(attempt, reply, time.monotonic())
        except UnansweredError as problem:
            waited_s = time.monotonic() - self._first_polled.get(attempt.key, math.inf)
            if waited_s >= SERVE_TIMEOUT_S and not attempt.steps.has_reported:
                self._warn(attempt, f"progress_url: {problem}")
        except ProgressError as problem:
            self._warn(attempt, f"progress_url: {problem}")
        finally:
            self._questions.pop(attempt.key, None)

    def _apply(self, attempt: NodeAttempt, text: str, now: float) -> None:
        reported = parse_progress(text, attempt.assignment.total_steps)
        if reported is not None and not attempt.ended:
            attempt.progressed(*reported, now)

    def _warn(self, attempt: NodeAttempt, problem: str) -> None:
        """Once for each attempt, where its user and the node's operator look."""
        if attempt.key in self._warned:
            return
        self._warned.add(attempt.key)
        _log.warning("job %d: %s; its progress is not known", attempt.assignment.job, problem)
        log = log_path(self._state, *attempt.files_key, 0)
        line = f"fairlead: {problem}; what it says of its progress is not used\n"
        with (
            contextlib.suppress(OSError),
            opened(log, os.O_WRONLY | os.O_APPEND) as descriptor,
        ):
            os.write(descriptor, line.encode())
