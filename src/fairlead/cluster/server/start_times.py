"""The seconds that starts of jobs take to their first step, by what was measured of the job, of its program
or of others here: for forecasts, and for what is told to nodes."""

from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_progress import latest_status
from fairlead.cluster.server.restart_costs import MeasuredStarts
from fairlead.cluster.server.start_facts import program_run, waited_s
from fairlead.cluster.store.failures import Program
from fairlead.cluster.store.rows import JobRow

MAX_PROGRAMS = 10_000  # whose start times are remembered
# Of the time that a start has taken: what it still takes at least, where it takes longer than usual
MIN_LEFT = 0.1


class ProgramStarts:
    """What starts of jobs, and of programs, took. Changed on the driver's thread, read on any."""

    def __init__(self) -> None:
        self._start_s: dict[Program, float] = {}

    def trains(self, attempt: Attempt) -> None:
        """An attempt has got as far as its first step: take note of what that took."""
        record, row = attempt.record, attempt.row
        if record.trained_s is None:
            return
        # Without the wait for its devices, which those before it may have held for as long as they hung.
        took_s = max(record.trained_s - record.since_s - waited_s(attempt), 0.0)
        row.usual_start_s = max(row.usual_start_s, took_s)
        if len(self._start_s) >= MAX_PROGRAMS:
            self._start_s.pop(next(iter(self._start_s)))
        self._start_s[program_run(row)] = row.usual_start_s

    def of(self, row: JobRow) -> float:
        """Seconds that a start of a job takes, by its own starts or those of its program; -1 = not known."""
        if row.usual_start_s >= 0:
            return row.usual_start_s
        return self._start_s.get(program_run(row), -1.0)


class StartForecasts:
    """What starts will take. Any thread may ask."""

    def __init__(
        self, state: ClusterState, measured: MeasuredStarts, programs: ProgramStarts
    ) -> None:
        self._state = state
        self._measured = measured
        self._programs = programs

    def start_s(self) -> dict[int, float]:
        """Open job with the iterator -> seconds that its next start takes; of one that was parked, what it
        takes to go on. Of other jobs nobody knows when they begin to train, and their time counts at once."""
        else_s = self._measured.first_estimate_s()
        rows = [row for row in self._state.registry.jobs.copy().values() if row.open]
        return {row.id: self._of(row, else_s) for row in rows if not row.spec.unmanaged}

    def left_s(self) -> dict[int, float]:
        """Job that starts -> seconds that its start still takes."""
        live = self._state.registry.live.copy()
        newest = [found[-1] for attempts in live.values() if (found := list(attempts))]
        starting = [attempt for attempt in newest if self._starts(attempt)]
        else_s, now_s = self._measured.first_estimate_s(), self._state.now_s()
        return {
            attempt.row.id: self._left_s(attempt, self._of(attempt.row, else_s), now_s)
            for attempt in starting
        }

    def _of(self, row: JobRow, else_s: float) -> float:
        resume_s = self._measured.resume_s(row.id)
        if resume_s is not None:
            return resume_s
        known_s = self._programs.of(row)
        return known_s if known_s >= 0 else else_s

    def _starts(self, attempt: Attempt) -> bool:
        """Return whether it has not come to its first step, and is to."""
        over = attempt.stopping or attempt.lost or attempt.broken or attempt.standby
        if over or attempt.row.spec.unmanaged or attempt.record.trained_s is not None:
            return False
        status = latest_status(self._state.fleet, attempt)
        return status is None or status.loaded_step < 0

    def _left_s(self, attempt: Attempt, usual_s: float, now_s: float) -> float:
        """Its start begins when its devices are free."""
        status = latest_status(self._state.fleet, attempt)
        if status is None or status.wait_s < 0:
            return usual_s
        took_s = max(now_s - attempt.record.since_s - status.wait_s, 0.0)
        return max(usual_s - took_s, MIN_LEFT * took_s)
