"""The handling of failed starts: jobs wait and are tried elsewhere or given up, nodes are cordoned."""

import logging
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.server.admission import Admission
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.checkpoint_directories import note_used
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.death_judge import DeathDecision
from fairlead.cluster.server.node_condition import usable
from fairlead.cluster.server.pinned_jobs import PinnedJobs
from fairlead.cluster.server.retry_waits import RetryWaits
from fairlead.cluster.server.start_facts import (
    is_node_fault,
    program_run,
    public_reason,
    reached,
)
from fairlead.cluster.server.start_times import ProgramStarts
from fairlead.cluster.server.storage_waits import StorageWaits, directory_trouble
from fairlead.cluster.store.failures import (
    Backoff,
    FailureRecord,
    RetryPolicy,
    added,
    judge_job,
    still_counted,
)
from fairlead.cluster.store.node_judge import GoodStart, NodeJudge, Parties
from fairlead.cluster.store.rows import JobRow
from fairlead.model.events import (
    JobsDropped,
    JobsPaused,
    NodesAvoided,
)
from fairlead.model.job import JobId

_log = logging.getLogger(__name__)
SETTLED_S = 10.0  # an unmanaged job that has run for so long has started well
FIRST_S = 5.0  # the wait before the first retry
MAX_BACKOFF_FACTOR = 60  # the longest one over the first
LOOK_S = 1.0  # between two looks at whether those that failed get further elsewhere
SIGNALS = 128  # a death by signal n counts as exit code 128 + n, as in shells


class NodeCordons(Protocol):
    """Takes nodes out of service: see ``node_service``."""

    def cordon(self, name: str, reason: str) -> None:
        """Give a node no more jobs. reason: a sentence without a full stop."""


