"""The ends of attempts: booked when the last rank is gone, with what follows for their jobs."""

import logging
from typing import Protocol

from fairlead.cluster.protocol.api_models import ENDED_STATES
from fairlead.cluster.protocol.attempt_end import BY_ITSELF, AttemptEnd
from fairlead.cluster.server.attempt_orders import AttemptOrders
from fairlead.cluster.server.attempt_statuses import left_unevenly
from fairlead.cluster.server.attempts import Attempt, state_on_devices
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.death_judge import DeathDecision, DeathJudge
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.server.live_round import EndedAttempt
from fairlead.cluster.server.parked import never_resumed
from fairlead.cluster.server.save_failures import note_end
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.cluster.server.storage_waits import failed_for_storage
from fairlead.cluster.store.rows import ON_DEVICES, JobRow
from fairlead.model.events import RoundOutcome
from fairlead.model.job import JobId

_log = logging.getLogger(__name__)
_FAILED = "failed: "  # how the reason of a job begins whose last attempt did


class EndListener(Protocol):
    """Receives attempts that are over and booked: see ``retries`` and ``restart_costs``."""

    def ended(self, attempt: Attempt, failure: str) -> None:
        """failure: why it failed, "" = it did not."""


class AttemptEnds:
    """Books the ends of attempts. Used on the driver's thread."""

    def __init__(
        self,
        state: ClusterState,
        *,
        steps: StepAccounting,
        orders: AttemptOrders,
        listeners: tuple[EndListener, ...] = (),
    ) -> None:
        self._state = state
        self._steps = steps
        self._orders = orders
        self._listeners = listeners
        self._deaths = DeathJudge(state.round_s)

    def orphan(self, node: str, attempts: list[Attempt], reason: str) -> None:
        """These attempts no longer exist on a node; on their other nodes they must stop."""
        self.stop_broken(attempts, reason, node)
        for attempt in attempts:
            self.part_over(node, attempt)

    def stop_broken(self, attempts: list[Attempt], reason: str, node: str) -> None:
        """These attempts cannot go on, though parts of them may still run: all of them must stop.
        node: what the reason is about."""
        for attempt in attempts:
            attempt.lost = True
            for other in attempt.nodes:
                self._state.fleet.revoke(other, attempt.row.id, attempt.record.attempt, reason)
            if attempt.row.open and attempt.row.state != "paused":  # else its owner's reason stays
                attempt.row.reason, attempt.row.reason_node = reason, node

    def note_agent_death(self, node: LiveNode) -> None:
        """The agent of a node has died or is silent for good, without having ended its jobs in order. Called
        before its attempts are booked: each is judged when it ends."""
        if (
            not node.agent.incarnation or node.agent.left_s
        ):  # the server was away itself, or in order
            return
        present = [
            attempt
            for key, attempt in self._state.registry.on_node.get(node.name, {}).items()
            if node.name not in attempt.gone
            and (key in node.leases.granted or node.name in attempt.statuses)
        ]
        if not present:
            return
        death = node.name, node.agent.incarnation, node.agent.registration
        self._deaths.note_agent(
            death,
            [attempt.row.id for attempt in present],
            now=self._state.now_s(),
            last_seen_s=node.observed.seen,
            moment_s=self._state.fleet.silence_s,
        )
        for attempt in present:
            attempt.agent_death = death

    def part_over(self, node: str, attempt: Attempt) -> None:
        """Nothing of an attempt is on this node, and nothing will be."""
        attempt.gone.add(node)
        if len(attempt.gone) == len(attempt.nodes):
            self.end(attempt)

    def end(self, attempt: Attempt) -> None:
        """All ranks of an attempt are gone: book it."""
        row, fleet = attempt.row, self._state.fleet
        now = attempt.over_s(self._state.now_s())
        attempt.death = self._judge_death(attempt, now)
        attempt.never_resumed_on = never_resumed(fleet, attempt)
        failure, completed = attempt.failure(), attempt.completed()
        if not failure and not attempt.killed_late:
            # Where it stood as it was to stop says nothing of its end
            attempt.record.traceback = "" if attempt.raised is None else attempt.raised.traceback
        row.reached_step = max(row.reached_step, attempt.reached(), attempt.failed_at)
        how = attempt.end()
        if completed and (told := _told_of_end(attempt)):
            how = AttemptEnd.COMPLETED, told
            row.reason, row.reason_node = told, ""
        keeps = row.total_steps if completed else attempt.resumable_steps()
        # Else the next one says what it goes on from
        if attempt.is_suspended:
            row.saved_by = attempt.key[1]
            row.parked_from = row.parked_from if attempt.resumes else attempt.key[1]
        timed = row.starts_over and not attempt.reports_steps and not attempt.is_suspended
        over = attempt.progress() - keeps if timed and not completed else 0.0
        self._steps.measure(attempt)
        self._orders.close_row(attempt, now, keeps, how)
        if over > 0:
            self._steps.count_lost_steps(attempt, over, own=True)
        self._state.registry.drop(attempt)
        for node in attempt.nodes:
            fleet.forget(node, attempt.key)  # not before: a restarted server asks what came of it
            fleet.revoke(node, *attempt.key, attempt.record.why)
        row.stall = ""
        note_end(attempt, now)
        if failure:
            row.failures += not failed_for_storage(attempt)
            if failed_for_storage(attempt) and attempt.record.trained_s is None:
                row.starts -= 1  # it only waited
            row.reason, row.reason_node = f"{_FAILED}{failure}", ""
        elif row.reason.startswith(_FAILED):  # of an attempt before this one
            row.reason = ""
        self._state.counters.job_failures.inc(bool(failure))
        self._state.counters.preemptions.inc(attempt.is_preempted)
        for listener in self._listeners:
            listener.ended(attempt, failure)
        if completed and row.state not in ENDED_STATES:
            self._measure_fairness(row, now)
        if self._ended_in_round(attempt, now, keeps, failure):
            pass
        elif row.state not in ENDED_STATES:
            self._ended_late(attempt, now, keeps, completed, bool(failure))
        elif row.state != "completed":  # it was cancelled, and has saved since
            row.steps, row.counted_s = keeps, now
        self._steps.give_up(row)

    def _judge_death(self, attempt: Attempt, now: float) -> DeathDecision | None:
        """Judge whether a job is to blame for the death of an agent or a spawner with which it ended."""
        key = attempt.agent_death
        for node, status in attempt.statuses.items():
            known = self._state.fleet.nodes.get(node)
            if status.spawner_death is not None and known is not None:
                at = node, known.agent.newest
                key = self._deaths.note_spawner(at, status.spawner_death, now)
                break
        if key is None or attempt.completed() or not attempt.row.open:
            return None
        return self._deaths.judge(attempt.row.id, key, one_node=len(attempt.nodes) == 1)

    def _ended_in_round(self, attempt: Attempt, now: float, keeps: float, failure: str) -> bool:
        """Note the end for the report of the round in force; False: the attempt is not part of it."""
        current, row = self._state.round, attempt.row
        if current is None or current.attempts.get(row.id) is not attempt:
            return False
        unpaired = failure and not current.is_packed(row.id)
        lost = attempt.lost or attempt.interrupted or unpaired or failed_for_storage(attempt)
        # What fails alone is judged here, not by the core; that of a pair must learn of it.
        outcome = (
            RoundOutcome.LOST if lost else RoundOutcome.FAILED if failure else RoundOutcome.RAN
        )
        current.ended[row.id] = EndedAttempt(now, outcome, attempt.completed())
        self._state.registry.ended.append(row.id)
        row.steps, row.counted_s = keeps, now
        self._state.capacity_changed = True
        self._state.registry.dirty_jobs.add(row.id)
        return True

    def _ended_late(
        self, attempt: Attempt, now: float, keeps: float, completed: bool, failed: bool
    ) -> None:
        """An attempt with a place in no round is over; the next one of its job, if any, may begin."""
        row, registry = attempt.row, self._state.registry
        self._steps.correct(row, row.acknowledged_total if completed else keeps, completed)
        row.steps = keeps
        following = registry.newest(row.id)
        if following is None:
            if completed:
                self._steps.emit_correction(row.id, self._state.now_s())
            if row.state in ON_DEVICES:  # it ran on, outside of the rounds
                row.state, self._state.capacity_changed = row.off_devices, True
                registry.dirty_jobs.add(row.id)
            return
        if completed:
            end, outcome = AttemptEnd.COMPLETED, EndedAttempt(now, RoundOutcome.RAN, True)
        elif failed or (attempt.death and (attempt.death.blame or attempt.death.wait_s)):
            end, outcome = AttemptEnd.STOPPED, EndedAttempt(now, RoundOutcome.LOST, False)
        else:
            following.from_step = following.record.from_step = keeps
            registry.dirty_attempts[following.key] = following.record
            if row.state in ON_DEVICES:
                row.state = state_on_devices(row, registry.live[row.id])
            self._orders.order(following)
            return
        current = self._state.round
        self._orders.withdraw(following, now, keeps, (end, end))
        if current is not None and current.attempts.get(row.id) is following:
            current.ended[row.id] = outcome
            self._state.capacity_changed = True
            registry.ended.append(row.id)

    def _measure_fairness(self, row: JobRow, now: float) -> None:
        """Finish-time fairness of a job that is about to complete: its JCT over the time that its steps
        would have taken with its part of the cluster to itself (Gavel's rho). Its wait for other jobs counts
        in neither."""
        core = self._state.scheduler
        if core is None or JobId(row.id) not in core.data.ledger:
            return
        unpaired, at = core.data.ledger.isolated, core.data.ledger.row(JobId(row.id))
        isolated_s = float(unpaired.isolated_s[at])
        if unpaired.isolated_rate[at] > 0:
            isolated_s += (row.total_steps - unpaired.done_at_settle[at]) / unpaired.isolated_rate[
                at
            ]
        if isolated_s > 0:
            row.rho = float((now - row.submitted_s - row.held_s) / isolated_s)


def _told_of_end(attempt: Attempt) -> str:
    """Return what is to be told of the end of a completed attempt, as what it did; "" = nothing."""
    early, uneven = _take_over_total(attempt), left_unevenly(attempt.statuses.values())
    told = f"{early}; it {uneven}" if early and uneven else early or uneven
    if uneven:
        _log.warning("job %d %s", attempt.row.id, told)
    return told


def _take_over_total(attempt: Attempt) -> str:
    """A job that has completed before its last step has needed fewer than announced: its row tells of these.
    The core goes on by the number that it knows. Returns that in words; "" = it has done all."""
    leader, row = attempt.leader, attempt.row
    if leader is None or row.spec.unmanaged or not 0 < leader.step < row.total_steps:
        return ""
    announced, row.total_steps = row.total_steps, float(leader.step)
    return f"{BY_ITSELF}{leader.step} of {announced:.0f}"
