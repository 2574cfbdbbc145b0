"""Reports of nodes, taken over into the attempts that the nodes are part of."""

import math
from typing import Protocol

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.messages import AGENT_LEAVES, AttemptStatus
from fairlead.cluster.protocol.plausible import within
from fairlead.cluster.server.attempt_ends import AttemptEnds
from fairlead.cluster.server.attempt_orders import AttemptOrders
from fairlead.cluster.server.attempt_statuses import joined, merge_known
from fairlead.cluster.server.attempts import Attempt, state_on_devices
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.devices_held import has_begun_on_node
from fairlead.cluster.server.loaded_checkpoint import (
    describe_accepted_begin,
    describe_loaded_checkpoint,
    describe_resumed_program,
)
from fairlead.cluster.server.save_failures import note_report
from fairlead.cluster.server.standbys import Standbys
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.cluster.store.rows import ON_DEVICES, JobRow

ANOTHER_ORDER = "its node holds another start under that number, which this server never ordered"
# Of which nobody may have heard how far the job was, and what it had kept
_UNHEARD_ENDS = frozenset(
    (
        AttemptEnd.NODE_LOST,
        AttemptEnd.LEASE_EXPIRED,
        AttemptEnd.ORPHANED,
        AttemptEnd.RESTORED,
    )
)
MAX_REASON = 4000  # characters of one


class TrainingListener(Protocol):
    """Receives attempts that run and train: see ``retries``."""

    def runs(self, attempt: Attempt) -> None:
        """Ranks of an attempt run; of a managed one, they have loaded."""

    def saved(self, attempt: Attempt) -> None:
        """An attempt has saved a newer checkpoint than its job had."""

    def trains(self, attempt: Attempt) -> None:
        """An attempt has got as far as its first step."""


class ObstacleListener(Protocol):
    """Receives nodes that cannot start something: see ``node_service``."""

    def obstructed(self, node: str, job: int, obstacle: str) -> None:
        """A node says what of it keeps an attempt from beginning there; "" = nothing any more."""


