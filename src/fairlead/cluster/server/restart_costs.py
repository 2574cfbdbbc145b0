"""The costs of stopping a job and starting it again, beyond those of any start: told to the core."""

from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from fairlead.cluster.forecasting.forecast_starts import UNBOUNDED_COST_S
from fairlead.cluster.protocol.messages import AttemptKey
from fairlead.cluster.server.attempts import MAX_EXTRAPOLATION_S, Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_round import MAX_ROUND_S, LiveRound
from fairlead.cluster.server.loaded_checkpoint import RESUMED
from fairlead.cluster.server.lost_work import shared_troubles, why_lost
from fairlead.cluster.store.rows import AttemptRow, JobRow
from fairlead.model.events import RestartCostsLearned
from fairlead.model.job import JobId
from fairlead.scheduler.mechanism.round_length import adjusted_round_s, automatic_round_s
from fairlead.scheduler.mechanism.shares_planner import SharesPlanner

MIN_CHANGE = 0.2  # relative difference from what the core believes
PROTECTED_ROUNDS = (
    10  # so many rounds long a job is left alone that does what comes after its steps
)
MIN_SAMPLES = 20  # starts that must have been measured before their median counts
FEW_SAMPLES = 3  # that make a first estimate
MISJUDGED_FACTOR = 3.0  # a belief that is wrong by this factor is given up
START_FACTOR = (
    3.0  # times what a start of the job usually takes, for it to train as long as it took
)
MAX_YOUNG_S = 600.0  # but no longer, unless that is within so many rounds as any start has
LATE_RESUMES = 5  # of a job, whose median is what it costs to resume


