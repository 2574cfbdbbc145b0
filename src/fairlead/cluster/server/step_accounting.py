"""Steps and device time of jobs: what counts, what is lost, and what the core has to be told of it."""

from collections.abc import Callable

import numpy as np

from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_round import EndedAttempt
from fairlead.cluster.store.rows import JobRow
from fairlead.model.events import ProgressCorrected, RequirementsChanged


class StepAccounting:
    """On the driver's thread."""

    def __init__(self, state: ClusterState, learn_batch: Callable[[JobRow], None]) -> None:
        """learn_batch: tells the core of the rates of a job at its new batch size."""
        self._state = state
        self._learn_batch = learn_batch
        self._corrections: dict[int, float] = {}  # job -> steps that count, to be told to the core
        self._adapted: set[int] = set()  # jobs whose batch size the core does not know yet

    def correct(self, row: JobRow, steps: float, completed: bool = False) -> None:
        """So many steps are done of a job, whatever was counted before."""
        counts = steps if completed else row.countable(steps)
        if counts != row.acknowledged_steps:
            self._corrections[row.id] = counts
        if steps != row.steps or row.counted_s is None:
            row.counted_s = self._state.now_s()
        row.steps, row.acknowledged_steps = steps, counts
        self._state.registry.dirty_jobs.add(row.id)

    def adapted(self, job: int) -> None:
        """A job has another batch size, or number of steps, than the core knows."""
        self._adapted.add(job)

    def forget(self, job: int) -> None:
        """A job has left the core: nothing more is told of its steps."""
        self._corrections.pop(job, None)

    def count(self, attempt: Attempt, end: EndedAttempt | None, counted: bool) -> float:
        """Steps of a member of a round that count in it; of one that runs on, those that it will have told of
        by and by. What is not booked with the unit, and steps that were lost, are told as corrections."""
        row = attempt.row
        if end is not None and end.completed:
            self._adapted.discard(row.id)
            counts = (
                row.acknowledged_total
            )  # what it may have changed at the last no longer matters
        elif end is not None:
            counts = row.countable(row.steps)
        else:
            counts = attempt.expected(self._state.fleet.monotonic())
        before = row.acknowledged_steps
        if end is None:
            self._take_over_steps(attempt)
        elif end.completed:
            row.steps, row.counted_s = row.total_steps, self._state.now_s()
        row.acknowledged_steps = counts
        self._state.registry.dirty_jobs.add(row.id)
        if not counted or counts < before:
            self._corrections[row.id] = counts
            return 0.0
        return float(counts - before)

    def _take_over_steps(self, attempt: Attempt) -> None:
        """The steps of an attempt that goes on are those that were heard of, as old as that is: its node may
        be silent, or not have reported since the server was started."""
        row = attempt.row
        row.steps = attempt.done()
        if attempt.leader is not None:
            age_s = max(self._state.fleet.monotonic() - attempt.last_report_s, 0.0)
            row.counted_s = self._state.now_s() - age_s

    def count_lost_steps(self, attempt: Attempt, steps: float, *, own: bool = False) -> None:
        """So many steps of a job have to be done again. own: those of this attempt, which has ended, by the
        next one, and nothing is kept; else those of attempts before it, by this one."""
        row, registry = attempt.row, self._state.registry
        self._lose(row, steps, 0.0 if own else row.steps)
        attempt.record.lost_steps += steps
        attempt.record.lost_own = own
        registry.dirty_attempts[attempt.key] = attempt.record

    def give_up(self, row: JobRow) -> None:
        """A job has ended before its last step: what it has done and not kept is lost, now that nothing of it
        runs any more."""
        if row.open or row.state == "completed" or self._state.registry.live.get(row.id):
            return
        reached, kept = max(row.reached_step, row.steps), row.steps
        if row.spec.is_suspended and row.starts_over:  # it was in the memory of its program
            kept = 0.0
        if reached > kept:
            self._lose(row, reached - kept, kept)
        row.reached_step = 0.0

    def _lose(self, row: JobRow, steps: float, kept: float) -> None:
        """So many steps of a job are lost, and with them their part of the time for which it trained. kept:
        steps that are not."""
        done = kept + row.lost_steps + steps  # in all its device time, wherever that was
        # What starts and stops took is lost anyway
        trained_s = max(row.run_s + row.wait_s - row.overhead_s, 0.0)
        row.lost_steps += steps
        self.count_lost_time(row, trained_s * steps / done if done > 0 else 0.0)
        self._state.registry.dirty_jobs.add(row.id)

    def count_lost_time(self, row: JobRow, seconds: float) -> None:
        """So many seconds of a job's devices were lost."""
        more = seconds * row.scale_factor
        row.lost_device_s += more
        self._state.registry.totals_of(row.tenant).lost_device_s += more

    def measure(self, attempt: Attempt) -> None:
        """Take over the rate of an attempt as that of its job."""
        measured, row = attempt.measured(), attempt.row
        if measured is None:
            return
        if row.measured_on == attempt.record.accelerator and row.measured_rate is not None:
            measured = (measured + row.measured_rate) / 2  # Gavel's blend: half of it is new
        row.measured_rate, row.measured_on = measured, attempt.record.accelerator

    def emit_correction(self, job: int, now: float) -> None:
        """At once, for a job that is not in the round in force and has come to its end."""
        if job in self._corrections:
            self._emit({job: self._corrections.pop(job)}, now)

    def emit_corrections(self, now: float) -> None:
        """Before the core goes by the steps of a job that ran outside of the rounds."""
        corrections, self._corrections = self._corrections, {}
        self._emit(corrections, now)

    def _emit(self, corrections: dict[int, float], now: float) -> None:
        corrections = {
            job: steps for job, steps in corrections.items() if job in self._state.registry.jobs
        }
        if corrections:
            jobs = np.array(list(corrections), np.int64)
            steps = np.array(list(corrections.values()))
            self._state.emit(ProgressCorrected(now, jobs, steps))

    def emit_adaptations(self, now: float) -> None:
        """Jobs that train on with another batch size; their steps are those of the report that follows."""
        adapted, self._adapted = self._adapted, set()
        jobs = self._state.registry.jobs
        rows = [jobs[job] for job in sorted(adapted) if job in jobs]
        rows = [row for row in rows if row.open]
        if not rows:
            return
        for row in rows:
            self._learn_batch(row)
            row.acknowledged_total = row.total_steps
        self._state.emit(
            RequirementsChanged(
                now,
                np.array([row.id for row in rows], np.int64),
                np.array([row.batch for row in rows], np.int64),
                np.array([row.total_steps for row in rows], np.float64),
                np.array([row.acknowledged_steps for row in rows], np.float64),
            )
        )