class Retries:
    """On the driver's thread. What a job waits for is in its row, so it outlives the server."""

    def __init__(
        self,
        state: ClusterState,
        *,
        admission: Admission,
        pinned: PinnedJobs,
        status: RetryWaits,
        cordons: NodeCordons,
    ) -> None:
        self._state = state
        self._admission = admission
        self._pinned = pinned
        self._retry_waits = status
        self._cordons = cordons
        self.nodes = NodeJudge()
        self.storage = StorageWaits()
        first_s = min(FIRST_S, state.round_s / 10)
        self.backoff = Backoff(first_s, MAX_BACKOFF_FACTOR * first_s)
        self.settled_s = min(SETTLED_S, 2 * state.round_s)
        self._to_drop: dict[int, None] = {}
        self.program_starts = ProgramStarts()
        self._unsettled: dict[tuple[int, int], Attempt] = {}  # unmanaged starts, too young to judge
        self._looked_s = 0.0
        # Jobs that wait only because they were suspected
        self._waiting_as_suspects: set[int] = set()

    def recover(self) -> None:
        """After a restart of the server."""
        core, registry = self._state.scheduler, self._state.registry
        records = [
            r for row in registry.jobs.values() for r in row.recent_failures if not r.hostile
        ]
        training = [attempt for attempts in registry.live.values() for attempt in attempts]
        self.nodes = NodeJudge.of(
            records, [g for attempt in training for g in self._good_starts(attempt)]
        )
        self.storage.recover(registry.jobs.values())
        for row in registry.jobs.values():
            if row.open and row.retry_s is not None:
                self._retry_waits.waiting.add(row.id)
                if core is None or JobId(row.id) not in core.data.paused_jobs:
                    self._retry_waits.to_hold.add(row.id)

    # --- what happened ---------------------------------------------------------------------------

    def runs(self, attempt: Attempt) -> None:
        """The ranks of an attempt run, so there is a directory for its checkpoints."""
        note_used(self._state, attempt.row)
        self._let_go_on(self.storage.begun(attempt))

    def saved(self, attempt: Attempt) -> None:
        """An attempt has saved a newer checkpoint, so there is room."""
        self._let_go_on(self.storage.saved(attempt))

    def _let_go_on(self, rows: list[JobRow]) -> None:
        """Let these jobs wait for devices alone: what they waited for is well again."""
        for row in rows:
            if row.recent_failures and row.recent_failures[-1].of_storage:
                row.failed, row.reason = False, ""
                self._state.registry.dirty_jobs.add(row.id)
                if row.retry_s is not None:
                    self._resume(row)

    def trains(self, attempt: Attempt) -> None:
        """An attempt has got as far as its first step."""
        self.program_starts.trains(attempt)
        self._trains(attempt, self._state.now_s())

    def _trains(self, attempt: Attempt, since_s: float) -> None:
        for good in self._good_starts(attempt, since_s):
            self.nodes.went_well(good)
        if self.nodes.failures:  # mostly there are none, and thousands of attempts in a round
            self.judge_nodes()

    def _good_starts(self, attempt: Attempt, since_s: float | None = None) -> list[GoodStart]:
        """One for each node of an attempt that trains, or ran, since then."""
        since_s = attempt.record.trained_s if since_s is None else since_s
        if since_s is None:
            return []
        program, lasted_s, step = (
            program_run(attempt.row),
            self._worked_s(attempt),
            reached(attempt),
        )
        return [
            GoodStart(attempt.row.id, node, since_s, program, lasted_s, step)
            for node in attempt.nodes
        ]

    def _note_further(self, now: float) -> None:
        """Note whether jobs that failed somewhere have got further elsewhere by now."""
        found = []
        for record in self.nodes.open_questions(now):
            attempt = self._state.registry.newest(record.job)
            if attempt is not None and self._is_training(attempt):
                goods = self._good_starts(attempt, self._began_s(attempt))
                found += goods if any(good.passed(record) for good in goods) else []
        for good in found:
            self.nodes.went_well(good)
        if found:
            self.judge_nodes()

    @staticmethod
    def _began_s(attempt: Attempt) -> float:
        trained_s = attempt.record.trained_s
        return attempt.record.began_s if trained_s is None else trained_s

    def _ended_well(self, attempt: Attempt) -> bool:
        """Return whether an attempt that has ended did not fail."""
        if attempt.lost or attempt.interrupted or not attempt.statuses:
            return False
        if attempt.unsaved or attempt.raised:
            return False
        return self._has_started_well(attempt) or attempt.record.end is AttemptEnd.COMPLETED

    def _has_started_well(self, attempt: Attempt) -> bool:
        """Return whether it has begun to train or, where that is not known, has run for a while."""
        if attempt.row.spec.unmanaged:
            return self._worked_s(attempt) >= self.settled_s
        return attempt.record.trained_s is not None

    def _worked_s(self, attempt: Attempt) -> float:
        """Seconds for which an attempt has trained, or run, if nobody knows when it trains. What waits for
        its devices does neither."""
        if not attempt.row.spec.unmanaged:
            began_s = attempt.record.trained_s
            return 0.0 if began_s is None else self._state.now_s() - began_s
        status = self._state.fleet.status(attempt.first_node, attempt.key) or attempt.leader
        return 0.0 if status is None else status.ran_s

    def _progressed(self, attempt: Attempt) -> bool:
        """Return whether a job has more saved than at its last failure; of one that saves nothing, whether
        the attempt that has ended trained for a round. It does not matter which attempt saved and how it
        ended: after a loss it may be known only since the next one was loaded."""
        row, record = attempt.row, attempt.record
        failed_at = row.recent_failures[-1].kept_step if row.recent_failures else -1.0
        before = record.from_step if failed_at < 0 else min(failed_at, record.from_step)
        if _saves(row):  # what is not kept is no progress: it would be done for ever
            return attempt.resumable_steps() > before
        if attempt.unsaved:
            return False  # what is lost is no progress
        # whether a program that failed trained or only ran nobody knows
        return not attempt.failure() and self._worked_s(attempt) >= self._state.round_s

    def ended(self, attempt: Attempt, reason: str) -> None:
        """An attempt is over and booked. reason: why it failed, "" = it did not."""
        self._unsettled.pop(attempt.key, None)
        row = attempt.row
        for job in () if attempt.death is None else attempt.death.cleared:
            self._end_suspects_wait(job)
        if not reason:
            if attempt.death is not None and attempt.death.wait_s and row.open:
                self._wait_as_suspect(row, attempt.death)
            ended_well = self._ended_well(attempt)
            if ended_well:
                self._trains(attempt, self._began_s(attempt))
            if ended_well or self._progressed(attempt):
                self._clear_failures(row)
            return
        node, failure = attempt.root_failure()
        failure = failure or Failure()
        if failure.kind != "stalled" or not attempt.record.traceback:
            attempt.record.traceback = failure.traceback
        row.failure = replace(failure, traceback="")
        record = self._record(attempt, node, failure, reason)
        row.recent_failures = added(row.recent_failures, record)
        self._state.registry.dirty_jobs.add(row.id)
        self.storage.discard(row.id)
        if record.of_storage:
            self.storage.add(row)
        if not record.hostile:  # that says nothing of the node
            self.nodes.failed(record)
            self.judge_nodes()
        if row.open and attempt.death is not None and attempt.death.hopeless:
            row.reason = f"failed: it takes node after node: {record.reason}"
            self._to_drop[row.id] = None
        elif row.open:
            row.failed = True
            self._judge_job(row)

    def began(self, attempt: Attempt) -> None:
        """An attempt was ordered. Of an unmanaged one nobody will say that it trains."""
        row = attempt.row
        if row.spec.unmanaged:
            self._unsettled[attempt.key] = attempt
        else:
            row.usual_start_s = self.program_starts.of(row)

    def judge_nodes(self) -> None:
        """Take nodes that are to blame out of service."""
        fleet = self._state.fleet
        now = fleet.monotonic()
        up = [node.name for node in fleet.nodes.values() if usable(node, now)]
        found = self.nodes.suspects(self._state.now_s(), up, self._parties())
        for name, records in found.items():
            self._blame_node(name, records)

    def _parties(self) -> Parties:
        """All tenants that ever ran something, if there are several: one alone takes no node from those who
        come later. Else the users who have jobs."""
        registry = self._state.registry
        rows = [row for row in registry.jobs.values() if row.open]
        tenants = {row.tenant for row in rows} | set(registry.tenants)
        by_tenant = len(tenants) > 1

        def content(node: str) -> set[str]:
            attempts = registry.on_node.get(node, {}).values()
            rows = [attempt.row for attempt in attempts if self._is_training(attempt)]
            return {row.tenant if by_tenant else row.user for row in rows}

        known = tenants if by_tenant else {row.user for row in rows}
        return Parties(known, by_tenant, content)

    def _is_training(self, attempt: Attempt) -> bool:
        """Return whether it trains now."""
        status = self._state.fleet.status(attempt.first_node, attempt.key)
        if (
            status is None
            or status.state != "running"
            or status.stall
            or attempt.stopping
            or attempt.lost
        ):
            return False
        return self._has_started_well(attempt)

    def _blame_node(self, name: str, records: list[FailureRecord]) -> None:
        why = self.nodes.sentence(records)
        _log.warning("node %s is cordoned: %s; the last: %s", name, why, records[-1].reason)
        last = records[-1]
        if told := public_reason(last, self._state.registry.jobs.get(last.job)):  # all see it
            why += f"; the last: {told}"
        self._state.counters.nodes_cordoned.inc()
        here = [record for record in self.nodes.failures if record.node == name]
        # What fails elsewhere as well is a job's own
        blamed = {(r.job, r.attempt) for r in here if not self.nodes.fails_elsewhere(r)}
        self.nodes.forgive(name)
        for job in sorted({job for job, _ in blamed}):
            row = self._state.registry.jobs.get(job)
            if row is None or not row.open:
                continue
            row.recent_failures = tuple(
                _not_counted(r) if (r.job, r.attempt) in blamed else r for r in row.recent_failures
            )
            self._state.registry.dirty_jobs.add(job)
            if row.recent_failures and row.recent_failures[-1].blames_node:
                self._judge_job(row)
        self._cordons.cordon(name, why)

    def _judge_job(self, row: JobRow) -> None:
        last = row.recent_failures[-1]
        decision = judge_job(
            row.recent_failures,
            RetryPolicy(row.spec.max_retries, row.spec.retry_on, row.spec.no_retry_on),
            self.backoff,
            nodes=self._usable_nodes(row),
            runs_elsewhere=self.nodes.runs_elsewhere(last),
        )
        said = decision.reason.startswith("failed ")  # how often it has
        row.reason = decision.reason if said else f"failed: {decision.reason}"
        if decision.drop:
            row.failed = False  # there will be no next one
            self._to_drop[row.id] = None
            return
        self._avoid(row, decision.avoid)
        if decision.wait_s > 0:
            row.retry_s = last.time_s + decision.wait_s
            self._retry_waits.add(row.id)
        else:
            self._resume(row)

    def _wait_as_suspect(self, row: JobRow, death: DeathDecision) -> None:
        """It may be what ends agents or spawners: it waits, so that the next death tells."""
        row.reason, row.reason_node = f"failed: {death.suspicion}", ""
        row.retry_s = self._state.now_s() + death.wait_s
        self._retry_waits.add(row.id)
        self._waiting_as_suspects.add(row.id)
        self._state.registry.dirty_jobs.add(row.id)

    def _end_suspects_wait(self, job: int) -> None:
        """Another one is to blame for what it was suspected of."""
        row = self._state.registry.jobs.get(job)
        if job in self._waiting_as_suspects and row is not None and row.retry_s is not None:
            row.reason = ""
            self._resume(row)

    def _usable_nodes(self, row: JobRow) -> int:
        able = {name for name, rate in self._admission.rates(row).items() if rate > 0}
        fleet = self._state.fleet
        now = fleet.monotonic()
        return sum(usable(n, now) and n.accelerator in able for n in fleet.nodes.values())

    def _avoid(self, row: JobRow, nodes: tuple[str, ...]) -> None:
        if row.avoids != nodes:
            row.avoids = nodes
            now = self._state.now_s()
            self._state.emit(NodesAvoided(now, JobId(row.id), nodes))

    def _clear_failures(self, row: JobRow) -> None:
        progressed = tuple(still_counted(row.recent_failures, self._state.now_s()))
        if row.recent_failures != progressed and row.open:
            row.recent_failures = progressed
            self._avoid(row, tuple(sorted({record.node for record in progressed})))
            self._state.registry.dirty_jobs.add(row.id)

    def _record(self, attempt: Attempt, node: str, failure: Failure, reason: str) -> FailureRecord:
        row, record = attempt.row, attempt.record
        now = self._state.now_s()
        code = failure.exit_code
        hostile = bool(attempt.blame)
        return FailureRecord(
            job=row.id,
            attempt=record.attempt,
            node=node,
            time_s=now,
            kind=failure.kind,
            exit_code=SIGNALS - code if code is not None and code < 0 else code,
            reason=reason,
            place=failure.place,
            step=failure.step,
            ran_s=now - record.began_s,
            progressed=not hostile and self._progressed(attempt),  # it excuses nobody who kills
            kept_step=attempt.resumable_steps(),
            hostile=hostile,
            program=program_run(row),
            forgeable=not is_node_fault(failure, row.spec),
            tenant=row.tenant,
            worked_s=self._worked_s(attempt),
            directory=directory_trouble(failure, row),
            of_checkpoints=failure.of_checkpoints,
            reached=-1.0 if failure.kind == "not_started" else reached(attempt),
        )

    # --- what the core is told -------------------------------------------------------------------

    def poll(self, now: float) -> None:
        """Resume jobs that have waited long enough, judge unmanaged starts that live, drop hopeless jobs."""
        if self.nodes.failures and now - self._looked_s >= LOOK_S:
            self._looked_s = now
            self._note_further(now)
        for key, attempt in list(self._unsettled.items()):
            if attempt.stopping or attempt.lost:
                del self._unsettled[key]
            elif self._has_started_well(attempt):
                del self._unsettled[key]
                self._trains(attempt, attempt.record.began_s)
        for job in sorted(self._retry_waits.waiting):
            row = self._state.registry.jobs.get(job)
            if row is None or not row.open or row.retry_s is None or row.state == "paused":
                self.forget(job)
            elif now >= row.retry_s:
                self._resume(row)
        self._drop(now)

    def try_now(self, row: JobRow) -> None:
        """Try a job again now: what it waits for is over, as its owner says."""
        self.storage.discard(row.id)
        self._resume(row)

    def _resume(self, row: JobRow) -> None:
        """It takes part again."""
        was_held = row.id in self._retry_waits.waiting and row.id not in self._retry_waits.to_hold
        self.forget(row.id)
        self._state.capacity_changed = True
        pinned = (
            row.id in self._pinned.nodes
        )  # one that was let go the core has held since for this
        if was_held and not (pinned or self._admission.is_outside(row.id)):
            now = self._state.now_s()
            self._state.emit(JobsPaused(now, np.array([row.id]), False))

    def forget(self, job: int) -> None:
        """Forget the wait of a job, for another reason than that its time has come."""
        self._retry_waits.discard(job)
        self._waiting_as_suspects.discard(job)
        row = self._state.registry.jobs.get(job)
        if row is not None and row.retry_s is not None:
            row.retry_s = None
            self._state.registry.dirty_jobs.add(job)

    def _drop(self, now: float) -> None:
        jobs = [job for job in self._to_drop if self._in_core(job)]
        self._to_drop.clear()
        for job in jobs:
            self.forget(job)
        if jobs:
            self._state.emit(JobsDropped(now, tuple(map(JobId, jobs))))

    def hold(self, now: float) -> None:
        """Before a round is reported: its jobs that have to wait, or are given up, take no part in the next
        one."""
        self._drop(now)
        jobs = sorted(job for job in self._retry_waits.to_hold if self._in_core(job))
        self._retry_waits.to_hold.clear()
        if jobs:
            self._state.emit(JobsPaused(now, np.array(jobs), True))
        self._admission.release_forgotten(now)

    def _in_core(self, job: int) -> bool:
        row = self._state.registry.jobs.get(job)
        return row is not None and row.open and job not in self._admission.unplaced


def _saves(row: JobRow) -> bool:
    """Return whether it reports its checkpoints."""
    return row.tells_saved or not row.spec.unmanaged


def _not_counted(record: FailureRecord) -> FailureRecord:
    return replace(record, blames_node=True)
