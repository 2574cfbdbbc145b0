"""A simulated search: a backend around the simulated cluster whose trials report recorded curves."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.model.commands import Command, EndJobs, EndRound, StartRound
from fairlead.model.events import Event, JobsCancelled, JobsReweighted, RoundEnded
from fairlead.model.job import Arrival, Job, JobId
from fairlead.policies.search.decide import SearchPlan, decide
from fairlead.policies.search.learning_curve import Curve
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.search.recorded_curves import RecordedCurves

FIRST_ID = 1_000_000  # of trials: other jobs have smaller ids
_FAVOURED = 1000.0  # weight of a favoured trial over that of another
_TOLERANCE = 1e-9  # of its steps that a trial may lack at a point


@dataclass(frozen=True, kw_only=True)
class SearchStudy:
    """A search whose trials are jobs: trial k is job FIRST_ID + k and follows curve k, over again after the
    last. Where all have ended and none has reached the target, those that were stopped get a second chance:
    they begin again, those of most promise first, and are not stopped any more.

    family, scale_factor, steps: of the job of each trial; plan: how it decides; trials: how many
    configurations there are; submitted_s: when it begins; weight: of the whole search among other jobs, None
    = every trial counts for itself; tenant: of its jobs.
    """

    curves: RecordedCurves
    plan: SearchPlan
    family: str
    steps: float
    trials: int
    scale_factor: int = 1
    submitted_s: float = 0.0
    weight: float | None = None
    tenant: str = "search"

    def job(self, trial: int) -> Job:
        """The job of a trial."""
        number = JobId(FIRST_ID + trial)
        weight = 1.0 if self.weight is None else self.weight / self.plan.parallel
        return Job(
            number, self.family, self.scale_factor, self.steps, weight=weight, tenant=self.tenant
        )

    def first_trials(self) -> list[Arrival]:
        """The trials that are submitted when the search begins; the others follow as trials end."""
        count = min(self.plan.parallel, self.trials)
        return [Arrival(self.submitted_s, self.job(trial)) for trial in range(count)]


@dataclass(slots=True)
class SearchProgress:
    """The progress of a search."""

    submitted: int  # trials
    running: dict[int, float] = field(default_factory=dict)  # trial -> steps done
    points: dict[int, int] = field(default_factory=dict)  # trial -> points that were decided about
    rungs: dict[int, int] = field(default_factory=dict)  # trial -> those that it has passed
    weights: dict[int, float] = field(default_factory=dict)  # as the scheduler knows them
    ended: list[Curve] = field(default_factory=list)
    promise: dict[int, float] = field(default_factory=dict)  # trial -> when it was stopped
    second: list[int] = field(default_factory=list)  # trials that begin again, by their new number
    completed: int = 0
    reached_s: float | None = None  # when the target was reached, since the beginning of the run
    reached_by: int | None = None  # the trial

    @property
    def stopped(self) -> int:
        """Trials without promise."""
        return len(self.promise)

    @property
    def explored(self) -> int:
        """Trials that were stopped or ended."""
        return self.stopped + self.completed


class SearchBackend:
    """Passes on events and commands; before the report of a round come the decisions of the search that
    follow from it: trials are cancelled, given other weights, submitted."""

    def __init__(self, backend: SimBackend, study: SearchStudy) -> None:
        """backend: its arrivals include ``SearchStudy.first_trials``."""
        self.backend = backend
        self.study = study
        first = [arrival.job for arrival in study.first_trials()]
        self.progress = SearchProgress(
            len(first),
            running=dict.fromkeys(range(len(first)), 0.0),
            weights={trial: job.weight for trial, job in enumerate(first)},
        )
        self._round: StartRound | None = None
        self._held: list[Event] = []  # to be told next

    def next(self) -> Event | None:
        """The next event."""
        if self._held:
            return self._held.pop(0)
        event = self.backend.next()
        if isinstance(event, RoundEnded):
            self._held = [*self._before(event), event]
            return self._held.pop(0)
        return event

    def perform(self, command: Command) -> None:
        """Pass a command on; a round that is being reported is not ended once more."""
        if isinstance(command, StartRound):
            self._round = command
        elif isinstance(command, EndJobs):
            for job in command.jobs.tolist():
                self.progress.running.pop(job - FIRST_ID, None)
        if not (isinstance(command, EndRound) and self._held):
            self.backend.perform(command)

    def _before(self, event: RoundEnded) -> Iterator[Event]:
        """Return what the scheduler is to learn before the report of a round."""
        state, time_s = self.progress, event.time_s
        if not state.running or state.reached_s is not None:
            return
        fresh = self._enter(event)
        curves = {trial: self._curve(trial) for trial in state.running}
        made = decide(self.study.plan, curves, state.ended, fresh)
        if made.reached is not None:
            state.reached_s, state.reached_by = time_s, made.reached
            yield JobsCancelled(time_s, self._jobs(state.running))
            return
        done = [t for t, steps in state.running.items() if steps >= self.study.steps]
        stopped = [trial for trial in made.stopped if trial not in done]
        state.rungs |= made.rungs
        state.ended += [replace(curves[trial], is_complete=True) for trial in done]
        state.ended += [curves[trial] for trial in stopped]
        rule = self.study.plan.rule
        for trial in stopped:
            assert rule is not None
            state.promise[trial] = rule.promise(curves[trial], self.study.plan.metric)
        state.completed += len(done)
        for trial in (*done, *stopped):
            del state.running[trial]
        if stopped:
            yield JobsCancelled(time_s, self._jobs(stopped))
        more = self._next_trials()
        if more:
            yield self.backend.submit(time_s, tuple(self.study.job(trial) for trial in more))
        yield from self._reweighted(time_s, made.favoured)

    def _enter(self, event: RoundEnded) -> list[int]:
        """Count steps; return the trials with new points."""
        state, current = self.progress, self._round
        assert current is not None
        for jobs, steps in zip(current.job_groups.tolist(), event.steps.tolist(), strict=True):
            for job, done in zip(jobs, steps, strict=True):
                if job - FIRST_ID in state.running:
                    state.running[job - FIRST_ID] += done
        fresh = []
        for trial, steps in state.running.items():
            points = self._points(steps)
            if points > state.points.get(trial, 0):
                state.points[trial] = points
                if trial < self.study.trials:  # those with a second chance are not stopped
                    fresh.append(trial)
        return fresh

    def _points(self, steps: float) -> int:
        part = steps / self.study.steps + _TOLERANCE
        return int(np.searchsorted(self.study.curves.progress, part, side="right"))

    def _curve(self, trial: int) -> Curve:
        curves, points = self.study.curves, self.progress.points.get(trial, 0)
        at = trial if trial < self.study.trials else self.progress.second[trial - self.study.trials]
        rungs = self.progress.rungs.get(trial, 0)
        return Curve(curves.progress[:points], curves.value[at % len(curves), :points], rungs=rungs)

    def _jobs(self, trials: "dict[int, float] | list[int]") -> tuple[JobId, ...]:
        return tuple(JobId(FIRST_ID + trial) for trial in trials)

    def _next_trials(self) -> list[int]:
        """Return the trials to be submitted, and count them as running."""
        state, plan = self.progress, self.study.plan
        if state.submitted == self.study.trials and not state.running:
            state.second = sorted(state.promise, key=lambda trial: (-state.promise[trial], trial))
        total = self.study.trials + len(state.second)
        count = min(plan.parallel - len(state.running), total - state.submitted)
        more = list(range(state.submitted, state.submitted + max(count, 0)))
        state.submitted += len(more)
        for trial in more:
            state.running[trial] = 0.0
            state.weights[trial] = self.study.job(trial).weight
        return more

    def _reweighted(self, time_s: float, favoured: tuple[int, ...]) -> Iterator[JobsReweighted]:
        """Yield the weights that change: those of favoured trials are large, and all together are that of the
        search, where it has one."""
        state, study = self.progress, self.study
        part = {trial: _FAVOURED if trial in favoured else 1.0 for trial in state.running}
        scale = 1.0 if study.weight is None else study.weight / max(sum(part.values()), 1.0)
        weights = {trial: one * scale for trial, one in part.items()}
        changed = [trial for trial, one in weights.items() if one != state.weights[trial]]
        state.weights |= weights
        if changed:
            ids: Ints = np.array([FIRST_ID + trial for trial in changed], np.int64)
            yield JobsReweighted(time_s, ids, np.array([weights[trial] for trial in changed]))
