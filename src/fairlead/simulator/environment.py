"""The simulator as an environment for learning: Gymnasium's reset and step on the event-driven core."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.errors import AllocationError, ConfigError, RunError
from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation, typed_allocation
from fairlead.model.argument_checks import brief_repr
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster
from fairlead.model.commands import EndJobs, JobEnd, Solve
from fairlead.model.events import JobsSubmitted
from fairlead.model.job import Arrival
from fairlead.model.plan import PlannerAnswer, PlannerState
from fairlead.model.snapshot import Snapshot
from fairlead.simulator.argument_types import check_arguments, make_options
from fairlead.simulator.independent_copy import independent_copy
from fairlead.simulator.simulation_run import AgentPolicy, SimulationRun
from fairlead.simulator.traces.trace import Trace, iterated


class Environment:
    """A cluster whose long-run shares an agent decides, at every solve that a policy would be asked for.

    observation: a ``Snapshot`` of its own arrays, the same that a policy gets. action: (jobs, slots) shares
    in [0, 1] in the snapshot's order, or an ``Allocation``. Rounds, placement, restarts and failures are
    those of ``simulate``. reward: minus the job-hours that jobs have spent in the system since the last
    decision, so that the sum over an episode is minus the sum of JCTs in hours.
    The signatures are those of ``gymnasium.Env``, which is not needed; ``GymEnvironment`` is one.
    """

    def __init__(
        self,
        trace: Trace | Iterable[Arrival] | str | Path,
        cluster: Cluster | str,
        **options: Any,
    ) -> None:
        """trace, cluster and options: those of ``simulate``; iterables are read to their end."""
        check_arguments("Environment", {"trace": trace, "cluster": cluster})
        given = trace if isinstance(trace, Trace | str | Path) else list(iterated(trace))
        chosen = make_options("Environment", options)
        if chosen.ideal or chosen.solve_s > 0 or chosen.estimator != "oracle":
            raise ConfigError(
                "an environment decides in rounds, at once and by the table's rates: it takes no ideal, "
                "solve_s or estimator"
            )
        self._run = SimulationRun.of(given, cluster, AgentPolicy(), chosen)
        self._episode: _Episode | None = None  # None: before the first reset

    @property
    def n_slots(self) -> int:
        """Return how many slot types there are: columns of an action."""
        return len(self._run.cluster.slots)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002 # Gymnasium's signature
    ) -> tuple[Snapshot, dict[str, Any]]:
        """Begin an episode: the first snapshot that has jobs, and its info. seed: of noise, failures and
        the order of types; None: as before."""
        if seed is not None:
            check_arguments("reset", {"seed": seed})
            seed = int(seed)
            ground_truth = replace(self._run.ground_truth, seed=seed)
            chosen = replace(self._run.options, seed=seed, ground_truth=ground_truth)
            self._run = replace(self._run, options=chosen)
        self._episode = None  # where the beginning fails, nothing of the last episode is left
        episode = _Episode(self._run)
        episode.go_on()
        if episode.asked is None:
            raise RunError("the episode ended before there was a job to decide about")
        self._episode = episode
        return episode.asked.snapshot.copied(), episode.info()

    def step(
        self, action: Floats | Sequence[Sequence[float]] | Allocation
    ) -> tuple[Snapshot, float, bool, bool, dict[str, Any]]:
        """Put shares in force and go on to the next decision: observation, reward, terminated (no job is
        left), truncated (``stop_at_s`` or ``measured_jobs`` has ended it), info. Raises AllocationError
        where the shares exceed a job's time or a type's devices, or an ``Allocation`` lacks
        a job."""
        episode = self._episode
        if episode is None or episode.asked is None:
            raise RunError("the episode is over, or has not begun: call reset() first")
        asked = episode.asked.snapshot
        job_s = episode.go_on(_allocation(action, asked))
        last = episode.asked is None
        observation = asked if episode.asked is None else episode.asked.snapshot
        done = last and episode.no_job_is_left()
        return observation.copied(), -job_s / 3600, done, last and not done, episode.info()

    def fork(self) -> "Environment":
        """A copy that goes on by itself from here; either may be abandoned at any time."""
        return independent_copy(self)


class _Episode:
    """One simulation from its beginning, and what is counted on the way."""

    def __init__(self, run: SimulationRun) -> None:
        self.asked: Solve | None = (
            None  # the decision that is waited for; None: the episode is over
        )
        self._action: Allocation | None = None
        self._scheduler, self._backend = run.start(self._solve)
        self._in_system = 0
        self._completed = 0
        self._jct_s = 0.0
        self._now_s = 0.0
        self._arrived: dict[int, float] = {}

    def go_on(self, answer: Allocation | None = None) -> float:
        """Drive to the next decision about jobs, or to the end; job-seconds in the system on the way.
        answer: to the decision that is waited for."""
        self.asked, self._action = None, answer
        job_s = 0.0
        while self.asked is None:
            event = self._backend.next()
            if event is None:
                break
            job_s += self._in_system * (event.time_s - self._now_s)
            self._now_s = event.time_s
            if isinstance(event, JobsSubmitted):
                self._in_system += len(event.jobs)
                self._arrived.update((int(job.id), event.time_s) for job in event.jobs)
            for command in self._scheduler.handle(event):
                if isinstance(command, EndJobs):
                    job_s -= self._leave(command)
                if isinstance(command, Solve) and len(command.snapshot.jobs):
                    self.asked = replace(command, snapshot=command.snapshot.copied())
                self._backend.perform(command)
        return job_s

    def no_job_is_left(self) -> bool:
        """Return whether all jobs that have come have ended."""
        submissions = self._backend.submissions
        return self._in_system == 0 and submissions.ended == submissions.submitted

    def info(self) -> dict[str, Any]:
        """time_s, jobs in the system, completed jobs and their average JCT (None before the first)."""
        average = self._jct_s / self._completed if self._completed else None
        return {
            "time_s": self._now_s,
            "n_jobs": self._in_system,
            "n_completed": self._completed,
            "avg_jct_s": average,
        }

    def _solve(self, snapshot: Snapshot, state: PlannerState) -> PlannerAnswer:
        if self._action is None:
            return self._scheduler.data.planning.planner.solve(snapshot, state)  # there is no job
        answer, self._action = self._action, None
        return answer

    def _leave(self, command: EndJobs) -> float:
        """Take note of jobs that have left; job-seconds that were counted after their ends."""
        self._in_system -= len(command.jobs)
        for job, end, end_s in zip(command.jobs.tolist(), command.end, command.end_s, strict=True):
            arrived_s = self._arrived.pop(job)
            if end == JobEnd.COMPLETED:
                self._completed += 1
                self._jct_s += float(end_s) - arrived_s
        return float((self._now_s - command.end_s).sum())


def _allocation(action: Any, snapshot: Snapshot) -> Allocation:
    if isinstance(action, Allocation):
        made = typed_allocation(check_allocation(action, snapshot), snapshot)
        missing = np.setdiff1d(snapshot.jobs, made.job_groups)
        if len(missing):
            raise AllocationError(
                f"action: job {missing[0]} is in no job group: is the allocation of an older observation? A "
                "job that is to wait has a row with shares 0"
            )
        return made
    share = action_array(action, (len(snapshot.jobs), len(snapshot.slots)))
    ids = snapshot.jobs[:, None].copy()
    return check_allocation(Allocation(ids, share.copy(), SolveReport("closed-form")), snapshot)


def action_array(action: Any, shape: tuple[int, ...]) -> Floats:
    """An action as numbers. Raises ConfigError unless it is an array of that shape."""
    try:
        array = np.asarray(action, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"action: expected an array of shape {shape}, got {brief_repr(action)}"
        ) from None
    if array.shape != shape:
        raise ConfigError(
            f"action: expected an array of shape {shape}, got {array.shape}: {brief_repr(action)}"
        )
    return array
