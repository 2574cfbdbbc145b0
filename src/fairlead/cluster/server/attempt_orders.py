"""Orders to nodes: which attempts they shall hold, and which no longer."""

import secrets
from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.messages import Assignment, AttemptStatus, Rank
from fairlead.cluster.server.assignments import assignment
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.devices_held import never_began
from fairlead.cluster.server.parked import resumable
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.cluster.store.job_views import overhead_s, saves_s
from fairlead.cluster.store.restore_note import FROM_BACKUP, LOSS_ACCEPTED
from fairlead.cluster.store.rows import AttemptRow, JobRow

NEVER_BEGAN = "; it never had its devices, and is no start"
MAX_SAVE_SHARE = 0.035  # of its time that an attempt spends saving at most: CheckFreq's bound


class RateProvider(Protocol):
    """The rates that are believed of jobs: see ``admission``."""

    def rates(self, row: JobRow) -> dict[str, float]:
        """Accelerator type -> steps/s."""


class OrderListener(Protocol):
    """Receives attempts that are ordered: see ``retries``."""

    def began(self, attempt: Attempt) -> None:
        """An attempt was ordered of its nodes."""


def _end_of_move(current: Attempt | None, placement: dict[str, tuple[int, ...]]) -> AttemptEnd:
    """Return how the attempt ends of a job that goes on with these devices."""
    devices = sum(map(len, placement.values()))
    same = current is None or devices == len(current.record.devices)
    return AttemptEnd.MOVED if same else AttemptEnd.RESIZED