class MeasuredStarts:
    """The seconds that attempts took to their first step; of those that were resumed, what their jobs took to
    leave and to go on. On the driver's thread."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.seconds: deque[float] = deque(maxlen=1000)
        self._late_s: dict[int, deque[float]] = {}  # job -> of its last attempts that were resumed
        self._resume_s: dict[int, float] = {}  # their median
        self._cut_s: dict[
            int, float
        ] = {}  # job -> of a start that was preempted before its first step
        # job whose program could not be parked as it was, when it was preempted last -> what was parked then
        # on its nodes
        self._without_room: dict[int, frozenset[tuple[str, AttemptKey]]] = {}
        # job -> node on which its program could not be parked or go on, whatever else is there -> why
        self._cannot_park: dict[int, dict[str, str]] = {}
        self._began_anew: set[int] = set()  # jobs that have lost all that they had done by a stop

    def ended(self, attempt: Attempt, failure: str) -> None:
        """An attempt is over: take note of what its start cost."""
        del failure
        record = attempt.record
        if attempt.row.spec.is_suspended:
            self._note_parking(attempt)
        if attempt.row.starts_over and attempt.is_preempted and not attempt.is_suspended:
            self._began_anew.add(attempt.row.id)
        self._note_cut(attempt)
        if attempt.resumes:
            self.note_resumed(record)
        elif (
            record.trained_s is not None
        ):  # its wait for the devices is the end of the job before it
            self.seconds.append(record.trained_s - record.began_s)

    def _note_parking(self, attempt: Attempt) -> None:
        """Note whether the program of an attempt that is over could be parked, and go on."""
        job = attempt.row.id
        if told := {node: one.unsaved for node, one in attempt.statuses.items() if one.unsaved}:
            self._cannot_park.setdefault(job, {}).update(told)
        if not attempt.is_preempted:
            return
        self._without_room.pop(job, None)
        if not attempt.is_suspended:
            self._without_room[job] = self._parked_beside(attempt)
        elif attempt.resumes:  # there and back
            self._cannot_park.pop(job, None)

    def why_not_parked(self, job: int) -> str:
        """Return where the program of a job could not be parked or go on, and why; "" = nothing is known."""
        found = self._cannot_park.get(job, {})
        return "; ".join(f"{node}: {why}" for node, why in sorted(found.items()))

    def waiting_anew(self) -> list[int]:
        """Return the jobs that have lost all that they had done by a stop, and have done nothing since. They
        are no new ones, which do not wait for their first start as others wait for one."""
        found = (self._state.registry.jobs.get(job) for job in sorted(self._began_anew))
        return [row.id for row in found if row is not None and row.steps <= 0]

    def _note_cut(self, attempt: Attempt) -> None:
        """Note for how long an attempt had started that was preempted before its first step: the next one of
        its job may take longer."""
        job, stopped_s = attempt.row.id, attempt.stop_ordered_s
        if attempt.record.trained_s is not None:
            self._cut_s.pop(job, None)
        elif attempt.ordered and attempt.is_preempted and stopped_s is not None:
            took_s = stopped_s - attempt.record.began_s
            self._cut_s[job] = max(took_s, self._cut_s.get(job, 0.0))

    def young_s(self, row: JobRow) -> float:
        """Seconds after its order for which a start of this job may be young, by what its starts took before,
        or others here: a start that is preempted before its first step was for nothing."""
        known_s = max(row.usual_start_s, self._cut_s.get(row.id, -1.0))
        usual_s = known_s if known_s >= 0.0 else self.first_estimate_s()
        return min(START_FACTOR * usual_s, MAX_YOUNG_S)

    def can_suspend(self, attempt: Attempt) -> bool:
        """Return whether the program of an attempt is parked as it is if it is preempted: it was the last
        time, or something is gone that was parked then where it runs."""
        if not attempt.nodes.keys().isdisjoint(self._cannot_park.get(attempt.row.id, ())):
            return False
        then = self._without_room.get(attempt.row.id)
        return then is None or not then <= self._parked_beside(attempt)

    def _parked_beside(self, attempt: Attempt) -> frozenset[tuple[str, AttemptKey]]:
        fleet = self._state.fleet
        nodes = [name for name in attempt.nodes if name in fleet.nodes]
        return frozenset((name, key) for name in nodes for key in fleet.parked(name))

    def recover(self) -> None:
        """After a restart of the server: what was measured of jobs that take turns is known again, and which
        have begun anew."""
        for job, row in self._state.registry.jobs.items():
            if row.starts_over and row.preemptions and row.lost_steps > 0:
                self._began_anew.add(job)
            if row.state in ("running", "preempted"):
                for record in self._state.store.last_attempts(job, LATE_RESUMES):
                    if record.origin.startswith(RESUMED) and record.ended_s is not None:
                        self.note_resumed(record)

    def note_resumed(self, record: AttemptRow) -> None:
        """Take note of what it took to leave and to go on of an attempt that was resumed."""
        row = self._state.registry.jobs.get(record.job)
        loads = row is None or not row.spec.unmanaged
        if record.start_s >= 0 and (record.load_s >= 0 or not loads):
            took_s = record.start_s + max(record.load_s, 0.0) + max(record.stop_s, 0.0)
            late_s = self._late_s.setdefault(record.job, deque(maxlen=LATE_RESUMES))
            late_s.append(took_s)
            self._resume_s[record.job] = float(np.median(late_s))

    def resume_s(self, job: int) -> float | None:
        """Seconds that it costs to stop a job and let it go on, if it was parked and resumed before; None =
        it was not, and may have to be started anew."""
        return self._resume_s.get(job)

    def forget_closed(self) -> None:
        """Let go of jobs that have ended. It looks at each that was ever resumed: call it once a round."""
        known = self._state.registry.jobs
        self._cut_s = {job: s for job, s in self._cut_s.items() if job in known}
        self._without_room = {job: s for job, s in self._without_room.items() if job in known}
        self._cannot_park = {job: s for job, s in self._cannot_park.items() if job in known}
        self._began_anew &= known.keys()
        self._late_s = {job: s for job, s in self._late_s.items() if job in known}
        self._resume_s = {job: s for job, s in self._resume_s.items() if job in known}

    def restart_s(self) -> float:
        """Seconds that a start on other devices costs, as it was measured here: the median of late."""
        setup, options = self._state.setup, self._state.options
        if len(self.seconds) >= MIN_SAMPLES:
            return float(np.median(self.seconds))
        if setup is not None:
            return setup.restart_costs.default_s
        return options.profile.round_s / 360.0 if options.restart_s is None else options.restart_s

    def first_estimate_s(self) -> float:
        """Seconds that a start costs, by the first few measurements already: less certain than
        ``restart_s``, for what can be changed again at any time."""
        enough = len(self.seconds) >= FEW_SAMPLES
        return float(np.median(self.seconds)) if enough else self.restart_s()

    def is_misjudged(self) -> bool:
        """Return whether starts cost so much more or less than the core believes that it has to be told."""
        setup = self._state.setup
        if setup is None or len(self.seconds) < MIN_SAMPLES:
            return False
        assumed_s, measured_s = setup.restart_costs.default_s, self.restart_s()
        return not assumed_s / MISJUDGED_FACTOR <= measured_s <= assumed_s * MISJUDGED_FACTOR


class AutomaticRound:
    """The length of rounds by what switches cost, as it is measured. On the driver's thread."""

    def __init__(self, state: ClusterState, starts: MeasuredStarts) -> None:
        self._state = state
        self._starts = starts

    def length_s(self) -> float:
        """Return how long rounds are to last from now on."""
        state, core = self._state, self._state.scheduler
        if core is None or not state.options.automatic_round:
            return state.round_s
        jobs, restart_s = core.data.ledger.jobs, self._starts.first_estimate_s()
        switches = list[tuple[int, float]]()
        for job, devices in zip(jobs.id.tolist(), jobs.scale.tolist(), strict=True):
            resume_s = self._starts.resume_s(job)
            switches.append((int(devices), restart_s if resume_s is None else resume_s))
        return adjusted_round_s(state.round_s, automatic_round_s(switches, restart_s))

    def is_outdated(self) -> bool:
        """Whether rounds are to last longer or shorter than they do."""
        return self.length_s() != self._state.round_s


