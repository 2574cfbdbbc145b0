"""Commits: what was handled is made durable as one, then published, then answered."""

import logging
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.fleet import RETURN_S
from fairlead.cluster.store.replaced import ReplacedError
from fairlead.cluster.store.store import Transaction
from fairlead.errors import StoreError

RETRY_S = 0.5  # between attempts to write to a store that fails
MAX_ROWS = 500  # rows of jobs and starts: to write and publish more takes long
_log = logging.getLogger(__name__)


class Publisher(Protocol):
    """Publishes what was committed: see ``published_views``."""

    def publish(self, jobs: Collection[int], nodes: Iterable[str], *, waits: bool) -> None:
        """Show what a commit has changed. waits: somebody is answered next."""

    def publish_remaining(self) -> None:
        """Show more."""

    def refresh(self) -> None:
        """Show what time alone changes."""


class Joining(Protocol):
    """A party whose writes join the next commit, and are taken back where that fails."""

    def collect(self) -> bool:
        """Decide what is to be written with the commit that begins; returns whether there is anything."""

    def write(self, t: Transaction) -> None:
        """Write that."""

    def committed(self) -> Collection[int]:
        """It is durable; answers to who waited are handed over. Returns the jobs that it is about."""

    def refuse(self, why: str) -> None:
        """It could not be written, and will not be."""


class CommitLog:
    """Commits what a batch of events changed. Used on the driver's thread."""

    def __init__(
        self,
        state: ClusterState,
        *,
        publisher: Publisher,
        is_stopping: Callable[[], bool],
        committed: Callable[[], None],
    ) -> None:
        """is_stopping: whether the server ends, and does not wait for a store that fails; committed: called
        behind each commit, before those who wait for it are answered."""
        self._committed = committed
        self._state = state
        self._publisher = publisher
        self._is_stopping = is_stopping
        self._records: list[bytes] = []
        self._answers: list[tuple[Future[Any], Any]] = []
        self._joining: list[Joining] = []
        self._joined: list[Joining] = []  # with something to write with the commit under way

    def join(self, joining: Joining) -> None:
        """Have something added to each commit that takes no long time, just before it is written."""
        self._joining.append(joining)

    def append(self, record: bytes) -> None:
        """Have a record written to the journal with the next commit."""
        self._records.append(record)

    def answer(self, future: "Future[Any]", result: object) -> None:
        """Pass a result on once all that was handled before is durable."""
        self._answers.append((future, result))

    def publish_recovered(self) -> None:
        """Show what the server has found when it started: until something can be written nothing else is."""
        self._publisher.publish((), self._state.fleet.publish(), waits=True)

    def commit(self) -> None:
        """Write what was handled since the last commit, publish it, and pass the answers on."""
        state, registry = self._state, self._state.registry
        if len(registry.dirty_jobs) + len(registry.dirty_attempts) < MAX_ROWS:
            self._joined = [joining for joining in self._joining if joining.collect()]
        jobs = list(registry.dirty_jobs)
        nodes = {node for record in registry.dirty_attempts.values() for node in record.nodes}
        if self._joined or self._has_changes():
            try:
                written = self._write_until_done()
            except ReplacedError as problem:  # the server ends: nobody shall wait for it
                self.refuse(str(problem))
                raise
            if not written:  # nothing of it is durable, so nobody is told of it
                self.refuse(state.commit_error)
                return
            registry.forget_closed()
        joined, self._joined = self._joined, []
        for joining in joined:
            jobs += joining.committed()
        answers, self._answers = self._answers, []
        self._committed()
        nodes |= state.fleet.publish()
        self._publisher.publish(jobs, nodes, waits=bool(answers))
        for future, result in answers:
            future.set_result(result)
        self._publisher.publish_remaining()

    def begin_segment(self, records: list[bytes]) -> None:
        """Begin a new segment of the journal with these records, and commit."""
        self._state.write(lambda t: _ignore(t.new_segment(records)))
        self.commit()
        self._state.segment_records = len(records)

    def _has_changes(self) -> bool:
        registry = self._state.registry
        changed = registry.dirty_jobs or registry.dirty_attempts
        return bool(self._records or self._state.writes or changed)

    def _write_until_done(self) -> bool:
        """Write until it succeeds. Returns False if the server ends first."""
        state, failed = self._state, False
        while True:
            try:
                with state.counters.commit_seconds.time(), state.store.transaction() as t:
                    self._write_all(t)
                break
            except StoreError as problem:
                if not state.commit_error:
                    _log.error("%s; %s", problem, self._renewals())
                state.commit_error = str(problem)
                self._refuse_joined(state.commit_error)  # nobody knows when it could be written
                if self._is_stopping():
                    return False
                self._publisher.refresh()
                time.sleep(RETRY_S)
                failed = True
        if failed:  # no agent could register meanwhile
            state.fleet.await_reports(RETURN_S)
        state.commit_error = ""
        state.segment_records += len(self._records)
        state.journal_records += len(self._records)
        self._records, state.writes = [], []
        state.registry.tenants_changed = False
        return True

    def _renewals(self) -> str:
        """Return what becomes of leases while nothing can be written, in half a sentence."""
        if any(node.registered for node in self._state.fleet.nodes.values()):
            return "leases go on being renewed"
        return "no agent can register, so no lease is renewed"

    def _write_all(self, t: Transaction) -> None:
        state, registry = self._state, self._state.registry
        if self._records:
            t.append(self._records)
        t.put_jobs(
            [registry.jobs[job] for job in sorted(registry.dirty_jobs) if job in registry.jobs]
        )
        t.put_attempts(registry.dirty_attempts.values())
        for write in state.writes:
            write(t)
        for joining in self._joined:
            joining.write(t)
        if registry.tenants_changed:
            t.set_meta("tenants", msgspec.json.encode(registry.tenants).decode())
        t.set_meta("clock", state.clock.to_meta())

    def refuse(self, why: str) -> None:
        """Nobody of those who wait shall wait any more."""
        self._refuse_joined(why)
        answers, self._answers = self._answers, []
        for future, _ in answers:
            future.set_exception(StoreError(why))

    def _refuse_joined(self, why: str) -> None:
        joined, self._joined = self._joined, []
        for joining in joined:
            joining.refuse(why)


def _ignore(_: object) -> None:
    return None