class AttemptOrders:
    """Orders attempts, and stops them. Used on the driver's thread."""

    def __init__(
        self,
        state: ClusterState,
        *,
        steps: StepAccounting,
        rates: RateProvider,
        listener: OrderListener,
    ) -> None:
        self._state = state
        self._steps = steps
        self._rates = rates
        self._listener = listener

    def assign(
        self, job: int, placement: dict[str, tuple[int, ...]], accelerator: str, now: float
    ) -> Attempt:
        """The attempt of a job on these devices: the one that runs there already, or a new one."""
        registry = self._state.registry
        current = registry.newest(job)
        can_continue = current is not None and not current.stopping and not current.lost
        if current is not None and can_continue and current.placement() == placement:
            return current
        if (goes_on := self._still_there(job, placement)) is not None:
            return goes_on
        standby = current is not None and can_continue and _may_have_standby(current, placement)
        if not standby:
            self.stop(job, _end_of_move(current, placement))
        attempt = self._new_attempt(registry.jobs[job], placement, accelerator, now)
        attempt.standby = standby
        registry.add(attempt)
        self.order(attempt)
        return attempt

    def _still_there(self, job: int, placement: dict[str, tuple[int, ...]]) -> Attempt | None:
        """The attempt that trains on these devices while a standby of its job is prepared elsewhere, which is
        withdrawn; None = there is none."""
        first, *others = self._state.registry.live.get(job, ()) or (None,)
        prepares = bool(others) and others[-1].standby
        if first is None or not prepares or first.stopping or first.lost or first.broken:
            return None
        if first.placement() != placement:
            return None
        for other in others:
            self._tell_to_stop(other, AttemptEnd.MOVED)
            self.withdraw(other, self._state.now_s(), other.row.steps, other.end())
        return first

    def _new_attempt(
        self, row: JobRow, placement: dict[str, tuple[int, ...]], accelerator: str, now: float
    ) -> Attempt:
        row.attempt += 1
        rate = self._rates.rates(row).get(accelerator, 0.0)
        record = AttemptRow(
            job=row.id,
            attempt=row.attempt,
            node=",".join(placement),
            accelerator=accelerator,
            devices=tuple(d for devices in placement.values() for d in devices),
            nodes=tuple(node for node, devices in placement.items() for _ in devices),
            began_s=now,
            ordered=False,
            rate=rate,
            from_step=row.steps,
            order_id=f"{self._state.order_origin}.{secrets.token_hex(8)}",
        )
        return Attempt(
            row=row,
            record=record,
            nodes=ranks_on(placement),
            rate=rate,
            from_step=row.steps,
        )

    def order(self, attempt: Attempt) -> None:
        """Order an attempt of its nodes. While an earlier one of the job is not over they prepare it at most,
        as a standby."""
        if attempt.stopping or attempt.lost or attempt.broken:
            return
        is_first = self._state.registry.live[attempt.row.id][0] is attempt
        if not (is_first or attempt.standby):
            return
        if is_first and not attempt.ordered:
            self._first_order(attempt)
        options = self._state.options
        for node in attempt.nodes:
            if node not in attempt.gone:
                interval_s = checkpoint_interval_s(attempt, options.mtbf_s)
                found = assignment(attempt, node, interval_s)
                self._state.fleet.desire(node, self._with_root(attempt.row, found))

    def _with_root(self, row: JobRow, found: Assignment) -> Assignment:
        """An assignment with the directory that the job's checkpoints share with those of others."""
        if row.spec.checkpoint_dir:
            return found
        known = row.checkpoints in self._state.known_roots
        return replace(found, checkpoint_root=row.checkpoints, root_is_known=known)

    def _first_order(self, attempt: Attempt) -> None:
        """From now on it is one that a process may run of."""
        attempt.ordered = attempt.record.ordered = True
        attempt.record.ordered_s = self._state.now_s()
        if attempt.standby:  # from here on it costs its job time
            attempt.standby, attempt.record.began_s = False, attempt.record.ordered_s
        else:
            attempt.resumes = attempt.record.resumes = resumable(self._state.fleet, attempt)
        attempt.row.starts += 1
        attempt.row.failed = False
        attempt.record.loss_accepted = attempt.row.loss_accepted
        if attempt.row.reason.startswith((FROM_BACKUP, LOSS_ACCEPTED)):
            attempt.row.reason = ""
        self._state.registry.dirty_attempts[attempt.key] = attempt.record
        self._state.registry.dirty_jobs.add(attempt.row.id)
        self._listener.began(attempt)

    def stop(
        self,
        job: int,
        end: AttemptEnd,
        reason: str = "",
        *,
        ordered: bool = True,
        parks: bool = False,
    ) -> None:
        """Tell all attempts of a job to stop. reason: for people, "" = what ``end`` says; ordered: also those
        that their nodes know of; parks: programs that are parked as they are when they are preempted are also
        for this."""
        for attempt in list(self._state.registry.live.get(job, ())):
            if attempt.stopping or attempt.lost or (attempt.ordered and not ordered):
                continue
            self._tell_to_stop(attempt, end, reason, parks=parks)
            if not attempt.ordered:
                self.withdraw(attempt, self._state.now_s(), attempt.row.steps, attempt.end())

    def make_way(self, job: int) -> None:
        """Tell all attempts of a job but the newest to stop."""
        for attempt in self._state.registry.live[job][:-1]:
            if not (attempt.stopping or attempt.lost):
                self._tell_to_stop(attempt, AttemptEnd.MOVED)

    def replace(self, standby: Attempt) -> None:
        """Withdraw a standby; another attempt takes its place, which is ordered once the job runs nowhere."""
        state, now = self._state, self._state.now_s()
        following = self._new_attempt(
            standby.row, standby.placement(), standby.record.accelerator, now
        )
        self.withdraw(standby, now, standby.row.steps, (AttemptEnd.MOVED, AttemptEnd.MOVED))
        state.registry.add(following)
        if state.round is not None and state.round.attempts.get(standby.row.id) is standby:
            state.round.attempts[standby.row.id] = following
        self.order(following)

    def withdraw(
        self, attempt: Attempt, now: float, step: float, end: tuple[AttemptEnd, str]
    ) -> None:
        """Close an attempt that was not ordered, and that its nodes have prepared at most."""
        self.close_row(attempt, now, step, end)
        self._state.registry.drop(attempt)
        for node in attempt.nodes:
            self._state.fleet.revoke(node, *attempt.key, end[1])

    def _tell_to_stop(
        self, attempt: Attempt, end: AttemptEnd, reason: str = "", *, parks: bool = False
    ) -> None:
        attempt.stop(end, reason)
        told = AttemptEnd.PREEMPTED if parks and attempt.row.spec.is_suspended else attempt.stopping
        attempt.stop_ordered_s = self._state.now_s()
        if (leader := attempt.leader) is not None:
            attempt.saved_before_s = max(leader.saving_s, 0.0)
        if attempt.ordered:
            for node in attempt.nodes:
                self._state.fleet.revoke(node, *attempt.key, told)

    def close_row(
        self, attempt: Attempt, now: float, step: float, end: tuple[AttemptEnd, str]
    ) -> None:
        """Complete the row of an attempt that is over. step: that the job goes on from; end: how it ended,
        and that for people."""
        record, row = attempt.record, attempt.row
        leader = attempt.leader if attempt.ordered else None  # a standby's time is not the job's
        record.to_step = step
        if attempt.ordered:
            reached = max(attempt.done(), step, attempt.failed_at)
            # Since the server was started. What an unmanaged one told before that is not written down.
            unheard = leader is None and record.trained_s is not None
            is_known = reached > record.from_step or not unheard
            if row.spec.unmanaged:
                is_known = leader is not None or not attempt.is_recovered
            record.reached_step = reached if is_known else -1.0
        if not attempt.ordered:
            record.from_step = step
        record.end, record.why = end
        if leader is not None and not attempt.cut_short:
            record.wait_s, record.start_s, record.load_s = (
                leader.wait_s,
                leader.start_s,
                leader.load_s,
            )
            record.save_s = saves_s(leader)
            if not attempt.completed():  # else it did what it would have done without that order
                record.stop_s = attempt.stop_s
        if record.wait_s > now - record.since_s:  # it began to wait before it was ordered again
            record.wait_s = max(now - record.since_s, 0.0)
        if leader is not None and leader.wait_s >= 0 and not _reached_a_step(attempt, leader):
            record.wait_s, record.start_s = min(leader.wait_s, now - record.since_s), 0.0
            record.start_s = max(now - record.since_s - overhead_s(record), 0.0)
        record.no_start = never_began(attempt)
        if record.no_start:
            row.starts -= 1
            record.why += NEVER_BEGAN
            # Also where a part of a gang had its devices
            record.wait_s = record.start_s = record.load_s = record.stop_s = -1.0
        elif leader is not None:
            cost_s = overhead_s(record)
            row.overhead_s += cost_s
            self._steps.count_lost_time(row, cost_s - max(record.wait_s, 0.0))
        if attempt.ordered and not record.no_start:
            wait_s = max(record.wait_s, 0.0)
            row.run_s += now - record.since_s - wait_s
            row.wait_s += wait_s
            row.preemptions += attempt.is_preempted
        record.ended_s = now  # last: whoever reads the row meanwhile takes it for ended, and whole