class RestartCostsOfJobs:
    """On the driver's thread."""

    def __init__(
        self,
        state: ClusterState,
        starts: MeasuredStarts,
        waits: Callable[[], Mapping[str, str]],
    ) -> None:
        """waits: directory -> why jobs wait for its storage."""
        self._state = state
        self._starts = starts
        self._waits = waits

    def learned(self, current: LiveRound, now: float) -> RestartCostsLearned | None:
        """Return the costs to tell the core before it decides upon the next round; None: it knows all."""
        core, setup = self._state.scheduler, self._state.setup
        if core is None or setup is None or setup.settings.preemption_hysteresis <= 0:
            return None
        self._starts.forget_closed()
        usual_s = setup.restart_costs.default_s
        troubles = shared_troubles(self._state.registry, self._waits(), now)
        cost_by_job = {
            job: self._cost_s(attempt, now, troubles)
            for job, attempt in current.attempts.items()
            if job not in current.ended and JobId(job) in core.data.ledger
        }
        jobs = core.data.ledger.jobs
        anew = [job for job in self._starts.waiting_anew() if JobId(job) in core.data.ledger]
        for job in anew:
            cost_by_job.setdefault(job, 0.0)
        for job in jobs.id[jobs.restart_s != usual_s].tolist():
            resume_s = self._starts.resume_s(job)
            cost_by_job.setdefault(job, usual_s if resume_s is None else resume_s)
        rows = np.searchsorted(jobs.id, np.array(list(cost_by_job), np.int64))
        known_s, cost = jobs.restart_s[rows], np.array(list(cost_by_job.values()))
        news = np.abs(cost - known_s) > MIN_CHANGE * np.minimum(cost, known_s)
        if not news.any():
            return None
        return RestartCostsLearned(now, np.array(list(cost_by_job), np.int64)[news], cost[news])

    def why_not_parked(self, job: int) -> str:
        """As of ``MeasuredStarts``."""
        return self._starts.why_not_parked(job)

    def is_applied(self) -> bool:
        """Return whether the policy in force spares jobs that cost too much to stop."""
        core = self._state.scheduler
        return (
            core is not None
            and core.data.options.settings.preemption_hysteresis > 0
            and isinstance(core.data.planning.planner, SharesPlanner)
        )

    def _cost_s(self, attempt: Attempt, now: float, troubles: Mapping[str, str]) -> float:
        """Seconds. Where the policy has a start wait until another job is owed ``preemption_hysteresis``
        times its cost, that part of lost work, for work is lost once."""
        assert self._state.setup is not None
        setup = self._state.setup
        if self._keeps_devices(attempt, now):
            return UNBOUNDED_COST_S
        unkept_s = 0.0
        row = attempt.row
        # A program that is stopped as it is keeps all.
        keeps = row.spec.is_suspended and self._starts.can_suspend(attempt)
        loses = not keeps and (row.spec.unmanaged or why_lost(attempt, troubles))
        if attempt.leader is not None and loses:
            age_s = max(self._state.fleet.monotonic() - attempt.last_report_s, 0.0)
            unkept_s = _unkept_s(attempt, min(age_s, MAX_EXTRAPOLATION_S))
        resume_s = self._starts.resume_s(attempt.row.id)
        again_s = setup.restart_costs.default_s if resume_s is None else resume_s
        times = setup.settings.preemption_hysteresis if self.is_applied() else 1.0
        return again_s + unkept_s / times

    def _keeps_devices(self, attempt: Attempt, now: float) -> bool:
        """Return whether the job is to keep its devices, whatever others are owed, for as long as its nodes
        are there."""
        assert self._state.setup is not None
        round_s = self._state.setup.settings.round_s
        leaving = attempt.stopping or attempt.lost or attempt.broken
        if leaving or not self._state.lost_nodes.isdisjoint(attempt.nodes):
            return False
        if attempt.finishing_since is not None and attempt.finishing:
            return now - attempt.finishing_since <= PROTECTED_ROUNDS * round_s
        limit_s = max(MAX_ROUND_S * round_s, self._starts.young_s(attempt.row))
        return attempt.is_young(now, limit_s)


def _unkept_s(attempt: Attempt, age_s: float) -> float:
    """Seconds that a job has run for what its checkpoints do not keep: one without the iterator saves when it
    likes, and of another the saves fail. age_s: of what was told of it last."""
    assert attempt.leader is not None
    if attempt.row.starts_over:
        ran_s = max(one.ran_s for one in attempt.statuses.values())  # rank 0 may have ended
        steps_per_s = attempt.measured() or attempt.rate
        before_s = attempt.from_step / steps_per_s if steps_per_s > 0 else 0.0
        return ran_s + age_s + before_s  # of a program that was parked, also what it did before
    rate, lost = attempt.measured(), attempt.progress() - attempt.resumable_steps()
    return min(lost / rate, attempt.leader.ran_s) if rate and lost > 0 else 0.0
