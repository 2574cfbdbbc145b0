"""The simulated cluster: it owns the clock, says what happened, and makes commands so."""

from collections.abc import Callable, Iterable

import numpy as np

from fairlead.errors import SimulationError
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    Command,
    EndJobs,
    EndRound,
    Solve,
    StartRound,
    WakeAt,
)
from fairlead.model.events import (
    Event,
    JobsSubmitted,
    NodeLost,
    RoundEnded,
    Solved,
    Stalled,
)
from fairlead.model.job import Arrival, Job
from fairlead.model.plan import PlannerAnswer, PlannerState
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.node_failures import NodeFailures
from fairlead.simulator.shockwave_reference.round_rules import ReleasedRules
from fairlead.simulator.simulated_rounds import SimulatedRounds
from fairlead.simulator.submissions import MeasuredJobs, Submissions
from fairlead.simulator.true_jobs import JobUnderWay


class SimBackend:
    """A backend of events in place of machines.

    ``next()`` gives the next event or None at the end; ``perform(command)`` takes a command.
    At one time, a node's events come first, then arrivals, then the end of the round, which is told after
    the changes of batch size that it brings.
    """

    def __init__(
        self,
        arrivals: Iterable[Arrival],
        cluster: Cluster,
        throughputs: Throughputs,
        solve: Callable[[Snapshot, PlannerState], PlannerAnswer],
        ground_truth: GroundTruth | None = None,
        *,
        whole_steps: bool = False,
        measured_jobs: MeasuredJobs | None = None,
        stop_at_s: float | None = None,
        solve_s: float = 0.0,
        released: ReleasedRules | None = None,
        now_s: float = 0.0,
        jobs_under_way: Iterable[JobUnderWay] = (),
        early_s: float = np.inf,
    ) -> None:
        """throughputs: the true rates before noise; solve: the planner's heavy part; whole_steps: cut
        steps per round to integers and split them over devices, as Gavel does; solve_s: how long a
        solve takes in simulated time; released: what a round does in the world of Shockwave's
        release, whose restart costs are those of the world by its own rule; None = as in the default one;
        now_s: when the simulation begins; early_s: a round of this age ends when one of its job groups has,
        if jobs wait, as on a live cluster; jobs_under_way: jobs that the scheduler has by then. Where no
        command comes first, the first event, a submission of no jobs, makes the core decide about them."""
        truth = ground_truth or GroundTruth()
        self.now_s = now_s
        self.solve = solve
        self.solve_s = solve_s
        self.stop_at_s = stop_at_s
        self.submissions = Submissions(arrivals, measured_jobs)
        self.failures = NodeFailures(cluster, truth)
        self.rounds = SimulatedRounds(
            cluster,
            throughputs,
            truth,
            whole_steps=whole_steps,
            early_s=early_s,
            released=released,
        )
        self._problem: Solve | None = None
        self._report: RoundEnded | None = None  # to be told next
        self._stalled = False
        self._wake_s = np.inf  # when the core is to decide again though nothing runs
        for one in jobs_under_way:
            self.rounds.add_under_way(one)
            self.submissions.submitted += 1
        self._begins = self.submissions.submitted > 0

    # --- what happened ---------------------------------------------------------------------------

    def next(self) -> Event | None:
        """The next event; None when there is nothing left to do."""
        if self._problem is not None and self.solve_s <= 0:
            return self._answer()
        if self._report is not None:
            report, self._report = self._report, None
            return report
        if self._begins:
            self._begins = False
            return JobsSubmitted(self.now_s, ())
        if self.submissions.is_over():
            return None
        self.failures.begin(self.now_s)
        event = self._earliest()
        if event is not None:
            self.now_s = event.time_s
        return event

    def _earliest(self) -> Event | None:
        node_s, arrival_s, answer_s, round_s = self._ahead()
        first = min(node_s, arrival_s, answer_s, round_s, self._wake_s)
        if self.stop_at_s is not None and first > self.stop_at_s:
            return self._stop(self.stop_at_s)
        if first == np.inf:
            return self._stall()
        if node_s == first:
            return self._change_node()
        if arrival_s == first:
            return self._submit()
        if answer_s == first:
            return self._answer()
        if round_s == first:
            return self._end_round(round_s)
        return self._wake()

    def _change_node(self) -> Event:
        event, node = self.failures.take()
        if isinstance(event, NodeLost):
            self.rounds.lose_node(node)
        return event

    def _ahead(self) -> tuple[float, float, float, float]:
        """When the next node fails or is back, jobs come, a solve is done, the round ends; inf = never."""
        answer_s = np.inf if self._problem is None else self._problem.time_s + self.solve_s
        return self.failures.next_s(), self.submissions.next_s(), answer_s, self.rounds.end_s()

    def _stop(self, time_s: float) -> Event | None:
        """End the round that began before this time, so that it counts up to there; None = there is none."""
        began_s = self.rounds.began_s
        if began_s is None or began_s >= time_s:
            return None
        return self._end_round(time_s)

    def _stall(self) -> Event | None:
        if self._stalled:
            jobs = self.rounds.jobs.index.jobs()
            named = ", ".join(str(j) for j in jobs[:5]) + (", ..." if len(jobs) > 5 else "")
            wait = f"job {named} waits" if len(jobs) == 1 else f"{len(jobs)} jobs wait"
            raise SimulationError(
                f"at {self.now_s:.0f} s nothing runs, nothing is to come, and {wait} for ever"
                + ("" if len(jobs) == 1 else f" (jobs {named})")
                + f": policy and placement give {'it' if len(jobs) == 1 else 'them'} no devices"
            )
        self._stalled = True
        return Stalled(self.now_s)

    def _wake(self) -> Stalled:
        time_s, self._wake_s = self._wake_s, np.inf
        return Stalled(time_s)

    def _submit(self) -> JobsSubmitted:
        time_s, batch = self.submissions.next_s(), self.submissions.take()
        return self.submit(time_s, batch)

    def submit(self, time_s: float, jobs: tuple[Job, ...]) -> JobsSubmitted:
        """Let further jobs come now, besides the arrivals; the event is the caller's to tell."""
        for job in jobs:
            self._add(job)
        self._stalled = False
        return JobsSubmitted(time_s, jobs)

    def _add(self, job: Job) -> None:
        self.rounds.add(job)
        self.submissions.submitted += 1

    def _answer(self) -> Solved:
        assert self._problem is not None
        asked = self._problem
        self._problem = None
        answer = self.solve(asked.snapshot, asked.state)
        return Solved.of(asked.time_s + self.solve_s, answer)

    def _end_round(self, time_s: float) -> Event:
        report, adapted = self.rounds.end(time_s, self.failures.lost)
        if adapted is None:
            return report
        self._report = report
        return adapted

    # --- commands --------------------------------------------------------------------------------

    def perform(self, command: Command) -> None:
        """Make a command so."""
        self._begins = False
        match command:
            case StartRound():
                self._wake_s = np.inf
                if self.rounds.start(command):
                    self._stalled = False
            case Solve():
                self._problem = command
            case WakeAt():
                self._wake_s = command.wake_s
            case EndRound():
                self.rounds.end_at(command.time_s)
            case EndJobs():
                for job in command.jobs.tolist():
                    self.submissions.count_end(self.rounds.jobs.index.pop(job))