def _may_have_standby(current: Attempt, placement: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether a job that trains may be prepared at a place while it goes on where it is: on other
    nodes, for the lock of the job is its node's."""
    wanted = current.row.spec.standby and current.nodes.keys().isdisjoint(placement)
    trains = current.ordered and current.reports_steps and not current.finishing
    return wanted and trains and not current.broken


def _reached_a_step(attempt: Attempt, leader: AttemptStatus) -> bool:
    """Return whether the attempt has done a step, or all that were left; if not, all its time with devices
    was start-up. leader: the last status from the node of rank 0. For a job without the iterator its running
    time counts as progress."""
    if attempt.row.spec.unmanaged:
        return leader.ran_s > 0
    if leader.completed or leader.finishing:
        return True
    return max(leader.step, attempt.failed_at) > max(leader.loaded_step, 0)


def checkpoint_interval_s(attempt: Attempt, mtbf_s: float) -> float:
    """Seconds between checkpoints: sqrt(2 x save time x MTBF) of all its nodes together, Young's rule, at
    most 3.5 % of the time. mtbf_s: of one node."""
    save_s = max(attempt.row.save_s, 0.01)
    mtbf_s = mtbf_s / len(attempt.nodes)
    return float(max((2 * save_s * mtbf_s) ** 0.5, save_s / MAX_SAVE_SHARE))


def ranks_on(placement: dict[str, tuple[int, ...]]) -> dict[str, tuple[Rank, ...]]:
    """One rank per device, numbered through the nodes in the order given."""
    ranks: dict[str, tuple[Rank, ...]] = {}
    number = 0
    for node, devices in placement.items():
        ranks[node] = tuple(Rank(rank=number + i, devices=(d,)) for i, d in enumerate(devices))
        number += len(devices)
    return ranks
