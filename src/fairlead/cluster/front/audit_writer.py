"""Entries of the audit log on their way to the disk, in the front's process."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from fairlead.cluster.protocol.audit import AuditEntry
from fairlead.cluster.store.audit_log import AuditLog
from fairlead.errors import StoreError

MAX_UNWRITTEN = 10_000  # newest entries that are kept in memory while they cannot be written
WINDOW_S = 60.0
MAX_REFUSALS = 20  # of one source in that time that have an entry of their own
MAX_REFUSALS_OF_ALL = 1_000  # of all sources together
MAX_SOURCES = 10_000  # that are remembered


class AuditWriter:
    """Writes entries on a thread of its own: all that wait at once, with one sync of the disk. Any thread may
    call. What cannot be written is kept, and written before whatever comes next."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._thread = ThreadPoolExecutor(1, "audit")
        self._lock = threading.Lock()
        self._waiting: list[tuple[AuditEntry, Future[None]]] = []
        self._unwritten: list[AuditEntry] = []  # of the writer's thread alone
        self._problem = ""

    def close(self) -> None:
        """Write what waits."""
        self._thread.shutdown()

    def write(self, entry: AuditEntry) -> "Future[None]":
        """The future ends when the entry is durable, or with StoreError where it cannot be written."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # who hangs up cannot cancel it any more
        with self._lock:
            self._waiting.append((entry, future))
        self._thread.submit(self._flush)
        return future

    def check(self) -> None:
        """Raises StoreError where nothing could be written last, and still cannot, or the log cannot be
        opened now."""
        if self._problem:
            self._thread.submit(self._flush).result()
        if self._problem:
            raise StoreError(f"nothing was done: {self._problem}")
        try:
            self._log.check()
        except StoreError as problem:
            raise StoreError(f"nothing was done: {problem}") from problem

    def _flush(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        entries = [*self._unwritten, *(entry for entry, _ in waiting)]
        if not entries:
            return
        try:
            self._log.append(entries)
        except StoreError as problem:
            self._problem = str(problem)
            self._unwritten = entries[-MAX_UNWRITTEN:]
            for _, future in waiting:
                future.set_exception(problem)
        else:
            self._problem, self._unwritten = "", []
            for _, future in waiting:
                future.set_result(None)


class _Source:
    """Refusals of one source since ``began``."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.count = 0
        self.last: AuditEntry | None = None  # the newest one without an entry of its own
        self.left_out = 0


class RefusalLimiter:
    """Keeps whoever is refused over and over from filling the log, and from pushing others out of it. Used on
    one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sources: OrderedDict[tuple[str, str], _Source] = OrderedDict()
        self._all = _Source(clock())

    def admit(self, entry: AuditEntry) -> list[AuditEntry]:
        """Return the entries to write for this refusal: itself, or none where there were too many."""
        ended = self.summaries()
        key = (entry.source, entry.token_id)
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source(self._clock())
            if len(self._sources) > MAX_SOURCES:
                ended += _summary(self._sources.popitem(last=False)[1])
        source.count += 1
        self._all.count += 1
        if source.count <= MAX_REFUSALS and self._all.count <= MAX_REFUSALS_OF_ALL:
            return [*ended, entry]
        kept = source if source.count > MAX_REFUSALS else self._all
        kept.last, kept.left_out = entry, kept.left_out + 1
        return ended

    def summaries(self) -> list[AuditEntry]:
        """Return an entry for each source that had some left out in a minute that is over."""
        before = self._clock() - WINDOW_S
        found = []
        if self._all.began <= before:
            found += _summary(self._all)
            self._all = _Source(self._clock())
        while self._sources and (oldest := next(iter(self._sources.values()))).began <= before:
            self._sources.popitem(last=False)
            found += _summary(oldest)
        return found


def _summary(source: _Source) -> list[AuditEntry]:
    """The newest refusal of those that were left out, with their number; nothing where none was."""
    if source.last is None:
        return []
    return [msgspec.structs.replace(source.last, left_out=source.left_out)]
