"""A backend around another: it passes events to an estimator, and the estimator's beliefs to the core.

Beliefs are one more type of event, ``RatesLearned``. It comes just before the event at which the core decides
with them: the submission of jobs, the report of a round. Nothing of the estimator is in the core, so a
journal replays without it.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.estimation.messages import Beliefs, Measurement
from fairlead.estimation.protocol import Estimator
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.commands import (
    Command,
    EndJobs,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsSubmitted,
    JobTypesLearned,
    ProgressCorrected,
    RatesLearned,
    RequirementsChanged,
    RoundEnded,
    RoundOutcome,
)
from fairlead.model.job import Job
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.driver import Backend

# jobs -> (jobs, slots) steps/s as their users estimate them, NaN = no estimate; None = nobody gave one
AskUsers = Callable[[Sequence[Job]], Floats | None]

# (job, steps and seconds of it in a round) -> the same as they were measured; None = not measured
MeasureRates = Callable[[int, float, float], tuple[float, float] | None]

_COMPLETION_TOLERANCE = 1e-9  # of its steps that a job may lack and be done


def _as_reported(_: int, steps: float, seconds: float) -> tuple[float, float]:
    return steps, seconds


class EstimatingBackend:
    """A backend around ``backend`` that feeds an estimator; see the module."""

    def __init__(
        self,
        backend: Backend,
        estimator: Estimator,
        throughputs: Throughputs,
        user_estimates: AskUsers | None = None,
        measure: MeasureRates = _as_reported,
    ) -> None:
        """throughputs: the table that the core begins with, on its slot types; user_estimates: of jobs
        that are submitted; measure: steps and seconds of a job in a round as they say how fast it is,
        where reports are not as exact as that."""
        self.backend = backend
        self.estimator = estimator
        self.throughputs = throughputs
        self.user_estimates = user_estimates
        self.measure = measure
        self._jobs: dict[int, _EstimatedJob] = {}
        self._round: StartRound | None = None
        self._next: Event | None = None
        self._adapted: list[int] = []  # jobs that go by their job type until their beliefs come
        self._numbers = _Numbers()

    # --- a backend -----------------------------------------------------------------------------------

    def next(self) -> Event | None:
        """Return the next event of the backend, or the beliefs that the core must learn before it."""
        event, self._next = self._next, None
        if event is not None:
            return event
        event = self.backend.next()
        learned = None if event is None else self._before(event)
        if learned is None:
            return event
        self._next = event
        return learned

    def perform(self, command: Command) -> None:
        """Perform a command by the backend, and note rounds that start and jobs that end."""
        match command:
            case StartRound():
                self._round = command
            case EndJobs():
                self._end(command.jobs.tolist())
        self.backend.perform(command)

    def take_over_jobs(
        self, time_s: float, jobs: Iterable[tuple[Job, float]], round_: StartRound | None
    ) -> None:
        """Take over the core's jobs, with their steps done, and the round in force; forget all others. The
        next event announces the beliefs on them."""
        there = list(jobs)
        self._submit([job for job, _ in there])
        for job, done in there:
            self._jobs[job.id].done = done
        self._adapted = [job.id for job, _ in there]  # whatever the core has believed so far
        self.switch_core(time_s, self.throughputs, round_)

    def switch_core(
        self, time_s: float, throughputs: Throughputs, round_: StartRound | None
    ) -> None:
        """Serve another core, perhaps with other slot types. round_: its round in force."""
        if throughputs is not self.throughputs:
            self.throughputs = throughputs
            self.estimator.table(throughputs)
        self._round = round_
        self._next = self._ask(time_s)

    # --- what the estimator learns ----------------------------------------------------------------------

    def _before(self, event: Event) -> RatesLearned | None:
        """Return what the core is to learn before an event; None = nothing."""
        match event:
            case JobsSubmitted() if event.jobs:
                self._submit(event.jobs)
                return self._ask(event.time_s)
            case RoundEnded():
                self._measure(event)
                return self._ask(event.time_s)
            case RequirementsChanged():
                self._adapt(event)  # the core learns of it before the report, which follows
            case ProgressCorrected():
                for job, done in zip(event.jobs.tolist(), event.steps_done.tolist(), strict=True):
                    if job in self._jobs:
                        self._jobs[job].done = done
            case JobTypesLearned():
                columns = (
                    event.job_types,
                    event.slots,
                    event.rate,
                    event.colocated_job_types,
                    event.colocated_rate,
                    event.pairs,
                )
                table = self.throughputs.learned(*columns)
                self.throughputs = table
                self.estimator.table(table)
        return None

    def _submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._jobs[job.id] = _EstimatedJob(job.job_type, job.total_steps)
        ask = self.user_estimates
        self.estimator.submitted(jobs, None if ask is None else ask(jobs))

    def _end(self, jobs: list[int]) -> None:
        there = [job for job in jobs if job in self._jobs]
        self.estimator.ended(np.array(there, np.int64))
        for job in there:
            self._numbers.leave(self._jobs.pop(job).name)

    def _adapt(self, event: RequirementsChanged) -> None:
        columns = (event.jobs, event.batch, event.total_steps, event.steps_done)
        for job, batch, total, done in zip(*(c.tolist() for c in columns), strict=True):
            known = self._jobs[job]
            known.job_type, known.total = known.job_type.with_batch_size(batch), total
            if self._round is not None and job in self._round.job_groups:
                known.expected_steps = done
            else:
                known.done = done
            self._adapted.append(job)
        self.estimator.adapted(event.jobs, event.batch)

    def _measure(self, event: RoundEnded) -> None:
        """Report to the estimator what the jobs of a round did."""
        round_ = self._round
        if round_ is None or round_.round != event.round:
            return
        groups, steps = round_.job_groups, event.steps
        there = groups >= 0
        failed = ((event.outcome == RoundOutcome.FAILED) & there).any(axis=1)
        lost = ((event.outcome == RoundOutcome.LOST) & there).any(axis=1)
        steps = np.where((failed | lost)[:, None], 0.0, steps)
        paired = there.sum(axis=1) > 1
        over = self._apply_steps(groups, steps) | (event.outcome == RoundOutcome.ENDED)
        seconds = event.finish_s - round_.time_s - event.restart_s
        counts = there & (~lost & (seconds > 0))[:, None] & ~(paired[:, None] & over)
        counts &= failed[:, None] | (steps > 0)  # steps are 0 where work was lost, too
        group, group_member = np.nonzero(counts)
        rows = zip(
            groups[group, group_member].tolist(),
            steps[group, group_member].tolist(),
            seconds[group].tolist(),
            failed[group].tolist(),
            strict=True,
        )
        exact = [(s, t) if f else self.measure(job, s, t) for job, s, t, f in rows]
        good = np.array([one is not None for one in exact], np.bool_)
        group, group_member = group[good], group_member[good]
        did = np.array([one for one in exact if one is not None], np.float64).reshape(-1, 2)
        partner = np.full(len(group), -1)
        if groups.shape[1] > 1:
            partner = groups[group, 1 - group_member]
        if len(group):
            jobs, slot = groups[group, group_member], round_.slot[group]
            amounts = (did[:, 0].copy(), did[:, 1].copy(), partner, failed[group])
            self.estimator.measured(Measurement(event.time_s, jobs, slot, *amounts))

    def _apply_steps(self, groups: Ints, steps: Floats) -> Bools:
        """Count steps; (groups, width) which jobs have done all of theirs."""
        over = np.zeros(groups.shape, np.bool_)
        flat, known = over.reshape(-1), self._jobs
        for i, (job, did) in enumerate(
            zip(groups.reshape(-1).tolist(), steps.reshape(-1).tolist(), strict=True)
        ):
            if job not in known:  # -1, or it has left meanwhile
                continue
            one = known[job]
            one.done += did
            if (
                one.expected_steps is not None
            ):  # its steps are counted at another batch size from here on
                one.done, one.expected_steps = one.expected_steps, None
            flat[i] = one.done >= one.total * (1 - _COMPLETION_TOLERANCE)
        return over

    # --- what the core learns ---------------------------------------------------------------------------

    def _ask(self, time_s: float) -> RatesLearned | None:
        beliefs = self.estimator.beliefs()
        adapted, self._adapted = dict.fromkeys(self._adapted, -1), []
        if beliefs is None:
            if not adapted:
                return None
            slots = len(self.throughputs.slots)
            none: Ints = np.zeros(0, np.int64)
            beliefs = Beliefs.of_jobs(none, np.zeros((0, slots)))
        given = adapted | dict(zip(beliefs.jobs.tolist(), beliefs.name.tolist(), strict=True))
        given = {job: name for job, name in given.items() if job in self._jobs}
        for job, name in given.items():
            known = self._jobs[job]
            self._numbers.join(name, known.job_type)
            self._numbers.leave(known.name)
            known.name = name
        return self._numbers.event(time_s, given, beliefs)


@dataclass(slots=True)
class _EstimatedJob:
    """A job in the system."""

    job_type: JobType
    total: float  # steps of the whole job
    done: float = 0.0
    expected_steps: float | None = (
        None  # steps done after the round in force, as it counts them then
    )
    name: int = -1  # of the belief that it uses, -1 = none


class _Numbers:
    """The small numbers by which the core knows beliefs, by the names of these. A number that no job uses
    any more is given to another belief."""

    def __init__(self) -> None:
        self._number: dict[int, int] = {}  # by name
        self._jobs: dict[int, int] = {}  # name -> how many jobs use it
        self._job_type: dict[int, JobType] = {}
        self._free: list[int] = []  # a heap
        self._used = 0

    def join(self, name: int, job_type: JobType) -> None:
        """One more job of this job type uses a belief."""
        if name < 0:
            return
        if name not in self._number:
            if self._free:
                self._number[name] = heapq.heappop(self._free)
            else:
                self._number[name], self._used = self._used, self._used + 1
        self._jobs[name] = self._jobs.get(name, 0) + 1
        self._job_type[name] = job_type

    def leave(self, name: int) -> None:
        """One job fewer uses a belief."""
        if name < 0:
            return
        self._jobs[name] -= 1
        if not self._jobs[name]:
            heapq.heappush(self._free, self._number.pop(name))
            del self._jobs[name], self._job_type[name]

    def event(self, time_s: float, given: dict[int, int], beliefs: Beliefs) -> RatesLearned:
        """The event by which the core learns of beliefs. given: job -> name of its belief."""
        number = self._number
        used = [i for i, name in enumerate(beliefs.belief.tolist()) if name in number]
        belief = [int(name) for name in beliefs.belief[used].tolist()]
        job_types = list(dict.fromkeys(self._job_type[name] for name in belief))
        at = {job_type: i for i, job_type in enumerate(job_types)}
        pairs = [i for i, (a, b) in enumerate(beliefs.pair.tolist()) if a in number and b in number]
        of = [number[name] for name in beliefs.pair[pairs].reshape(-1).tolist()]
        return RatesLearned(
            time_s=time_s,
            jobs=np.array(list(given), np.int64),
            name=np.array([number.get(name, -1) for name in given.values()], np.int64),
            belief=np.array([number[name] for name in belief], np.int64),
            job_types=tuple(job_types),
            job_type=np.array([at[self._job_type[name]] for name in belief], np.int64),
            rate=np.ascontiguousarray(beliefs.rate[used]),
            pair=np.array(of, np.int64).reshape(-1, 2),
            colocated_rate=np.ascontiguousarray(beliefs.colocated_rate[pairs]),
        )
