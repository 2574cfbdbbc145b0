"""The starts of jobs: from the order to a node until the last rank has ended and all is booked."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlead.client.rank_environment import EXIT_IO
from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.protocol.attempt_end import END_OF_AGENT_REASON, PREEMPTIONS, AttemptEnd
from fairlead.cluster.protocol.messages import (
    LEFT_EARLY,
    AttemptKey,
    AttemptStatus,
    Failure,
    Rank,
)
from fairlead.cluster.protocol.plausible import MAX_RATE
from fairlead.cluster.server.attempt_statuses import (
    MIN_TRAINED_S,
    all_ran_s,
    died,
    follows,
    joined,
    measured_rate,
    steps_took_s,
    was_killed,
)
from fairlead.cluster.server.death_judge import DeathDecision, DeathKey
from fairlead.cluster.store.rows import AttemptRow, JobRow

MAX_EXTRAPOLATION_S = 4.0  # nothing is expected of a job beyond so much time without news


@dataclass(slots=True)
class Attempt:
    """One attempt of a job that has not ended."""

    row: JobRow
    record: AttemptRow
    nodes: dict[str, tuple[Rank, ...]]
    rate: float  # steps/s believed: an unmanaged job's seconds are worth so much
    from_step: float  # what counted when it was ordered
    ordered: bool = False  # do the nodes know of it?
    standby: bool = False  # do its nodes prepare it, while an earlier one of its job may still run?
    resumes: int = 0  # the attempt whose parked ranks go on as this one; 0 = none
    # once it is over: nodes where it never began, and the program is still parked that was to go on as it
    never_resumed_on: set[str] = field(default_factory=set)
    stopping: str = ""  # why it was told to stop
    stop_end: AttemptEnd = AttemptEnd.STOPPED  # how it ends then
    stop_ordered_s: float | None = None  # when, cluster's time; None = it was not, or nobody knows
    saved_before_s: float = 0.0  # seconds in saves by then, as of rank 0
    # its end once it is lost
    loss: tuple[AttemptEnd, str] = (AttemptEnd.NODE_LOST, AttemptEnd.NODE_LOST)
    statuses: dict[str, AttemptStatus] = field(default_factory=dict)  # what each node said last
    gone: set[str] = field(default_factory=set)  # nodes where it has ended, or never will begin
    had_devices: set[str] = field(
        default_factory=set
    )  # nodes that said that its ranks there had theirs
    last_report_s: float = 0.0  # monotonic time of the report in which rank 0's node said that
    lost: bool = False  # a node of it was lost
    known_until_s: float = math.inf  # cluster's time; what it did later is in no account
    ended_s: dict[str, float] = field(default_factory=dict)  # node -> when it ended there, as told
    stalled: bool = False  # its first node says that it makes no progress
    progress_reported: bool = False  # has an unmanaged job's first word of its steps been booked?
    begin_noted: bool = False  # and that its rank 0 has begun?
    finishing_since: float | None = None  # its steps are done, as the server heard then
    colocated: tuple[AttemptKey, ...] = ()  # that share its devices in the round in force
    agent_death: DeathKey | None = None  # an agent of its nodes died while it ran there
    death: DeathDecision | None = None  # where it ended with an agent or a spawner
    # of a rank that ended with 0 before its first step: its node, and which it is
    left: tuple[str, int] | None = None
    solo_since: tuple[float, float] | None = None  # step and seconds trained when it no longer did
    key: AttemptKey = field(init=False)  # (job, attempt)
    first_node: str = field(init=False)  # where rank 0 is

    def __post_init__(self) -> None:
        """Both are asked for at every report; the nodes of an attempt never change."""
        self.key = self.record.job, self.record.attempt
        self.first_node = next(
            n for n, ranks in self.nodes.items() if any(r.rank == 0 for r in ranks)
        )

    @property
    def is_recovered(self) -> bool:
        """Whether a server before this one ordered it, and no node has said since that it goes on."""
        return self.known_until_s < math.inf

    @property
    def leader(self) -> AttemptStatus | None:
        """Return the last status from the node of rank 0; None = none yet."""
        return self.statuses.get(self.first_node)

    @property
    def address(self) -> str:
        """host:port:gang_port:secret of rank 0, "" while it is not known."""
        return self.leader.address if self.leader is not None else ""

    @property
    def obstacles(self) -> dict[str, str]:
        """Node -> what of it keeps the attempt from beginning there, as it said last."""
        if self.stopping:
            return {}
        return {node: one.obstacle for node, one in list(self.statuses.items()) if one.obstacle}

    @property
    def directory_problems(self) -> dict[str, str]:
        """Node -> what is wrong there with the directory that it saves to."""
        told = list(self.statuses.items())
        return {node: one.directory_problem for node, one in told if one.directory_problem}

    def has_left(self, node: str) -> bool:
        """Whether it has no devices of a node any more: it has ended there, or saves before it is parked."""
        status = self.statuses.get(node)
        return node in self.gone or (status is not None and status.released)

    def is_other_order(self, status: AttemptStatus) -> bool:
        """Whether this is said of another order under the same number, of another copy of the state."""
        return status.order_id != self.record.order_id

    def placement(self) -> dict[str, tuple[int, ...]]:
        """Node -> indices of the devices held."""
        return {n: tuple(d for r in ranks for d in r.devices) for n, ranks in self.nodes.items()}

    @property
    def reports_steps(self) -> bool:
        """Whether the attempt has reported a number of steps. Of a job without the iterator that reports
        none, only the running time is known."""
        return self.leader is not None and self.leader.loaded_step >= 0

    def progress(self) -> float:
        """Steps of the job done so far that count, as far as is known; the last one waits for the end."""
        return self.row.countable(self.done())

    def done(self) -> float:
        """Steps of the job done so far, as far as is known. By its time alone no job is at its last one."""
        return self.done_as_of(self.leader)

    def done_as_of(self, leader: AttemptStatus | None, age_s: float = 0.0) -> float:
        """Steps of the job done ``age_s`` seconds after the node of rank 0 said this; None = nothing yet.
        Where run time is all that is known, it is taken to have gone on since."""
        row = self.row
        if leader is not None and leader.loaded_step >= 0:
            done = float(leader.step)
        elif not row.spec.unmanaged or row.tells_steps:
            done = self.from_step
        elif leader is None:
            done = row.countable(max(self.from_step, row.acknowledged_steps))
        else:
            done = row.countable(self._steps_by_time(leader, age_s))
            if not self._all_have_told:  # since a restart perhaps
                done = row.countable(max(self.from_step, row.acknowledged_steps))
        return min(done, row.total_steps)

    def _steps_by_time(self, leader: AttemptStatus, age_s: float) -> float:
        """Steps that its run time is worth, as of ``age_s`` seconds after that was said; may be more than
        the job has."""
        runs = leader.state == "running" and not self.stopping and not self.lost
        more_s = max(age_s, 0.0) if runs else 0.0
        others = [one for node, one in list(self.statuses.items()) if node != self.first_node]
        return self.from_step + self.rate * all_ran_s(leader, more_s, others)

    def is_overdue(self, leader: AttemptStatus | None, age_s: float = 0.0) -> bool:
        """Whether it has run for longer than all steps of its job take, which tells of none."""
        by_time = self.row.spec.unmanaged and not self.row.tells_steps
        if not by_time or leader is None or leader.loaded_step >= 0:
            return False
        return self._steps_by_time(leader, age_s) >= self.row.total_steps

    @property
    def _all_have_told(self) -> bool:
        """Whether all its nodes but the first have said something of it."""
        return self.nodes.keys() <= {*list(self.statuses), self.first_node}

    @property
    def _waits_for_others(self) -> bool:
        """Whether ranks on some node have not begun, as far as is known."""
        others = [one for node, one in list(self.statuses.items()) if node != self.first_node]
        waits = any(one.ran_s == 0.0 and not one.is_through for one in others)
        return waits or not self._all_have_told

    @property
    def runs(self) -> bool:
        """Whether it runs on a node, as that said last: rank 0 may have come to its end."""
        return any(one.state == "running" for one in list(self.statuses.values()))

    @property
    def has_begun(self) -> bool:
        """Whether rank 0 of a job without the iterator runs; or others do, where it had come to its end as an
        earlier attempt."""
        one = self.leader
        goes_on = one is not None and one.is_through and one.resumed and self.runs
        return goes_on or (one is not None and one.state == "running")

    def expected(self, now: float) -> float:
        """Steps of the job done by ``now``, monotonic: those known of, and what it does since at its rate."""
        leader, known = self.leader, self.progress()
        if leader is None or leader.state != "running" or self.stopping:
            return known
        age_s, rate = max(now - self.last_report_s, 0.0), self.rate
        if self.reports_steps or self.row.tells_steps or not self.row.spec.unmanaged:
            if leader.step_age_s < 0 or leader.loaded_step < 0:
                return known
            trained_s = steps_took_s(leader)
            if trained_s >= MIN_TRAINED_S:
                rate = min((leader.step - leader.loaded_step) / trained_s, MAX_RATE)
            age_s += leader.step_age_s
        elif self._waits_for_others:
            return known
        done = float(math.floor(known + rate * min(age_s, MAX_EXTRAPOLATION_S)))
        return max(known, self.row.countable(done))

    @property
    def is_colocated(self) -> bool:
        """Whether it shares its devices with another job in the round in force."""
        return bool(self.colocated)

    def shares(self, partners: tuple[AttemptKey, ...]) -> None:
        """A round begins in which it shares its devices with these attempts; () = it has them for itself."""
        leader = self.leader
        if self.is_colocated and not partners and leader is not None and leader.loaded_step >= 0:
            self.solo_since = float(leader.step), steps_took_s(leader)
        self.colocated = partners

    def measured(self) -> float | None:
        """steps/s for as long as it has had its devices for itself; None = not known, or it shares them."""
        if self.leader is None or self.is_colocated:
            return None
        return measured_rate(self.leader, self.solo_since)

    def reached(self) -> float:
        """The last step that it told of, counted or not; 0 while none is known."""
        leader = self.leader
        return float(leader.step) if leader is not None and leader.loaded_step >= 0 else 0.0

    def is_young(self, now: float, limit_s: float) -> bool:
        """Whether it still starts, or has trained for less time than its start took. Unknown for a job
        without the iterator. limit_s: seconds since its order after which it is not young."""
        ordered_s, trained_s = self.record.since_s, self.record.trained_s
        if self.row.spec.unmanaged or now >= ordered_s + limit_s:
            return False
        return trained_s is None or now - trained_s < trained_s - ordered_s

    @property
    def is_suspended(self) -> bool:
        """Whether its program, which has no iterator, was stopped as it is on all nodes, and is parked; or
        still is, on those where it never went on. Where its ranks have come to their end none needs to be."""
        told = list(self.statuses.items())
        stopped = {name for name, status in told if status.released}
        through = {name for name, status in told if status.is_through}
        whole = stopped | through | self.never_resumed_on >= self.nodes.keys()
        return self.row.spec.is_suspended and bool(stopped) and whole

    @property
    def _has_gone_on(self) -> bool:
        """Whether a rank that was parked may have gone on as one of this attempt: it got its devices."""
        return any(one.wait_s >= 0.0 for one in self.statuses.values())

    def resumable_steps(self) -> float:
        """Steps that the next attempt can go on from, as far as is known."""
        if self.is_suspended:
            return self.progress()
        if self.row.spec.is_suspended and self.resumes and not self._has_gone_on:
            return self.from_step
        if self.row.spec.unmanaged and not self.row.tells_saved:
            return 0.0 if self.row.starts_over else self.progress()
        known = [h.saved_step for h in self.statuses.values()] + [self.row.saved_step]
        leader = self.leader
        if leader is not None and leader.loaded_step >= 0 and not self.row.spec.unmanaged:
            known.append(leader.loaded_step)
        return float(max(known))

    def completed(self) -> bool:
        """Whether the job said that it was done and all of its processes ended with 0, none of them because
        it was told to."""
        leader = self.leader
        return (
            not self.lost
            and leader is not None
            and leader.completed
            and all(one.is_through for one in list(self.statuses.values()))
            and len(self.statuses) == len(self.nodes)
        )

    @property
    def finishing(self) -> bool:
        """Whether all steps are done while its script still runs."""
        leader = self.leader
        return leader is not None and leader.finishing and leader.state != "ended"

    @property
    def broken(self) -> bool:
        """Whether ranks on some node ended before their time, so that no other can go on."""
        told = list(self.statuses.values())
        return self.left is not None or any(
            one.state == "ended" and one.exit_code != 0 for one in told
        )

    def note_left(self, node: str) -> bool:
        """Take over that a rank on a node ended with 0 and did not come to its loop. Returns whether that is
        so: where training has begun, that rank has been there."""
        status = self.statuses[node]
        trains = self.leader is not None and self.leader.loaded_step >= 0
        if self.left is None and status.left >= 0 and not trains:
            self.left = node, status.left
        return self.left is not None

    @property
    def cut_short(self) -> bool:
        """Whether it lost its node or agent before it was seen to train, so that its start time is
        unknown."""
        begun = self.row.spec.unmanaged or self.reports_steps
        return (self.lost or self.interrupted) and not begun

    @property
    def interrupted(self) -> bool:
        """Whether its agent ended it of its own accord."""
        return any(status.reason in END_OF_AGENT_REASON for status in self.statuses.values())

    def end(self) -> tuple[AttemptEnd, str]:
        """How it ended, now that it is over, and that for people."""
        if self.completed():
            return AttemptEnd.COMPLETED, AttemptEnd.COMPLETED
        if self.blame:
            return AttemptEnd.FAILED, f"failed: {self.blame}"
        if self.lost:
            return self.loss
        own_reasons = [h.reason for h in self.statuses.values() if h.reason in END_OF_AGENT_REASON]
        if own_reasons:
            why = f"{own_reasons[0]}; {self.unsaved}" if self.unsaved else own_reasons[0]
            return END_OF_AGENT_REASON[own_reasons[0]], why
        if failure := self.failure():
            return AttemptEnd.FAILED, f"failed: {failure}"
        if trouble := self.unsaved or self.killed_late or self._died:
            return self.stop_end, f"{self.stopping}; {trouble}"
        return self.stop_end, self.stopping or "ended"

    @property
    def stop_s(self) -> float:
        """Seconds from the order to stop to the end of its last process on any node, without saving; -1 = it
        was not told to stop, or that is not known."""
        own_s = -1.0 if self.leader is None else self.leader.stop_s
        first_s = self.ended_s.get(self.first_node)
        if own_s < 0 or first_s is None:
            return own_s
        return own_s + max(self.ended_s.values()) - first_s

    @property
    def killed_late(self) -> str:
        """How it was killed that it did not end when it was told to; "" = it was not."""
        if not self.stopping or self.completed():
            return ""
        told = list(filter(None, map(self.statuses.get, self.told_nodes)))
        return joined([h.reason for h in told if h.state == "ended" and was_killed(h.failure)])

    @property
    def raised(self) -> Failure | None:
        """The exception with which it ended after it was told to stop, of whatever cause; None = there was
        none, or it was another rank's end."""
        status = self._raised_status
        return None if status is None else status.failure

    @property
    def _raised_status(self) -> AttemptStatus | None:
        if not self.stopping or self.completed():
            return None
        for status in filter(None, map(self.statuses.get, self.failed)):
            failure = status.failure
            if failure is not None and failure.kind == "exception" and not failure.secondary:
                return status
        return None

    @property
    def _died(self) -> str:
        """With what it ended in place of a save, after it was told to stop; "" = it did not."""
        if (raised := self._raised_status) is not None:
            return raised.reason
        stopped = self.stopping and not self.completed() and not self.row.spec.unmanaged
        return died(filter(None, map(self.statuses.get, self.failed))) if stopped else ""

    @property
    def told_nodes(self) -> list[str]:
        """The nodes that have told of it, that of rank 0 first."""
        return sorted(self.statuses.copy(), key=lambda node: node != self.first_node)

    @property
    def unsaved(self) -> str:
        """Why its work could not be saved as it ended; "" = it was, as far as is known."""
        for status in self.statuses.values():
            if status.unsaved or (status.exit_code == EXIT_IO and not self.row.spec.unmanaged):
                return status.unsaved or "its work could not be saved"
        return ""

    @property
    def is_preempted(self) -> bool:
        """Whether a round's decision told it to stop before its job was done."""
        return bool(self.stopping) and self.stop_end in PREEMPTIONS and not self.completed()

    def over_s(self, now: float) -> float:
        """When it was over, cluster's time: as its nodes told, or at the latest. Not before it trained."""
        told = len(self.ended_s) == len(self.nodes)
        known = max(self.ended_s.values()) if told else self.known_until_s
        began_s = max(self.record.since_s, self.record.trained_s or 0.0)
        return max(min(known, now), began_s)

    def stop(self, end: AttemptEnd, reason: str = "") -> None:
        """Note that it was told to stop. reason: for people; "" = what ``end`` says."""
        self.stop_end, self.stopping = end, reason or end

    @property
    def blame(self) -> str:
        """Why it is to blame for the death of an agent or a spawner; "" = it is not."""
        return "" if self.death is None else self.death.blame

    def failure(self) -> str:
        """Why it failed, "" if it did not: told to stop, or done, is no failure."""
        if self.blame:
            return self.blame
        if self.completed() or self.stopping or self.lost or self.interrupted:
            return ""
        told = self.statuses.copy()  # other threads read it while the driver's changes it
        bad = [node for node in self.failed if node in told]
        if self._is_missed:
            assert self.left is not None
            return f"rank {self.left[1]} {LEFT_EARLY}"
        if bad:
            first = told[bad[0]]
            if first.failure is not None and first.failure.kind == "stalled" and self.row.stall:
                return self.row.stall  # where the ranks of all nodes stood
            if early := self._left_early:
                return f"ranks on {early} ended first, with exit code 0; {first.reason}"
            return first.reason or f"exit code {first.exit_code}"
        leader = self.leader
        if leader is None or leader.state != "ended":
            return "it was never started"
        return leader.reason or (
            "it exited with 0 before its last step, without saying that it is done"
            if self.reports_steps
            else "it exited with 0 without a step; a program without the iterator is one for --unmanaged"
        )

    @property
    def failed_at(self) -> float:
        """The step at which it failed, as its process says; -1 = it did not, or that is not known."""
        found = self.root_failure()[1] if self.failure() else None
        return -1.0 if found is None else min(float(found.step), self.row.total_steps)

    @property
    def failed(self) -> list[str]:
        """Nodes whose ranks ended badly: the one to blame first, those that only followed it last."""
        told = list(self.statuses.items())
        bad = [node for node, status in told if status.exit_code not in (0, None)]
        followers = {node: follows(status.failure) for node, status in told}
        return sorted(bad, key=followers.__getitem__)

    @property
    def _is_missed(self) -> bool:
        """Whether a rank left before its first step, and nothing went wrong elsewhere but for that."""
        failures = [status.failure for status in self.statuses.copy().values()]
        return self.left is not None and all(one is None or one.secondary for one in failures)

    @property
    def _left_early(self) -> str:
        """The node whose ranks have ended well before the last step, where all that failed elsewhere did so
        because others were gone; "" = there is none."""
        told = self.statuses.copy()
        bad = [node for node in self.failed if node in told]
        follow = all(follows(told[node].failure) for node in bad)
        if self.finishing or not bad or not follow:
            return ""
        well = [node for node, one in told.items() if (one.state, one.exit_code) == ("ended", 0)]
        return next(iter(well), "")

    def root_failure(self) -> tuple[str, Failure | None]:
        """The node on which it failed, and what went wrong there as far as is known."""
        if self.death is not None and self.death.blame:
            return self.death.node, None
        if self._is_missed and self.left is not None:
            node, rank = self.left
            return node, Failure(kind="exit", rank=rank, exit_code=0, message=LEFT_EARLY)
        node = next(iter(self.failed), self.first_node)
        status = self.statuses.get(node)
        node = self._left_early or node
        if status is None:
            return node, None
        if status.failure is None and status.exit_code is not None:
            return node, Failure(exit_code=status.exit_code)
        return node, status.failure


def holder(attempts: Iterable[Attempt]) -> Attempt | None:
    """Return the attempt, of one job and oldest first, that its nodes know: it alone can have processes."""
    return next((attempt for attempt in attempts if attempt.ordered), None)


def state_on_devices(row: JobRow, attempts: Iterable[Attempt]) -> JobState:
    """The state of a job that has devices or is about to have others: "finishing" where all its steps are
    done, also while it moves. attempts: of the job, oldest first."""
    holds = holder(attempts)
    done = not row.spec.unmanaged and row.steps >= row.total_steps
    return "finishing" if done or (holds is not None and holds.finishing) else "running"