class ReportIntake:
    """On the driver's thread."""

    def __init__(
        self,
        state: ClusterState,
        *,
        steps: StepAccounting,
        orders: AttemptOrders,
        ends: AttemptEnds,
        standbys: Standbys,
        training: TrainingListener,
        obstacles: ObstacleListener,
    ) -> None:
        self._state = state
        self._steps = steps
        self._orders = orders
        self._ends = ends
        self._standbys = standbys
        self._training = training
        self._obstacles = obstacles

    def apply(self, node: str) -> None:
        """Take over what a node said last."""
        fleet = self._state.fleet
        if node not in fleet.nodes:  # it was forgotten since
            return
        holds, here = fleet.holds(node), self._state.registry.on_node.get(node, {})
        self._set_aside(node)
        for key, one in holds.items():
            if one.state == "ended" and key not in here:
                fleet.forget(node, key)  # it was booked long ago
        for attempt in list(here.values()):
            status = holds.get(attempt.key)
            if attempt.standby:
                self._standbys.apply(node, attempt, status)
            if node in attempt.gone or not attempt.ordered:
                continue
            if status is not None:
                self._apply_status(attempt, node, status)
            elif fleet.will_never_begin(node, attempt.key):
                self._never_begins(attempt, node)
            if node in attempt.gone and len(attempt.gone) == len(attempt.nodes):
                self._ends.end(attempt)

    def _never_begins(self, attempt: Attempt, node: str) -> None:
        """A node has its order, and does not begin it. If its agent is being ended, no job has failed."""
        agent = self._state.fleet.nodes[node].agent
        if (agent.ending or agent.left_s) and not (attempt.stopping or attempt.lost):
            attempt.loss = AttemptEnd.AGENT_LEFT, AGENT_LEAVES
            self._ends.stop_broken([attempt], AGENT_LEAVES, node)
        attempt.gone.add(node)

    def _set_aside(self, node: str) -> None:
        """Attempts in whose place the node holds another one, of another copy of the state: nothing that it
        says is theirs. It does not hold two of one number, so they never began there."""
        holds, here = self._state.fleet.holds(node), self._state.registry.on_node.get(node, {})
        replaced = [
            attempt
            for key, attempt in here.items()
            if attempt.ordered
            and node not in attempt.gone
            and (status := holds.get(key)) is not None
            and attempt.is_other_order(status)
        ]
        self._ends.orphan(node, replaced, ANOTHER_ORDER)

    def _apply_status(self, attempt: Attempt, node: str, status: AttemptStatus) -> None:
        row = attempt.row
        status = within(status, self._state.now_s() - attempt.record.began_s, row.total_steps)
        before = attempt.statuses.get(node)
        if attempt.is_recovered and before is None and status.state == "starting":
            attempt.record.ordered_s = self._state.now_s()  # nothing ran while there was no server
            self._state.registry.dirty_attempts[attempt.key] = attempt.record
        if status.state != "ended":
            attempt.known_until_s = math.inf  # it goes on
        if before is not None and before.state != "ended" and status.state == "ended":
            del attempt.statuses[node]  # in the order in which they end: the first one is to blame
        status = attempt.statuses[node] = status if before is None else merge_known(status, before)
        if has_begun_on_node(status):
            attempt.had_devices.add(node)
        if node == attempt.first_node:
            attempt.last_report_s = self._state.fleet.nodes[node].observed.seen
            self._note_wait(attempt, status)
            self._apply_leader(attempt, status)
        self._apply_finish(attempt)
        self._apply_job(attempt, node, status)
        if status.address and (before is None or before.address != status.address):
            self._orders.order(attempt)  # the other nodes now know where rank 0 is
        begins = status.state == "running" and (before is None or before.state != "running")
        # Of a job with the iterator rank 0 alone runs only once it has seen the checkpoints.
        if begins and (node == attempt.first_node or attempt.row.spec.unmanaged):
            self._training.runs(attempt)
        if attempt.row.spec.unmanaged and attempt.has_begun and not attempt.begin_noted:
            attempt.begin_noted = True
            self.begin_unmanaged(attempt)
        self._apply_stall(attempt, node, status)
        if status.obstacle != ("" if before is None else before.obstacle):
            self._obstacles.obstructed(node, attempt.row.id, status.obstacle)
        if status.directory_problem != ("" if before is None else before.directory_problem):
            self._state.registry.dirty_jobs.add(attempt.row.id)
        if status.state == "ended":
            self._note_end(attempt, node, status)
        if attempt.note_left(node) or (status.state == "ended" and attempt.broken):
            reason = status.reason or attempt.failure() or "other ranks ended"
            for other in attempt.nodes:
                self._state.fleet.revoke(other, *attempt.key, reason)

    def _note_end(self, attempt: Attempt, node: str, status: AttemptStatus) -> None:
        """Its ranks on a node have ended: when, its agent may tell, and this server may have been away."""
        fleet = self._state.fleet
        attempt.gone.add(node)
        if status.ended_age_s >= 0.0:
            late_s = max(fleet.monotonic() - fleet.nodes[node].observed.seen, 0.0)
            attempt.ended_s[node] = self._state.now_s() - late_s - status.ended_age_s

    def _note_wait(self, attempt: Attempt, status: AttemptStatus) -> None:
        """Note once how long it has waited for its devices, until when it is not billed. It is written when
        the attempt trains, or ends."""
        record = attempt.record
        if record.wait_s < 0 <= status.wait_s:
            record.wait_s = min(status.wait_s, max(self._state.now_s() - record.since_s, 0.0))

    def _apply_leader(self, attempt: Attempt, status: AttemptStatus) -> None:
        """The node of rank 0 says where the attempt stands."""
        if status.loaded_step < 0:
            return
        row, record = attempt.row, attempt.record
        if row.spec.unmanaged:
            self._apply_unmanaged(attempt, status)
        elif record.trained_s is None:
            record.trained_s = self._began_to_train_s(attempt, status)
            row.drop_reason()
            self._training.trains(attempt)
            self._state.registry.dirty_attempts[attempt.key] = record
            self._loaded(attempt, status)

    def _apply_finish(self, attempt: Attempt) -> None:
        """Its steps are done, and its script does what comes after them."""
        if not attempt.finishing or attempt.finishing_since is not None:
            return
        row = attempt.row
        attempt.finishing_since = self._state.now_s()
        if row.state == "running" and not attempt.stopping:
            row.state = "finishing"
            self._state.registry.dirty_jobs.add(row.id)
        self._orders.order(attempt)  # the other nodes now know that it is

    def _apply_job(self, attempt: Attempt, node: str, status: AttemptStatus) -> None:
        """Apply the part of a report that is about the job: checkpoints, batch size."""
        row = attempt.row
        if status.saved_step > row.saved_step:
            row.saved_step = status.saved_step
            self._training.saved(attempt)
        if status.save_s >= 0:
            row.save_s = status.save_s
        if node == attempt.first_node and note_report(attempt, status, self._state.now_s()):
            self._state.registry.dirty_jobs.add(row.id)
        if status.batch and status.batch != row.batch:
            row.batch, row.total_steps = status.batch, float(status.total_steps)
            row.saved_step = min(row.saved_step, status.total_steps)
            self._steps.adapted(row.id)
            self._state.registry.dirty_jobs.add(row.id)

    def _began_to_train_s(self, attempt: Attempt, status: AttemptStatus) -> float:
        """When training began: the report may have come late, from an agent that was away."""
        late_s = max(self._state.fleet.monotonic() - attempt.last_report_s, 0.0)
        ago_s = max(status.ran_s, 0.0) + max(status.ended_age_s, 0.0) + late_s
        return max(self._state.now_s() - ago_s, attempt.record.since_s)

    def _apply_stall(self, attempt: Attempt, node: str, status: AttemptStatus) -> None:
        """An attempt makes no progress, or does again; its other nodes are asked where their ranks stand. If
        it is ended for that, what was seen before stays."""
        if attempt.broken:
            return
        row, first = attempt.row, node == attempt.first_node
        if first and attempt.stalled != bool(status.stall):
            attempt.stalled = bool(status.stall)
            self._orders.order(attempt)
        told = attempt.told_nodes
        stalls = [attempt.statuses[one].stall for one in told] if attempt.stalled else []
        stall = joined(stalls)[:MAX_REASON]
        if stall == row.stall or status.state == "ended":
            return
        row.stall = stall
        stacks = [attempt.statuses[one].stacks for one in told] if stall else []
        attempt.record.traceback = "\n\n".join(filter(None, stacks))
        self._state.registry.dirty_jobs.add(row.id)
        self._state.registry.dirty_attempts[attempt.key] = attempt.record

    def _loaded(self, attempt: Attempt, status: AttemptStatus) -> None:
        """Training goes on from a checkpoint: what was done beyond it is lost, and done again. Only now is
        that known, for the newest checkpoint may be one that nobody could tell of, or damaged. The job
        counts its steps itself; what was heard of them counts where it cannot (its folder was removed)."""
        row = attempt.row
        if row.started_s is None:
            row.started_s = self._state.now_s()
        step = float(status.loaded_step)
        attempt.record.from_step = step
        more = max(row.reached_step - step, status.lost_steps - row.lost_steps)
        if more > 0:
            self._steps.count_lost_steps(attempt, more)
        saved_by = self._checkpoint_owner(row, status)
        attempt.record.origin = row.origin = describe_loaded_checkpoint(attempt, status, saved_by)
        if attempt.record.loss_accepted:
            row.save_failure = None  # of what is accepted as lost
        row.loss_accepted = (
            ""  # it was for an attempt that finds less than was kept, up to this one
        )
        row.reached_step, row.saved_step, row.saved_by = step, status.loaded_step, attempt.key[1]
        self._steps.correct(row, step)
        if row.state in ON_DEVICES and not attempt.stopping:
            row.state = state_on_devices(row, [attempt])

    def _checkpoint_owner(self, row: JobRow, status: AttemptStatus) -> int:
        """Return the job that had saved what an attempt has loaded, as its node says; -1 = none is known that
        its tenant has: the name of a directory may be that of an ended job of another one."""
        if status.from_job in (-1, row.id):
            return status.from_job
        other = self._state.registry.jobs.get(status.from_job)
        other = other or self._state.store.job(status.from_job)
        return -1 if other is None or other.tenant != row.tenant else other.id

    def begin_unmanaged(self, attempt: Attempt) -> None:
        """Rank 0 of an unmanaged job runs: nothing that kept the job from it holds any more. Where its owner
        has accepted the loss of what it kept, and it reports no steps, it has begun anew."""
        row, who = attempt.row, attempt.record.loss_accepted
        resumed = self._is_resumed(attempt)
        is_first_word = bool(row.loss_accepted)  # and not the first to a server that was restarted
        row.drop_reason()
        row.loss_accepted = ""
        attempt.record.origin = row.origin = (
            describe_resumed_program(attempt) if resumed else describe_accepted_begin(who)
        )
        if who and is_first_word and not row.tells_steps:
            self._steps.count_lost_steps(attempt, max(row.reached_step, attempt.from_step))
            attempt.from_step = attempt.record.from_step = row.reached_step = 0.0
            self._steps.correct(row, 0.0)
        elif row.starts_over and max(attempt.from_step, row.reached_step) > 0 and not resumed:
            if not row.tells_steps:  # else its first word tells
                self._steps.count_lost_steps(attempt, max(attempt.from_step, row.reached_step))
                row.reached_step = 0.0
            attempt.from_step = attempt.record.from_step = 0.0
            self._steps.correct(row, 0.0)
        self._state.registry.dirty_attempts[attempt.key] = attempt.record
        self._state.registry.dirty_jobs.add(row.id)

    @staticmethod
    def _is_resumed(attempt: Attempt) -> bool:
        """Whether it goes on as the program that was parked, rather than from zero."""
        leader = attempt.leader
        return leader is not None and leader.resumed

    def _last_end(self, attempt: Attempt) -> AttemptEnd | None:
        """Return how the attempt before this one ended; None: there was none."""
        job, number = attempt.key
        before = [row for row in self._state.store.attempts(job) if row.attempt < number]
        return before[-1].end if before else None

    def _apply_unmanaged(self, attempt: Attempt, status: AttemptStatus) -> None:
        """A job without the iterator says how far it is: from its first word on its steps count, not its
        time. It went on from what was kept, unless it has done less by then: whoever reads it once a second
        has missed the first steps. What an earlier attempt did beyond that is lost."""
        row, record = attempt.row, attempt.record
        if status.saved_step >= 0:
            row.tells_saved = True
        if attempt.progress_reported:
            return
        attempt.progress_reported = row.tells_steps = True
        if row.started_s is None:
            row.started_s = self._state.now_s()
        kept_step = attempt.from_step
        if self._last_end(attempt) in _UNHEARD_ENDS:  # more may have been kept than was heard
            kept_step = max(kept_step, float(status.saved_step))
        begun = min(float(status.loaded_step), kept_step)
        if row.reached_step > begun:
            self._steps.count_lost_steps(attempt, row.reached_step - begun)
        record.from_step = row.reached_step = begun
        row.saved_step = min(row.saved_step, status.loaded_step)
        self._steps.correct(row, float(status.step))
        self._state.registry.dirty_attempts[attempt.key] = record
